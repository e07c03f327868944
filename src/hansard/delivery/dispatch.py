"""From the outbox to a channel: a lane for each chat, in order; lanes do not wait for one another.

Reads: the outbox. Writes: through lanes: deliveries, `message.delivered`.
Invariants: a chat's messages are begun in the order of the outbox; a chat that is gone stops no other.
On crash: what waits is in the record.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from hansard.delivery.sending import Pace, Sender, nobody_follows
from hansard.delivery.stream import Kind, Rhythm, Showing
from hansard.errors import HansardError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hansard.delivery.sending import MayFollow, Report
    from hansard.domain.notices import Notices
    from hansard.ports.channel import Channel, Timeline
    from hansard.record.api import Record
    from hansard.record.outbox import Waiting

Name = tuple[str, str, str]
"""Session, message, chat."""


def name_of(waiting: Waiting) -> Name:
    """Return what tells one waiting message from another."""
    return waiting.session_id, waiting.message_id, waiting.chat


class Standing(NamedTuple):
    """How a dispatcher does, for health and drain."""

    lanes: int
    waiting: int
    is_fine: bool
    trouble: str
    sent: int = 0
    note: str = ""


class Lane:
    """One chat's messages, in order. It ends when nothing waits any more."""

    def __init__(self, sender: Sender, report: Report, chat: str, ended: Callable[[Name], None]) -> None:
        """Begin empty. `ended` hears of each message that needs nothing more."""
        self._ended = ended
        self._sender = sender
        self._report = report
        self._chat = chat
        self._rhythm = Rhythm()
        self.shows: list[Showing] = []
        self.woken = asyncio.Event()

    def add(self, waiting: Waiting) -> None:
        """Take another message in."""
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
                async with self._sender.weather.fair():
                    due = await self._try_round()
                if not self.shows:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(None if math.isinf(due) else due):
                        await self.woken.wait()
        finally:
            for show in self.shows:
                show.close()

    async def _try_round(self) -> float:
        """Go through the messages; after an error, read anew what was done for them, and try again in a while."""
        try:
            return await self._round()
        except Exception as error:  # noqa: BLE001  # boundary: process edge
            self._report(self._chat, error)
            for show in self.shows:
                show.forget()
            return asyncio.get_running_loop().time() + self._sender.pace.heal_seconds

    async def _round(self) -> float:
        """Go through the messages once; return when to do so again."""
        due = math.inf
        for show in [show for show in self.shows if show.is_dropped]:
            self._remove(show)
        for show in list(self.shows):
            step = await show.step(alone=len(self.shows) == 1)
            if step.kind is Kind.DONE:
                self._remove(show)
            elif step.kind is Kind.BLOCKED:
                return 0.0 if math.isinf(step.due) else step.due
            else:
                due = min(due, step.due)
                if step.kind is Kind.HOLDS:
                    break
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
        pace: Pace = Pace(),  # noqa: B008 - a value
        may_follow: MayFollow = nobody_follows,
    ) -> None:
        """`report` hears of what went wrong beyond what the record tells; `may_follow` says who sees what elsewhere."""
        self._record = record
        self._channel = channel
        self._report = report
        self._pace = pace
        self._sender = Sender(record, channel, timeline, pace, report)
        self._sender.may_follow = may_follow
        self._lanes: dict[str, tuple[Lane, asyncio.Task[None]]] = {}
        self._known: set[Name] = set()
        self._after = 0
        self._woken = asyncio.Event()
        self._looked = asyncio.Event()
        self._looks = 0
        self._last_look = 0
        """The number of the last look that came to its end."""

    def use(self, notices: Notices) -> None:
        """Speak in these words from now on."""
        self._sender.notices = notices

    @property
    def standing(self) -> Standing:
        """How it does."""
        weather = self._sender.weather
        waiting = sum(len(lane.shows) for lane, _ in self._lanes.values())
        return Standing(len(self._lanes), waiting, weather.is_fine, weather.trouble, self._sender.sent, weather.note)

    async def run(self) -> None:
        """Show what waits, and what comes, until cancelled; then wait for the calls that are under way."""
        loop = asyncio.get_running_loop()
        full_at = 0.0
        try:
            with self._record.notify(self._woken):
                while True:
                    self._woken.clear()
                    is_full = loop.time() >= full_at
                    if is_full:
                        full_at = loop.time() + self._pace.full_look_seconds
                    await self._look(is_full=is_full)
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(full_at):
                            await self._woken.wait()
                    await asyncio.sleep(self._pace.look_seconds)
        finally:
            await self._end()

    async def _end(self) -> None:
        tasks = [task for _, task in self._lanes.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _look(self, *, is_full: bool) -> None:
        """Give what is new in the outbox to its lanes; a full look notices what waits no longer."""
        self._looks += 1
        number = self._looks
        try:
            seen = await self._read(0 if is_full else self._after)
        except HansardError as error:
            self._report(self._channel.name, error)
            return
        if is_full:
            for lane, _ in self._lanes.values():
                if any(name_of(show.waiting) not in seen for show in lane.shows):
                    lane.drop(seen)
        self._last_look = number
        self._looked.set()

    async def _read(self, after: int) -> set[Name]:
        seen: set[Name] = set()
        left_over = False
        while page := await self._record.outbox.waiting(self._channel.name, after=after):
            for waiting in page:
                name = name_of(waiting)
                seen.add(name)
                left_over = not self._assign(name, waiting) or left_over
            after = page[-1].number
            if not left_over:
                self._after = after
        return seen

    def _assign(self, name: Name, waiting: Waiting) -> bool:
        """Give a message to its chat's lane; return whether there was room."""
        if name in self._known:
            return True
        lane = self._lanes[waiting.chat][0] if waiting.chat in self._lanes else None
        if lane is None:
            if len(self._lanes) >= self._pace.lanes_max:
                return False
            lane = Lane(self._sender, self._report, waiting.chat, self._known.discard)
            task = asyncio.create_task(lane.run())
            self._lanes[waiting.chat] = (lane, task)
            task.add_done_callback(lambda done: self._lane_ended(waiting.chat, done))
        self._known.add(name)
        lane.add(waiting)
        return True

    def _lane_ended(self, chat: str, task: asyncio.Task[None]) -> None:
        """Nothing waits in a chat any more, or its lane failed: what it had is looked at again."""
        lane, _ = self._lanes.pop(chat)
        if lane.shows:
            self._known.difference_update(name_of(show.waiting) for show in lane.shows)
            self._after = 0
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(chat, error)
        self._woken.set()

    async def drained(self) -> None:
        """Wait until nothing waits to be shown."""
        while True:
            # A look that has begun may have read the outbox before what a lane wrote last.
            wanted = self._looks + 1
            while self._last_look < wanted:
                self._looked.clear()
                self._woken.set()
                await self._looked.wait()
            tasks = [task for _, task in self._lanes.values()]
            if not tasks:
                return
            await asyncio.wait(tasks)
