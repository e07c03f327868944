"""What may be shown now: which chats have the platform, and whether a chat is shown what is said elsewhere.

Reads: routes, circles, access; the settings; who is in the chat. Writes: nothing.
Invariants: a chat that only follows a session is asked about at the moment of showing. Whoever unlinked, went on to
another session, was barred, or is not alone in the chat any more is shown nothing from then on, although it was meant
for them before. A few chats have the platform at once, by the rule of `domain/fairness.py`: one person's thousand
posts, in one chat or in a thousand, delay another's by those that are under way. While the platform asks to wait nobody
has a place; after trouble one chat at a time tries. Nothing polls: one timer waits for the weather, for all.
On crash: nothing to do.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from hansard.domain.access import Action, may
from hansard.domain.fairness import Bounds, FairQueue, Ticket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hansard.delivery.sending import DeliveryTiming, PlatformHealth
    from hansard.domain import fairness
    from hansard.domain.listed import People
    from hansard.ports.channel import Channel, Company
    from hansard.record.api import Record

ALONE = Bounds(together=1, person=1)


async def may_follow(record: Record, channel: Channel, people: People, session_id: str, chat: str) -> bool:
    """Return whether a chat follows a session now. A channel that cannot say who is there shows nothing.

    The record is asked again once the platform has answered, which may have taken a while.
    """
    if not channel.capabilities.company or not await is_follower(record, people, session_id, chat):
        return False
    return await cast("Company", channel).is_direct(chat) and await is_follower(record, people, session_id, chat)


async def is_follower(record: Record, people: People, session_id: str, chat: str) -> bool:
    """Return whether record and settings say that a chat follows a session."""
    follower = await record.people.follower(session_id, chat)
    return follower is not None and may(Action.TALK, people.standing(follower.identity, chat), follower.grant)


class ChannelGate:
    """Places before one channel, and the line for them."""

    def __init__(self, weather: PlatformHealth, pace: DeliveryTiming) -> None:
        """Nobody waits."""
        self._weather = weather
        self._bounds = Bounds(pace.calls_max, max(1, pace.calls_max // pace.person_share))
        self._line = FairQueue()
        self._bells: dict[Ticket, asyncio.Event] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits: whoever has shown something gives way."""
        return bool(self._bells)

    @asynccontextmanager
    async def place(self, people: fairness.People) -> AsyncIterator[None]:
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
