"""Work beside the receiving loop: what another server has to be asked for, a bounded number at once.

Reads: what the record has as open. Writes: nothing itself; each job records its own end.
Invariants: receiving never waits for a job; so many jobs run together, and of one source only as many as the record
gives at once.
On crash: a job that was not ended is still open in the record, and is begun again at the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from hansard.errors import MUST_END, HansardError
from hansard.tasks import backoff_seconds, cancel_all

Job = TypeVar("Job")

Report = Callable[[str, BaseException], None]

HEAL_SECONDS = 1.0
"""Pause before another try while the record cannot be read or written."""

HEAL_SECONDS_MAX = 60.0
"""The longest pause before a job is tried again that ends in an error each time."""


class Beside(Generic[Job]):
    """Runs the open jobs of one kind, on one channel."""

    def __init__(
        self,
        list_due: Callable[[], Awaitable[Sequence[Job]]],
        perform: Callable[[Job], Awaitable[None]],
        *,
        name: Callable[[Job], str],
        together_max: int,
        report: Report,
    ) -> None:
        """`list_due` gives what is open, in the order in which it is due, what runs already included."""
        self._list_due, self._perform, self._name = list_due, perform, name
        self._together_max, self._report = together_max, report
        self._running: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        self._due = asyncio.Event()
        self._due.set()
        self._fatal: BaseException | None = None

    def wake(self) -> None:
        self._due.set()

    async def run(self) -> None:
        """Do what is open, and what becomes so, until cancelled."""
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                await self._start_due()
        finally:
            await cancel_all(*self._running.values())

    async def finish_jobs(self) -> None:
        """Do all that is open, and return: for whoever has no loop."""
        try:
            self._due.set()
            while self._due.is_set() or self._running:
                self._due.clear()
                await self._start_due()
                if self._running:
                    await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_all(*self._running.values())

    async def _start_due(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        before = set(self._running)
        try:
            jobs = await self._list_due()
        except MUST_END:
            raise
        except HansardError as error:
            self._report("", error)
            await asyncio.sleep(HEAL_SECONDS)
            self._due.set()
            return
        for job in jobs:
            name = self._name(job)
            # One that ran while the list was read may have ended since: its end wakes the next look.
            if len(self._running) < self._together_max and name not in before | self._running.keys():
                self._running[name] = asyncio.create_task(self._do(job, name))

    async def _do(self, job: Job, name: str) -> None:
        """Do one job. One that could not be ended is open still, and is tried again after a while."""
        try:
            await self._perform(job)
        except MUST_END as error:
            self._fatal = error
        except Exception as error:  # noqa: BLE001  # boundary: channel call
            self._report(name, error)
            self._failures[name] = self._failures.get(name, 0) + 1
            await asyncio.sleep(backoff_seconds(self._failures[name], HEAL_SECONDS, HEAL_SECONDS_MAX))
        else:
            self._failures.pop(name, None)
        finally:
            del self._running[name]
            self._due.set()
