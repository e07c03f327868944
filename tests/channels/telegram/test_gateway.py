"""`hansard gateway` on Telegram, through fair and foul weather: what people see is what the record says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hansard.delivery.split import MARK
from hansard.domain.messages import File, Message, Role, Status
from hansard.record.api import Record
from tests.channels.telegram.bot_api import BotApi, Fault, FaultKind, bot_api
from tests.channels.telegram.program import Bot, Program, check_chat, hansard, rest, running, secret_files, told_of
from tests.channels.telegram.stage import until
from tests.gateway.stage import write_script

pytestmark = pytest.mark.slow

PNG = b"\x89PNG picture"
ATTEMPTS_MAX = 10
LAST_WORDS = "is what you said, word by word."


class Play(NamedTuple):
    """A gateway that runs, and who talks to it."""

    api: BotApi
    bot: Bot
    program: Program
    ann: int
    group: int
    forum: int

    def shows(self, chat: int, text: str, *, at_least: int = 1) -> Callable[[], bool]:
        """Return whether the bot's words in a chat end so, often enough."""
        return lambda: sum(each.endswith(text) for each in self.api.world.of_bot(chat)) >= at_least

    async def answered(self, chat: int, sender: int, text: str, *, topic: int = 0) -> None:
        """Say something, and wait for the answer to it."""
        self.api.world.say(chat, sender, text, topic=topic)
        await until(self.shows(chat, f"{text} {LAST_WORDS}"))

    async def messages(self, chat: int) -> list[Message]:
        """Return what the record has of a chat."""
        async with Record.open(self.bot.home) as record:
            return (await told_of(record, f"telegram:chat:{chat}")).messages

    async def check(self, *chats: int) -> int:
        """All is well, and the chats and the record agree; return how many posts are marked."""
        await self.program.until(lambda health: health.status == "ok")
        await rest(self.bot, self.api)
        marks = 0
        async with Record.open(self.bot.home) as record:
            for chat in chats:
                marks += await check_chat(record, self.api, self.api.world.chats[chat], f"telegram:chat:{chat}")
        return marks


@pytest.fixture(scope="module")
async def play(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Play]:
    """A gateway with somebody who may talk to it, a group, and a forum."""
    folder = tmp_path_factory.mktemp("telegram")
    async with bot_api() as api:
        ann = api.world.person("Ann", "ann")
        group = api.world.group("Friends", ann)
        forum = api.world.group("Work", ann, is_forum=True)
        bot = Bot(folder / "home", api.url, api.token)
        bot.configure(write_script(folder / "script", "{last} " + LAST_WORDS, delay_seconds=0), f'allow = ["{ann}"]')
        async with running(bot) as program:
            yield Play(api, bot, program, ann, group, forum)
        assert not secret_files(bot)


async def test_a_talk(play: Play) -> None:
    """What is said is answered, and the record has what is seen."""
    await play.answered(play.ann, play.ann, "hello")
    assert await play.check(play.ann) == 0


async def test_commands_by_name(play: Play) -> None:
    """`/new@bot` begins a session, `/start` shows the help, and what was typed is what is recorded."""
    ann = play.ann
    play.api.world.say(ann, ann, f"/new@{play.api.world.bot.username} Another one")
    await until(lambda: any("A new session" in text for text in play.api.world.of_bot(ann)))
    play.api.world.say(ann, ann, "/start")
    await until(lambda: any("/resume" in text for text in play.api.world.of_bot(ann)[-1:]))
    await play.check(ann)
    texts = [message.text for message in await play.messages(ann)]
    assert f"/new@{play.api.world.bot.username} Another one" in texts
    assert "/start" in texts


async def test_groups_and_topics(play: Play) -> None:
    """In a group it answers who names it; each topic is a conversation of its own."""
    name = f"@{play.api.world.bot.username}"
    play.api.world.is_private_mode = False
    play.api.world.say(play.group, play.ann, "among people")
    async with asyncio.TaskGroup() as talks:
        talks.create_task(play.answered(play.group, play.ann, f"{name} in the group"))
        talks.create_task(play.answered(play.forum, play.ann, f"{name} in a topic", topic=11))
        talks.create_task(play.answered(play.forum, play.ann, f"{name} in another", topic=12))
    await rest(play.bot, play.api)
    topics = {each.topic: each.text for each in play.api.world.chats[play.forum].timeline if each.sender != play.ann}
    assert topics.keys() == {11, 12}
    assert topics[11].endswith(f"{name} in a topic {LAST_WORDS}")
    assert topics[12].endswith(f"{name} in another {LAST_WORDS}")
    async with Record.open(play.bot.home) as record:
        sessions = [await record.load_transcript(each.id) for each in await record.sessions(source="telegram")]
    said = [[message.text for message in each if message.role is Role.USER] for each in sessions]
    assert [f"{name} in a topic"] in said
    assert [f"{name} in another"] in said
    assert [f"{name} in the group"] in said, "what is said among people is not recorded"


async def test_a_stranger_is_shown_a_code_and_let_in(play: Play) -> None:
    """Nothing of a stranger's words is recorded; approved, they are welcomed and answered."""
    eve = play.api.world.person("Eve", "ann")
    play.api.world.say(eve, eve, "let me in")
    await until(lambda: bool(play.api.world.of_bot(eve)))
    code = play.api.world.of_bot(eve)[0].partition("hansard pair approve ")[2].split()[0]
    approved = await hansard(play.bot, "pair", "approve", code)
    assert approved.returncode == 0, approved.stderr
    assert str(eve) in approved.stdout
    await until(lambda: len(play.api.world.of_bot(eve)) > 1)
    await play.answered(eve, eve, "thank you")
    await rest(play.bot, play.api)
    assert [each.text for each in await play.messages(eve) if each.role is Role.USER] == ["thank you"]


@pytest.mark.loss("N4")
async def test_edits_and_photos_of_people(play: Play) -> None:
    """An edit changes what was said, in the record too; a photo is kept with its bytes and its caption."""
    said = play.api.world.say(play.ann, play.ann, "frist")
    await until(play.shows(play.ann, f"frist {LAST_WORDS}"))
    answers = sum(each.endswith(LAST_WORDS) for each in play.api.world.of_bot(play.ann))
    play.api.world.edit(play.ann, said, "first")
    play.api.world.send_file(play.ann, play.ann, "photo", PNG, "a picture")
    await until(play.shows(play.ann, LAST_WORDS, at_least=answers + 1))
    await play.check(play.ann)
    messages = await play.messages(play.ann)
    assert [each.text for each in messages if each.event_id == f"{play.ann}:{said}"] == ["first"]
    files = [part for each in messages for part in each.parts if isinstance(part, File)]
    async with Record.open(play.bot.home) as record:
        assert await record.blobs.read(files[-1].blob) == PNG


async def test_parts_are_answered_together(play: Play) -> None:
    """A long paste and an album are each answered once, by one turn, with all their parts in the record."""
    before = [each.id for each in await play.messages(play.ann)]
    for part in ("paste" * 819, "paste" * 819, "paste"):
        play.api.world.say(play.ann, play.ann, part)
    await until(play.shows(play.ann, f"paste {LAST_WORDS}"))
    await rest(play.bot, play.api)
    for caption in ("an album", "", ""):
        play.api.world.send_file(play.ann, play.ann, "photo", PNG, caption, media_group_id="album")
    await rest(play.bot, play.api)
    new = [each for each in await play.messages(play.ann) if each.id not in before]
    assert [each.role for each in new] == [Role.USER] * 3 + [Role.ASSISTANT] + [Role.USER] * 3 + [Role.ASSISTANT]
    assert {each.status for each in new} == {Status.COMPLETE}
    assert "".join(each.text for each in new[:3]) == "paste" * 1639
    await play.check(play.ann)


async def test_stop_does_not_wait_for_parts(play: Play) -> None:
    """While more of a paste may follow, `/stop` acts at once: the turn that waited is not run."""
    before = [each.id for each in await play.messages(play.ann)]
    play.api.world.say(play.ann, play.ann, "stop" * 1100)
    play.api.world.say(play.ann, play.ann, "/stop")
    calls = len(play.api.world.of_bot(play.ann))
    await until(lambda: len(play.api.world.of_bot(play.ann)) > calls)
    await asyncio.sleep(1)
    await rest(play.bot, play.api)
    new = [each for each in await play.messages(play.ann) if each.id not in before]
    assert Role.ASSISTANT not in {each.role for each in new}, [each.text[:80] for each in new]
    play.api.world.say(play.ann, play.ann, "/new")
    await play.check(play.ann)


def last_of_bot(play: Play) -> str:
    """Return what Ann was shown last; empty when that is nothing yet."""
    return next(iter(reversed(play.api.world.of_bot(play.ann))), "")


@pytest.mark.loss("E4")
async def test_answers_that_are_lost_on_the_way(play: Play) -> None:
    """Cut after the effect: the post is shown again, marked, and the record says so."""
    marks = await play.check(play.ann)
    play.api.faults.append(Fault(FaultKind.CUT_AFTER, "sendMessage"))
    play.api.world.say(play.ann, play.ann, "in the rain")
    await until(lambda: last_of_bot(play).startswith(MARK))
    await until(lambda: last_of_bot(play).endswith(f"in the rain {LAST_WORDS}"))
    first, again = play.api.world.of_bot(play.ann)[-2:]
    assert again.removeprefix(f"{MARK}\n\n").startswith(first)
    assert not play.api.faults
    assert await play.check(play.ann) == marks + 1


@pytest.mark.loss("E1", "F9")
async def test_telegram_is_gone_for_a_while(play: Play) -> None:
    """Down, and a storm of 429 after it: health says so, and what was said meanwhile is answered once."""
    await play.api.down()
    await play.program.until(lambda health: bool(health.channels[0].trouble))
    play.api.world.say(play.ann, play.ann, "in the storm")
    play.api.storm_seconds = 1
    calls = play.api.calls["sendMessage"]
    await play.api.up()
    await until(lambda: play.api.calls["sendMessage"] > calls)
    play.api.storm_seconds = 0
    await until(play.shows(play.ann, f"in the storm {LAST_WORDS}"))
    await play.check(play.ann)


async def test_another_program_is_told_of(play: Play) -> None:
    """While another program takes the updates, `hansard gateway status` says so; then everything comes."""
    play.api.webhook = "https://example.org"
    play.api.world.say(play.ann, play.ann, "wake the poll")
    await play.program.until(lambda health: "Another program" in health.channels[0].trouble)
    status = await hansard(play.bot, "gateway", "status")
    assert status.returncode == 1
    assert "deleteWebhook" in status.stdout
    play.api.webhook = ""
    await until(play.shows(play.ann, f"wake the poll {LAST_WORDS}"))
    await play.check(play.ann)


async def test_an_audit_says_that_it_cannot(play: Play) -> None:
    """Telegram tells bots nothing of the past: `hansard audit` says so, and does not pretend."""
    audit = await hansard(play.bot, "audit", f"telegram:{play.ann}")
    assert audit.returncode == 2
    assert "tells nothing of the past" in audit.stderr


@pytest.mark.loss("H1")
async def test_who_blocks_the_agent_is_left_alone(play: Play) -> None:
    """What cannot be shown is set aside; when the person is back, the talk goes on."""
    bob = play.api.world.person("Bob")
    assert (await hansard(play.bot, "pair", "allow", str(bob))).returncode == 0
    await play.answered(bob, bob, "hello")
    play.api.world.say(bob, bob, "and good bye")
    play.api.world.block(bob)
    await rest(play.bot, play.api)
    listed = await hansard(play.bot, "deliveries")
    assert "blocked by the user" in listed.stdout
    play.api.world.unblock(bob)
    await play.answered(bob, bob, "here again")


@pytest.mark.loss("E1", "F12")
async def test_streaming_stopping_and_downtime(tmp_path: Path) -> None:
    """An answer grows by edits, over an outage; told to stop, the gateway finishes it; what waited is answered once."""
    async with bot_api() as api:
        ann = api.world.person("Ann")
        bot = Bot(tmp_path / "home", api.url, api.token)
        script = write_script(tmp_path / "script", "{last} " + LAST_WORDS, delay_seconds=0.5)
        bot.configure(script, f'allow = ["{ann}"]')
        async with running(bot):
            api.world.say(ann, ann, "hello")
            await until(lambda: bool(api.world.of_bot(ann) and api.world.chats[ann].actions))
            await api.down()
            await asyncio.sleep(0.2)
            await api.up()
        posted = api.world.chats[ann].timeline[-1]
        assert posted.versions[-1] == f"hello {LAST_WORDS}"
        assert len(posted.versions) > 1
        for text in ("one", "two", "three"):
            api.world.say(ann, ann, text)
        async with running(bot):
            await rest(bot, api)
        assert len(api.world.of_bot(ann)) == 2
        async with Record.open(bot.home) as record:
            assert await check_chat(record, api, api.world.chats[ann], f"telegram:chat:{ann}") == 0
            told = await told_of(record, f"telegram:chat:{ann}")
    assert [each.role for each in told.messages] == [Role.USER, Role.ASSISTANT, *[Role.USER] * 3, Role.ASSISTANT]
    assert {each.status for each in told.messages} == {Status.COMPLETE}


@pytest.mark.loss("F11", "F8")
async def test_killed_between_the_effect_and_the_receipt(tmp_path: Path) -> None:
    """The worst moment: Telegram shows the post, and nobody knows. One copy follows, which says that it is one."""
    async with bot_api() as api:
        ann = api.world.person("Ann")
        bot = Bot(tmp_path / "home", api.url, api.token)
        bot.configure(write_script(tmp_path / "script", "{last} " + LAST_WORDS), f'allow = ["{ann}"]')
        api.world.say(ann, ann, "hello")
        api.faults.append(Fault(FaultKind.HELD, "sendMessage"))
        program = Program(bot)
        async with asyncio.timeout(120):
            await api.held.wait()
        await program.kill()
        assert len(api.world.of_bot(ann)) == 1
        async with running(bot):
            await rest(bot, api)
            (first, second) = api.world.of_bot(ann)
            assert second == f"{MARK}\n\nhello {LAST_WORDS}"
            assert second.endswith(first) or f"hello {LAST_WORDS}".startswith(first)
            async with Record.open(bot.home) as record:
                assert await check_chat(record, api, api.world.chats[ann], f"telegram:chat:{ann}") == 1


@pytest.mark.loss("E13")
async def test_killed_while_parts_are_gathered(tmp_path: Path) -> None:
    """Parts are in the record before the turn begins: killed in between, all of them are answered, once.

    A machine that stalls may be too late for the kill; then it begins anew.
    """
    for attempt in range(ATTEMPTS_MAX):
        async with bot_api() as api:
            ann = api.world.person("Ann")
            bot = Bot(tmp_path / f"home{attempt}", api.url, api.token)
            bot.configure(write_script(tmp_path / "script", "{last} " + LAST_WORDS), f'allow = ["{ann}"]')
            if not await kill_while_gathering(bot, api, ann):
                continue
            async with running(bot):
                await rest(bot, api)
                assert len(api.world.of_bot(ann)) == 1
                async with Record.open(bot.home) as record:
                    assert await check_chat(record, api, api.world.chats[ann], f"telegram:chat:{ann}") == 0
                    told = await told_of(record, f"telegram:chat:{ann}")
        assert [each.role for each in told.messages] == [Role.USER, Role.USER, Role.ASSISTANT]
        return
    raise AssertionError("its turn began before it could be killed, each time")


async def kill_while_gathering(bot: Bot, api: BotApi, ann: int) -> bool:
    """Send two parts and kill the gateway once both are recorded. Return whether their turn had not begun."""
    program = Program(bot)
    await program.ready()
    async with Record.open(bot.home) as record:
        api.world.send_album(ann, ann, [PNG, PNG], "an album")
        async with asyncio.timeout(120):
            while len((await told_of(record, f"telegram:chat:{ann}")).messages) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await program.kill()
        return len(await record.turns.list_queued("telegram")) == 1
