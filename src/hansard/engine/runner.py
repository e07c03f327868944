"""Which sessions have a turn to run: one task each, in this process.

Reads: queued turns. Writes: nothing; turns write.
Invariants: what waits is in the record, so a restart, or another process, finds it; this is only who runs it now.
On crash: nothing to do.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from hansard.domain.entries import Entry, MessageAdded
from hansard.engine.tasks import cancel_all
from hansard.engine.turns import Agent, run_turn
from hansard.errors import HansardError, LeaseHeld, NotFound, SessionEnded

if TYPE_CHECKING:
    from collections.abc import Callable

GATHER_SECONDS = 0.3
"""After an interruption, how long nobody must have spoken before the next turn begins: a burst is answered together."""

GATHER_SECONDS_MAX = 2.0
"""Somebody who never pauses is answered all the same."""

LOOK_SECONDS = 1.0
"""How often to look whether the process that runs a turn elsewhere is still alive."""

HEAL_SECONDS = 1.0
"""Pause before another try while the record cannot be written."""


FAILURES_MAX = 5
"""Failures in a row, beyond those of models and tools, after which a session is left alone until somebody speaks."""


class Runner:
    """Runs turns of any number of sessions, one at a time in each."""

    def __init__(self, agent: Agent, report: Callable[[str, BaseException], None]) -> None:
        """`report` hears of what went wrong beyond a turn's own failure, which is in the record."""
        self._agent = agent
        self._report = report
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wanted: dict[str, set[str]] = {}

    def wake(self, session_id: str, turn_id: str = "") -> None:
        """A turn was queued here; without an id, whichever waits is run, whoever queued it."""
        self._wanted.setdefault(session_id, set()).add(turn_id)
        if session_id not in self._tasks:
            self._tasks[session_id] = asyncio.create_task(self._serve(session_id))

    @property
    def busy(self) -> bool:
        """Whether anything runs here."""
        return bool(self._tasks)

    async def settled(self, session_id: str) -> None:
        """Wait until this process has nothing left to run in a session."""
        while (task := self._tasks.get(session_id)) is not None:
            await asyncio.wait({task})

    async def idle(self) -> None:
        """Wait until this process has nothing left to run in any session."""
        while self._tasks:
            await asyncio.wait(set(self._tasks.values()))

    async def close(self) -> None:
        """Interrupt what runs and wait until it has ended, in the record."""
        await cancel_all(*self._tasks.values())

    async def _serve(self, session_id: str) -> None:
        try:
            while wanted := self._wanted.get(session_id):
                await self._serve_turn(session_id, wanted.pop())
        finally:
            del self._tasks[session_id]
            self._wanted.pop(session_id, None)

    async def _serve_turn(self, session_id: str, turn_id: str) -> None:
        """Run the turn when it can be run; without an id, all that wait. What others queued is theirs to run."""
        failures = 0
        while failures < FAILURES_MAX:
            try:
                if await self._try_turn(session_id, turn_id):
                    return
                failures = 0
            except Exception as error:  # noqa: BLE001  # boundary: process edge
                self._report(session_id, error)
                if isinstance(error, HansardError) and error.retryable:
                    await asyncio.sleep(HEAL_SECONDS)
                else:
                    failures += 1

    async def _try_turn(self, session_id: str, turn_id: str) -> bool:
        """Run a turn, or wait for the one that is in its way; return whether nothing is left to run."""
        try:
            ran = await run_turn(self._agent, session_id, turn_id)
        except (NotFound, SessionEnded):
            return True
        except LeaseHeld:
            await self._wait_for_end(session_id)
            return False
        if ran.stopped:
            await self._gather(session_id)
        return bool(turn_id)

    async def _wait_for_end(self, session_id: str) -> None:
        """Wait until the turn that runs elsewhere has ended, or a while."""
        seq = (await self._agent.record.conversation(session_id)).seq
        await self._next_entry(session_id, seq, "turn.ended", LOOK_SECONDS)

    async def _gather(self, session_id: str) -> None:
        """Let somebody who is still speaking finish."""
        deadline = asyncio.get_running_loop().time() + GATHER_SECONDS_MAX
        seq: int | None = (await self._agent.record.conversation(session_id)).seq
        while seq is not None and asyncio.get_running_loop().time() < deadline:
            seq = await self._next_entry(session_id, seq, "message.added", GATHER_SECONDS)

    async def _next_entry(self, session_id: str, after: int, kind: str, seconds: float) -> int | None:
        """Return the seq of the next entry of a kind, or None when none came in time."""
        try:
            async with (
                asyncio.timeout(seconds),
                aclosing(self._agent.record.follow(session_id, after, chunks=False)) as items,
            ):
                async for item in items:
                    if isinstance(item, Entry) and item.kind == kind and is_said(item):
                        return item.seq
        except TimeoutError:
            pass
        return None


def is_said(entry: Entry) -> bool:
    """Return whether an entry counts as somebody speaking; everything but notices does."""
    return not isinstance(entry.body, MessageAdded) or entry.body.role == "user"
