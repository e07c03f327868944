"""`ask` on Telegram: buttons below the question, replies and codes, each from the person who may, after it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from hansard.app.wiring import open_app
from hansard.domain.questions import NOTHING_WAITS
from hansard.domain.settings import Channels, Settings
from hansard.domain.settings.agent import Tools
from hansard.domain.settings.channels import Telegram
from hansard.gateway.process import Gateway
from hansard.record.api import Record
from hansard.record.questions import QuestionAnswered, QuestionAsked
from tests.channels.telegram.bot_api import BotApi, Fault, FaultKind, bot_api
from tests.channels.telegram.program import Bot, Program
from tests.channels.telegram.stage import channel_on, until
from tests.channels.telegram.world import Posted
from tests.gateway.stage import TIMING, entries_of, write_rounds

pytestmark = pytest.mark.slow

ASKS = "May I run the tool memory"


class Play(NamedTuple):
    """A gateway in this process, Ann and Bob, and a group of both."""

    api: BotApi
    record: Record
    ann: int
    bob: int
    group: int

    async def ask(self, chat: int, number: int) -> Posted:
        """Ann asks for something; return the question that everybody in the chat sees."""
        before = len(self.questions(chat))
        name = f"@{self.api.world.bot.username} " if chat < 0 else ""
        self.api.world.say(chat, self.ann, f"{name}go {number}")
        await until(lambda: len(self.questions(chat)) > before)
        return self.questions(chat)[-1]

    def questions(self, chat: int) -> list[Posted]:
        """The questions that are seen in a chat."""
        return [posted for posted in self.api.world.chats[chat].timeline if ASKS in posted.text]

    async def sent(self, chat: int) -> None:
        """Wait until the record knows that all is sent."""
        while await self.record.deliveries.list_waiting("telegram"):  # noqa: ASYNC110 - nobody rings for whoever looks on
            await asyncio.sleep(0.01)
        assert chat

    async def over(self, chat: int, number: int) -> list[str]:
        """Wait until a round is over; return what is remembered."""
        await until(lambda: any(f"Round {number} is over." in text for text in self.api.world.of_bot(chat)))
        return [note.text for note in await self.record.memory.list()]

    async def code(self, chat: int) -> str:
        """The code of the last question."""
        asked = [body for body in await self.bodies(chat) if isinstance(body, QuestionAsked)]
        return asked[-1].code

    async def bodies(self, chat: int) -> list[object]:
        """What a chat's session has."""
        route = await self.record.routes.read(f"telegram:chat:{chat}")
        assert route is not None
        return [entry.body for entry in await entries_of(self.record, route.session_id)]

    async def taken(self) -> None:
        """Wait until everything that people did is in the record."""
        await until(self.api.is_taken)


@asynccontextmanager
async def playing(home: Path, folder: Path) -> AsyncIterator[Play]:
    """Run a gateway on a Bot API of this machine."""
    errors: list[BaseException] = []
    stop = asyncio.Event()
    async with bot_api() as api:
        ann, bob = api.world.person("Ann"), api.world.person("Bob")
        group = api.world.group("Friends", ann, bob)
        settings = Settings(
            model=f"scripted:{write_rounds(folder / 'script')}",
            channels=Channels(telegram=Telegram(enabled=True, base_url=api.url, allow=(str(ann), str(bob)))),
            tools=Tools(ask_seconds=600),
        )
        async with (
            open_app(home, settings, {}, lambda _, error: errors.append(error)) as app,
            channel_on(api, home) as channel,
        ):
            task = asyncio.create_task(Gateway(app, [channel], TIMING).run(stop))
            try:
                yield Play(api, app.record, ann, bob, group)
            finally:
                stop.set()
                await asyncio.wait({task})
            task.result()
            assert (await app.record.verify()).ok
    assert not errors, errors


async def test_buttons_in_a_group(home: Path, tmp_path: Path) -> None:
    """Another member's button is told that nothing waits for them; the asker's counts; then the question is over."""
    async with playing(home, tmp_path) as play:
        world, group = play.api.world, play.group
        question = await play.ask(group, 0)
        await play.sent(group)
        assert "or by a button below it" in question.text
        assert "👍" not in question.text
        world.press(group, play.bob, question.id, "yes")
        await until(lambda: NOTHING_WAITS in world.of_bot(group))
        assert await play.record.memory.list() == []
        world.press(group, play.ann, question.id, "yes")
        assert await play.over(group, 0) == ["note 0"]
        world.press(group, play.ann, question.id, "no")
        await until(lambda: world.of_bot(group).count(NOTHING_WAITS) > 1)
        await until(lambda: not world.pressing)
        question = await play.ask(group, 1)
        await play.sent(group)
        world.press(group, play.ann, question.id, "no")
        assert await play.over(group, 1) == ["note 0"]
        answers = [body for body in await play.bodies(group) if isinstance(body, QuestionAnswered)]
        assert [(body.yes, body.by) for body in answers] == [(True, str(play.ann)), (False, str(play.ann))]


async def test_words_in_a_group(home: Path, tmp_path: Path) -> None:
    """A plain ok and an edit answer nothing; a reply to the question does, and so does a command with its code."""
    async with playing(home, tmp_path) as play:
        world, group = play.api.world, play.group
        world.is_private_mode = False
        said = world.say(group, play.ann, "well")
        question = await play.ask(group, 0)
        await play.sent(group)
        world.say(group, play.ann, "ok")
        world.edit(group, said, "yes")
        world.say(group, play.bob, "yes", reply_to=question.id)
        await until(lambda: NOTHING_WAITS in world.of_bot(group))
        await play.taken()
        assert not [body for body in await play.bodies(group) if isinstance(body, QuestionAnswered)]
        world.say(group, play.ann, "yes", reply_to=question.id)
        assert await play.over(group, 0) == ["note 0"]
        await play.ask(group, 1)
        await play.sent(group)
        world.say(group, play.ann, f"/no@{world.bot.username} {await play.code(group)} not this one")
        assert await play.over(group, 1) == ["note 0"]
        answers = [body for body in await play.bodies(group) if isinstance(body, QuestionAnswered)]
        assert [(body.yes, body.reason) for body in answers] == [(True, ""), (False, "not this one")]


async def test_a_button_before_the_receipt(home: Path, tmp_path: Path) -> None:
    """A button that is pressed before the record knows that the question was sent counts for nothing; later it does."""
    async with playing(home, tmp_path) as play:
        world, ann = play.api.world, play.ann
        play.api.faults.append(Fault(FaultKind.HELD, "sendMessage"))
        question = await play.ask(ann, 0)
        world.press(ann, ann, question.id, "yes")
        await play.taken()
        assert not [body for body in await play.bodies(ann) if isinstance(body, QuestionAnswered)]
        play.api.release.set()
        await play.sent(ann)
        world.press(ann, ann, question.id, "yes")
        assert await play.over(ann, 0) == ["note 0"]


async def test_a_kill_between_question_and_button(tmp_path: Path) -> None:
    """The button of a question whose program was killed runs nothing, whenever it is pressed; the next one's does."""
    async with bot_api() as api:
        ann = api.world.person("Ann")
        bot = Bot(tmp_path / "home", api.url, api.token)
        bot.configure(write_rounds(tmp_path / "script"), f'allow = ["{ann}"]')
        chat = api.world.chats[ann]

        def questions() -> list[Posted]:
            return [posted for posted in chat.timeline if ASKS in posted.text]

        program = Program(bot)
        await program.ready()
        api.world.say(ann, ann, "go")
        await until(lambda: bool(questions()))
        await program.kill()
        api.world.press(ann, ann, questions()[0].id, "yes")
        program = Program(bot)
        try:
            await program.ready()
            await until(api.is_taken)
            api.world.say(ann, ann, "go on")
            await until(lambda: len(questions()) > 1)
            await until(lambda: "👍 Yes" in str(questions()[-1].message.get("reply_markup")))
            count = len(questions())
            async with Record.open(bot.home) as record:
                assert await record.memory.list() == []
                while await record.deliveries.list_waiting("telegram"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            api.world.press(ann, ann, questions()[-1].id, "yes")
            await until(lambda: any("is over." in text for text in api.world.of_bot(ann)))
            assert len(questions()) == count
        finally:
            await program.stop()
        async with Record.open(bot.home) as record:
            assert len(await record.memory.list()) == 1
            assert (await record.verify()).ok
