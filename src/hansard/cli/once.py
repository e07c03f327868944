"""`hansard -p`: one turn. Standard output is the assistant's text, byte for byte; all else goes to standard error."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import aclosing

import click
import msgspec

from hansard.app.wiring import App
from hansard.cli.process import (
    EXIT_COULD_NOT_RUN,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_READER_GONE,
    Options,
    run,
    silence_stdout,
)
from hansard.cli.talk import SOURCE, attach, find_session, opened, owner_of, report_to_stderr
from hansard.cli.terminal.text import safe, safe_json
from hansard.domain.limits import ENTRY_BYTES_MAX
from hansard.domain.messages import Message, Role, Text
from hansard.domain.sessions import TURN_ENDS, TurnInfo, TurnState
from hansard.errors import HansardError, InvalidInput, TooLarge
from hansard.intake.speak import Spoken, busy_of, speak
from hansard.record.messages.entries import Chunk, Entry, MessageAdded, MessageOpened
from hansard.record.turns.entries import TurnEnded, TurnStarted
from hansard.tasks import wait_for_first

DEMO_ANSWERED = (
    "hansard: answered by the small demo model, which knows little. `hansard models` shows how to use another."
)

NOT_ANSWERED = "the question is recorded and was not answered. When the cause is gone, `hansard -r {id}` answers it."

CUT = (
    "the answer may be incomplete; what was shown is recorded. When the cause is gone, `hansard -r {id}` shows it, and "
    "/retry there asks again."
)


def read_question(prompt: str) -> str:
    """Return what is asked: the option's text, and standard input where that is no terminal."""
    given = ""
    if not sys.stdin.isatty():
        try:
            data = sys.stdin.buffer.read(ENTRY_BYTES_MAX + 1)
        except OSError as error:
            raise InvalidInput(f"standard input cannot be read: {error.strerror}") from None
        if len(data) > ENTRY_BYTES_MAX:
            raise TooLarge(f"standard input holds more than {ENTRY_BYTES_MAX} bytes")
        given = data.decode(errors="replace")
    question = "\n\n".join(part for part in (prompt, given.strip("\n")) if part)
    if not question.strip():
        raise InvalidInput("nothing is asked: hansard -p TEXT, or text on standard input")
    return question


class Output:
    """Where the answer goes. Writing may block, so a thread does it: a slow reader holds up nothing else."""

    def __init__(self, *, json: bool) -> None:
        """Text to a terminal is made harmless; to anything else it is given as it is."""
        self._json = json
        self._to_terminal = sys.stdout.isatty()
        self._open_line = False

    async def show(self, item: Entry | Chunk) -> None:
        if self._json:
            await self._write(line_of(item), safe_json)
        elif isinstance(item, Chunk):
            if item.part == "text":
                self._open_line = True
                await self._write(item.text)
        elif item.kind == "message.sealed" and self._open_line:
            self._open_line = False
            await self._write("\n")
        elif isinstance(item.body, MessageAdded) and item.body.role == Role.NOTICE:
            click.echo(safe(item.text), err=True)
        elif isinstance(item.body, MessageAdded) and item.body.role == Role.ASSISTANT:
            await self._write(f"{item.text}\n")

    async def finish(self) -> None:
        """End a line that is open, so that what follows on the terminal begins its own."""
        if self._open_line and self._to_terminal:
            self._open_line = False
            await self._write("\n")

    async def _write(self, text: str, harmless: Callable[[str], str] = safe) -> None:
        data = (harmless(text) if self._to_terminal else text).encode()

        def write() -> None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

        await asyncio.to_thread(write)


def line_of(item: Entry | Chunk) -> str:
    kind = "chunk" if isinstance(item, Chunk) else "entry"
    fields = {"type": kind, "text": item.text} | {name: getattr(item, name) for name in item.__struct_fields__}
    return f"{msgspec.json.encode(fields).decode()}\n"


async def answer(app: App, session_id: str, question: Message, output: Output, stuck: asyncio.Event) -> int:
    """Ask, and show the answer until the turn that gives it has ended, or cannot be run."""
    busy = await busy_of(app.record, session_id, app.settings.busy)
    spoken = await speak(app.record, session_id, [question], busy)
    app.runner.wake(session_id, spoken.turn_id)
    began = asyncio.Event()
    showing = asyncio.create_task(show_answer(app, session_id, spoken, output, began))
    await wait_for_first(showing, asyncio.create_task(wait_until_stuck(app, spoken.turn_id, stuck)))
    if not showing.cancelled():
        return showing.result()
    await output.finish()
    told = CUT if began.is_set() else NOT_ANSWERED
    click.echo(f"hansard: {told.format(id=session_id)}", err=True)
    return EXIT_COULD_NOT_RUN


async def wait_until_stuck(app: App, turn_id: str, stuck: asyncio.Event) -> None:
    """Return when this process cannot run the turn: writing failed for a whole patience, or no task is left for it."""
    await wait_for_first(asyncio.create_task(app.runner.idle()), asyncio.create_task(stuck.wait()))
    if stuck.is_set():
        return
    turn = await app.record.turns.find(turn_id)
    if turn is not None and (turn.state in TURN_ENDS or is_run_elsewhere(app, turn)):
        await stuck.wait()  # the follower shows its end


def is_run_elsewhere(app: App, turn: TurnInfo) -> bool:
    return turn.state is TurnState.RUNNING and turn.owner != app.record.store.owner


async def show_answer(app: App, session_id: str, spoken: Spoken, output: Output, began: asyncio.Event) -> int:
    """Show the session until the turn has ended. `began` is set once the record has told that the turn began.

    Whether it did is not asked of the record when it is stuck, for it may not answer then.
    """
    own: set[str] = set()
    async with aclosing(app.record.follow(session_id, spoken.after)) as items:
        async for item in items:
            if isinstance(item, Chunk):
                if item.message_id in own:
                    await output.show(item)
                continue
            if isinstance(item.body, TurnStarted) and item.body.turn_id == spoken.turn_id:
                began.set()
            if isinstance(item.body, MessageOpened) and item.body.turn_id == spoken.turn_id:
                own.add(item.id)
            await output.show(item)
            if isinstance(item.body, TurnEnded) and item.body.turn_id == spoken.turn_id:
                if item.body.state == TurnState.INTERRUPTED:
                    click.echo(f"hansard: this answer was interrupted: {safe(item.body.reason)}", err=True)
                return EXIT_DONE if item.body.state == TurnState.COMPLETED else EXIT_FAILED
    return EXIT_FAILED


async def once(options: Options, question: str) -> int:
    output = Output(json=options.json)
    stuck = asyncio.Event()

    def report(session_id: str, error: BaseException) -> None:
        report_to_stderr(session_id, error)
        if isinstance(error, HansardError) and error.retryable:
            stuck.set()

    async with opened(options, report) as app:
        unnamed = app.settings.model is None
        if options.resume == "":
            raise InvalidInput("name the session to resume: hansard -r ID -p TEXT")
        files = [await attach(app.record, name) for name in options.file]
        if options.resume or options.continued:
            session_id = (await find_session(app, options.resume, follow=True)).session_id
        else:
            session_id = (await app.record.create_session(source=SOURCE, owner=owner_of(app))).id
        try:
            said = Message.user([Text(question), *files], author=owner_of(app))
            code = await answer(app, session_id, said, output, stuck)
            if unnamed and app.models.name == "demo":
                click.echo(DEMO_ANSWERED, err=True)
            return code  # noqa: TRY300 - the pipe may break at the last word
        except BrokenPipeError:
            silence_stdout()
            return EXIT_READER_GONE
        finally:
            await output.finish()


def main(options: Options) -> int:
    question = read_question(options.prompt or "")
    return run(lambda: once(options, question))
