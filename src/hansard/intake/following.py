"""Whether a chat is shown what the same person says elsewhere, asked at the moment of showing.

Reads: routes, circles, access; the settings; who is in the chat. Writes: nothing.
Invariants: every one of these must say yes. Whoever unlinked, went on to another session, was barred, or is not alone
in the chat any more is shown nothing from then on, although it was meant for them before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hansard.domain.access import Action, may

if TYPE_CHECKING:
    from hansard.domain.listed import People
    from hansard.ports.channel import Channel, Company
    from hansard.record.api import Record


async def may_follow(record: Record, channel: Channel, people: People, session_id: str, chat: str) -> bool:
    """Return whether a chat follows a session now. A channel that cannot say who is there shows nothing."""
    follower = await record.people.follower(session_id, chat)
    if follower is None or not channel.capabilities.company:
        return False
    if not may(Action.TALK, people.standing(follower.identity, chat), follower.grant):
        return False
    return await cast("Company", channel).is_direct(chat)
