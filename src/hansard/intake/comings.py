"""Where the agent comes to: invitations that it accepts or declines, and chats that are replaced by others.

Reads: who may invite; routes. Writes: why an invitation is declined; where a replaced chat's conversation goes on.
On crash: the event comes again, and each step looks first at what is done.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hansard.domain.access import Action
from hansard.domain.arrivals import Invited
from hansard.domain.people import is_person
from hansard.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hansard.domain.arrivals import Rules
    from hansard.domain.notices import Notices
    from hansard.intake.people import People
    from hansard.ports.channel import Channel, Event
    from hansard.record.api import Record

    May = Callable[[Event, Action], Awaitable[bool]]
    """Whether whoever caused an event may do something."""

ANSWER_ATTEMPTS_MAX = 3
ANSWER_PAUSE_SECONDS = 1.0


class Comings:
    """Answers invitations, and follows replaced chats, on one channel."""

    def __init__(self, record: Record, channel: Channel, report: Callable[[str, BaseException], None]) -> None:
        self._record, self._channel, self._report = record, channel, report

    def use(self, people: People, rules: Rules, notices: Notices) -> None:
        """Go by these settings from the next event on."""
        self._people, self._rules, self._notices = people, rules, notices

    async def answer_invitation(self, event: Event, *, may: May) -> None:
        """Come when the person who asks may ask the agent. A stranger is told how to be allowed."""
        accept = await may(event, Action.INVITE)
        reason = "" if accept else await self._why_declined(event)
        await self._answer(event, event.chat, accept=accept, reason=reason)

    async def follow(self, event: Event, *, may: May) -> tuple[str, str]:
        """Follow into the chat that replaces another, if whoever replaced it may invite; return what to say, and where.

        A person's session goes on in the new chat. A room's session belongs to that room: the new room begins its own.
        """
        if not await may(event, Action.INVITE):
            return event.chat, ""
        led = await self._record.route(event.chat)
        if led is not None and await self._record.route(event.about) is None:
            owner = (await self._record.session(led.session_id)).owner
            if is_person(owner):
                await self._record.move_route(event.about, led.session_id, reason="replaced")
        why = await self._answer(event, event.about, accept=True)
        if why:
            return event.chat, self._notices.not_followed.format(why=why)
        return event.about, self._notices.replaced_here.format(room=event.chat)

    def company_text(self, event: Event) -> str:
        """Return what people are told when others come into a direct chat."""
        name = self._channel.account.removeprefix("@").partition(":")[0]
        return self._notices.company.format(who=event.text, name=name)

    async def _answer(self, event: Event, chat: str, *, accept: bool, reason: str = "") -> str:
        """Come into a chat, or decline to; return why that failed, empty when it did not."""
        why = ""
        for attempt in range(1, ANSWER_ATTEMPTS_MAX + 1):
            try:
                await self._channel.answer(chat, accept=accept, reason=reason)
            except ChannelError as error:
                self._report(event.id, error)
                why = str(error)
                if not error.retryable:
                    break
                await asyncio.sleep(ANSWER_PAUSE_SECONDS * attempt)
            else:
                return ""
        return why

    async def _why_declined(self, event: Event) -> str:
        standing = self._people.standing(event.sender, event.chat)
        invited = Invited(self._channel.name, event.sender, standing)
        return await self._record.access.decline(invited, self._rules)
