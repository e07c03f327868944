"""Rule 19: a fork shares its prefix, an open message reads as interrupted in it; an ended session lets things end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hansard import Delivery, DeliveryState, InvalidInput, Message, Record, SessionEnded, TurnState
from hansard.journal.backend import EntriesGoneError, Reads
from hansard.journal.entries import Journal
from hansard.journal.transaction import SQL, find_entry_in, read_lineage, trace_entries
from tests.record.helpers_facts import (
    SESSION,
    assert_clean,
    assert_contiguous,
    eventually,
    ids_of,
    log_lines,
    new_session,
    raw_rows,
    say,
)
from tests.record.helpers_process import Worker


async def told(record: Record, session_id: str) -> list[tuple[str, str, str]]:
    """Return a transcript as (id, text, status)."""
    return [(each.id, each.text, each.status) for each in await record.load_transcript(session_id)]


@pytest.mark.loss("I4", "E1")
async def test_delivery_reads_a_forked_reply_as_the_transcript_does(home: Path) -> None:
    """A reply that forks cut off, in the middle and again in the fork: no words from after a fork, and interrupted."""
    async with Record.open(home) as record:
        await new_session(record)
        async with record.turn(SESSION) as turn, turn.reply(id="reply") as reply:
            await reply.write("before ")
            child = await record.fork(SESSION)
            await reply.write("after")
        grandchild = await record.fork(child.id)
        for session_id in (SESSION, child.id, grandchild.id):
            (shown,) = await record.load_transcript(session_id)
            assert await record.messages.read(session_id, "reply") == shown
        assert (shown.text, shown.status) == ("before ", "interrupted")


class CountedReads:
    """Reads of a snapshot, counted."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self.schema = reads.schema
        self.count = 0

    def rows(self, query: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """Return every row."""
        self.count += 1
        return self._reads.rows(query, bindings)

    def row(self, query: str, bindings: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - a row of any shape
        """Return the first row or None."""
        return next(iter(self.rows(query, bindings)), None)


async def test_what_a_fork_inherits_is_found_with_one_query_however_deep(home: Path) -> None:
    """The past of a fork of a fork of … is one query, and an entry in it another one."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "first")
        session_id = SESSION
        for _ in range(20):
            session_id = (await record.fork(session_id)).id

        def look(snapshot: Reads) -> tuple[int, str, int]:
            reads = CountedReads(snapshot)
            stretches = trace_entries(reads, Journal(snapshot.row(SQL.read_journal, (session_id,))))
            found = find_entry_in(reads, stretches, "first")
            assert found is not None
            return len(stretches), found[1].kind, reads.count

        assert record.store.backend.read(look) == (21, "message.added", 2)


async def test_a_fork_that_is_its_own_parent_is_damage(home: Path) -> None:
    """Only damage makes such a circle: a shorter history is never given for the whole one, and the walk ends."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "first")
        child = await record.fork(SESSION)
    raw_rows(home, "UPDATE journal SET base_id = id WHERE id = ?", child.id)
    async with Record.open(home) as record:
        with pytest.raises(EntriesGoneError):
            record.store.backend.read(lambda snapshot: read_lineage(snapshot, child.id))


@pytest.mark.loss("I4")
async def test_a_fork_shares_the_prefix_and_goes_its_own_way(home: Path) -> None:
    """The prefix keeps its entries, seqs and times and is not copied; neither side sees the other's new words."""
    async with Record.open(home) as record:
        await new_session(record)
        seqs = await say(record, "a", "b", "c")
        child = await record.fork(SESSION, at=seqs[1])
        await say(record, "child", session_id=child.id)
        await say(record, "parent")
        assert await ids_of(record) == ["a", "b", "c", "parent"]
        assert await ids_of(record, child.id) == ["a", "b", "child"]
        inherited = await record.sessions.read_entries(child.id, limit=seqs[1])
        original = await record.sessions.read_entries(SESSION, limit=seqs[1])
        assert [(e.seq, e.id, e.at) for e in inherited] == [(e.seq, e.id, e.at) for e in original]
        await assert_contiguous(record, child.id)
        (log,) = (home / "sessions").rglob(f"{child.id}.jsonl")
        assert b'"id":"a"' not in log.read_bytes()
        await assert_clean(record)


async def test_a_message_open_at_the_fork_point_is_interrupted_in_the_child(home: Path) -> None:
    """The child has the text so far, as interrupted; the parent's message goes on and completes."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "question")
        async with record.turn(SESSION) as turn:
            async with turn.reply(id="reply") as reply:
                await reply.write("so ")
                await eventually_text(record, "so ")
                child = await record.fork(SESSION)
                await reply.write("far")
            assert await told(record, child.id) == [
                ("question", "text of question", "complete"),
                ("reply", "so ", "interrupted"),
            ]
        later = await record.fork(SESSION, at=4)
        assert await told(record, SESSION) == [
            ("question", "text of question", "complete"),
            ("reply", "so far", "complete"),
        ]
        assert [status for _, _, status in await told(record, later.id)] == ["complete", "interrupted"]
        async with record.turn(child.id) as turn, turn.reply(id="second") as reply:
            await reply.write("the child speaks")
        assert (await told(record, child.id))[-1] == ("second", "the child speaks", "complete")
        await assert_clean(record)
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink()
    async with Record.open(home) as record:
        assert (await told(record, child.id))[1] == ("reply", "so ", "interrupted")
        await assert_clean(record)


async def eventually_text(record: Record, text: str) -> None:
    """Wait until the last message has a text."""
    while (await record.load_transcript(SESSION))[-1].text != text:
        pass


@pytest.mark.loss("D15")
async def test_a_forks_parents_turn_does_not_hold_the_child(home: Path) -> None:
    """Leases are of one session: while the parent's turn runs, the child can have its own."""
    async with Record.open(home) as record:
        await new_session(record)
        async with record.turn(SESSION):
            child = await record.fork(SESSION)
            async with record.turn(child.id) as turn:
                await turn.append(Message.notice("both run"))
        assert [turn.state for turn in await record.turns.list(child.id)] == [TurnState.COMPLETED]


async def test_fork_points_that_are_not_there_are_refused(home: Path) -> None:
    """Before the first entry, after the last: InvalidInput, and no session is left over."""
    async with Record.open(home) as record:
        await new_session(record)
        for at in (0, -1, 2, 10**12):
            with pytest.raises(InvalidInput):
                await record.fork(SESSION, at=at)
        assert len(await record.sessions()) == 1


@pytest.mark.loss("I9", "A14")
async def test_an_ended_session_takes_no_words_and_lets_things_end(home: Path) -> None:
    """After the end: words, turns and new deliveries' words are refused; a turn's end and settlements are taken."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "asked")
        delivery = Delivery(id="d", session_id=SESSION, channel="matrix", target="room", message_id="asked")
        await record.deliveries.create(delivery)
        await record.deliveries.move(SESSION, "d", "sending")
        async with record.turn(SESSION) as turn, turn.reply(id="reply") as reply:
            await reply.write("still ")
            await record.end_session(SESSION, "reset")
            await record.end_session(SESSION, "second reason")
            await reply.write("speaking")
            with pytest.raises(SessionEnded):
                await say(record, "too late")
        with pytest.raises(SessionEnded):
            async with record.turn(SESSION):
                pass
        settled = await record.deliveries.move(SESSION, "d", "sent", receipt="$event")
        assert settled.state is DeliveryState.SENT
        assert [info.state for info in await record.turns.list(SESSION)] == [TurnState.COMPLETED]
        assert [text for _, text, _ in await told(record, SESSION)] == ["text of asked", "still speaking"]
        assert (await record.sessions.read(SESSION)).end_reason == "reset"
        assert await say(record, "asked") == [2]
        await record.reopen_session(SESSION)
        await say(record, "again")
        await assert_clean(record)


async def test_a_dead_owners_turn_in_an_ended_session_is_closed(home: Path) -> None:
    """The session ended while a turn ran, and its owner was killed: recovery still closes both."""
    async with Record.open(home) as record:
        await new_session(record)
        with Worker(home) as worker:
            worker.ask("turn", session=SESSION)
            worker.ask("reply", id="reply")
            worker.ask("write", text="last words")
            while not [row for row in worker.ask("texts", session=SESSION) if row[2]]:
                pass
            await record.end_session(SESSION, "reset")
            worker.kill()
    async with Record.open(home) as record:
        assert await told(record, SESSION) == [("reply", "last words", "interrupted")]
        assert [info.state for info in await record.turns.list(SESSION)] == [TurnState.LOST]
        await assert_clean(record)


async def speak_and_fail(record: Record) -> None:
    """Say half of something."""
    async with record.turn(SESSION) as turn, turn.reply(id="reply") as reply:
        await reply.write("half")
        raise RuntimeError("the model failed")


@pytest.mark.loss("A13")
async def test_leaving_a_turn_is_one_commit(home: Path) -> None:
    """The seal of an interrupted reply and the turn's end are one commit, and no chunk is left behind."""
    async with Record.open(home) as record:
        await new_session(record)
        with pytest.raises(RuntimeError):
            await speak_and_fail(record)
        seal, end = log_lines(home)[-2:]
        assert (seal["kind"], end["kind"]) == ("message.sealed", "turn.ended")
        assert end["body"]["state"] == "failed"
        assert "the model failed" in end["body"]["reason"]
        await eventually(lambda: not list((home / "sessions").rglob("*.part")))
        assert raw_rows(home, "SELECT count(*) FROM chunk") == [(0,)]
        await assert_clean(record)
