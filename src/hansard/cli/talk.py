"""A conversation at the command line: what is typed goes into the record, what is shown comes out of it.

The same for a terminal, a pipe and one question: only the function that shows an item differs. Also here: opening all
that a talk needs, and reading the files that a person hands in.
"""

from __future__ import annotations

import asyncio
import math
import mimetypes
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import click

from hansard.app.config import load_config
from hansard.app.home_files import check_modes
from hansard.app.wiring import App, open_app
from hansard.cli.existing import check_place, check_record
from hansard.cli.printing import Meter
from hansard.cli.process import Options
from hansard.cli.terminal.text import ID_ENDING_CHARACTERS, safe_line
from hansard.domain.budgets import Usage
from hansard.domain.limits import MIB, NAME_CHARACTERS_MAX
from hansard.domain.messages import File, Message, Part, Text
from hansard.domain.people import terminal_owner
from hansard.domain.policy import policy_of
from hansard.domain.sessions import TurnState
from hansard.domain.text import clean_text
from hansard.engine.turns import ASKS_AGAIN
from hansard.errors import FileUnreadable, HansardError, InvalidInput, NotFound, TooLarge
from hansard.intake.commands.registry import run_command
from hansard.intake.commands.scene import CommandScene
from hansard.intake.commands.sessions import take_up
from hansard.intake.speak import busy_of, parse, speak, unescaped
from hansard.journal.causes import explain_delay, find_stopped, name_owner
from hansard.journal.locks import Progress
from hansard.record.api import Record
from hansard.record.conversation import Conversation, last_exchange
from hansard.record.messages.entries import Chunk, Entry
from hansard.record.questions import QuestionAnswered, QuestionAsked
from hansard.record.turns.entries import TurnEnded, add_usage
from hansard.tasks import cancel_all

SOURCE = "cli"

TELL_SECONDS = 1.5
"""A wait longer than this is told: a screen on which nothing happens looks broken."""

ASKS_AGAIN_LATER = "`hansard -c`, and there /retry, asks again"
"""After `-p`: a shell has no commands of a conversation."""

HELD_UP_SECONDS = 3.0
"""How long a turn waits for one of another process before that is told."""

TROUBLE_LOOK_SECONDS = 0.5
"""How often to look whether the record can be written."""

FILE_BYTES_MAX = 20 * MIB
"""The largest file that is handed in: what no model could take anyway."""

SIGNATURES = {
    rb"\x89PNG\r\n\x1a\n": "image/png",
    rb"\xff\xd8\xff": "image/jpeg",
    rb"GIF8": "image/gif",
    rb"RIFF.{4}WEBP": "image/webp",
    rb"%PDF-": "application/pdf",
}
"""How files begin that models look at, as patterns; a name may say something else."""

ARGUMENT = re.compile(r"""(?:(?P<mark>["'])(?P<quoted>.+?)(?P=mark)|(?P<plain>\S+))\s*(?P<words>.*)""", re.DOTALL)
"""A path, in quotes if it has blanks, and what is said with it."""


def tell_waiting(home: Path) -> None:
    """Say on standard error why opening takes long."""
    click.echo(f"hansard: waiting for the record: {explain_delay(home / 'locks')}.", err=True)


def report_to_stderr(_session_id: str, error: BaseException) -> None:
    """Say what went wrong beyond a turn's own failure, which is in the record."""
    click.echo(safe_line(f"hansard: {error}"), err=True)


async def watch_trouble(app: App) -> None:
    """Say on standard error when the record cannot be written, and when it can again: each once.

    So is what a turn waits for that another process holds up, when it has for a while.
    """
    told = ""
    since: dict[str, float] = {}
    while True:
        await asyncio.sleep(TROUBLE_LOOK_SECONDS)
        now = asyncio.get_running_loop().time()
        for message, hint in {(str(held), held.hint) for held in app.runner.held_up.values()}:
            if now - since.setdefault(message, now) >= HELD_UP_SECONDS:
                since[message] = math.inf  # told
                click.echo(f"hansard: waiting: {message}. {hint.rstrip('.')}.", err=True)
        trouble = app.record.trouble
        if bool(trouble) != bool(told):
            text = f"waiting for the record: {trouble}" if trouble else "the record is in order again"
            click.echo(f"hansard: {text}.", err=True)
        told = trouble


@asynccontextmanager
async def opened(
    options: Options, report: Callable[[str, BaseException], None] = report_to_stderr, *, tells_trouble: bool = True
) -> AsyncIterator[App]:
    """Open what a talk needs, and begin to get the model ready."""
    check_place(options.home)
    check_modes(options.home)
    if options.resume is not None or options.continued:
        check_record(options.home)
    settings = load_config(options.home, os.environ, options.settings).settings
    telling = asyncio.get_running_loop().call_later(TELL_SECONDS, tell_waiting, options.home)
    meter = Meter()

    def show(progress: Progress) -> None:
        telling.cancel()
        meter.show(progress.describe())

    is_named, asks_again = options.model is not None, ASKS_AGAIN if options.prompt is None else ASKS_AGAIN_LATER
    try:
        async with open_app(
            options.home, settings, os.environ, report, is_named=is_named, asks_again=asks_again, progress=show
        ) as app:
            telling.cancel()
            meter.clear()
            app.models.warm()
            watching = asyncio.create_task(watch_trouble(app)) if tells_trouble else None
            try:
                yield app
            finally:
                if watching is not None:
                    await cancel_all(watching)
    finally:
        telling.cancel()


def media_type_of(name: str, data: bytes) -> str:
    """Return what a file is: by how it begins, else by its name."""
    found = next((kind for start, kind in SIGNATURES.items() if re.match(start, data, re.DOTALL)), "")
    return found or mimetypes.guess_type(name)[0] or "application/octet-stream"


def read_file(path: Path) -> bytes:
    """Return a file's bytes, or say why it cannot be handed in."""
    try:
        path = path.expanduser()
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "does not exist"
            raise FileUnreadable(f"{str(path)!r} {what}")
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, RuntimeError) as error:
        raise FileUnreadable(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', error)}") from None
    if len(data) > FILE_BYTES_MAX:
        raise TooLarge(f"{str(path)!r} has more than {FILE_BYTES_MAX} bytes")
    return data


async def attach(record: Record, name: str) -> File:
    path = Path(name)
    data = await asyncio.to_thread(read_file, path)
    blob = await record.blobs.put(data)
    shown = clean_text(path.name)[:NAME_CHARACTERS_MAX]
    return File(blob=blob, name=shown, media_type=media_type_of(path.name, data), size_bytes=len(data))


async def message_parts(record: Record, argument: str) -> list[Part]:
    """Return what `/file PATH WORDS` says: the words, and the file. A path with blanks stands in quotes."""
    found = ARGUMENT.fullmatch(argument)
    if found is None:
        raise InvalidInput("say which file: /file PATH, and maybe some words after it")
    name, words = found["quoted"] or found["plain"], found["words"]
    file = await attach(record, name)
    return [Text(words), file] if words else [file]


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


LOOK_SECONDS = 0.5
"""How often the status line is brought up to date while something goes on, or is in the way."""


class Talk:
    """Somebody talks: in one session at a time, which a command may change."""

    def __init__(
        self,
        app: App,
        show: Callable[[Entry | Chunk], None] = lambda _item: None,
        drawn: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Nobody has said anything, and no session exists for it. `drawn` waits until what was shown is to be seen."""
        self.app = app
        self.session_id = ""
        self.conversation: Conversation | None = None
        self.show = show
        self.drawn = drawn
        self._typed: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        """Texts, each with the question that was on the screen when it was typed."""
        self._untaken = 0
        self._stirred = asyncio.Event()
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
        await self._stop_following()
        self.session_id = found.session_id
        self._shown_seq = int(found.after)
        self.conversation = await self.app.record.conversation(found.session_id)
        self._following = asyncio.create_task(self._follow(found))

    async def keep_status(self, refresh: Callable[[], None], label: Callable[[], None]) -> None:
        """Have the status line drawn while something goes on, or is in the way; sleep until more is committed or typed.

        `label` is called once the model turns out to be the demo.
        """
        is_labelled = False
        with self.app.record.notify(self._stirred):
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                self._stirred.clear()
                name = self.app.models.name
                if name == "demo" and not is_labelled:
                    is_labelled = True
                    label()
                refresh()
                if name and not self.app.record.trouble and not self.answering and not self.untaken:
                    await self._stirred.wait()

    def submit(self, text: str) -> None:
        """Note what was typed; `take_typed` takes it."""
        self._stirred.set()
        self._typed.put_nowait((text, self.drawn_question))

    async def take_typed(self, refuse: Callable[[HansardError], None]) -> None:
        """Take what is typed, one after the other; `refuse` hears why something could not be taken."""
        while True:
            text, drawn = await self._typed.get()
            self._untaken += 1
            try:
                await self.take_line(text, drawn)
            except HansardError as error:
                refuse(error)
            finally:
                self._untaken -= 1

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
        return Message.user(content, author=owner_of(self.app))

    async def _say(self, message: Message, *, answers: bool) -> None:
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

    @property
    def untaken(self) -> int:
        """How many texts were typed that are not recorded yet."""
        return self._untaken + self._typed.qsize()

    def status(self) -> str:
        """Return the status line: model, tokens, cost, session, state of the record."""
        used = Usage()
        if self.conversation is not None:
            for each in self.conversation.usage.values():
                used = add_usage(used, each)
        tokens = used.input_tokens + used.output_tokens
        trouble = self.app.record.trouble.partition(" (")[0]
        shown = [f"RECORD: {trouble}"] if trouble else []
        if trouble and (untaken := self.untaken):
            shown.append(f"{untaken} {'message waits' if untaken == 1 else 'messages wait'}")
        held = self.app.runner.held_up.get(self.session_id)
        if held is not None and find_stopped(held.holder):
            shown.append(f"waiting for {name_owner(held.holder)}, which is stopped")
        elif self.answering:
            shown.append("answering")
        shown.append(self.app.models.name or "looking for a model")
        if tokens:
            shown.append(f"{tokens:,} tokens")
        if used.cost_micros is not None and tokens:
            shown.append(f"${used.cost_micros / 1_000_000:.4f}")
        if not trouble:
            shown.append("record: in order")
        place = self.session_id or "a new session"
        line = " · ".join([*shown, place])
        columns = shutil.get_terminal_size().columns
        if self.session_id and len(line) > columns:
            line = " · ".join([*shown, place[-ID_ENDING_CHARACTERS:]])
        return line if len(line) <= columns else " · ".join(shown)

    async def interrupt(self) -> None:
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
        await self._stop_following()
        self._failed.cancel()

    def _scene(self) -> CommandScene:
        settings = self.app.settings
        return CommandScene(
            record=self.app.record,
            session_id=self.session_id,
            owner=owner_of(self.app),
            source=SOURCE,
            busy=settings.busy,
            left_sessions=settings.left_sessions,
            model=self.app.models.name,
            listed=self._listed,
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
                        self.show(item)
                    if isinstance(item, Entry):
                        self._note_question(item)
                        if isinstance(item.body, TurnEnded) and item.body.turn_id in self._own_turns:
                            self.failed_turns += item.body.state != TurnState.COMPLETED
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
            if self.drawn is not None:
                await self.drawn()
            self.drawn_question = message_id
            await self.app.record.questions.note_shown(session_id, message_id)
        except Exception as error:  # noqa: BLE001  # boundary: process edge
            if not self._failed.done():
                self._failed.set_exception(error)

    async def _stop_following(self) -> None:
        if self._following is not None:
            await cancel_all(self._following)
