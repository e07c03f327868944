"""Invitations that wait for an answer, as intake uses them: `record.books.invitations`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain import entries as e
from hansard.domain.chats import parse_key
from hansard.domain.entries_intake import InvitationAnswered, InvitationReceived
from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.limits import NAME_CHARACTERS_MAX, REASON_CHARACTERS_MAX
from hansard.domain.text import clean_name, clean_text
from hansard.record.operations import invitations as operations
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from hansard.domain.arrivals import Invitation, Rules
    from hansard.record.calls import Caller
    from hansard.record.reading import Snapshot


class Invitations:
    """Who asked the agent into a chat, until that is answered."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.books.invitations`."""
        self._caller = caller

    async def receive(self, invitation: Invitation, rules: Rules) -> bool:
        """Record an invitation, what it is answered with, and the cursor; return whether there is one to answer."""
        parse_key(invitation.chat)
        for name in (invitation.channel, invitation.account, invitation.event_id, invitation.identity):
            clean_name(name, "a name of a platform", NAME_CHARACTERS_MAX)
        return await self._caller.write(lambda tx: operations.receive_invitation(tx, invitation, rules))

    async def list_due(self, channel: str, account: str, *, source_max: int, limit: int) -> list[InvitationReceived]:
        """Return what is to be answered now: so many of one source, the sources in turn."""

        def read(snapshot: Snapshot) -> list[InvitationReceived]:
            home = snapshot.row(SQL.read_journal, (HOME_JOURNAL,))
            if home is None:
                return []
            rows = snapshot.rows(SQL.list_invitations, (channel, account, home[0], source_max, limit))
            bodies = [e.decode_body("invitation.received", 1, data) for (data,) in rows]
            return [body for body in bodies if isinstance(body, InvitationReceived)]

        return await self._caller.read(read)

    async def settle(self, answered: InvitationAnswered, chat: str = "", text: str = "") -> None:
        """Record that an invitation was answered, or why it cannot be; `text` is told in a chat then."""
        failure = clean_text(answered.failure)[:REASON_CHARACTERS_MAX]
        settled = InvitationAnswered(
            channel=answered.channel, account=answered.account, event_id=answered.event_id, failure=failure
        )
        await self._caller.write(lambda tx: operations.settle_invitation(tx, settled, chat, text))
