"""Which sessions have a turn to run: one task each, in this process.

Reads: queued turns, and who asks for them. Writes: nothing; turns write.
Invariants: what waits is in the record, so a restart, or another process, finds it; this is only who runs it now. A
turn is claimed when it has a place: so many run at once in this process, and so many of one person. What is said in
several parts is answered once: only the start of its turn waits for them, parts and turn are in the record.
On crash: the next start finds the turns queued, and runs them at once.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.fairness import Bounds
from hansard.engine.compaction import FULL_PERCENT, make_room
from hansard.engine.slots import Slots
from hansard.engine.titles import first_exchange, give_title, is_asked
from hansard.engine.turns import Agent, Ran, models_of, run_turn
from hansard.errors import HansardError, LeaseHeld, LimitReached, NotFound, SessionEnded
from hansard.record.entries import Entry
from hansard.record.messages.entries import MessageAdded
from hansard.tasks import cancel_all

if TYPE_CHECKING:
    from collections.abc import Callable

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

CHORES = Bounds(together=4, person=1)
"""Summaries and titles that are asked for beside the turns: at once, and for one person."""

CHORES_WAITING_MAX = 1000
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
        self._chores: dict[str, asyncio.Task[None]] = {}
        self._titling: dict[str, asyncio.Task[None]] = {}
        self._titled: dict[str, None] = {}
        """Sessions of which a title was asked for, the latest of them."""
        self._slots = Slots(bounds_of(agent))
        self._beside = Slots(CHORES)
        self._bells: dict[str, asyncio.Event] = {}
        """By session whose turn waits for a place: rung when somebody else may ask for it."""
        self._closed = False
        self._ended: Callable[[str, Ran], None] = lambda _session_id, _ran: None

    def listen(self, ended: Callable[[str, Ran], None]) -> None:
        """Tell of every turn that ends in this process: its session, and what became of it."""
        self._ended = ended

    def use_agent(self, agent: Agent) -> None:
        """Run the turns that begin from now on with this agent; those that run go on with theirs."""
        self._agent = agent
        self._slots.apply_bounds(bounds_of(agent))

    @property
    def running(self) -> int:
        """How many turns run."""
        return self._slots.held

    @property
    def waiting(self) -> int:
        """How many turns wait for a place."""
        return self._slots.waiting

    async def outlived(self) -> None:
        """Wait until whatever asks a model in this process now has ended. What waits for a place begins anew."""
        await self._slots.outlived()
        await self._beside.outlived()

    def leave_waiting(self) -> None:
        """Begin no turn that would have to wait for a place: it stays queued, for whoever serves next.

        Parts are not waited for any more.
        """
        for session_id in list(self._gathered):
            self._start_gathered(session_id)
        self._slots.shut()
        self._beside.shut()

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
        """Serve a session. What is summed up there waits: whoever speaks comes first."""
        if (chore := self._chores.get(session_id)) is not None:
            chore.cancel()
        self._wanted.setdefault(session_id, set()).add(turn_id)
        if session_id not in self._tasks:
            self._tasks[session_id] = asyncio.create_task(self._serve(session_id))
        elif (bell := self._bells.get(session_id)) is not None:
            bell.set()

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
        """Interrupt what runs and wait until it has ended, in the record. What waits for its parts stays queued."""
        self._closed = True
        for gathered in self._gathered.values():
            gathered.timer.cancel()
        self._gathered.clear()
        await cancel_all(*self._tasks.values(), *self._chores.values(), *self._titling.values())

    async def _serve(self, session_id: str) -> None:
        try:
            await self.tidied(session_id)
            while wanted := self._wanted.get(session_id):
                await self._serve_turn(session_id, wanted.pop())
        finally:
            del self._tasks[session_id]
            self._wanted.pop(session_id, None)
        if not self._closed and len(self._chores) < CHORES_WAITING_MAX:
            self._tidy(session_id)

    async def tidied(self, session_id: str) -> None:
        """Wait until nothing is summed up in a session any more."""
        while (chore := self._chores.get(session_id)) is not None:
            await asyncio.wait({chore})

    def _tidy(self, session_id: str) -> None:
        """Sum up what was said, where a person asked for it or the window fills: after the answer, beside nothing."""

        def done(chore: asyncio.Task[None]) -> None:
            if self._chores.get(session_id) is chore:
                del self._chores[session_id]

        chore = asyncio.create_task(self._do_chore(session_id))
        self._chores[session_id] = chore
        # Also when it is cancelled before it began.
        chore.add_done_callback(done)

    async def _do_chore(self, session_id: str) -> None:
        try:
            async with self._beside.place(lambda: self._askers(session_id), asyncio.Event()) as has_place:
                if has_place:
                    await self._make_room(session_id, self._agent.compaction.start_percent, after=True)
        except HansardError:
            # The record cannot tell who asks. The turn that comes next meets the same, and tells.
            return

    async def _askers(self, session_id: str) -> tuple[str, ...]:
        """Return who asks for the next turn of a session, each person by one name."""
        return await self._agent.record.budgets.askers(session_id)

    async def _make_room(self, session_id: str, percent: int, *, after: bool = False) -> None:
        """Sum up where it is due; what goes wrong is reported, and the conversation goes on without."""
        try:
            await make_room(self._agent, session_id, percent, after=after)
        except HansardError:
            # The turn that comes next meets the same, and tells.
            return
        except Exception as error:  # noqa: BLE001  # boundary: process edge
            self._report(session_id, error)

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
                if not isinstance(error, HansardError):
                    self._ended(session_id, Ran(turn_id, failed=type(error).__name__))
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
        except LeaseHeld:
            await self._wait_for_end(session_id)
            return False
        if ran is None:
            return True
        self._ended(session_id, ran)
        self._give_title(session_id, ran.turn_id)
        if ran.stopped:
            await self._gather(session_id)
        return bool(turn_id)

    async def _run_turn(self, session_id: str, turn_id: str) -> Ran | None:
        """Run a turn when there is a place for it. None: it stays queued, for whoever serves next."""
        bell = self._bells[session_id] = asyncio.Event()
        try:
            async with self._slots.place(lambda: self._askers(session_id), bell) as has_place:
                del self._bells[session_id]
                if not has_place:
                    return None
                await self._make_room(session_id, FULL_PERCENT)
                return await run_turn(self._agent, session_id, turn_id)
        finally:
            self._bells.pop(session_id, None)

    def _give_title(self, session_id: str, turn_id: str) -> None:
        """Ask for a session's title, beside everything else: once in this process, after a turn that answered."""
        is_full = len(self._titling) >= CHORES_WAITING_MAX
        if not is_full and session_id not in self._titling and session_id not in self._titled and not self._closed:
            self._titling[session_id] = asyncio.create_task(self._try_title(session_id, turn_id))

    async def _try_title(self, session_id: str, turn_id: str) -> None:
        """Ask the model for a title. On failure the session stays untitled."""
        asked = False
        try:
            async with self._beside.place(lambda: self._askers(session_id), asyncio.Event()) as has_place:
                asked = has_place and await title_after(self._agent, session_id, turn_id)
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

    async def titled(self, session_id: str) -> None:
        """Wait until a session has its title, if it is asked for."""
        if (titling := self._titling.get(session_id)) is not None:
            await asyncio.wait({titling})

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


def bounds_of(agent: Agent) -> Bounds:
    """Return how many turns may run at once."""
    return Bounds(agent.limits.turns_running_max, agent.limits.person_turns_running_max)


def is_said(entry: Entry) -> bool:
    """Return whether an entry counts as somebody speaking; everything but notices does."""
    return not isinstance(entry.body, MessageAdded) or entry.body.role == "user"


async def title_after(agent: Agent, session_id: str, turn_id: str) -> bool:
    """Ask for a title after a turn; return whether it was the time for it."""
    conversation = await agent.record.conversation(session_id)
    models = await models_of(agent, conversation)
    if not is_asked(agent.policy.titles, models[0].name):
        return True
    if not first_exchange(conversation):
        return False
    await give_title(agent, models[0], session_id, turn_id)
    return True
