"""Commands in chats: the same registry as in the terminal, for the chat's owner, with its reply in the chat.

Reads: the record, as far as the owner may see it (L11). Writes: what the command does; then, in one commit, where the
chat leads, the reply, and the cursor.
On crash: a command that may be repeated is run again when its event comes again; of another one people are told that
nobody knows whether it was carried out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.arrivals import ArrivalOutcome, Conclusion
from hansard.domain.budgets import quota_of
from hansard.domain.chats import person_owner, reply_id_of
from hansard.domain.policy import policy_of
from hansard.intake.commands import REPEATABLE, perform
from hansard.intake.handlers import CommandReply, CommandScene

if TYPE_CHECKING:
    from collections.abc import Callable

    from hansard.domain.access import Standpoint
    from hansard.domain.arrivals import Received
    from hansard.domain.settings import Settings
    from hansard.intake.commands import CommandLine
    from hansard.record.api import Record

LISTS_MAX = 1000
"""Chats of which it is remembered what was listed there last."""


class Origin(NamedTuple):
    """Where an event belongs: the chat, the conversation, who said it."""

    channel: str
    account: str
    event_id: str
    key: str
    chat: str
    owner: str
    identity: str


class ChatCommands:
    """Runs the commands of one channel."""

    def __init__(self, record: Record, source: str, settings: Settings, model: Callable[[], str]) -> None:
        """Nothing was listed anywhere yet."""
        self._record = record
        self._source = source
        self._model = model
        self._listed: dict[tuple[str, str], tuple[str, ...]] = {}
        self.apply_settings(settings)

    def apply_settings(self, settings: Settings) -> None:
        """Go by these settings from the next command on."""
        self._settings = settings

    async def run(
        self, place: Origin, received: Received, parsed: CommandLine, cursor: str, standpoint: Standpoint
    ) -> tuple[str, str] | None:
        """Run a command that is recorded already; return the turn (session, id) that it asks for."""
        is_again = received.outcome is ArrivalOutcome.KNOWN
        intake = self._record.intake
        if is_again and await intake.is_concluded(place.channel, place.account, place.event_id):
            outcome = CommandReply("", received.session_id)
        elif is_again and parsed.name not in REPEATABLE:
            outcome = CommandReply(self._record.words.interrupted, received.session_id)
        elif parsed.name == "fork" and not await self._may_begin_session(place):
            outcome = CommandReply(self._record.words.over_sessions, received.session_id)
        else:
            outcome = await perform(self._scene(place, received.session_id, standpoint), parsed)
        self._remember(place, outcome.listed)
        await intake.conclude(conclusion_of(place, received, parsed, outcome, cursor))
        return (outcome.session_id, outcome.wake) if outcome.wake is not None else None

    async def _may_begin_session(self, place: Origin) -> bool:
        person = person_owner(place.channel, place.identity)
        return await self._record.quotas.may_begin_session(person, quota_of(self._settings.limits))

    def _scene(self, place: Origin, session_id: str, standpoint: Standpoint) -> CommandScene:
        return CommandScene(
            self._record,
            session_id,
            owner=place.owner,
            source=self._source,
            busy=self._settings.busy,
            left_sessions=self._settings.left_sessions,
            model=self._model(),
            listed=self._listed.get((place.key, place.owner), ()),
            author=place.identity,
            chat=place.chat,
            budget=policy_of(self._settings).budget,
            words=self._record.words,
            standpoint=standpoint,
            models_allowed=self._settings.models_allowed,
        )

    def _remember(self, place: Origin, listed: tuple[str, ...]) -> None:
        """A list means something to those who saw it: others who are in the chat later have not."""
        if listed:
            self._listed.pop((place.key, place.owner), None)
            self._listed[place.key, place.owner] = listed
            if len(self._listed) > LISTS_MAX:
                del self._listed[next(iter(self._listed))]


def conclusion_of(
    place: Origin, received: Received, parsed: CommandLine, outcome: CommandReply, cursor: str
) -> Conclusion:
    """Return how a command ends in the record."""
    return Conclusion(
        key=place.key,
        chat=place.chat,
        owner=place.owner,
        session_id=outcome.session_id,
        reply_id=reply_id_of(received.message_id),
        reply=outcome.text,
        reason=parsed.name if outcome.session_id != received.session_id else "",
        channel=place.channel,
        account=place.account,
        event_id=place.event_id,
        identity=place.identity,
        cursor=cursor,
    )
