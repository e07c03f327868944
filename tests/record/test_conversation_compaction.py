"""The fold and its summaries: what they stand for, and what makes them count no longer."""

from __future__ import annotations

from hansard.domain.budgets import Usage
from hansard.domain.messages import Role, Text
from hansard.domain.sessions import TurnState
from hansard.journal.concepts import Body
from hansard.record.conversation import Conversation, Measure, SessionCompacted, exchange_starts
from hansard.record.messages.entries import Entry, MessageAdded, MessageEdited, MessageRetracted, MessagesUndone
from hansard.record.schema import SCHEMA
from hansard.record.sessions import SessionSet
from hansard.record.turns.entries import TurnEnded, TurnStarted, TurnSteered, TurnUsed


class Journal:
    """A fold that is fed by hand."""

    def __init__(self, *texts: str) -> None:
        """Say something in turn: a person, the model, a person."""
        self.fold = Conversation()
        for number, text in enumerate(texts):
            role = Role.ASSISTANT if number % 2 else Role.USER
            self.add(MessageAdded(role=role, parts=(Text(text),), event_id=f"${number}"), f"m{number}")

    def add(self, body: Body, id: str = "~") -> None:
        """Take an entry in."""
        seq = self.fold.seq + 1
        kind = SCHEMA.by_body[type(body)].name
        self.fold.add(Entry(id=id, session_id="s", seq=seq, kind=kind, body=body))

    def compact(self, through: str, summary: str = "They talked.", read_seq: int | None = None) -> None:
        """Sum up to a message."""
        read = self.fold.seq if read_seq is None else read_seq
        self.add(SessionCompacted(summary=summary, through=through, from_seq=1, to_seq=read, read_seq=read))


def six() -> Journal:
    """Three exchanges."""
    return Journal("a", "b", "c", "d", "e", "f")


def test_a_summary_stands_for_the_first_messages() -> None:
    """The later of two counts; one that covers nothing more, or ends at a message that is not there, does not."""
    journal = six()
    journal.compact("m1", "first")
    assert journal.fold.covered == 2
    journal.compact("m3", "second")
    journal.compact("m3", "again")
    journal.compact("m1", "less")
    journal.compact("gone", "nowhere")
    assert journal.fold.covered == 4
    assert [each.body.summary for each in journal.fold.compactions] == ["first", "second"]


def test_undo_takes_back_the_summaries_that_know_of_it() -> None:
    """Undoing after what is summed up changes nothing; undoing within it gives back what was there before it."""
    journal = six()
    journal.compact("m1", "first")
    journal.compact("m3", "second")
    journal.add(MessagesUndone(message_ids=("m4", "m5")))
    assert journal.fold.covered == 4
    journal.add(MessagesUndone(message_ids=("m2", "m3")))
    assert (journal.fold.covered, len(journal.fold.placed)) == (2, 2)
    journal.add(MessagesUndone(message_ids=("m0",)))
    assert (journal.fold.covered, [placed.message.id for placed in journal.fold.placed]) == (0, ["m1"])


def test_what_a_person_changes_is_in_no_summary() -> None:
    """An edit or a deletion within it, before or while it was written, ends a summary; one outside does not."""
    journal = six()
    journal.compact("m3")
    journal.add(MessageEdited(message_id="m4", parts=(Text("E"),)))
    assert journal.fold.covered == 4
    journal.add(MessageRetracted(message_id="m0"))
    assert journal.fold.covered == 0
    late = six()
    read = late.fold.seq
    late.add(MessageEdited(message_id="m2", parts=(Text("C"),)))
    late.compact("m3", read_seq=read)
    assert late.fold.covered == 0
    late.compact("m1", read_seq=late.fold.seq)
    assert late.fold.covered == 2


def test_what_waits_goes_on_waiting_while_it_runs() -> None:
    """A turn with a purpose takes in nothing of what people said; the next one does."""
    journal = six()
    journal.add(MessageAdded(role=Role.USER, parts=(Text("waits"),)), "w")
    journal.add(TurnStarted(turn_id="t1", owner="o", purpose="compaction"))
    assert (journal.fold.is_compacting, len(journal.fold.waiting)) == (True, 1)
    journal.compact("m3")
    journal.add(TurnEnded(turn_id="t1", state=TurnState.COMPLETED))
    assert (journal.fold.is_compacting, journal.fold.covered) == (False, 4)
    journal.add(TurnStarted(turn_id="t2", owner="o"))
    assert (journal.fold.waiting, journal.fold.placed[-1].message.id) == ([], "w")


def test_failures_are_counted_until_one_succeeds() -> None:
    """Interrupted ones are none; what a summary's own requests took does not measure the conversation."""
    journal = six()
    for number, state in enumerate((TurnState.FAILED, TurnState.INTERRUPTED, TurnState.FAILED)):
        journal.add(TurnStarted(turn_id=f"t{number}", owner="o", purpose="compaction"))
        journal.add(TurnUsed(turn_id=f"t{number}", model="m", usage=Usage(input_tokens=9)))
        journal.add(TurnEnded(turn_id=f"t{number}", state=state, reason="why"))
    assert [each.reason for each in journal.fold.failed_compactions] == ["why", "why"]
    assert journal.fold.measure is None
    journal.add(TurnUsed(turn_id="other", model="m", usage=Usage(input_tokens=90, output_tokens=10)))
    assert journal.fold.measure == Measure(100, 6)
    journal.compact("m1")
    assert (journal.fold.failed_compactions, journal.fold.measure) == ([], None)


def test_a_wish_is_kept_until_it_is_tried() -> None:
    """A person's wish is one until a turn takes it up, in whichever process."""
    journal = six()
    journal.add(SessionSet(name="compact", value="{}"))
    assert journal.fold.wants_compaction
    journal.add(TurnStarted(turn_id="t", owner="o"))
    assert journal.fold.wants_compaction
    journal.add(TurnEnded(turn_id="t", state=TurnState.COMPLETED))
    journal.add(TurnStarted(turn_id="c", owner="o", purpose="compaction"))
    assert not journal.fold.wants_compaction


def test_a_wish_outlives_the_process_that_took_it_up() -> None:
    """One whose turn was lost is one again, once: what takes the process down each time is not repeated for ever."""
    journal = six()
    journal.add(SessionSet(name="compact", value="{}"))
    wanted = []
    for turn_id in ("one", "two"):
        journal.add(TurnStarted(turn_id=turn_id, owner="o", purpose="compaction"))
        journal.add(TurnEnded(turn_id=turn_id, state=TurnState.LOST))
        wanted.append(journal.fold.wants_compaction)
    assert wanted == [True, False]
    journal.add(SessionSet(name="compact", value="{}"))
    journal.add(TurnStarted(turn_id="three", owner="o", purpose="compaction"))
    journal.add(TurnEnded(turn_id="three", state=TurnState.INTERRUPTED))
    assert not journal.fold.wants_compaction
    journal.add(TurnStarted(turn_id="four", owner="o", purpose="compaction"))
    journal.add(TurnEnded(turn_id="four", state=TurnState.LOST))
    assert not journal.fold.wants_compaction


def test_where_exchanges_begin() -> None:
    """With a person's words after an answer; not with more words, and not with what steers a turn."""
    assert exchange_starts(six().fold.placed) == [0, 2, 4]
    journal = Journal("a", "b")
    journal.add(MessageAdded(role=Role.USER, parts=(Text("c"),)), "c")
    journal.add(MessageAdded(role=Role.USER, parts=(Text("d"),)), "d")
    journal.add(TurnStarted(turn_id="t", owner="o"))
    journal.add(MessageAdded(role=Role.TOOL, parts=()), "r")
    journal.add(MessageAdded(role=Role.USER, parts=(Text("steer"),)), "s")
    journal.add(TurnSteered(turn_id="t", message_id="s"))
    journal.add(MessageAdded(role=Role.TOOL, parts=()), "r2")
    assert exchange_starts(journal.fold.placed) == [0, 2]
