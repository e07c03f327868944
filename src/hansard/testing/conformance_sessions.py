"""Contracts of sessions and routes: listed, found, ended, forked and reset, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from hansard.domain.deliveries import Delivery, DeliveryState
from hansard.domain.messages import Message, Status
from hansard.domain.sessions import Link, Parent, Route, SessionState
from hansard.errors import Ambiguous, InvalidInput, NotFound, SessionEnded, WrongState
from hansard.record.api import Record
from hansard.record.messages.entries import Entry
from hansard.testing import conformance_kit as kit


@kit.record_contract("sessions")
async def lists_are_filtered_and_paged(record: Record) -> None:
    """Lists show latest activity first, by owner, source and state; pages join without gap or repeat."""
    owner = kit.fresh("person:lister")
    made = [(await record.create_session(source="cli" if number % 2 else "web", owner=owner)).id for number in range(7)]
    await record.end_session(made[5], "done")
    await record.append(made[0], Message.user("activity"))
    order = [made[0], made[5], made[6], made[4], made[3], made[2], made[1]]
    listed = [session.id for session in await record.sessions(owner=owner)]
    kit.require_equal(listed, order, "latest activity first")
    paged: list[str] = []
    while page := await record.sessions(owner=owner, limit=2, before=paged[-1] if paged else None):
        kit.require(len(page) <= 2, "a page has at most its limit")  # noqa: PLR2004
        paged += [session.id for session in page]
    kit.require_equal(paged, order, "the pages together")
    for source, expected in (("cli", made[1::2]), ("web", made[::2]), ("other", [])):
        found = {session.id for session in await record.sessions(owner=owner, source=source)}
        kit.require_equal(found, set(expected), f"by source {source}")
    ended = [session.id for session in await record.sessions(owner=owner, state="ended")]
    kit.require_equal(ended, [made[5]], "by state")
    kit.require_equal(len(await record.sessions(owner=owner, state="open")), 6, "open ones")
    kit.require_equal(await record.sessions(owner=owner, limit=0), [], "a limit of nothing")


@kit.record_contract("sessions")
async def a_session_is_found_by_id_prefix_and_title(record: Record) -> None:
    """An id, a unique beginning of one in any case, and a title in any case each name their session."""
    session_id, title = kit.fresh("resolve"), kit.fresh("Titel Ä")
    await record.create_session(id=session_id, source="x", title=title)
    for text in (session_id, session_id[:-2], session_id[:-2].upper(), title, title.replace("Titel", "TITEL")):
        kit.require_equal((await record.resolve(text)).id, session_id, f"what {text!r} names")


@kit.session_contract("sessions")
async def an_exact_id_wins(record: Record, session_id: str) -> None:
    """A whole id names its session although others begin with it."""
    await record.create_session(id=f"{session_id}-more", source="x")
    kit.require_equal((await record.resolve(session_id)).id, session_id, "what the id names")


@kit.record_contract("sessions")
async def several_matches_are_listed(record: Record) -> None:
    """A text that several sessions match is Ambiguous, with the candidates; nothing is chosen silently (D13)."""
    stem, title = kit.fresh("twin"), kit.fresh("Same")
    ids = {(await record.create_session(id=f"{stem}-{n}", source="x", title=title)).id for n in range(3)}
    for text in (stem, title):
        error = await kit.refusal(Ambiguous, f"several match {text!r}", record.resolve(text))
        kit.require_equal(set(error.candidates), ids, "the candidates")


@kit.record_contract("sessions")
async def unknown_ids_are_not_found(record: Record) -> None:
    """Every verb on a session that does not exist is NotFound: none answers with success or an empty list (D14)."""
    gone = kit.fresh("gone")
    known = await kit.new_session(record)
    await record.append(known, Message.user("x", id="m1"))
    delivery = Delivery(id="d1", session_id=gone, channel="c", target="t", message_id="m1")
    missing = Delivery(id="d1", session_id=known, channel="c", target="t", message_id="m9")
    verbs: dict[str, Awaitable[object]] = {
        "session": record.sessions.read(gone),
        "resolve": record.resolve(gone),
        "resolve nothing": record.resolve(""),
        "set_title": record.set_title(gone, "x"),
        "end_session": record.end_session(gone, "x"),
        "reopen_session": record.reopen_session(gone),
        "fork": record.fork(gone),
        "append": record.append(gone, Message.user("x")),
        "accept": record.accept([(gone, Message.user("x"))]),
        "load_transcript": record.load_transcript(gone),
        "read_entries": record.sessions.read_entries(gone),
        "follow": kit.follow_until(record, gone, kit.reached(1)),
        "turn": kit.run_turn(record, gone),
        "queue_turn": record.turns.queue(gone),
        "turns": record.turns.list(gone),
        "move_route": record.routes.move(kit.fresh("key"), gone),
        "create_delivery": record.deliveries.create(delivery),
        "create_delivery of no message": record.deliveries.create(missing),
        "move_delivery": record.deliveries.move(gone, "d1", DeliveryState.SENDING),
        "move_delivery of none": record.deliveries.move(known, "d1", DeliveryState.SENDING),
        "deliveries": record.deliveries.list(session_id=gone),
        "sessions before": record.sessions(before=gone),
        "create_session parent": record.create_session(source="x", parent=gone),
        "read_blob": record.blobs.read("0" * 64),
    }
    await kit.require_errors(NotFound, verbs)
    kit.require_equal(await record.routes.read(kit.fresh("key")), None, "a route that nobody made")


@kit.contract("sessions")
async def the_first_end_reason_stays(backend: kit.RecordUnderTest) -> None:
    """Ending twice keeps the first reason; reopening lets words in again, and the next end has its own reason."""
    async with backend.open_record() as record:
        session_id = await kit.new_session(record)
        opened = await record.reopen_session(session_id)
        kit.require_equal(opened.head_seq, 1, "reopening an open session does nothing")
        await record.end_session(session_id, "first")
        ended = await record.end_session(session_id, "second")
        kit.require_equal((ended.state, ended.end_reason), (SessionState.ENDED, "first"), "after two ends")
        await kit.refusal(SessionEnded, "new words", record.append(session_id, Message.user("x")))
        await kit.refusal(SessionEnded, "new words by accept", record.accept([(session_id, Message.user("x"))]))
        reopened = await record.reopen_session(session_id)
        kit.require_equal((reopened.state, reopened.end_reason), (SessionState.OPEN, None), "after reopening")
        await record.append(session_id, Message.user("again"))
        kit.require_equal((await record.end_session(session_id, "third")).end_reason, "third", "the next reason")
        expected = ["session.ended", "session.reopened", "message.added", "session.ended"]
        kit.require_equal((await kit.kinds(record, session_id))[1:], expected, "facts are appended")
    async with backend.open_record() as record:
        session = await record.sessions.read(session_id)
        kit.require_equal(session.end_reason, "third", "the reason after reopening the record")


@kit.session_contract("sessions")
async def titles_are_facts(record: Record, session_id: str) -> None:
    """A title can change; the same title again writes nothing; every title stays in the journal."""
    title = kit.fresh("Title")
    await record.set_title(session_id, "First")
    await record.set_title(session_id, title)
    again = await record.set_title(session_id, title)
    kit.require_equal((again.title, again.head_seq), (title, 3), "title and head")
    kit.require_equal((await record.resolve(title)).id, session_id, "what the title names")


@kit.session_contract("sessions")
async def a_fork_shares_the_past_only(record: Record, parent: str) -> None:
    """A fork has its parent's messages up to the fork point, continues its seq, and neither changes the other."""
    entries = [await record.append(parent, Message.user(f"{n}", id=f"m{n}")) for n in range(4)]
    child = await record.fork(parent, entries[1].seq, title="Branch")
    kit.require_equal((child.title, child.messages, child.source), ("Branch", 2, "conformance"), "the child")
    left_at = Parent(session_id=parent, link=Link.FORK, at=entries[1].seq)
    kit.require_equal(child.parent, left_at, "the child's parent, and where it left")
    await record.append(child.id, Message.user("child", id="c1"))
    await record.append(parent, Message.user("parent", id="p1"))
    grandchild = await record.fork(child.id)
    early = await record.fork(child.id, entries[0].seq)
    kit.require_equal(await kit.texts(record, child.id), ["0", "1", "child"], "the child's transcript")
    kit.require_equal(await kit.texts(record, parent), ["0", "1", "2", "3", "parent"], "the parent's transcript")
    kit.require_equal(await kit.texts(record, grandchild.id), ["0", "1", "child"], "the grandchild's transcript")
    kit.require_equal(await kit.texts(record, early.id), ["0"], "a fork of the inherited prefix")
    for session_id in (child.id, grandchild.id, early.id):
        seqs = [entry.seq for entry in await kit.all_entries(record, session_id)]
        kit.require_equal(seqs, list(range(1, len(seqs) + 1)), "the seqs")
    for wrong in (0, -1, 99):
        await kit.refusal(InvalidInput, f"a fork at {wrong}", record.fork(parent, wrong))


@kit.session_contract("sessions")
async def a_fork_point_inside_a_message_interrupts_it(record: Record, parent: str) -> None:
    """A message that was open at the fork point reads as interrupted in the child, with its text (rule 19)."""
    async with record.turn(parent) as turn, turn.reply(id="r1") as reply:
        await reply.write("half")
        await kit.follow_until(record, parent, kit.said("r1", "half"))
        live = await record.fork(parent)
        await reply.write(" and half")
    opened = next(entry for entry in await kit.all_entries(record, parent) if entry.kind == "message.opened")
    later = await record.fork(parent, opened.seq)
    for child, text in ((live.id, "half"), (later.id, "half and half")):
        kit.require_equal(await kit.spoken(record, child), [(text, Status.INTERRUPTED)], "in the child")
        await kit.run_turn(record, child, "the child goes on")
    kit.require_equal(await kit.spoken(record, parent), [("half and half", Status.COMPLETE)], "in the parent")


@kit.session_contract("sessions")
async def a_given_fork_id_is_idempotent(record: Record, parent: str) -> None:
    """The same fork again returns the first."""
    child = kit.fresh("fork")
    seq = (await record.append(parent, Message.user("x"))).seq
    first = await record.fork(parent, seq, id=child)
    again = await record.fork(parent, seq, id=child)
    kit.require_equal((again.id, again.head_seq), (first.id, first.head_seq), "the fork")


@kit.contract("routes")
async def a_route_moves_by_generations(backend: kit.RecordUnderTest) -> None:
    """Each move bumps the generation by one; a mover that expects another generation is WrongState."""
    key = kit.fresh("matrix:room:!abc")
    async with backend.open_record() as record:
        one, two = await kit.new_session(record), await kit.new_session(record)
        route = await record.routes.move(key, one, reason="start", expect=0)
        kit.require_equal((route.session_id, route.generation, route.reason), (one, 1, "start"), "the first route")
        await record.routes.move(key, two, expect=1)
        await kit.refusal(WrongState, "a move that somebody overtook", record.routes.move(key, one, expect=1))
    async with backend.open_record() as record:
        kept = await record.routes.read(key)
        kit.require(kept is not None and (kept.session_id, kept.generation) == (two, 2), f"it is kept, not {kept}")


@kit.record_contract("routes")
async def a_new_session_is_one_step(record: Record) -> None:
    """`/new` ends the old session, begins its linked successor and moves the route; the old one stays listed."""
    key, owner = f"matrix:room:!{kit.fresh('room')}:example.org", kit.fresh("person:new")
    old = (await record.create_session(source="matrix", owner=owner)).id
    await record.append(old, Message.user("before"))
    await record.routes.move(key, old)
    for generation in range(2, 6):
        after = await record.sessions.read(await kit.begin_new(record, key, owner))
        route = Route(key=key, session_id=after.id, generation=generation, reason="new")
        kit.require_equal(await record.routes.read(key), route, "the route")
        before = await record.sessions.read(old)
        kit.require_equal((before.state, before.end_reason), (SessionState.ENDED, "new"), "the old session")
        kit.require_equal(after.parent, Parent(session_id=old, link=Link.RESET), "the new one's parent")
        kit.require_equal((after.state, after.messages), (SessionState.OPEN, 0), "the new session")
        old = after.id
    kit.require_equal(len(await record.sessions(owner=owner)), 5, "every session is listed")


@kit.record_contract("routes")
async def overtaken_moves_lose(record: Record) -> None:
    """Of many movers that expect the same generation exactly one wins."""
    key = kit.fresh("key")
    sessions = [await kit.new_session(record) for _ in range(8)]
    moves = (record.routes.move(key, session_id, expect=0) for session_id in sessions)
    results = await asyncio.gather(*moves, return_exceptions=True)
    won = [result for result in results if not isinstance(result, BaseException)]
    lost = [result for result in results if isinstance(result, WrongState)]
    kit.require_equal((len(won), len(lost)), (1, 7), "winners and losers")
    kit.require_equal(await record.routes.read(key), won[0], "the route")


@kit.session_contract("sessions")
async def entries_say_what_they_are(record: Record, session_id: str) -> None:
    """What append returns is what reading gives: id, session, seq, kind, text and position."""
    appended = await record.append(session_id, Message.user("hello", id="m1"))
    kit.require(isinstance(appended, Entry), "append returns an Entry")
    found = (appended.session_id, appended.seq, appended.kind, appended.text, appended.position)
    kit.require_equal(found, (session_id, 2, "message.added", "hello", "2"), "the entry")
    kit.require_equal((await kit.all_entries(record, session_id))[1], appended, "the entry as it is read")
