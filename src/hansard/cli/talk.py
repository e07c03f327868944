"""A conversation at the command line: what is typed goes into the record, what is shown comes out of it.

The same for a terminal, a pipe and one question: only the function that shows an item differs.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from hansard.cli.attaching import message_parts
from hansard.domain.messages import Message
from hansard.domain.people import terminal_owner
from hansard.domain.policy import policy_of
from hansard.domain.sessions import TurnState
from hansard.errors import NotFound
from hansard.intake.commands.registry import run_command
from hansard.intake.commands.scene import CommandScene
from hansard.intake.commands.sessions import take_up
from hansard.intake.speak import busy_of, parse, speak, unescaped
from hansard.record.conversation import last_exchange
from hansard.record.messages.entries import Entry
from hansard.record.questions import QuestionAnswered, QuestionAsked
from hansard.record.turns.entries import TurnEnded
from hansard.tasks import cancel_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hansard.app.wiring import App
    from hansard.domain.messages import Part
    from hansard.record.conversation import Conversation
    from hansard.record.messages.entries import Chunk

SOURCE = "cli"


def owner_of(app: App) -> str:
    """Return whose the terminal is: the admin's, or the person's whom the settings name."""
    return terminal_owner(app.settings.people)


class TalkStart(NamedTuple):
    """A session to go on with, and the position from which on it is shown."""

    session_id: str
    after: str


async def find_session(app: App, text: str | None, *, follow: bool) -> TalkStart:
    """Return the session that a text names, or the latest one, opened again; its last exchange is to be shown.

    Who only follows changes nothing.
    """
    if text:
        session = await app.record.resolve(text)
    else:
        latest = await app.record.sessions(owner=owner_of(app), limit=1)
        if not latest:
            raise NotFound("there is no session to continue", "Begin one: hansard, or hansard -p TEXT.")
        session = latest[0]
    after = await before_last_exchange(app, session.id)
    if not follow:
        notice = await take_up(app.record, session)
        await app.record.append(session.id, Message.notice(notice))
        app.runner.wake(session.id)
    return TalkStart(session.id, after)


async def before_last_exchange(app: App, session_id: str) -> str:
    """Return the position before the last exchange of a session; its end when nothing was said."""
    conversation = await app.record.conversation(session_id)
    exchange = last_exchange(conversation)
    return str(min(placed.seq for placed in exchange) - 1 if exchange else conversation.seq)


async def drawn_at_once() -> None:
    """Wait for nothing: what was shown is to be seen."""


class Talk:
    """Somebody talks: in one session at a time, which a command may change."""

    def __init__(
        self, app: App, show: Callable[[Entry | Chunk], None], drawn: Callable[[], Awaitable[None]] = drawn_at_once
    ) -> None:
        """Nobody has said anything, and no session exists for it. `drawn` waits until what was shown is to be seen."""
        self.app = app
        self.session_id = ""
        self.conversation: Conversation | None = None
        self._show = show
        self._drawn = drawn
        self._listed: tuple[str, ...] = ()
        self._told: list[Message] = []
        self._hidden: set[str] = set()
        self._following: asyncio.Task[None] | None = None
        self._shown_seq = 0
        self._moved = asyncio.Event()
        self.asked = asyncio.Event()
        """Set while a turn waits for a yes or a no."""
        self.drawn_question = ""
        """The notice of the last question that was drawn."""
        self._question = ""
        self._drawing: set[asyncio.Task[None]] = set()
        self._own_turns: set[str] = set()
        self.failed_turns = 0
        """How many of the turns that were asked for here ended otherwise than well."""
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def enter(self, found: TalkStart) -> None:
        """Go on in a session: show it from a position on."""
        await self._stop_following()
        self.session_id = found.session_id
        self._shown_seq = int(found.after)
        self.conversation = await self.app.record.conversation(found.session_id)
        self._following = asyncio.create_task(self._follow(found))

    async def take_line(self, text: str, drawn: str | None = None) -> None:
        """Record what was typed, and do what it asks for.

        `drawn` is the question that was to be seen when it was typed: what was typed before answers no question.
        None: it was typed just now.
        """
        if not text.strip():
            return
        self.asked.clear()
        if self._drawing:
            await asyncio.wait(self._drawing)
        answers = (self.drawn_question if drawn is None else drawn) == self._question
        if not self.session_id:
            session = await self.app.record.create_session(source=SOURCE, owner=owner_of(self.app))
            await self.enter(TalkStart(session.id, "0"))
        await self._record_told()
        parsed = parse(text)
        if parsed is not None and parsed.name == "file":
            await self._say(self._words(await message_parts(self.app.record, parsed.argument)), answers=False)
            return
        if parsed is not None:
            outcome = await run_command(self._scene(), text, parsed)
            self._listed = outcome.listed or self._listed
            self.app.models.is_named = self.app.models.is_named and not outcome.chose_model
            if outcome.session_id != self.session_id:
                after = int(await before_last_exchange(self.app, outcome.session_id))
                await self.enter(TalkStart(outcome.session_id, str(min(after, outcome.seq - 1))))
            if outcome.wake is not None:
                self._own_turns.add(outcome.wake)
                self.app.runner.wake(self.session_id, outcome.wake)
            return
        await self._say(self._words(unescaped(text)), answers=answers)

    def _words(self, content: str | list[Part]) -> Message:
        """Return what the terminal's person says."""
        return Message.user(content, author=owner_of(self.app))

    async def _say(self, message: Message, *, answers: bool) -> None:
        """Record what was said, and let it be answered."""
        busy = await busy_of(self.app.record, self.session_id, self.app.settings.busy)
        spoken = await speak(self.app.record, self.session_id, [message], busy, answers=answers)
        if spoken.turn_id:
            self._own_turns.add(spoken.turn_id)
            self.app.runner.wake(self.session_id, spoken.turn_id)

    def told(self, text: str) -> None:
        """A fixed notice was shown while nothing could be recorded: it is, as soon as something can (L1)."""
        notice = Message.notice(text)
        self._told.append(notice)
        self._hidden.add(notice.id)

    async def _record_told(self) -> None:
        while self._told:
            await self.app.record.append(self.session_id, self._told[0])
            del self._told[0]

    @property
    def answering(self) -> bool:
        """Whether a turn runs in this session, here or elsewhere, that answers somebody."""
        now = self.conversation
        return now is not None and bool(now.running) and not now.is_compacting

    async def interrupt(self) -> None:
        """Ask the turn that runs to stop."""
        if self.session_id:
            await self.app.record.turns.stop(self.session_id, "interrupted by the person")

    async def caught_up(self) -> None:
        """Wait until everything that is recorded in this session now was shown."""
        if self.session_id:
            seq = (await self.app.record.conversation(self.session_id)).seq
            while self._shown_seq < seq and self._following is not None and not self._following.done():
                self._moved.clear()
                await self._moved.wait()

    async def failed(self) -> None:
        """Wait until following fails; raises why."""
        await asyncio.shield(self._failed)

    async def close(self) -> None:
        """Stop showing."""
        await self._stop_following()
        self._failed.cancel()

    def _scene(self) -> CommandScene:
        settings = self.app.settings
        return CommandScene(
            self.app.record,
            self.session_id,
            owner_of(self.app),
            SOURCE,
            settings.busy,
            settings.left_sessions,
            self.app.models.name,
            self._listed,
            budget=policy_of(settings).budget,
            is_model_named=self.app.models.is_named,
            models_allowed=settings.models_allowed,
        )

    async def _follow(self, found: TalkStart) -> None:
        try:
            async with aclosing(self.app.record.follow(found.session_id, found.after)) as items:
                async for item in items:
                    if isinstance(item, Entry) and item.kind.startswith("turn."):
                        self.conversation = await self.app.record.conversation(found.session_id)
                    if not (isinstance(item, Entry) and item.id in self._hidden):
                        self._show(item)
                    if isinstance(item, Entry):
                        self._note_question(item)
                        self._note_end(item)
                        self._shown_seq = item.seq
                        self._moved.set()
        except Exception as error:  # noqa: BLE001  # boundary: process edge
            if not self._failed.done():
                self._failed.set_exception(error)
        finally:
            self._moved.set()

    def _note_question(self, entry: Entry) -> None:
        if isinstance(entry.body, QuestionAsked):
            self.asked.set()
            self._question = entry.body.message_id
            task = asyncio.create_task(self._note_shown(entry.session_id, entry.body.message_id))
            self._drawing.add(task)
            task.add_done_callback(self._drawing.discard)
        elif isinstance(entry.body, QuestionAnswered | TurnEnded):
            self.asked.clear()

    async def _note_shown(self, session_id: str, message_id: str) -> None:
        """Note that a question was drawn: from then on it can be answered here."""
        try:
            await self._drawn()
            self.drawn_question = message_id
            await self.app.record.questions.note_shown(session_id, message_id)
        except Exception as error:  # noqa: BLE001  # boundary: process edge
            if not self._failed.done():
                self._failed.set_exception(error)

    def _note_end(self, entry: Entry) -> None:
        body = entry.body
        if isinstance(body, TurnEnded) and body.turn_id in self._own_turns:
            self.failed_turns += body.state != TurnState.COMPLETED

    async def _stop_following(self) -> None:
        if self._following is not None:
            await cancel_all(self._following)
