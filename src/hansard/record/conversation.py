"""What a conversation stands at: the fold of a session's entries that engine and commands decide on.

The order here is the order in which the model was given things, which is not always the order of `seq`: what a person
says while a turn runs waits for the next turn, or, steered, for the turn's next results. Where a message entered is
told by the entries alone, so that a later request begins with what an earlier one sent. What was undone keeps its
place and is not shown there, so that it can come back to it.

Entry: session.compacted, a summary that the model is told in place of earlier messages. The record keeps every word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from hansard.domain.budgets import Usage
from hansard.domain.messages import File, Message, Role, Text
from hansard.domain.people import By, How, joined
from hansard.domain.requests import FailureKind
from hansard.domain.sessions import Link, TurnState
from hansard.journal.concepts import ENCODER, Body, Concept
from hansard.record.messages.entries import (
    ChatChange,
    Entry,
    FileFetched,
    FileTranscribed,
    MessageAdded,
    MessageEdited,
    MessageOpened,
    MessageOrder,
    MessageRetracted,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
    Placed,
    added_message,
    opened_message,
)
from hansard.record.sessions import SessionCreated, SessionFrozen, SessionSet
from hansard.record.turns.entries import (
    TurnAsked,
    TurnContinued,
    TurnEnded,
    TurnQueued,
    TurnStarted,
    TurnSteered,
    TurnUsed,
    add_usage,
)

COMPACTION = Concept("compaction")


@COMPACTION.entry("session.compacted")
class SessionCompacted(Body, frozen=True):
    """The model is told a summary in place of the messages up to `through`, unless one changed after `read_seq`."""

    summary: str
    through: str
    from_seq: int
    to_seq: int
    read_seq: int
    tokens_before: int = 0
    tokens_after: int = 0
    model: str = ""
    focus: str = ""


FOLDED_BYTES = 160
"""What a fold keeps of an entry beside its words, on average: see `Conversation.size_bytes`."""

REQUESTED_LOST_MAX = 2
"""A summary that a person asked for and that took its process down so often is not tried again by itself."""


class End(NamedTuple):
    """How a turn ended."""

    state: TurnState
    reason: str


class Compaction(NamedTuple):
    """A summary that stands for the first `covered` of the placed messages, over `reach` with those undone."""

    body: SessionCompacted
    covered: int
    reach: int


class Measure(NamedTuple):
    """What a provider counted: the tokens of a request and its answer, when so many messages were placed."""

    tokens: int
    placed: int


class Try(NamedTuple):
    """A compaction that failed, and how many messages were placed then."""

    reason: str
    placed: int


class Conversation:
    """A fold that grows by `add`. Readers look and decide at once; they keep nothing of it across an await."""

    def __init__(self) -> None:
        self.seq = 0
        self.size_bytes = 0
        """About how much memory this takes."""
        self._order = MessageOrder()
        self.undone = self._order.undone
        """The messages that are undone now, each with the seq of the entry that undid it."""
        self.began: SessionCreated | None = None
        self.owner = ""
        self.frozen: SessionFrozen | None = None
        self.settings: dict[str, str] = {}
        self.running: str = ""
        self.queued: str = ""
        self.by: dict[str, tuple[By, ...]] = {}
        """Who asked for each turn, as far as that is recorded."""
        self.unattributed: set[str] = set()
        """Turns that were queued before it was recorded who asks."""
        self.ends: dict[str, End] = {}
        self.usage: dict[str, Usage] = {}
        self.requests = 0
        self.heard: set[tuple[str, str]] = set()
        """Voice notes that were written down, or tried to be, by message and blob."""
        self.awaited: set[tuple[str, str]] = set()
        """Files that are still being fetched, by message and name."""
        self.compactions: list[Compaction] = []
        self.measure: Measure | None = None
        self.failed_compactions: list[Try] = []
        """Those since the last one that did not fail."""
        self.wants_compaction = False
        """Whether a person asked for one, and none was tried since; once more, when the one that was tried was lost."""
        self._requested = ""
        self._requested_lost = 0
        self._purposed: set[str] = set()
        self._touched: dict[str, int] = {}

    def add(self, entry: Entry) -> None:
        if entry.seq <= self.seq:
            return
        self.seq = entry.seq
        apply = APPLY.get(type(entry.body))
        if apply is not None:
            self.size_bytes += FOLDED_BYTES + len(ENCODER.encode(entry.body))
            apply(self, entry, entry.body)

    @property
    def placed(self) -> list[Placed]:
        """What the model was given and gave, in that order, without what is undone."""
        return self._order.placed

    @property
    def waiting(self) -> list[Placed]:
        """What was said and waits for the next turn, without what is undone."""
        return self._order.waiting

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

    @property
    def was_refused(self) -> bool:
        """Whether the last turn that answered somebody failed because a provider refused what it was asked."""
        ended = (end for turn_id, end in reversed(self.ends.items()) if turn_id not in self._purposed)
        last = next(ended, None)
        return last is not None and last.state == TurnState.FAILED and last.reason.startswith(f"{FailureKind.REFUSED}:")

    @property
    def compaction(self) -> Compaction | None:
        return self.compactions[-1] if self.compactions else None

    @property
    def covered(self) -> int:
        """How many of the placed messages a summary stands for."""
        return self.compactions[-1].covered if self.compactions else 0

    @property
    def is_compacting(self) -> bool:
        """Whether the turn that runs sums up what was said, and answers nobody."""
        return self.running in self._purposed

    def _session_created(self, _entry: Entry, body: SessionCreated) -> None:
        """A session begins. If it is a fork, the turns of its parent are not its own, and how that one began stays."""
        self.running = self.queued = ""
        self.awaited = set()
        self.owner = body.owner
        if body.link is not Link.FORK:
            self.began = body

    def _message_added(self, entry: Entry, body: MessageAdded) -> None:
        message = added_message(entry.id, entry.at_microseconds, body)
        self.awaited |= {(entry.id, part.fetch) for part in body.parts if isinstance(part, File) and part.fetch}
        placed = Placed(message, "" if is_waiting(body.role) else self.running, entry.seq)
        if is_waiting(body.role):
            self._order.unplaced.append(placed)
        elif body.role == Role.ASSISTANT:
            if not self.running:
                self._order.place_waiting("")
            self._order.place_answer(placed)
        elif body.role == Role.TOOL:
            self._order.place_results(placed)

    def _message_opened(self, entry: Entry, body: MessageOpened) -> None:
        self._order.place(Placed(opened_message(entry.id, entry.at_microseconds, body), body.turn_id, entry.seq))

    def _change(self, entry: Entry, body: ChatChange | FileFetched | FileTranscribed) -> None:
        """What was said is changed, or a file of it is here, or has words. Without words a voice note is only heard."""
        if isinstance(body, FileFetched):
            self.awaited.discard((body.message_id, body.file))
        elif isinstance(body, FileTranscribed):
            self.heard.add((body.message_id, body.blob))
            if not body.text:
                return
        if self._order.change(body):
            self._touch(entry.seq, {body.message_id})

    def _undo(self, entry: Entry, body: MessagesUndone | MessagesRestored) -> None:
        self._order.undo(body, entry.seq)
        self._touch(entry.seq, set(body.message_ids))
        self.measure = None

    def _touch(self, seq: int, message_ids: set[str]) -> None:
        """Messages are changed, undone or restored: a summary that reaches over one of them counts no longer."""
        self._touched.update(dict.fromkeys(message_ids, seq))
        reach = self.compactions[-1].reach if self.compactions else 0
        touched = [index for index, each in enumerate(self._order.everything[:reach]) if each.message.id in message_ids]
        if touched:
            self.compactions = [each for each in self.compactions if each.reach <= touched[0]]
            self.measure = None

    def _compacted(self, _entry: Entry, body: SessionCompacted) -> None:
        """A summary counts from here on, unless what it sums up was changed after it was read."""
        reached = self._order.reach(body.through)
        covered = sum(1 for message_id in reached if message_id not in self.undone)
        if covered <= self.covered or self.is_stale(body.through, body.read_seq):
            return
        self.compactions.append(Compaction(body, covered, len(reached)))
        self.failed_compactions = []
        self.measure = None

    def is_stale(self, through: str, read_seq: int) -> bool:
        """Return whether anything up to a message was changed, undone or restored after it was read."""
        return any(self._touched.get(message_id, 0) > read_seq for message_id in self._order.reach(through))

    def _turn_asked(self, _entry: Entry, body: TurnQueued | TurnAsked) -> None:
        if isinstance(body, TurnAsked):
            self.by[body.turn_id] = joined(self.by.get(body.turn_id, ()), body.by)
            return
        self.queued = body.turn_id
        self.by[body.turn_id] = body.by or ()
        if body.by is None:
            self.unattributed.add(body.turn_id)

    def _turn_started(self, _entry: Entry, body: TurnStarted) -> None:
        if self.queued == body.turn_id:
            self.queued = ""
        self.running = body.turn_id
        self.by[body.turn_id] = askers_of(each.message for each in self._order.unplaced) if body.by is None else body.by
        if body.purpose:
            self._purposed.add(body.turn_id)
            self._requested = body.turn_id if self.wants_compaction else ""
            self.wants_compaction = False
            return
        self._order.start_turn(body.turn_id)

    def _turn_continued(self, entry: Entry, body: TurnContinued) -> None:
        """The request to go on stands where a person would have spoken; it seldom has words of its own."""
        parts = (Text(body.note),) if body.note else ()
        marker = Message(id=entry.id, role=Role.SYSTEM, parts=parts, at_microseconds=entry.at_microseconds)
        self._order.place(Placed(marker, body.turn_id, entry.seq))

    def _turn_used(self, _entry: Entry, body: TurnUsed) -> None:
        self.usage[body.model] = add_usage(self.usage.get(body.model), body.usage)
        self.requests += 1
        tokens = body.usage.input_tokens + body.usage.output_tokens
        if tokens and not body.purpose and body.turn_id not in self._purposed:
            self.measure = Measure(tokens, len(self.placed))

    def _turn_ended(self, _entry: Entry, body: TurnEnded) -> None:
        if body.turn_id in self._purposed and body.state == TurnState.FAILED:
            self.failed_compactions.append(Try(body.reason, len(self.placed)))
        if body.turn_id == self._requested and body.state == TurnState.LOST:
            self._requested_lost += 1
            self.wants_compaction = self._requested_lost < REQUESTED_LOST_MAX
        if self.queued == body.turn_id:
            self.queued = ""
        if self.running == body.turn_id:
            self.running = ""
        self.ends[body.turn_id] = End(body.state, body.reason)

    def _set(self, _entry: Entry, body: SessionFrozen | SessionSet) -> None:
        if isinstance(body, SessionFrozen):
            self.frozen = self.frozen or body
            return
        self.settings[body.name] = body.value
        if body.name == "compact":
            self.wants_compaction = True
            self._requested_lost = 0


APPLY: dict[type[Body], Callable[[Conversation, Entry, Any], None]] = {
    SessionCreated: Conversation._session_created,  # noqa: SLF001 - the table stands beside its class
    MessageAdded: Conversation._message_added,  # noqa: SLF001
    MessageOpened: Conversation._message_opened,  # noqa: SLF001
    MessageSealed: lambda conversation, _entry, body: conversation._order.seal(body),  # noqa: SLF001
    MessageEdited: Conversation._change,  # noqa: SLF001
    MessageRetracted: Conversation._change,  # noqa: SLF001
    FileFetched: Conversation._change,  # noqa: SLF001
    FileTranscribed: Conversation._change,  # noqa: SLF001
    MessagesUndone: Conversation._undo,  # noqa: SLF001
    MessagesRestored: Conversation._undo,  # noqa: SLF001
    TurnQueued: Conversation._turn_asked,  # noqa: SLF001
    TurnAsked: Conversation._turn_asked,  # noqa: SLF001
    TurnStarted: Conversation._turn_started,  # noqa: SLF001
    TurnSteered: lambda conversation, _entry, body: conversation._order.steered.add(body.message_id),  # noqa: SLF001
    TurnContinued: Conversation._turn_continued,  # noqa: SLF001
    TurnUsed: Conversation._turn_used,  # noqa: SLF001
    TurnEnded: Conversation._turn_ended,  # noqa: SLF001
    SessionFrozen: Conversation._set,  # noqa: SLF001
    SessionSet: Conversation._set,  # noqa: SLF001
    SessionCompacted: Conversation._compacted,  # noqa: SLF001
}


def askers_of(messages: Iterable[Message]) -> tuple[By, ...]:
    """Return who asks by saying these messages. What is overheard, imported or without an author adds nobody."""
    said = (each for each in messages if each.role == Role.USER and not each.is_observed and not each.is_imported)
    return joined((), tuple(By(person=each.author, chat=each.chat) for each in said if each.author))


def is_waiting(role: Role) -> bool:
    return role in {Role.USER, Role.SYSTEM}


def is_said(message: Message) -> bool:
    """Return whether a message was said to the model, by a person or as an instruction; a request to go on was not."""
    return message.role == Role.USER or (message.role == Role.SYSTEM and bool(message.parts))


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


def exchange_starts(placed: Sequence[Placed]) -> list[int]:
    """Return where exchanges begin: with what people say after an answer, not with what steers one."""
    starts = []
    for index, (message, turn_id, _) in enumerate(placed):
        before = placed[index - 1] if index else None
        if not is_said(message) or (before is not None and is_said(before.message)):
            continue
        if before is None or before.message.role != Role.TOOL or before.turn_id != turn_id:
            starts.append(index)
    return starts


def last_answer(conversation: Conversation) -> list[Placed]:
    """Return what came after the last that people said and the model was given."""
    start = len(conversation.placed)
    while start and not is_said(conversation.placed[start - 1].message):
        start -= 1
    return conversation.placed[start:]


def last_undone(conversation: Conversation, count: int = 1) -> list[str]:
    """Return the messages that the last undos took, and that are still away; the oldest first."""
    times = sorted(set(conversation.undone.values()))[-count:]
    return [message_id for message_id, seq in conversation.undone.items() if seq in times]


def needed_of(conversation: Conversation, turn_id: str) -> tuple[By, ...]:
    """Return whose permission the calls of a turn need: everybody who asked for it or said what it answers.

    The two differ when somebody repeats another person's request (`/retry`). A turn that answers only messages without
    an author, or imported ones, gives an empty result: it has nobody's rights, and no tool is run.
    """
    by = conversation.by.get(turn_id, ())
    answered = answered_by(conversation, turn_id)
    authors = askers_of(answered)
    return joined(by, authors) if authors or not answered else ()


def is_unattributed(conversation: Conversation, turn_id: str) -> bool:
    """Return whether a turn answers only what was said before Hansard recorded who says something."""
    by = conversation.by.get(turn_id, ())
    if not by:
        return turn_id in conversation.unattributed
    answered = answered_by(conversation, turn_id)
    is_again = any(each.how is How.RETRY for each in by)
    return is_again and bool(answered) and not any(message.author or message.is_imported for message in answered)


def answered_by(conversation: Conversation, turn_id: str) -> list[Message]:
    """Return what people said to the agent right before a turn's own words: what it answers, maybe once more."""
    placed = conversation.placed
    own = (index for index, each in enumerate(placed) if each.turn_id == turn_id and not is_said(each.message))
    end = start = next(own, len(placed))
    while start and is_said(placed[start - 1].message):
        start -= 1
    said = [each.message for each in placed[start:end]]
    return [message for message in said if message.role == Role.USER and not message.is_observed]
