"""What a conversation stands at: the fold of a session's entries that engine and commands decide on.

The order here is the order in which the model was given things, which is not always the order of `seq`: what a person
says while a turn runs waits for the next turn, or, steered, for the turn's next results. Where a message entered is
told by the entries alone, so that a later request begins with what an earlier one sent. What was taken back keeps its
place and is not shown there, so that it can come back to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.domain import entries as e
from hansard.domain.messages import Message, Role, Status, ToolCall, ToolResult
from hansard.domain.requests import Usage
from hansard.domain.sessions import Link
from hansard.domain.transcript import edited, retracted, said_message
from hansard.domain.turns import TurnState

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Placed(NamedTuple):
    """A message where the model was given it, or gave it.

    The turn is the one that it was part of; "" outside of turns. `seq` is where its entry stands in the journal.
    """

    message: Message
    turn_id: str
    seq: int


class End(NamedTuple):
    """How a turn ended."""

    state: TurnState
    reason: str


class Conversation:
    """A fold that grows by `add`. Readers look and decide at once; they keep nothing of it across an await."""

    def __init__(self) -> None:
        """Begin before the first entry."""
        self.seq = 0
        self.undone: dict[str, int] = {}
        """Messages that are taken back now, each with the seq of the entry that did it."""
        self.began: e.SessionCreated | None = None
        self.owner = ""
        self.frozen: e.SessionFrozen | None = None
        self.settings: dict[str, str] = {}
        self.running: str = ""
        self.queued: str = ""
        self.ends: dict[str, End] = {}
        self.usage: dict[str, Usage] = {}
        self.requests = 0
        self._placed: list[Placed] = []
        self._waiting: list[Placed] = []
        self._shown: tuple[list[Placed], list[Placed]] | None = None
        self._steered: set[str] = set()
        self._open_calls: set[str] = set()

    def add(self, entry: e.Entry) -> None:
        """Take the next entry in."""
        if entry.seq <= self.seq:
            return
        self.seq = entry.seq
        apply = APPLY.get(type(entry.body))
        if apply is not None:
            self._shown = None
            apply(self, entry, entry.body)

    @property
    def placed(self) -> list[Placed]:
        """What the model was given and gave, in that order."""
        return self._show()[0]

    @property
    def waiting(self) -> list[Placed]:
        """What was said and waits for the next turn."""
        return self._show()[1]

    def _show(self) -> tuple[list[Placed], list[Placed]]:
        """Return what is placed and what waits, without what was taken back."""
        if not self.undone:
            return self._placed, self._waiting
        if self._shown is None:
            placed, waiting = (
                [each for each in those if each.message.id not in self.undone]
                for those in (self._placed, self._waiting)
            )
            self._shown = placed, waiting
        return self._shown

    @property
    def wants_reply(self) -> bool:
        """Whether somebody waits for the model: the last that it was given is what they said, or a tool's result.

        Nobody waits for an answer to what was deleted before it was given one.
        """
        for placed in reversed(self.placed):
            message = placed.message
            if message.role == Role.TOOL:
                return True
            if not is_said(message) or not message.is_retracted:
                return is_said(message)
        return False

    def _place_waiting(self, turn_id: str, *, steered_only: bool = False) -> None:
        """Let messages that wait enter."""
        staying = []
        for waiting in self._waiting:
            if steered_only and waiting.message.id not in self._steered:
                staying.append(waiting)
            else:
                self._placed.append(waiting._replace(turn_id=turn_id))
        self._waiting = staying

    def _session_created(self, _entry: e.Entry, body: e.SessionCreated) -> None:
        """A session begins. If it is a fork, the turns of its parent are not its own, and how that one began stays."""
        self.running = self.queued = ""
        self.owner = body.owner
        if body.link is not Link.FORK:
            self.began = body

    def _message_added(self, entry: e.Entry, body: e.MessageAdded) -> None:
        message = said_message(entry.id, entry.at_microseconds, body)
        if body.role in {Role.USER, Role.SYSTEM}:
            self._waiting.append(Placed(message, "", entry.seq))
        elif body.role == Role.ASSISTANT:
            if not self.running:
                self._place_waiting("")
            self._placed.append(Placed(message, self.running, entry.seq))
            self._open_calls = calls_of(message)
        elif body.role == Role.TOOL:
            self._placed.append(Placed(message, self.running, entry.seq))
            self._results_came(message)

    def _results_came(self, message: Message) -> None:
        """With the last result of a step, what steers the turn enters."""
        self._open_calls -= {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        if self.running and not self._open_calls:
            self._place_waiting(self.running, steered_only=True)

    def _message_opened(self, entry: e.Entry, body: e.MessageOpened) -> None:
        opened = Message(
            id=entry.id, role=body.role, parts=(), status=Status.OPEN, at_microseconds=entry.at_microseconds
        )
        self._placed.append(Placed(opened, body.turn_id, entry.seq))

    def _message_sealed(self, _entry: e.Entry, body: e.MessageSealed) -> None:
        for index in range(len(self._placed) - 1, -1, -1):
            placed = self._placed[index]
            if placed.message.id == body.message_id:
                sealed = msgspec.structs.replace(placed.message, parts=body.parts, status=body.status)
                self._placed[index] = placed._replace(message=sealed)
                self._open_calls = calls_of(sealed)
                return

    def _edited(self, _entry: e.Entry, body: e.MessageEdited) -> None:
        self._change(body.message_id, lambda message: edited(message, body.parts))

    def _retracted(self, _entry: e.Entry, body: e.MessageRetracted) -> None:
        self._change(body.message_id, retracted)

    def _change(self, message_id: str, change: Callable[[Message], Message]) -> None:
        """Somebody changed what was said in a chat: it stands changed where it stood. People change what is recent."""
        for places in (self._waiting, self._placed):
            for index in range(len(places) - 1, -1, -1):
                placed = places[index]
                if placed.message.id == message_id and placed.message.event_id:
                    places[index] = placed._replace(message=change(placed.message))
                    return

    def _taken_back(self, entry: e.Entry, body: e.MessagesUndone) -> None:
        for message_id in body.message_ids:
            self.undone.setdefault(message_id, entry.seq)

    def _restored(self, _entry: e.Entry, body: e.MessagesRestored) -> None:
        for message_id in body.message_ids:
            self.undone.pop(message_id, None)

    def _turn_queued(self, _entry: e.Entry, body: e.TurnQueued) -> None:
        self.queued = body.turn_id

    def _turn_started(self, _entry: e.Entry, body: e.TurnStarted) -> None:
        if self.queued == body.turn_id:
            self.queued = ""
        self.running = body.turn_id
        self._open_calls = set()
        self._place_waiting(body.turn_id)

    def _turn_steered(self, _entry: e.Entry, body: e.TurnSteered) -> None:
        self._steered.add(body.message_id)

    def _turn_continued(self, entry: e.Entry, body: e.TurnContinued) -> None:
        """The request to go on stands where a person would have spoken; it has no words of its own."""
        marker = Message(id=entry.id, role=Role.SYSTEM, parts=(), at_microseconds=entry.at_microseconds)
        self._placed.append(Placed(marker, body.turn_id, entry.seq))

    def _turn_used(self, _entry: e.Entry, body: e.TurnUsed) -> None:
        self.usage[body.model] = add_usage(self.usage.get(body.model), body.usage)
        self.requests += 1

    def _turn_ended(self, _entry: e.Entry, body: e.TurnEnded) -> None:
        if self.queued == body.turn_id:
            self.queued = ""
        if self.running == body.turn_id:
            self.running = ""
        self.ends[body.turn_id] = End(body.state, body.reason)

    def _frozen(self, _entry: e.Entry, body: e.SessionFrozen) -> None:
        self.frozen = self.frozen or body

    def _set(self, _entry: e.Entry, body: e.SessionSet) -> None:
        self.settings[body.name] = body.value


APPLY: dict[type[e.Body], Callable[[Conversation, e.Entry, Any], None]] = {
    e.SessionCreated: Conversation._session_created,  # noqa: SLF001 - the table stands beside its class
    e.MessageAdded: Conversation._message_added,  # noqa: SLF001
    e.MessageOpened: Conversation._message_opened,  # noqa: SLF001
    e.MessageSealed: Conversation._message_sealed,  # noqa: SLF001
    e.MessageEdited: Conversation._edited,  # noqa: SLF001
    e.MessageRetracted: Conversation._retracted,  # noqa: SLF001
    e.MessagesUndone: Conversation._taken_back,  # noqa: SLF001
    e.MessagesRestored: Conversation._restored,  # noqa: SLF001
    e.TurnQueued: Conversation._turn_queued,  # noqa: SLF001
    e.TurnStarted: Conversation._turn_started,  # noqa: SLF001
    e.TurnSteered: Conversation._turn_steered,  # noqa: SLF001
    e.TurnContinued: Conversation._turn_continued,  # noqa: SLF001
    e.TurnUsed: Conversation._turn_used,  # noqa: SLF001
    e.TurnEnded: Conversation._turn_ended,  # noqa: SLF001
    e.SessionFrozen: Conversation._frozen,  # noqa: SLF001
    e.SessionSet: Conversation._set,  # noqa: SLF001
}


def is_said(message: Message) -> bool:
    """Return whether a message was said to the model, by a person or as an instruction; a request to go on was not."""
    return message.role == Role.USER or (message.role == Role.SYSTEM and bool(message.parts))


def calls_of(message: Message) -> set[str]:
    """Return the ids of the tools that a message calls."""
    return {part.id for part in message.parts if isinstance(part, ToolCall)}


def add_usage(before: Usage | None, more: Usage) -> Usage:
    """Return the sum; the cost of a sum is known when any of it is."""
    if before is None:
        return more
    costs = [usage.cost_micros for usage in (before, more) if usage.cost_micros is not None]
    return Usage(
        input_tokens=before.input_tokens + more.input_tokens,
        output_tokens=before.output_tokens + more.output_tokens,
        cache_read_tokens=before.cache_read_tokens + more.cache_read_tokens,
        cache_write_tokens=before.cache_write_tokens + more.cache_write_tokens,
        cost_micros=sum(costs) if costs else None,
    )


def last_exchange(conversation: Conversation, count: int = 1) -> list[Placed]:
    """Return the last exchanges: what people said, and all that came of it."""
    everything = conversation.placed + conversation.waiting
    start = len(everything)
    said = False
    for index in range(len(everything) - 1, -1, -1):
        is_user = is_said(everything[index].message)
        if said and not is_user:
            count -= 1
            said = False
            if count == 0:
                break
        if is_user:
            start = index
            said = True
    return everything[start:]


def last_answer(conversation: Conversation) -> list[Placed]:
    """Return what came after the last that people said and the model was given."""
    start = len(conversation.placed)
    while start and not is_said(conversation.placed[start - 1].message):
        start -= 1
    return conversation.placed[start:]


def last_undone(conversation: Conversation, count: int = 1) -> list[str]:
    """Return the messages that the last times of taking back took, and that are still away; the oldest first."""
    times = sorted(set(conversation.undone.values()))[-count:]
    return [message_id for message_id, seq in conversation.undone.items() if seq in times]
