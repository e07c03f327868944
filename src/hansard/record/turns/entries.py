"""The entries of turns, and their projection. The order of fields is hashed: it never changes."""

from __future__ import annotations

from hansard.domain.permissions import CallVerdict, Reason
from hansard.domain.requests import Usage
from hansard.domain.turns import By, How, TurnState
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.record.messages.entries import MessageAdded, is_spoken

TURNS = Concept(
    "turns",
    "hansard.record",
    tables=(
        Table(name="turn", order="id"),
        Table(name="turn_chat", order="turn_id, chat"),
        Table(name="turn_by", order="turn_id, person, chat, how"),
    ),
)
SQL = TURNS.queries


@TURNS.entry("turn.queued")
class TurnQueued(Body, frozen=True):
    """A turn waits to run. `chats`: where it is to be shown, besides the chats in which its messages were said.

    `followers`: chats of the same person that lead to the session, where it is shown as long as they do.
    """

    turn_id: str
    chats: tuple[str, ...] = ()
    followers: tuple[str, ...] = ()
    by: tuple[By, ...] | None = None
    """Who asked for it. None: it was queued before that was recorded."""


@TURNS.entry("turn.asked")
class TurnAsked(Body, frozen=True):
    """More people ask for a turn that waits, or steer the one that runs. Their rights count from here on, too."""

    turn_id: str
    by: tuple[By, ...]


@TURNS.entry("turn.started")
class TurnStarted(Body, frozen=True):
    """A turn holds the session; its fence is the seq of this entry. With a `purpose` it answers nobody."""

    turn_id: str
    owner: str
    purpose: str = ""
    refused: bool = False
    """Whether a limit of the day ends it at once: it is not counted."""
    by: tuple[By, ...] | None = None
    """Everybody who asked for it. None: it began before that was recorded, and the authors it answers count."""


@TURNS.entry("turn.stopping")
class TurnStopping(Body, frozen=True):
    """Somebody asks the running turn to stop; its holder does so."""

    turn_id: str
    reason: str = ""


@TURNS.entry("turn.steered")
class TurnSteered(Body, frozen=True):
    """A message goes into the running turn, with its next results, instead of waiting for the turn after it.

    `chat` is where it was said: the turn is shown there, too, from now on.
    """

    turn_id: str
    message_id: str
    chat: str = ""


@TURNS.entry("turn.continued")
class TurnContinued(Body, frozen=True):
    """The model is asked to go on where a broken connection, or a crash, cut it. `note`: what it is told, if any."""

    turn_id: str
    message_id: str
    note: str = ""


@TURNS.entry("turn.used")
class TurnUsed(Body, frozen=True):
    """What one request of a turn took."""

    turn_id: str
    model: str
    usage: Usage = Usage()
    purpose: str = ""
    """Empty: the answer. Otherwise what else was asked for: `title`, `transcription`."""


@TURNS.entry("turn.ended")
class TurnEnded(Body, frozen=True):
    """A turn is over."""

    turn_id: str
    state: TurnState
    reason: str = ""


@TURNS.entry("tool.decided")
class ToolDecided(Body, frozen=True):
    """What becomes of a call, by the rules and askers of that moment, with a reason for each asker."""

    turn_id: str
    call_id: str
    tool: str
    verdict: CallVerdict
    reasons: tuple[Reason, ...] = ()


@TURNS.projects(MessageAdded)
def project_message_added(place: EntryPlace, body: MessageAdded) -> None:
    """What a person says to the agent is answered by the next turn, in the chat where it was said."""
    if is_spoken(body):
        place.run(SQL.add_turn_by, (place.journal, "", body.author, body.chat, How.MESSAGE))
        if body.chat:
            place.run(SQL.add_turn_chat, (place.journal, "", body.chat, 0))


@TURNS.projects(TurnQueued)
def project_turn_queued(place: EntryPlace, body: TurnQueued) -> None:
    place.run(SQL.put_turn, (place.journal, body.turn_id, TurnState.QUEUED, place.seq, "", ""))
    for follows, chats in enumerate((body.chats, body.followers)):
        for chat in chats:
            place.run(SQL.add_turn_chat, (place.journal, "", chat, follows))
    for each in body.by or ():
        place.run(SQL.add_turn_by, (place.journal, body.turn_id, each.person, each.chat, each.how))


@TURNS.projects(TurnAsked)
def project_turn_asked(place: EntryPlace, body: TurnAsked) -> None:
    for each in body.by:
        place.run(SQL.add_turn_by, (place.journal, body.turn_id, each.person, each.chat, each.how))


@TURNS.projects(TurnStarted)
def project_turn_started(place: EntryPlace, body: TurnStarted) -> None:
    """What waits to be answered goes on waiting while a turn runs that answers nobody."""
    place.run(SQL.put_turn, (place.journal, body.turn_id, TurnState.RUNNING, place.seq, body.owner, body.purpose))
    if not body.purpose:
        place.run(SQL.take_turn_chats, (place.journal, body.turn_id))
        if body.by is None:
            place.run(SQL.take_turn_by, (place.journal, body.turn_id))
        place.run(SQL.drop_next_by, (place.journal,))
    for each in body.by or ():
        place.run(SQL.add_turn_by, (place.journal, body.turn_id, each.person, each.chat, each.how))


@TURNS.projects(TurnSteered)
def project_turn_steered(place: EntryPlace, body: TurnSteered) -> None:
    """The turn that runs is shown there, too; so is the next one, which answers when this one never comes to it."""
    if body.chat:
        place.run(SQL.add_turn_chat, (place.journal, body.turn_id, body.chat, 0))


@TURNS.projects(TurnEnded)
def project_turn_ended(place: EntryPlace, body: TurnEnded) -> None:
    place.run(SQL.end_turn, (body.state, body.reason, place.journal, body.turn_id))
    if body.state == TurnState.LOST:
        place.run(SQL.leave_turn_chats, (place.journal, body.turn_id))
    place.run(SQL.drop_turn_chats, (place.journal, body.turn_id))
