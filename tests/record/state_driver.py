"""Drives a real record by hand: one thread, every commit stepped, and a kill at any step of one."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hansard.errors import HansardError
from hansard.journal.store import Wiring, abandon_store
from hansard.record.api import Record
from hansard.testing.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from hansard.record.messages.entries import Chunk, Entry
    from hansard.record.turns.holding import Reply, Turn

SPINS_MAX = 2_000
KEYS = ("key:a", "key:b")
CHANNEL = "channel"
CHATS = ("channel:room:a", "channel:room:b")


class Killed(BaseException):
    """The process dies here."""


class Trouble(Exception):
    """An exception inside a turn."""


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward, so that no test waits for a patience to end."""

    offset_seconds = 0.0

    def time(self) -> float:
        """Return the loop's time."""
        return super().time() + self.offset_seconds

    def spin(self) -> None:
        """Run what is ready, once."""
        self.call_soon(self.stop)
        self.run_forever()


class Speaker:
    """A turn that is held open between two rules."""

    def __init__(self, manager: AbstractAsyncContextManager[Turn], turn: Turn) -> None:
        """The turn was entered."""
        self.manager = manager
        self.turn = turn
        self.reply: Reply | None = None


class Driver:
    """A record without threads: nothing moves unless `drive` moves it."""

    def __init__(self) -> None:
        """Open a fresh home."""
        self.folder = Path(tempfile.mkdtemp(prefix="hansard-model-"))
        self.home = self.folder / "home"
        self.loop = SteppedLoop()
        self.clock = FakeClock()
        self.speakers: dict[str, Speaker] = {}
        self.kill_at = ""
        self.kill_after = 0
        self._wiring = Wiring(clock=self.clock, reach=self._reach, threads=False)
        self.open()

    def _reach(self, step: str) -> None:
        if step == self.kill_at:
            self.kill_after -= 1
            if self.kill_after <= 0:
                self.kill_at = ""
                raise Killed

    # Opening and closing.

    def open(self) -> None:
        """Open the record, as a new process would."""
        self._manager = Record.open(self.home, wiring=self._wiring)
        self.record = self.loop.run_until_complete(self._manager.__aenter__())

    def close(self) -> None:
        """Close the record; what was held open belongs to a process that is gone from now on."""
        self.loop.run_until_complete(self._manager.__aexit__(None, None, None))
        self.forget_speakers()

    def crash(self) -> None:
        """Drop the record as a kill does."""
        self.kill_at = ""
        abandon_store(self.record.store)
        self.expire()
        self.forget_speakers()
        self.loop.run_until_complete(self._manager.__aexit__(None, None, None))

    def forget_speakers(self) -> None:
        """Let code that outlives its process run to its end: whatever it tries is refused."""
        for speaker in self.speakers.values():
            ending = self.loop.create_task(_leave(speaker))
            self.expire()
            assert ending.done()
            ending.result()
        self.speakers.clear()

    def expire(self) -> None:
        """Let every patience end."""
        self.loop.offset_seconds += 3600
        for _ in range(20):
            self.loop.spin()

    def end(self) -> None:
        """Remove everything."""
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        shutil.rmtree(self.folder)

    # Calling.

    def start(self, *calls: Coroutine[Any, Any, object]) -> list[asyncio.Task[object]]:
        """Begin calls, in order, up to where each waits for the writer."""
        tasks = [self.loop.create_task(call) for call in calls]
        self.loop.spin()
        return tasks

    def finish(self, tasks: list[asyncio.Task[object]]) -> None:
        """Step the writer until every call has an outcome and nothing is queued."""
        writer = self.record.store.writer
        for _ in range(SPINS_MAX):
            self.loop.spin()
            if writer.queue.items:
                writer.step()
            elif all(task.done() for task in tasks):
                return
        message = "a call never came to an end"
        raise AssertionError(message)

    def run(self, call: Coroutine[Any, Any, object]) -> object:
        """Run one call to its end."""
        (task,) = self.start(call)
        self.finish([task])
        return task.result()

    def follow(self, session_id: str, after: str | int) -> list[Entry | Chunk]:
        """Return what a follower is given now."""
        items: list[Entry | Chunk] = []

        async def collect() -> None:
            async with contextlib.aclosing(self.record.follow(session_id, after)) as followed:
                async for item in followed:
                    items.append(item)  # noqa: PERF401 - it never ends: what came before it is stopped counts

        (task,) = self.start(collect())
        for _ in range(5):
            self.loop.spin()
        task.cancel()
        for _ in range(5):
            self.loop.spin()
        assert task.cancelled(), task
        return items

    # Looking.

    def observe(self) -> dict[str, object]:
        """Return everything that the record shows, in the model's shape."""
        shown = self.run(_observe(self.record))
        assert isinstance(shown, dict)
        return shown

    def verify(self) -> None:
        """Both legs agree, the chains hold, the projections are their folds."""
        report = self.loop.run_until_complete(self.record.verify())
        assert report.ok, report.findings


async def _leave(speaker: Speaker) -> None:
    with contextlib.suppress(HansardError, Trouble):
        await speaker.manager.__aexit__(Trouble, Trouble(), None)


async def outcome(call: Awaitable[object]) -> object:
    """Return what a call gives, or the class of the error that it raises."""
    try:
        return await call
    except HansardError as error:
        return type(error)


def plain_id(message_id: str) -> str:
    """Return an id as the model knows it: the turn in whose place a notice stands has an id of chance."""
    return "~lost" if message_id.startswith("~lost:") else message_id


async def _observe(record: Record) -> dict[str, object]:
    routes = {key: route for key in KEYS if (route := await record.routes.read(key)) is not None}
    cursor = await record.intake.cursor("channel", "account")
    shown: dict[str, object] = {
        "routes": {key: (route.session_id, route.generation) for key, route in routes.items()},
        "cursors": {"account": cursor} if cursor is not None else {},
    }
    waiting = await record.deliveries.list_waiting(CHANNEL)
    for session in await record.sessions():
        parent = session.parent
        entries = await record.sessions.read_entries(session.id)
        assert [entry.seq for entry in entries] == list(range(1, session.head_seq + 1))
        found = await record.load_transcript(session.id)
        deliveries = await record.deliveries.list(session_id=session.id)
        shown[session.id] = {
            "source": session.source,
            "title": session.title,
            "end_reason": session.end_reason,
            "parent": (parent.session_id, parent.link.value, parent.at) if parent is not None else None,
            "messages": session.messages,
            "kinds": [entry.kind for entry in entries],
            "transcript": [(plain_id(line.id), line.role.value, line.text, line.status.value) for line in found],
            "turns": [turn.state.value for turn in await record.turns.list(session.id)],
            "deliveries": {each.id: (each.state.value, each.attempts) for each in deliveries},
            "outbox": [(plain_id(each.message_id), each.chat) for each in waiting if each.session_id == session.id],
        }
    return shown
