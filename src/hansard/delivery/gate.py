"""Who may talk to the platform now: a few chats at once, given in turn to the people who are shown something.

Reads, writes: nothing.
Invariants: a place is given by the rule of `domain/fairness.py`, so one person's thousand posts, in one chat or in a
thousand, delay another's by those that are under way; while the platform asks to wait nobody has a place; after
trouble one chat at a time tries. Nothing polls: one timer waits for the weather, for all.
On crash: nothing to do.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hansard.domain.fairness import Bounds, Line, People, Ticket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hansard.delivery.sending import Pace, Weather

ALONE = Bounds(together=1, person=1)


class Gate:
    """Places before one channel, and the line for them."""

    def __init__(self, weather: Weather, pace: Pace) -> None:
        """Nobody waits."""
        self._weather = weather
        self._bounds = Bounds(pace.calls_max, max(1, pace.calls_max // pace.person_share))
        self._line = Line()
        self._bells: dict[Ticket, asyncio.Event] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits: whoever has shown something gives way."""
        return bool(self._bells)

    @asynccontextmanager
    async def place(self, people: People) -> AsyncIterator[None]:
        """Wait until it is worth trying and one's turn; hold the place while this lasts."""
        ticket = self._line.join(people)
        bell = self._bells[ticket] = asyncio.Event()
        try:
            self._call()
            await bell.wait()
            yield
        finally:
            self._bells.pop(ticket, None)
            self._line.leave(ticket)
            self._call()

    def _call(self) -> None:
        """Give the free places; while the platform asks to wait, do so when it no longer does."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._bells:
            return
        if not self._weather.is_fine:
            self._timer = asyncio.get_running_loop().call_at(self._weather.until, self._call)
            return
        while (ticket := self._line.call(ALONE if self._weather.is_careful else self._bounds)) is not None:
            self._bells.pop(ticket).set()
