"""Places for what runs at once in this process, given out fairly by person.

Reads, writes: nothing. What waits for a place is in the record, as a turn that is queued.
Invariants: a place is given by the rule of `domain/fairness.py`; nothing polls: whoever waits is called when a place
comes free, when the bounds change, or when waiting is over.
On crash: nothing to do.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hansard.domain.fairness import Bounds, FairQueue, People, Ticket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


class Slots:
    """Places, and the line before them."""

    def __init__(self, bounds: Bounds) -> None:
        """All places are free."""
        self._bounds = bounds
        self._line = FairQueue()
        self._bells: dict[Ticket, asyncio.Event] = {}
        """Of those who wait: rung when they are called, when others ask for the same, when waiting is over."""
        self._over: dict[Ticket, asyncio.Event] = {}
        """Of those who hold a place: set when they give it back."""
        self._shut = False

    @property
    def held(self) -> int:
        """How many places are held."""
        return self._line.held

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._line.waiting

    def apply_bounds(self, bounds: Bounds) -> None:
        """Have so many places from now on. Who holds one keeps it."""
        self._bounds = bounds
        self._call()

    def shut(self) -> None:
        """Let nobody wait any longer: everybody who waits, or would have to, leaves without a place."""
        self._shut = True
        for ticket, bell in self._bells.items():
            self._line.leave(ticket)
            bell.set()
        self._bells.clear()

    async def outlived(self) -> None:
        """Wait until all who hold a place now have given it back."""
        for over in list(self._over.values()):
            await over.wait()

    @asynccontextmanager
    async def place(self, asks: Callable[[], Awaitable[People]], bell: asyncio.Event) -> AsyncIterator[bool]:
        """Hold a place while this lasts; False: waiting is over, and there is none.

        `asks` says who asks, and is asked again when the `bell` is rung.
        """
        ticket = self._line.join(await asks())
        self._bells[ticket] = bell
        try:
            self._call()
            while ticket in self._bells and not self._shut:
                await bell.wait()
                bell.clear()
                if ticket in self._bells:
                    self._line.change(ticket, await asks())
                    self._call()
            yield ticket in self._over
        finally:
            self._bells.pop(ticket, None)
            self._line.leave(ticket)
            if (over := self._over.pop(ticket, None)) is not None:
                over.set()
            self._call()

    def _call(self) -> None:
        """Give the places that are free to those who are to have them."""
        while (ticket := self._line.call(self._bounds)) is not None:
            self._over[ticket] = asyncio.Event()
            self._bells.pop(ticket).set()
