"""The Bot API of the tests gives what Telegram gives: checked with the library, and with what Telegram documents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from telegram import Bot, Message, TelegramObject, Update
from telegram.error import BadRequest, Conflict, Forbidden, InvalidToken, RetryAfter

from tests.channels.telegram.bot_api import BotApi, Fault, FaultKind
from tests.channels.telegram.entities import RefusedText, Rich, read_html, read_markdown, read_text, units
from tests.channels.telegram.world import World

PNG = b"\x89PNG\r\n\x1a\n" + b"picture"


@asynccontextmanager
async def bot_of(api: BotApi, token: str = "") -> AsyncIterator[Bot]:
    """The library's own bot."""
    async with Bot(token or api.token, base_url=f"{api.url}/bot", base_file_url=f"{api.url}/file/bot") as bot:
        yield bot


def check_same(told: object, read: object) -> None:
    """Compare what was told with what the library read, which adds what is not so: that nobody created a group."""
    if isinstance(told, dict):
        assert isinstance(read, dict)
        added = {name: value for name, value in read.items() if name not in told}
        assert not any(added.values()), added
        for name, value in told.items():
            check_same(value, read[name])
    elif isinstance(told, list):
        assert isinstance(read, list | tuple)
        assert len(told) == len(read)
        for one, other in zip(told, read, strict=True):
            check_same(one, other)
    else:
        assert told == read


def left_over(told: TelegramObject) -> list[object]:
    """Return what the library did not know what to do with, anywhere in what was told."""
    found: list[object] = [dict(told.api_kwargs)] if told.api_kwargs else []
    for name in {slot for kind in type(told).__mro__ for slot in getattr(kind, "__slots__", ())}:
        value = getattr(told, name, None) if not name.startswith("_") else None
        values = value if isinstance(value, tuple) else (value,)
        for each in values:
            found += left_over(each) if isinstance(each, TelegramObject) else []
    return found


def busy_world(world: World) -> None:
    """Let everything happen that the world can do."""
    ann, bob = world.person("Ann", "ann"), world.person("Bob")
    group = world.group("Friends", ann, bob, kind="group")
    forum = world.group("Work", bob, ann, is_forum=True)
    world.say(ann, ann, "hello 😀 https://example.org /new")
    first = world.say(group, bob, "hello @hansard_test_bot, and /new@hansard_test_bot")
    world.edit(group, first, "changed, @hansard_test_bot")
    world.say(group, ann, "@hansard_test_bot yes", reply_to=first)
    world.say(forum, ann, "@hansard_test_bot in a topic", topic=7)
    world.say(ann, ann, "long " * 1000)
    for kind in ("photo", "voice", "document", "video"):
        world.send_file(ann, ann, kind, PNG, "look at @hansard_test_bot")
    world.send_album(ann, ann, [PNG, PNG], "two of them")
    world.migrate(group)
    world.block(bob)
    world.unblock(bob)
    world.remove_bot(forum, ann)


async def test_the_library_reads_every_payload_as_it_was_meant(api: BotApi) -> None:
    """Parsed by python-telegram-bot and written again, every update is what was sent, with nothing left over."""
    busy_world(api.world)
    async with bot_of(api) as bot:
        assert len(api.world.given) > 18
        for told in api.world.given:
            update = Update.de_json(told, bot)
            check_same(told, update.to_dict())
            assert not left_over(update)
            assert update.my_chat_member or update.effective_message
        for chat in api.world.chats.values():
            for posted in chat.timeline:
                check_same(posted.message, Message.de_json(posted.message, bot).to_dict())


async def test_updates_come_again_until_a_higher_offset_is_asked_for(api: BotApi) -> None:
    """The same offset gives the same; a higher one forgets; one far ahead, as after a quiet week, gives all."""
    ann = api.world.person("Ann")
    for text in ("one", "two", "three"):
        api.world.say(ann, ann, text)
    async with bot_of(api) as bot:
        first = await bot.get_updates(timeout=0)
        assert await bot.get_updates(timeout=0) == first
        assert [update.message.text for update in first if update.message] == ["one", "two", "three"]
        assert len(await bot.get_updates(timeout=0, limit=2)) == 2
        rest = await bot.get_updates(first[0].update_id + 1, timeout=0)
        assert rest == first[1:]
        assert await bot.get_updates(timeout=0) == first[1:]
        assert await bot.get_updates(first[-1].update_id + 10_000, timeout=0) == first[1:]
        assert await bot.get_updates(first[-1].update_id + 1, timeout=0) == ()
        api.world.begin_anew(1000)
        api.world.say(ann, ann, "after a week")
        (anew,) = await bot.get_updates(first[-1].update_id + 1, timeout=0)
        assert anew.update_id == 1000


async def test_a_poll_waits_and_a_second_one_ends_the_first(api: BotApi) -> None:
    """A long poll is answered when something happens; whoever else polls takes over, and the first one is told."""
    ann = api.world.person("Ann")
    async with bot_of(api) as bot, bot_of(api) as other:
        waiting = asyncio.create_task(bot.get_updates(timeout=20, read_timeout=30))
        while api.calls["getUpdates"] < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        taking = asyncio.create_task(other.get_updates(timeout=20, read_timeout=30))
        with pytest.raises(Conflict, match="terminated by other getUpdates"):
            await waiting
        api.world.say(ann, ann, "now")
        assert len(await taking) == 1
        api.webhook = "https://example.org"
        with pytest.raises(Conflict, match="webhook is active"):
            await bot.get_updates(timeout=0)


async def test_only_what_is_asked_for_is_told(api: BotApi) -> None:
    """`allowed_updates` holds for what happens afterwards; privacy mode hides what is said among people."""
    ann, bob = api.world.person("Ann"), api.world.person("Bob")
    group = api.world.group("Friends", ann, bob)
    async with bot_of(api) as bot:
        before = len(await bot.get_updates(timeout=0, allowed_updates=["message"]))
        said = api.world.say(group, ann, "@hansard_test_bot hello")
        api.world.edit(group, said, "@hansard_test_bot good day")
        api.world.say(group, bob, "among people")
        assert len(await bot.get_updates(timeout=0)) == before + 1
        api.world.is_private_mode = False
        api.world.say(group, bob, "among people and bots")
        assert len(await bot.get_updates(timeout=0)) == before + 2


async def test_posts_edits_and_their_limits(api: BotApi) -> None:
    """4,096 units after parsing, counted in UTF-16; no change is refused; another's message is refused."""
    ann = api.world.person("Ann")
    said = api.world.say(ann, ann, "mine")
    async with bot_of(api) as bot:
        shown = await bot.send_message(ann, "<b>" + "😀" * 2048 + "</b>", parse_mode="HTML")
        assert api.world.of_bot(ann) == ["😀" * 2048]
        with pytest.raises(BadRequest, match=r"[Mm]essage is too long"):
            await bot.send_message(ann, "😀" * 2049)
        with pytest.raises(BadRequest, match="text is empty"):
            await bot.send_message(ann, " \n ")
        await bot.edit_message_text("other", ann, shown.message_id)
        with pytest.raises(BadRequest, match="not modified"):
            await bot.edit_message_text("other", ann, shown.message_id)
        with pytest.raises(BadRequest, match="can't be edited"):
            await bot.edit_message_text("other", ann, said)
        with pytest.raises(BadRequest, match="not found"):
            await bot.edit_message_text("other", ann, 999)
        posted = api.world.chats[ann].timeline[-1]
        assert posted.versions == ["😀" * 2048, "other"]
        assert [sight.is_edit for sight in api.world.chats[ann].sights] == [False, False, True]


async def test_refusals_and_faults(api: BotApi) -> None:
    """Blocked, thrown out, unknown, moved, too fast, a wrong token: each as Telegram says it."""
    ann, bob = api.world.person("Ann"), api.world.person("Bob")
    group = api.world.group("Friends", ann, kind="group")
    async with bot_of(api) as bot:
        api.world.block(ann)
        with pytest.raises(Forbidden, match="blocked by the user"):
            await bot.send_message(ann, "hello")
        with pytest.raises(BadRequest, match=r"[Cc]hat not found"):
            await bot.send_message(1, "hello")
        api.world.remove_bot(group, ann)
        with pytest.raises(Forbidden, match="kicked"):
            await bot.send_message(group, "hello")
        api.faults.append(Fault(FaultKind.BUSY, "sendMessage", 7))
        with pytest.raises(RetryAfter, match="Retry in"):
            await bot.send_message(bob, "hello")
        assert (await bot.send_message(bob, "hello")).text == "hello"
        api.faults.append(Fault(FaultKind.CUT_AFTER, "sendMessage"))
        with pytest.raises(Exception, match="disconnected"):
            await bot.send_message(bob, "once")
        assert api.world.of_bot(bob) == ["hello", "once"]
    with pytest.raises(InvalidToken):
        async with bot_of(api, "1:another"):
            raise AssertionError("it is let in")


async def test_files_go_out_and_come_in(api: BotApi) -> None:
    """A document and a picture are shown with their bytes and captions; what is no picture is refused as one."""
    ann = api.world.person("Ann")
    async with bot_of(api) as bot:
        await bot.send_document(ann, b"words", caption="<i>notes</i>", parse_mode="HTML", filename="notes.txt")
        await bot.send_photo(ann, PNG)
        assert [posted.file for posted in api.world.chats[ann].timeline] == [b"words", PNG]
        assert api.world.of_bot(ann) == ["notes", ""]
        with pytest.raises(BadRequest, match=r"(?i)image_process_failed"):
            await bot.send_photo(ann, b"no picture")
        file = await bot.get_file("file-1")
        assert bytes(await file.download_as_bytearray()) == b"words"
        assert await bot.send_message_draft(ann, 1, "thinking")
        assert await bot.send_chat_action(ann, "typing")
        assert (await bot.get_chat(ann)).first_name == "Ann"
        assert await bot.leave_chat(api.world.group("Friends", ann))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a <b>b</b>", Rich("a b", ({"type": "bold", "offset": 2, "length": 1},))),
        ("😀 <i>b</i>", Rich("😀 b", ({"type": "italic", "offset": 3, "length": 1},))),
        ("&lt;b&gt;", Rich("<b>")),
    ],
)
def test_html_is_read(text: str, expected: Rich) -> None:
    """Entities are counted in UTF-16, from the words alone."""
    assert read_html(text) == expected


@pytest.mark.parametrize("text", ["<p>a</p>", "<b>a", "<b><i>a</b></i>", "a</b>"])
def test_html_that_is_refused(text: str) -> None:
    """Unknown, open and crossed tags are refused."""
    with pytest.raises(RefusedText, match="can't parse entities"):
        read_html(text)


def test_markdown_is_read_or_refused() -> None:
    """Marks come in pairs, and what is reserved is escaped."""
    assert read_markdown(r"*b* _i_ `c` 1\.") == Rich(
        "b i c 1.",
        (
            {"type": "bold", "offset": 0, "length": 1},
            {"type": "italic", "offset": 2, "length": 1},
            {"type": "code", "offset": 4, "length": 1},
        ),
    )
    for text in ("1.", "*b", "`c"):
        with pytest.raises(RefusedText, match="can't parse entities"):
            read_markdown(text)


def test_names_are_found_but_not_in_code() -> None:
    """Telegram makes mentions of names by itself; within code it does not."""
    found = read_text("@ann and <code>@bob</code>", "HTML", [], 4096, "message").entities
    assert [(each["type"], each["offset"]) for each in found] == [("mention", 0), ("code", 9)]
    assert units("😀a") == 3
