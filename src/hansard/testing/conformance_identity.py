"""Contracts of identity, order and duplicates: the same id is the same thing, and order is commit order (L3, L4)."""

from __future__ import annotations

from datetime import UTC, datetime

from hansard.domain.arrivals import Cursor, Intake
from hansard.domain.ids import SESSION_ID
from hansard.domain.limits import UNIT_ENTRIES_MAX
from hansard.domain.messages import Message
from hansard.domain.sessions import Link, Parent, TurnState
from hansard.errors import IdConflict, InvalidInput, NotFound, SessionEnded
from hansard.record.api import Record
from hansard.testing import conformance_kit as kit

HOUR_SECONDS = 3600.0


@kit.session_contract("identity")
async def same_id_is_a_no_op(record: Record, session_id: str) -> None:
    """The same id with the same content again returns the first entry and writes nothing, whatever the time says."""
    first = await record.append(session_id, Message.user("hello", id="m1"))
    later = Message.user("hello", id="m1", at=datetime(2001, 2, 3, tzinfo=UTC))
    for repeat in (Message.user("hello", id="m1"), later):
        again = await record.append(session_id, repeat)
        kit.require_equal((again.seq, again.id, again.position), (first.seq, "m1", first.position), "a repeat")
    kit.require_equal(await kit.texts(record, session_id), ["hello"], "the transcript")
    kit.require_equal((await record.sessions.read(session_id)).head_seq, first.seq, "the head")


@kit.session_contract("identity")
async def same_id_with_another_body_is_refused(record: Record, session_id: str) -> None:
    """The same id with other words, or from another speaker, is an IdConflict, and nothing is written."""
    await record.append(session_id, Message.user("hello", id="m1"))
    head = (await record.sessions.read(session_id)).head_seq
    for other in (Message.user("hello!", id="m1"), Message.assistant("hello", id="m1")):
        await kit.refusal(IdConflict, "another body", record.append(session_id, other))
    kit.require_equal(await kit.texts(record, session_id), ["hello"], "the transcript")
    kit.require_equal((await record.sessions.read(session_id)).head_seq, head, "the head")
    await record.append(session_id, Message.user("next", id="m2"))


@kit.session_contract("identity")
async def an_id_belongs_to_its_session(record: Record, one: str) -> None:
    """The same id in two sessions names two entries."""
    two = await kit.new_session(record)
    await record.append(one, Message.user("in one", id="m1"))
    await record.append(two, Message.user("in two", id="m1"))
    kit.require_equal(await kit.texts(record, one), ["in one"], "the text in one")
    kit.require_equal(await kit.texts(record, two), ["in two"], "the text in two")


@kit.session_contract("identity")
async def a_fork_inherits_ids(record: Record, parent: str) -> None:
    """An id of the inherited prefix is taken in the fork too; one that its parent used after the fork is not."""
    await record.append(parent, Message.user("shared", id="m1"))
    child = (await record.fork(parent)).id
    await record.append(parent, Message.user("of the parent", id="m2"))
    await record.append(child, Message.user("shared", id="m1"))
    changed = Message.user("changed", id="m1")
    await kit.refusal(IdConflict, "an inherited id with another body", record.append(child, changed))
    await record.append(child, Message.user("of the child", id="m2"))
    kit.require_equal(await kit.texts(record, child), ["shared", "of the child"], "the child's transcript")
    kit.require_equal(await kit.texts(record, parent), ["shared", "of the parent"], "the parent's transcript")


@kit.record_contract("identity")
async def a_given_session_id_is_idempotent(record: Record) -> None:
    """Creating a session that exists returns it, as it is; it never raises and never resets anything."""
    session_id = kit.fresh("given")
    await record.create_session(id=session_id, source="matrix", owner="person:ada", title="Trip")
    await record.append(session_id, Message.user("hello", id="m1"))
    again = await record.create_session(id=session_id, source="cli", owner="person:bob", title="Other")
    found = (again.id, again.source, again.owner, again.title, again.messages)
    kit.require_equal(found, (session_id, "matrix", "person:ada", "Trip", 1), "the session")
    await record.end_session(session_id, "enough")
    again = await record.create_session(id=session_id, source="cli")
    kit.require_equal((again.state, again.end_reason), ("ended", "enough"), "an ended session that is created again")


@kit.session_contract("identity")
async def create_fills_only_empty_fields(record: Record, first: str) -> None:
    """Creating a session again fills a missing title and parent, once."""
    second = await kit.new_session(record)
    session_id = await kit.new_session(record)
    filled = await record.create_session(id=session_id, source="x", title="One", parent=first)
    kit.require_equal((filled.title, filled.source), ("One", "conformance"), "title and source")
    kit.require_equal(filled.parent, Parent(session_id=first), "the parent")
    kept = await record.create_session(id=session_id, source="x", title="Two", parent=second)
    kit.require_equal((kept.title, kept.parent), ("One", filled.parent), "title and parent, once set")


@kit.session_contract("identity")
async def a_fork_is_made_by_fork(record: Record, parent: str) -> None:
    """A parent that is linked as a fork is refused by create_session: only fork() can share a prefix."""
    created = record.create_session(source="x", parent=Parent(session_id=parent, link=Link.FORK, at=1))
    await kit.refusal(InvalidInput, "create_session with a fork's link", created)


@kit.record_contract("identity")
async def generated_session_ids_are_new(record: Record) -> None:
    """Without an id each session is a new one, with an id that can be typed and used again."""
    ids = [(await record.create_session(source="conformance")).id for _ in range(60)]
    kit.require_equal(len(set(ids)), len(ids), "distinct ids")
    kit.require(all(SESSION_ID.match(session_id) for session_id in ids), "ids of a-z, 0-9 and '-'")


@kit.record_contract("identity")
async def ids_are_checked(record: Record) -> None:
    """An id that cannot be a file name, or that the record keeps for itself, is refused before anything is written."""
    for wrong in ("", "Upper", "-x", "a/b", "..", "a" * 65, "a\n", "ä"):
        await kit.refusal(InvalidInput, f"session id {wrong!r}", record.create_session(id=wrong, source="x"))
    session_id = await kit.new_session(record)
    for wrong in ("", "~mine", "a\nb", "a\0b", "\ud800"):
        await kit.refusal(InvalidInput, f"entry id {wrong!r}", record.append(session_id, Message.user("x", id=wrong)))
    kit.require_equal(await kit.texts(record, session_id), [], "the transcript")


@kit.contract("identity")
async def identity_outlives_closing(backend: kit.RecordUnderTest) -> None:
    """After the record was closed and opened again, a repeat is still a no-op and a conflict still a conflict."""
    async with backend.open_record() as record:
        session_id = await kit.new_session(record)
        await record.append(session_id, Message.user("hello", id="m1"))
    for _ in range(2):
        async with backend.open_record() as record:
            kit.require_equal((await record.sessions.read(session_id)).messages, 1, "the count of messages")
            await record.create_session(id=session_id, source="conformance")
            await record.append(session_id, Message.user("hello", id="m1"))
            other = Message.user("other", id="m1")
            await kit.refusal(IdConflict, "another body after reopening", record.append(session_id, other))
            kit.require_equal(await kit.texts(record, session_id), ["hello"], "the transcript")
            kit.require_equal((await record.sessions.read(session_id)).messages, 1, "the count of messages")


@kit.session_contract("identity")
async def a_repeat_outlives_the_session_end(record: Record, session_id: str) -> None:
    """A repeat of what an ended session holds returns the first; new words are SessionEnded."""
    first = await record.append(session_id, Message.user("hello", id="m1"))
    await record.end_session(session_id, "done")
    again = await record.append(session_id, Message.user("hello", id="m1"))
    kit.require_equal(again.seq, first.seq, "the seq of the repeat")
    await kit.refusal(SessionEnded, "new words", record.append(session_id, Message.user("more", id="m2")))


@kit.session_contract("order")
async def seq_is_contiguous(record: Record, session_id: str) -> None:
    """Every entry of a session, of whatever kind, has the next number, from 1 on; the head is the last one."""
    await record.append(session_id, Message.user("one"))
    await record.set_title(session_id, "Title")
    await record.turns.queue(session_id)
    async with record.turn(session_id) as turn:
        await kit.reply(turn, "streamed")
        await turn.append(Message.tool("call", "result"))
    await record.end_session(session_id, "done")
    session = await record.reopen_session(session_id)
    entries = await kit.all_entries(record, session_id)
    kit.require_equal([entry.seq for entry in entries], list(range(1, session.head_seq + 1)), "the seqs")
    kit.require_equal(entries[0].kind, "session.created", "the first kind")


@kit.session_contract("order")
async def event_times_are_kept_and_never_order(record: Record, session_id: str) -> None:
    """Messages stay in the order of their commits; the time of the event is kept beside it, older or not."""
    times = [datetime(year, 5, 6, 7, 8, 9, 123456, tzinfo=UTC) for year in (2024, 2001, 2050, 1999)]
    for number, at in enumerate(times):
        await record.append(session_id, Message.user(f"{number}", id=f"m{number}", at=at))
    child = (await record.fork(session_id)).id
    for each in (session_id, child):
        found = await record.load_transcript(each)
        kit.require_equal([message.text for message in found], ["0", "1", "2", "3"], "the order")
        kit.require_equal([message.at for message in found], times, "the times")


@kit.contract("order", "clock")
async def a_clock_that_jumps_orders_nothing(backend: kit.RecordUnderTest) -> None:
    """Messages, and sessions in a list, stay in commit order while the clock goes an hour back each time."""
    owner = kit.fresh("person:clock")
    async with backend.open_record() as record:
        chat = await kit.new_session(record)
        created = []
        for number in range(5):
            created.append((await record.create_session(source="x", owner=owner)).id)
            await record.append(chat, Message.user(f"{number}"))
            kit.offered(backend.clock).jump(-HOUR_SECONDS)
        kit.require_equal(await kit.texts(record, chat), ["0", "1", "2", "3", "4"], "the messages")
        listed = [session.id for session in await record.sessions(owner=owner)]
        kit.require_equal(listed, created[::-1], "latest activity first")


@kit.contract("order")
async def long_transcripts_are_whole_and_in_order(backend: kit.RecordUnderTest) -> None:
    """A transcript longer than any page has every message once, in order, at each load, also after reopening."""
    count = 1_100
    expected = [f"message {number}" for number in range(count)]
    async with backend.open_record() as record:
        session_id = await kit.new_session(record)
        for start in range(0, count, UNIT_ENTRIES_MAX):
            part = expected[start : start + UNIT_ENTRIES_MAX]
            await record.accept([(session_id, Message.user(text)) for text in part])
        kit.require_equal(await kit.texts(record, session_id), expected, "the transcript")
    async with backend.open_record() as record:
        kit.require_equal(await kit.texts(record, session_id), expected, "the transcript after reopening")
        page = await record.sessions.read_entries(session_id, after=3, limit=7)
        kit.require_equal(len(page), 7, "the length of a page")


@kit.contract("duplicates")
async def an_event_is_taken_in_once(backend: kit.RecordUnderTest) -> None:
    """A platform event that comes again, also after reopening, returns what it became: no message, no turn twice."""
    session_id, account = kit.fresh("intake"), kit.fresh("account")
    intake = Intake(channel="matrix", account=account, event_id="$1")
    async with backend.open_record() as record:
        await record.create_session(id=session_id, source="matrix")
        first = await record.accept([(session_id, Message.user("hello", id="m1"))], intake, None, queue_turn=True)
        kit.require(not first.duplicate, "the first is no duplicate")
        kit.require_equal([turn.state for turn in first.turns], [TurnState.QUEUED], "the turn that it asks for")
    async with backend.open_record() as record:
        again = await record.accept([(session_id, Message.user("other words", id="m9"))], intake, None, queue_turn=True)
        kit.require(again.duplicate, "the second is a duplicate")
        kit.require_equal([entry.id for entry in again.entries], ["m1"], "what it became")
        kit.require_equal([turn.id for turn in again.turns], [turn.id for turn in first.turns], "its turn")
        kit.require_equal(await kit.texts(record, session_id), ["hello"], "the transcript")
        kit.require_equal(len(await record.turns.list(session_id)), 1, "the number of turns")


@kit.session_contract("duplicates")
async def events_are_unique_by_channel_account_and_id(record: Record, session_id: str) -> None:
    """The same event id on another channel or account is another event; an intake without names is refused."""
    account = kit.fresh("account")
    for number, (channel, name) in enumerate([("matrix", account), ("telegram", account), ("matrix", account + "x")]):
        intake = Intake(channel=channel, account=name, event_id="1")
        accepted = await record.accept([(session_id, Message.user(f"{number}"))], intake)
        kit.require(not accepted.duplicate, f"event {number} is new")
    kit.require_equal(await kit.texts(record, session_id), ["0", "1", "2"], "the transcript")
    for names in (("", account, "1"), ("matrix", "", "1"), ("matrix", account, "")):
        nameless = Intake(channel=names[0], account=names[1], event_id=names[2])
        accepting = record.accept([(session_id, Message.user("lost"))], nameless)
        await kit.refusal(InvalidInput, f"an intake of {names}", accepting)


@kit.contract("duplicates")
async def a_cursor_moves_in_the_same_commit(backend: kit.RecordUnderTest) -> None:
    """The platform's cursor moves with what was taken in, and stays where it was when that was refused (L2)."""
    account = kit.fresh("account")
    async with backend.open_record() as record:
        session_id = await kit.new_session(record)
        kit.require_equal(await record.intake.cursor("matrix", account), None, "a cursor that nobody moved")
        cursor = Cursor(channel="matrix", account=account, value="s1")
        await record.accept([(session_id, Message.user("hello", id="m1"))], None, cursor)
        intake = Intake(channel="matrix", account=account, event_id="$2")
        refused = Cursor(channel="matrix", account=account, value="s2")
        accepting = record.accept([(session_id, Message.user("other", id="m1"))], intake, refused)
        await kit.refusal(IdConflict, "an event with an id that is taken", accepting)
        kit.require_equal(await record.intake.cursor("matrix", account), "s1", "the cursor")
        accepted = await record.accept([(session_id, Message.user("second", id="m2"))], intake, refused)
        kit.require(not accepted.duplicate, "a refused event is not remembered as taken")
        await record.accept([], None, Cursor(channel="matrix", account=account, value="s3"))
    async with backend.open_record() as record:
        kit.require_equal(await record.intake.cursor("matrix", account), "s3", "the cursor after reopening")


@kit.record_contract("duplicates")
async def what_is_accepted_together_stands_or_falls_together(record: Record) -> None:
    """One refused message of several leaves nothing of the others, in whichever session they are."""
    one, two, account = await kit.new_session(record), await kit.new_session(record), kit.fresh("account")
    cursor = Cursor(channel="matrix", account=account, value="s1")
    entries = [(one, Message.user("a")), (two, Message.user("b")), (kit.fresh("unknown"), Message.user("c"))]
    refused = record.accept(entries, None, cursor, queue_turn=True)
    await kit.refusal(NotFound, "a message for an unknown session", refused)
    for session_id in (one, two):
        kit.require_equal((await record.sessions.read(session_id)).head_seq, 1, "the head")
        kit.require_equal(await record.turns.list(session_id), [], "the turns")
    kit.require_equal(await record.intake.cursor("matrix", account), None, "the cursor")
    both = await record.accept([(one, Message.user("a")), (two, Message.user("b"))], None, cursor, queue_turn=True)
    kit.require_equal(len(both.turns), 2, "a turn for each session")
