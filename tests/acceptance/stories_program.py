"""`hansard` in processes of its own: what it has shown is what reached our end of its pipes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from hansard import Entry, Message, Record
from tests.acceptance.shown.nursery import HAS_NURSERY, Forked, nursery

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 120.0
"""Every wait is bounded; this is longer than anything here takes on a busy machine."""

EXIT_TERMINATED = 143

FOREIGN = ("HANSARD_", "OPENAI_", "ANTHROPIC_", "GOOGLE_")
"""Variables of whoever runs the tests that would change what is tested."""


class Program:
    """One process; its output as it comes."""

    def __init__(self, process: asyncio.subprocess.Process | Forked) -> None:
        """Begin to listen."""
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.out = b""
        self.err = b""
        self._heard = asyncio.Event()
        self._out = asyncio.create_task(self._listen_out(process.stdout))
        self._err = asyncio.create_task(self._listen_err(process.stderr))

    async def _listen_out(self, pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(65_536):
            self.out += data
            self._heard.set()
        self._heard.set()

    async def _listen_err(self, pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(65_536):
            self.err += data
            self._heard.set()
        self._heard.set()

    async def until(self, seen: Callable[[Program], bool]) -> None:
        """Wait until its output is as wanted; it ending before that is a failure."""
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while not seen(self):
                    assert not (self._out.done() and self._err.done()), f"it ended: {self.out!r} {self.err!r}"
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError(f"it never came: {self.out!r} {self.err!r}") from None

    async def shows(self, text: str, times: int = 1) -> None:
        """Wait until a text is on its standard output."""
        await self.until(lambda program: program.out.count(text.encode()) >= times)

    async def tells(self, text: str, times: int = 1) -> None:
        """Wait until a text is on its standard error."""
        await self.until(lambda program: program.err.count(text.encode()) >= times)

    async def type(self, *lines: str) -> None:
        """Write lines to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        await self.process.stdin.drain()

    def strike(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    async def leave(self) -> Ended:
        """Close its standard input and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.ended()

    async def dismiss(self) -> Ended:
        """End it as a service manager does, and wait for that: who follows does not leave by itself."""
        self.strike(signal.SIGTERM)
        ended = await self.ended()
        assert ended.code == EXIT_TERMINATED
        return ended

    async def ended(self) -> Ended:
        """Wait for its end. No program of ours ends with a traceback."""
        _, running = await asyncio.wait({self._out, self._err}, timeout=SECONDS_MAX)
        assert not running, f"it does not end: {self.out!r} {self.err!r}"
        code = await asyncio.wait_for(self.process.wait(), SECONDS_MAX)
        ended = Ended(code, self.out.decode(), self.err.decode())
        assert "Traceback" not in ended.err, ended.err
        return ended

    async def bury(self) -> None:
        """Leave nothing behind, whatever happened."""
        if self.process.returncode is None:
            self.strike(signal.SIGKILL)
        if self.process.stdin is not None:
            self.process.stdin.close()
        await asyncio.wait({self._out, self._err})
        await self.process.wait()


class Ended(NamedTuple):
    """How a program ended, and all that it printed."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """What it showed of the assistant, without the newline that ends the last message."""
        return self.out.removesuffix("\n")


class Hansard(NamedTuple):
    """The program on one home, with one model."""

    home: Path
    model: str
    environment: Mapping[str, str] = {}
    is_forked: bool = HAS_NURSERY

    @asynccontextmanager
    async def start(self, *arguments: str) -> AsyncIterator[Program]:
        """Start it, with a pipe to its standard input; it is surely gone when the block is left."""
        program = Program(await self._process("--home", str(self.home), "-m", self.model, *arguments))
        try:
            yield program
        finally:
            await program.bury()

    async def _process(self, *arguments: str) -> asyncio.subprocess.Process | Forked:
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        variables = own | dict(self.environment)
        if self.is_forked:
            return await nursery().start_on_pipes(arguments, variables, has_input=True)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hansard.cli.main", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=variables,
        )

    async def run(self, *arguments: str, said: tuple[str, ...] = ()) -> Ended:
        """Run it with lines on its standard input, to its end."""
        async with self.start(*arguments) as program:
            await program.type(*said)
            return await program.leave()

    @asynccontextmanager
    async def asks(self, *arguments: str) -> AsyncIterator[Program]:
        """Start it with an empty standard input: what `-p TEXT` reads to its end before it asks."""
        async with self.start(*arguments) as program:
            assert program.process.stdin is not None
            program.process.stdin.close()
            yield program


def write_script(path: Path, *answers: Mapping[str, object]) -> str:
    """Write a script of answers and return the name of the model that gives them."""
    lines = []
    for answer in answers:
        lines.append("[[answers]]")
        lines += [f"{key} = {toml(value)}" for key, value in answer.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"scripted:{path}"


def toml(value: object) -> str:
    """Return a value as TOML has it: as JSON, but for tables."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(each) for each in value) + "]"
    return msgspec.json.encode(value).decode()


def log_of(home: Path, session_id: str) -> Path:
    """Return the log of a session."""
    (path,) = (home / "sessions").rglob(f"{session_id}.jsonl")
    return path


async def only_session(home: Path) -> str:
    """Return the id of the one session of a home."""
    async with Record.open(home) as record:
        (session,) = await record.sessions()
        return session.id


async def transcript(home: Path, session_id: str) -> list[Message]:
    """Return the transcript of a session, notices included."""
    async with Record.open(home) as record:
        return await record.load_transcript(session_id)


def said(messages: list[Message]) -> list[tuple[str, str]]:
    """Return what people and the model said, without notices."""
    return [(str(message.role), message.text) for message in messages if message.role in {"user", "assistant"}]


def notices(messages: list[Message]) -> list[str]:
    """Return what Hansard itself said."""
    return [message.text for message in messages if message.role == "notice"]


async def entries_of(record: Record, session_id: str) -> list[Entry]:
    """Return every entry of a session."""
    found: list[Entry] = []
    while page := await record.sessions.read_entries(session_id, after=found[-1].seq if found else 0):
        found += page
    return found


async def assert_whole(home: Path, *session_ids: str) -> None:
    """Both legs agree, and the seqs of the sessions have no gap."""
    async with Record.open(home) as record:
        report = await record.verify()
        assert report.ok, report.findings
        for session_id in session_ids:
            seqs = [entry.seq for entry in await entries_of(record, session_id)]
            assert seqs == list(range(1, len(seqs) + 1))


async def followed(record: Record, session_id: str, wanted: Callable[[Entry], bool]) -> Entry:
    """Wait for the first entry that is wanted."""
    async with asyncio.timeout(SECONDS_MAX), aclosing(record.follow(session_id, chunks=False)) as items:
        async for item in items:
            if isinstance(item, Entry) and wanted(item):
                return item
    raise AssertionError(f"session {session_id} ended without it")
