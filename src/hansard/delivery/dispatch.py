"""From the outbox to a channel: a lane for each chat, in order; and the sign that the agent writes.

Reads: the outbox; who asked; running turns. Writes: through lanes: deliveries, `message.delivered`.
Invariants: a chat's messages are begun in the order of the outbox; a chat that is gone stops no other. Lanes have the
platform in turn, by person (`ChannelGate`), and one person has a part of the lanes. What finds no room waits in the
record. The sign of typing goes when the turn ends, however it ends; a turn whose process died shows none.
On crash: what waits is in the record. The sign fades by itself where the platform lets it; the next process takes it
away where words wait to be shown.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from hansard.delivery.sending import DeliveryTiming, Report, Sender
from hansard.delivery.stream import Rhythm, Showing, ShowState
from hansard.domain.deliveries import OutboxItem
from hansard.errors import HansardError
from hansard.ports.channel import Channel, Timeline
from hansard.record.api import Record
from hansard.tasks import Askers, cancel_all, wait_until

Name = tuple[str, str, str]
"""Session, message, chat."""

TYPING_LOOK_SECONDS = 0.2
"""The shortest pause between two looks: a turn that is over sooner needs no sign."""

TYPING_LATEST_SECONDS = 5.0
"""While a sign is shown, the longest until the next look: a process that runs a turn may die without a word."""

TYPING_CALLS_MAX = 8
TYPING_CALL_SECONDS_MAX = 5.0
"""For one call: a chat in which it hangs must not keep the sign up in others."""


def name_of(waiting: OutboxItem) -> Name:
    """Return what tells one waiting message from another."""
    return waiting.session_id, waiting.message_id, waiting.chat


class Lane:
    """One chat's messages, in order. It ends when nothing waits any more."""

    def __init__(self, sender: Sender, chat: str, people: Askers, ended: Callable[[Name], None]) -> None:
        """Begin empty. `people` are shown something; `ended` hears of each message that needs nothing more."""
        self._ended = ended
        self.begun_for = people
        """Whose lanes it counts to, until it ends."""
        self.people = people
        """Who asked last for what is shown here."""
        self._sender = sender
        self._chat = chat
        self._rhythm = Rhythm()
        self.shows: list[Showing] = []
        self.woken = asyncio.Event()
        self.task = asyncio.create_task(self.run())

    def add(self, waiting: OutboxItem) -> None:
        self.shows.append(Showing(self._sender, waiting, self._rhythm, self.woken))
        self.woken.set()

    def drop(self, waiting: set[Name]) -> None:
        """Let go of what waits no longer: somebody dropped it."""
        for show in self.shows:
            if name_of(show.waiting) not in waiting:
                show.is_dropped = True
        self.woken.set()

    async def run(self) -> None:
        """Show everything; wait where something is still being said."""
        try:
            while self.shows:
                self.woken.clear()
                async with self._sender.gate.place(self.people):
                    self._rhythm.has_posted = False
                    due = await self._try_round()
                if not self.shows:
                    return
                await wait_until(self.woken, None if math.isinf(due) else due)
        finally:
            for show in self.shows:
                show.close()

    async def _try_round(self) -> float:
        """Go through the messages; after an error, read anew what was done for them, and try again in a while."""
        try:
            return await self._round()
        except Exception as error:  # noqa: BLE001  # boundary: process edge
            self._sender.report(self._chat, error)
            for show in self.shows:
                show.forget()
            return asyncio.get_running_loop().time() + self._sender.pace.heal_seconds

    async def _round(self) -> float:
        due = math.inf
        for show in [show for show in self.shows if show.is_dropped]:
            self._remove(show)
        unshown: list[Showing] = []
        for show in list(self.shows):
            step = await show.step(alone=len(self.shows) == 1, unshown=unshown)
            if step.kind is ShowState.DONE:
                self._remove(show)
            elif step.kind is ShowState.BLOCKED:
                return 0.0 if math.isinf(step.due) else step.due
            else:
                due = min(due, step.due)
                if step.kind is ShowState.HOLDS:
                    break
                if not show.has_begun:
                    unshown.append(show)
        return due

    def _remove(self, show: Showing) -> None:
        show.close()
        self.shows.remove(show)
        self._ended(name_of(show.waiting))


class Dispatcher:
    """Everything that one channel has to show."""

    def __init__(
        self,
        record: Record,
        channel: Channel,
        *,
        timeline: Timeline | None = None,
        report: Report,
        pace: DeliveryTiming = DeliveryTiming(),  # noqa: B008 - a value
    ) -> None:
        """`report` hears of what went wrong beyond what the record tells."""
        self.sender = Sender(record, channel, timeline, pace, report)
        self.lanes: dict[str, Lane] = {}
        self._known: set[Name] = set()
        self._own: Counter[str] = Counter()
        """By person, how many lanes are theirs."""
        self._left_over: set[str] = set()
        """Chats of which something waits that no lane has yet, for want of room."""
        self._has_room = False
        """Whether something ended since that was found."""
        self._after = 0
        self._woken = asyncio.Event()
        self._looked = asyncio.Event()
        self._looks = 0
        self._last_look = 0
        """The number of the last look that came to its end."""

    async def run(self) -> None:
        """Show what waits, and what comes, until cancelled; then wait for the calls that are under way."""
        loop, pace = asyncio.get_running_loop(), self.sender.pace
        full_at, again_at = 0.0, 0.0
        try:
            with self.sender.record.notify(self._woken, chunks=False):
                while True:
                    self._woken.clear()
                    now = loop.time()
                    is_full = now >= full_at or (self._has_room and (now >= again_at or not self.lanes))
                    if is_full:
                        full_at, again_at = now + pace.full_look_seconds, now + pace.again_seconds
                    await self._read_outbox(is_full=is_full)
                    is_idle = is_full and self._last_look == self._looks and not self.lanes and not self._left_over
                    await wait_until(self._woken, None if is_idle else again_at if self._has_room else full_at)
                    await asyncio.sleep(pace.look_seconds)
        finally:
            await cancel_all(*(lane.task for lane in self.lanes.values()))

    async def _read_outbox(self, *, is_full: bool) -> None:
        """Give what is new in the outbox to its lanes; a full look notices what waits no longer."""
        self._looks += 1
        number = self._looks
        try:
            seen = await self._read(is_full=is_full)
        except HansardError as error:
            self.sender.report(self.sender.channel.name, error)
            return
        if is_full:
            for lane in self.lanes.values():
                if any(name_of(show.waiting) not in seen for show in lane.shows):
                    lane.drop(seen)
        self._last_look = number
        self._looked.set()

    async def _read(self, *, is_full: bool) -> set[Name]:
        """Give what waits to its lanes; return what of it they have. What comes after it in a chat is not given first.

        A full look begins with the oldest, and gives what was left over, where there is room for it now.
        """
        after = 0 if is_full else self._after
        if is_full:
            self._left_over, self._has_room = set(), False
        seen: set[Name] = set()
        while page := await self.sender.record.deliveries.list_waiting(self.sender.channel.name, after=after):
            for waiting in page:
                name = name_of(waiting)
                if name not in self._known and waiting.chat not in self._left_over:
                    await self._assign(name, waiting)
                if name in self._known:
                    seen.add(name)
                else:
                    self._left_over.add(waiting.chat)
            self._after = after = page[-1].number
        return seen

    async def _assign(self, name: Name, waiting: OutboxItem) -> None:
        people = await self._shown_to(waiting)
        lane = self.lanes.get(waiting.chat)
        if lane is None:
            pace = self.sender.pace
            own_max = max(1, pace.lanes_max // pace.person_share)  # one person has a part of the lanes
            if len(self.lanes) >= pace.lanes_max or all(self._own[person] >= own_max for person in people):
                return
            lane = Lane(self.sender, waiting.chat, people, self._let_go)
            self.lanes[waiting.chat] = lane
            self._own.update(lane.begun_for)
            lane.task.add_done_callback(lambda done: self._lane_ended(waiting.chat, done))
        if len(lane.shows) < self.sender.pace.lane_messages_max:
            self._known.add(name)
            lane.people = people
            lane.add(waiting)

    async def _shown_to(self, waiting: OutboxItem) -> Askers:
        """Return who is shown a message: whoever asked in its session; the chat itself where nobody is known."""
        try:
            return await self.sender.record.turns.list_askers(waiting.session_id)
        except HansardError:
            return (waiting.chat,)

    def _let_go(self, name: Name) -> None:
        """A message needs nothing more: there is room for another one."""
        self._known.discard(name)
        self._find_room()

    def _find_room(self) -> None:
        """What was left over may find room now: have it looked at."""
        if self._left_over:
            self._has_room = True
            self._woken.set()

    def _lane_ended(self, chat: str, task: asyncio.Task[None]) -> None:
        """Nothing waits in a chat any more, or its lane failed: what it had is looked at again."""
        lane = self.lanes.pop(chat)
        self._own.subtract(lane.begun_for)
        self._own += Counter()  # only those who have lanes are kept
        self._find_room()
        if lane.shows:
            self._known.difference_update(name_of(show.waiting) for show in lane.shows)
            self._after = 0
        if not task.cancelled() and (error := task.exception()) is not None:
            self.sender.report(chat, error)
        self._woken.set()

    async def drained(self) -> None:
        while True:
            # A look that has begun may have read the outbox before what a lane wrote last.
            wanted = self._looks + 1
            while self._last_look < wanted:
                self._looked.clear()
                self._woken.set()
                await self._looked.wait()
            tasks = [lane.task for lane in self.lanes.values()]
            if not tasks and not self._left_over:
                return
            if tasks:
                await asyncio.wait(tasks)


class Typing:
    """The sign in every chat of a channel that the agent writes. It is a courtesy, and fails silently."""

    def __init__(self, record: Record, channel: Channel) -> None:
        self._record = record
        self._channel = channel
        self._renew_seconds = channel.capabilities.typing_seconds
        self._calls = asyncio.Semaphore(TYPING_CALLS_MAX)
        self._shown: dict[str, float] = {}

    async def run(self) -> None:
        """Keep the signs true, until cancelled; then take them away."""
        woken = asyncio.Event()
        try:
            await self._take_away_left()
            with self._record.notify(woken, chunks=False):
                while True:
                    woken.clear()
                    await self._show_typing()
                    await asyncio.sleep(TYPING_LOOK_SECONDS)
                    await wait_until(woken, self._due())
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.gather(*(self._call(chat, on=False) for chat in self._shown))

    def _due(self) -> float | None:
        """Return when to look again although nothing was recorded: None, as long as no sign is shown."""
        latest = asyncio.get_running_loop().time() + TYPING_LATEST_SECONDS
        return min(latest, *self._shown.values()) if self._shown else None

    async def _take_away_left(self) -> None:
        """Take away the signs that a process left which died: where it did, something waits to be shown now."""
        try:
            waiting = await self._record.deliveries.list_waiting(self._channel.name)
        except HansardError:
            return
        await asyncio.gather(*(self._call(chat, on=False) for chat in {each.chat for each in waiting}))

    async def _show_typing(self) -> None:
        try:
            writing = set(await self._record.turns.list_writing_chats(self._channel.name))
        except HansardError:
            return
        now = asyncio.get_running_loop().time()
        over = [chat for chat in self._shown if chat not in writing]
        begun = [chat for chat in writing if self._shown.get(chat, 0) <= now]
        for chat in over:
            del self._shown[chat]
        self._shown.update(dict.fromkeys(begun, now + self._renew_seconds))
        off = [self._call(chat, on=False) for chat in over]
        await asyncio.gather(*off, *(self._call(chat, on=True) for chat in begun))

    async def _call(self, chat: str, *, on: bool) -> None:
        async with self._calls:
            with suppress(Exception):  # boundary: channel call
                async with asyncio.timeout(TYPING_CALL_SECONDS_MAX):
                    await self._channel.typing(chat, on=on)
