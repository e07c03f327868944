"""Which sessions have a turn to run: one task each, in this process.

Reads: queued turns, and who asks for them. Writes: nothing; turns write.
Invariants: what waits is in the record, so a restart, or another process, finds it; this is only who runs it now. A
turn is claimed when it has a place: so many run at once in this process, and so many of one person. What is said in
several parts is answered once: only the start of its turn waits for them, parts and turn are in the record.
On crash: the next start finds the turns queued, and runs them at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import NamedTuple

from hansard.engine.compaction import FULL_PERCENT, compact_if_due
from hansard.engine.titles import give_title
from hansard.engine.turns import Agent, Ran, run_turn
from hansard.errors import HansardError, LeaseHeld, LimitReached, NotFound, SessionEnded
from hansard.record.messages.entries import Entry, MessageAdded
from hansard.tasks import Askers, Bounds, FairQueue, Ticket, cancel_all

GATHER_SECONDS = 0.3
"""After an interruption, how long nobody must have spoken before the next turn begins: a burst is answered together."""

GATHER_SECONDS_MAX = 2.0
"""Somebody who never pauses is answered all the same."""

PARTS_SECONDS_MAX = 10.0
"""Somebody whose parts never end is answered all the same."""

LOOK_SECONDS = 1.0
"""How often to look whether the process that runs a turn elsewhere is still alive."""

HEAL_SECONDS = 1.0
"""Pause before another try while the record cannot be written."""

TITLED_MAX = 10_000
"""Sessions that are remembered not to be asked for a title again: what a process keeps has a bound."""

BESIDE = Bounds(together=4, person=1)
"""Summaries and titles that are asked for beside the turns: at once, and for one person."""

BESIDE_WAITING_MAX = 1000
"""Sessions that wait for a title, or for a summary. Beyond that none is asked for: a later turn asks again."""

FAILURES_MAX = 5
"""Failures in a row, beyond those of models and tools, after which a session is left alone until somebody speaks."""


class GatheredParts(NamedTuple):
    """A turn whose start waits for more of the same."""

    turn_id: str
    since: float
    timer: asyncio.TimerHandle


class Runner:
    """Runs turns of any number of sessions, one at a time in each."""

    def __init__(self, agent: Agent, report: Callable[[str, BaseException], None]) -> None:
        """`report` hears of what went wrong beyond a turn's own failure, which is in the record."""
        self._agent = agent
        self._report = report
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wanted: dict[str, set[str]] = {}
        self._gathered: dict[str, GatheredParts] = {}
        """By session."""
        self._slots = Slots(bounds_of(agent))
        self.beside = BesideTurns(agent, report)
        self._bells: dict[str, asyncio.Event] = {}
        """By session whose turn waits for a place: rung when somebody else may ask for it."""
        self.held_up: dict[str, LeaseHeld] = {}
        """By session whose turn waits for one that another process runs: which one."""
        self._closed = False
        self._ended: Callable[[str, Ran], None] = lambda _session_id, _ran: None

    def listen(self, ended: Callable[[str, Ran], None]) -> None:
        """Tell of every turn that ends in this process: its session, and what became of it."""
        self._ended = ended

    def use_agent(self, agent: Agent) -> None:
        """Run the turns that begin from now on with this agent; those that run go on with theirs."""
        self._agent = self.beside.agent = agent
        self._slots.apply_bounds(bounds_of(agent))

    @property
    def running(self) -> int:
        return self._slots.line.held

    @property
    def waiting(self) -> int:
        return self._slots.line.waiting

    async def outlived(self) -> None:
        """Wait until whatever asks a model in this process now has ended. What waits for a place begins anew."""
        await self._slots.outlived()
        await self.beside.slots.outlived()

    def leave_waiting(self) -> None:
        """Begin no turn that would have to wait for a place: it stays queued, for whoever serves next.

        Parts are not waited for any more.
        """
        for session_id in list(self._gathered):
            self._start_gathered(session_id)
        self._slots.shut()
        self.beside.slots.shut()

    def wake(self, session_id: str, turn_id: str = "", *, after_seconds: float = 0.0) -> None:
        """Run a turn that was queued here; without an id, run whichever waits, whoever queued it.

        With `after_seconds` the turn starts when nothing more of it has come for so long; without, it starts at once,
        also if its parts had been waited for.
        """
        loop = asyncio.get_running_loop()
        since = loop.time()
        if (before := self._gathered.pop(session_id, None)) is not None:
            before.timer.cancel()
            since = before.since
            if before.turn_id != turn_id:
                self._start(session_id, before.turn_id)
        if not after_seconds or loop.time() - since > PARTS_SECONDS_MAX:
            self._start(session_id, turn_id)
            return
        timer = loop.call_later(after_seconds, self._start_gathered, session_id)
        self._gathered[session_id] = GatheredParts(turn_id, since, timer)

    def _start_gathered(self, session_id: str) -> None:
        gathered = self._gathered.pop(session_id)
        gathered.timer.cancel()
        self._start(session_id, gathered.turn_id)

    def _start(self, session_id: str, turn_id: str) -> None:
        """Serve a session. Its compaction makes way for a turn: whoever speaks comes first.

        Only a turn with an id cancels the compaction. `/compact` wakes the session without one, and must not cancel the
        compaction that it asked for. A running compaction sees a queued turn in the record and stops.
        """
        if turn_id:
            self.beside.cancel_compaction(session_id)
        self._wanted.setdefault(session_id, set()).add(turn_id)
        if session_id not in self._tasks:
            self._tasks[session_id] = asyncio.create_task(self._serve(session_id))
        elif (bell := self._bells.get(session_id)) is not None:
            bell.set()

    @property
    def busy(self) -> bool:
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
        """Interrupt what runs and wait until it has ended, in the record. What waits for its parts stays queued."""
        self._closed = True
        for gathered in self._gathered.values():
            gathered.timer.cancel()
        self._gathered.clear()
        await self.beside.close(*self._tasks.values())

    async def _serve(self, session_id: str) -> None:
        try:
            await self.beside.compacted(session_id)
            while wanted := self._wanted.get(session_id):
                await self._serve_turn(session_id, wanted.pop())
        finally:
            del self._tasks[session_id]
            self._wanted.pop(session_id, None)
        if not self._closed:
            self.beside.start_compaction(session_id)

    async def _serve_turn(self, session_id: str, turn_id: str) -> None:
        """Run the turn when it can be run; without an id, all that wait. What others queued is theirs to run."""
        failures = 0
        while failures < FAILURES_MAX and not self._closed:
            try:
                if await self._try_turn(session_id, turn_id):
                    return
                failures = 0
            except Exception as error:  # noqa: BLE001  # boundary: process edge
                self._report(session_id, error)
                if not isinstance(error, HansardError):
                    self._ended(session_id, Ran(turn_id=turn_id, failed=type(error).__name__))
                if isinstance(error, HansardError) and error.retryable:
                    await asyncio.sleep(HEAL_SECONDS)
                else:
                    failures += 1

    async def _try_turn(self, session_id: str, turn_id: str) -> bool:
        """Run a turn, or wait for the one that is in its way; return whether nothing is left to run."""
        try:
            ran = await self._run_turn(session_id, turn_id)
        except (NotFound, SessionEnded, LimitReached):
            return True
        except LeaseHeld as held:
            # Until the turn that runs elsewhere has ended, or a while.
            self.held_up[session_id] = held
            try:
                seq = (await self._agent.record.conversation(session_id)).seq
                await self._next_entry(session_id, seq, "turn.ended", LOOK_SECONDS)
            finally:
                del self.held_up[session_id]
            return False
        if ran is None:
            return True
        self._ended(session_id, ran)
        if not self._closed:
            self.beside.start_title(session_id, ran.turn_id)
        if ran.stopped:
            await self._gather(session_id)
        return bool(turn_id)

    async def _run_turn(self, session_id: str, turn_id: str) -> Ran | None:
        """Run a turn when there is a place for it. None: it stays queued, for whoever serves next."""
        bell = self._bells[session_id] = asyncio.Event()
        try:
            async with self._slots.place(lambda: self._agent.record.turns.list_askers(session_id), bell) as has_place:
                del self._bells[session_id]
                if not has_place:
                    return None
                await self.beside.compact_due(session_id, FULL_PERCENT)
                return await run_turn(self._agent, session_id, turn_id)
        finally:
            self._bells.pop(session_id, None)

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


class BesideTurns:
    """Compactions and titles: what a model is asked for beside the turns."""

    def __init__(self, agent: Agent, report: Callable[[str, BaseException], None]) -> None:
        self.agent = agent
        self.slots = Slots(BESIDE)
        self._report = report
        self._compacting: dict[str, asyncio.Task[None]] = {}
        self._titling: dict[str, asyncio.Task[None]] = {}
        self._titled: dict[str, None] = {}
        """Sessions of which a title was asked for, the latest of them."""

    async def close(self, *others: asyncio.Task[None]) -> None:
        """Cancel everything, and the other tasks with it, and wait until all have ended."""
        await cancel_all(*others, *self._compacting.values(), *self._titling.values())

    async def compacted(self, session_id: str) -> None:
        while (task := self._compacting.get(session_id)) is not None:
            await asyncio.wait({task})

    async def titled(self, session_id: str) -> None:
        """Wait until a session has its title, if it is asked for."""
        if (titling := self._titling.get(session_id)) is not None:
            await asyncio.wait({titling})

    def cancel_compaction(self, session_id: str) -> None:
        if (task := self._compacting.get(session_id)) is not None:
            task.cancel()

    def start_compaction(self, session_id: str) -> None:
        """Compact a session after the answer, where a person asked for it or the window fills."""
        if len(self._compacting) >= BESIDE_WAITING_MAX:
            return

        def done(task: asyncio.Task[None]) -> None:
            if self._compacting.get(session_id) is task:
                del self._compacting[session_id]

        task = self._compacting[session_id] = asyncio.create_task(self._compact_after(session_id))
        # Also when it is cancelled before it began.
        task.add_done_callback(done)

    async def _compact_after(self, session_id: str) -> None:
        # Where the record cannot tell who asks, the turn that comes next meets the same, and tells.
        with suppress(HansardError):
            async with self._place(session_id) as has_place:
                if has_place:
                    await self.compact_due(session_id, self.agent.compaction.start_percent, after=True)

    async def compact_due(self, session_id: str, percent: int, *, after: bool = False) -> None:
        """Compact where it is due; what goes wrong is reported, and the conversation goes on without."""
        try:
            await compact_if_due(self.agent, session_id, percent, after=after)
        except HansardError:
            # The turn that comes next meets the same, and tells.
            return
        except Exception as error:  # noqa: BLE001  # boundary: process edge
            self._report(session_id, error)

    def start_title(self, session_id: str, turn_id: str) -> None:
        """Ask for a session's title: once in this process, after a turn that answered."""
        is_full = len(self._titling) >= BESIDE_WAITING_MAX
        if not is_full and session_id not in self._titling and session_id not in self._titled:
            self._titling[session_id] = asyncio.create_task(self._try_title(session_id, turn_id))

    async def _try_title(self, session_id: str, turn_id: str) -> None:
        """Ask the model for a title. On failure the session stays untitled."""
        asked = False
        try:
            async with self._place(session_id) as has_place:
                asked = has_place and await give_title(self.agent, session_id, turn_id)
        except Exception as error:  # noqa: BLE001  # boundary: process edge
            asked = True
            if not isinstance(error, HansardError):
                self._report(session_id, error)
        finally:
            del self._titling[session_id]
        if asked:
            self._titled[session_id] = None
            if len(self._titled) > TITLED_MAX:
                del self._titled[next(iter(self._titled))]

    def _place(self, session_id: str) -> AbstractAsyncContextManager[bool]:
        return self.slots.place(lambda: self.agent.record.turns.list_askers(session_id), asyncio.Event())


def bounds_of(agent: Agent) -> Bounds:
    return Bounds(agent.limits.turns_running_max, agent.limits.person_turns_running_max)


def is_said(entry: Entry) -> bool:
    """Return whether an entry counts as somebody speaking; everything but notices does."""
    return not isinstance(entry.body, MessageAdded) or entry.body.role == "user"


class Slots:
    """Places, and the line before them."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.line = FairQueue()
        self._bells: dict[Ticket, asyncio.Event] = {}
        """Of those who wait: rung when they are called, when others ask for the same, when waiting is over."""
        self._over: dict[Ticket, asyncio.Event] = {}
        """Of those who hold a place: set when they give it back."""
        self._shut = False

    def apply_bounds(self, bounds: Bounds) -> None:
        """Have so many places from now on. Who holds one keeps it."""
        self._bounds = bounds
        self._call()

    def shut(self) -> None:
        """Let nobody wait any longer: everybody who waits, or would have to, leaves without a place."""
        self._shut = True
        for ticket, bell in self._bells.items():
            self.line.leave(ticket)
            bell.set()
        self._bells.clear()

    async def outlived(self) -> None:
        """Wait until all who hold a place now have given it back."""
        for over in list(self._over.values()):
            await over.wait()

    @asynccontextmanager
    async def place(self, asks: Callable[[], Awaitable[Askers]], bell: asyncio.Event) -> AsyncIterator[bool]:
        """Hold a place while this lasts; False: waiting is over, and there is none.

        `asks` says who asks, and is asked again when the `bell` is rung.
        """
        ticket = self.line.join(await asks())
        self._bells[ticket] = bell
        try:
            self._call()
            while ticket in self._bells and not self._shut:
                await bell.wait()
                bell.clear()
                if ticket in self._bells:
                    self.line.change(ticket, await asks())
                    self._call()
            yield ticket in self._over
        finally:
            self._bells.pop(ticket, None)
            self.line.leave(ticket)
            if (over := self._over.pop(ticket, None)) is not None:
                over.set()
            self._call()

    def _call(self) -> None:
        while (ticket := self.line.call(self._bounds)) is not None:
            self._over[ticket] = asyncio.Event()
            self._bells.pop(ticket).set()
