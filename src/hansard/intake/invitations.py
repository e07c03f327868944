"""Where the agent comes to: invitations that it accepts or declines, and chats that are replaced by others.

Reads: invitations that wait in the record. Writes: that one came, with the cursor; that it was answered.
Invariants: what an invitation is answered with is decided when it is received; the platform is asked beside the
receiving loop, some at once, so that an answer that hangs holds up nobody.
On crash: what was not answered is open in the record, and is answered at the next start.
"""

from __future__ import annotations

import asyncio

from hansard.domain.arrivals import IntakeRules, Origin
from hansard.errors import ChannelBusy, ChannelError
from hansard.intake.beside import Beside, Report
from hansard.ports.channel import Channel
from hansard.record.api import Record
from hansard.record.invitations import InvitationAnswered, InvitationReceived
from hansard.tasks import backoff_seconds

ANSWER_ATTEMPTS_MAX = 3
ANSWER_PAUSE_SECONDS = 1.0
ANSWER_PAUSE_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 180.0
"""How long one try may take: a homeserver may have to fetch a large room from others."""

ANSWERS_TOGETHER_MAX = 16
SOURCE_TOGETHER_MAX = 2
"""Invitations that are answered at once: in all, and of one person or of all strangers."""


class ChatInvitations:
    """Answers invitations, and follows replaced chats, on one channel."""

    def __init__(self, record: Record, channel: Channel, report: Report) -> None:
        self._record, self._channel, self._report = record, channel, report
        self.beside: Beside[InvitationReceived] = Beside(
            self._list_due,
            self._answer,
            name=lambda received: received.event_id,
            together_max=ANSWERS_TOGETHER_MAX,
            report=report,
        )

    async def take_invitation(self, origin: Origin, rules: IntakeRules, *, replaces: str) -> None:
        """Record that the agent is asked into a chat, or that a chat was replaced; it is answered beside this."""
        if await self._record.invitations.receive(origin, rules, replaces=replaces):
            self.beside.wake()

    async def _list_due(self) -> list[InvitationReceived]:
        return await self._record.invitations.list_due(
            self._channel.name, self._channel.account, source_max=SOURCE_TOGETHER_MAX, limit=ANSWERS_TOGETHER_MAX
        )

    async def _answer(self, received: InvitationReceived) -> None:
        """Come into a chat, or decline to; record what became of it, and tell those whose chat was replaced."""
        failure = await self._try(received)
        chat, text = "", ""
        if received.replaces and failure:
            chat, text = received.replaces, self._record.words.not_followed.format(why=failure)
        elif received.replaces:
            chat, text = received.chat, self._record.words.replaced_here.format(room=received.replaces)
        answered = InvitationAnswered(
            channel=received.channel, account=received.account, event_id=received.event_id, failure=failure
        )
        await self._record.invitations.settle_invitation(answered, chat, text)

    async def _try(self, received: InvitationReceived) -> str:
        """Ask the platform, several times; return why that failed, empty when it did not."""
        why = ""
        for attempt in range(1, ANSWER_ATTEMPTS_MAX + 1):
            pause = backoff_seconds(attempt, ANSWER_PAUSE_SECONDS, ANSWER_PAUSE_SECONDS_MAX)
            try:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    await self._channel.answer(received.chat, accept=received.accept, reason=received.text)
            except TimeoutError as error:
                self._report(received.event_id, error)
                why = f"no answer in {ANSWER_SECONDS_MAX:g} seconds"
            except ChannelError as error:
                self._report(received.event_id, error)
                why = str(error)
                if not error.retryable:
                    break
                pause = max(pause, error.seconds) if isinstance(error, ChannelBusy) else pause
            else:
                return ""
            if attempt < ANSWER_ATTEMPTS_MAX:
                await asyncio.sleep(min(pause, ANSWER_PAUSE_SECONDS_MAX))
        return why
