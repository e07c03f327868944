"""What is read from a snapshot: sessions, transcripts, entries, pages for followers, routes, deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain import entries as e
from hansard.domain.limits import READ_ROWS_MAX
from hansard.domain.messages import Role
from hansard.domain.positions import Position
from hansard.domain.sessions import Route, Session
from hansard.domain.text import INTEGER_MAX
from hansard.domain.transcript import Changes, fold_transcript, join_chunks, said_message, streamed_pieces
from hansard.errors import Ambiguous, HansardError, InvalidInput, NotFound, PastMissing
from hansard.record.journals import SEQ_BITS, Journal, SessionRow
from hansard.record.lineage import Stretch, own_entries, trace_entries
from hansard.record.operations.deliveries import delivery_value
from hansard.record.operations.following import owners_text, read_circle
from hansard.record.operations.sessions import session_value
from hansard.record.operations.turns import turn_value
from hansard.record.reading import EntriesGoneError
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.domain.deliveries import Delivery
    from hansard.domain.messages import Message
    from hansard.domain.turns import TurnInfo
    from hansard.record.reading import Snapshot

CANDIDATES_MAX = 20
FIRST_ENTRIES = (4, 36)
"""Where to look for the first words of a session: at its very beginning, then somewhat further."""
CONTINUATION_BYTE = 0x80
"""What a byte inside a UTF-8 character looks like under the mask 0xC0."""


ALL_ROWS = -1
"""The limit of a query that gives all it finds."""


def find_session(snapshot: Snapshot, session_id: str) -> SessionRow:
    """Return a session's row."""
    row = snapshot.row(SQL.read_session, (session_id,))
    if row is None:
        message = f"there is no session {session_id}"
        raise NotFound(message)
    return SessionRow(*row)


def read_session(snapshot: Snapshot, session_id: str) -> Session:
    """Return a session."""
    return session_value(find_session(snapshot, session_id))


class SessionFilter(NamedTuple):
    """Which sessions to list."""

    owner: str | None
    source: str | None
    state: str | None
    before: str | None
    limit: int | None
    archived: bool | None


def owners_of(snapshot: Snapshot, owner: str | None) -> str | None:
    """Return all who are one person with an owner, as the queries take them; None: everybody."""
    return None if owner is None else owners_text(snapshot.rows, owner)


def list_sessions(snapshot: Snapshot, wanted: SessionFilter) -> list[Session]:
    """Return sessions, latest activity first."""
    if wanted.before is not None:
        find_session(snapshot, wanted.before)
    archived = None if wanted.archived is None else int(wanted.archived)
    owners = owners_of(snapshot, wanted.owner)
    limit = ALL_ROWS if wanted.limit is None else max(0, wanted.limit)
    bindings = (owners, wanted.source, wanted.state, wanted.before, limit, archived)
    return [session_value(SessionRow(*row)) for row in snapshot.rows(SQL.list_sessions, bindings)]


def first_words(snapshot: Snapshot, session_ids: Sequence[str]) -> dict[str, str]:
    """Return the first that a person said in each session. Most say it at once; nobody reads on for long."""
    found: dict[str, str] = {}
    for session_id in session_ids:
        try:
            first = _first_words(snapshot, session_id, 0)
        except PastMissing:
            first = _first_words(snapshot, session_id, snapshot.row(SQL.read_journal, (session_id,))[3])
        if first is not None:
            found[session_id] = first
    return found


def _first_words(snapshot: Snapshot, session_id: str, after: int) -> str | None:
    """Return the first that a person said in a session after a seq, if it is near."""
    for limit in FIRST_ENTRIES:
        rows = page(snapshot, session_id, after, limit)
        after += len(rows)
        bodies = ((row[1], row[4], row[5]) for row in rows)
        said = (
            as_now(snapshot, session_id, said_message(entry_id, at, body))
            for entry_id, at, body in bodies
            if isinstance(body, e.MessageAdded) and body.role == Role.USER
        )
        if (first := next((each for each in said if not each.is_retracted), None)) is not None:
            return first.text
    return None


def as_now(snapshot: Snapshot, session_id: str, message: Message) -> Message:
    """Return a message of a session as it stands, a deleted one marked. What was not said in a chat stays as it is."""
    return (
        read_changes(snapshot, known_lineage(snapshot, session_id)).last_words(message) if message.event_id else message
    )


def read_changes(snapshot: Snapshot, stretches: Sequence[Stretch]) -> Changes:
    """Return what became of messages after they were said, by the entries of some stretches."""
    changes = Changes()
    for stretch in stretches:
        for kind, version, data in snapshot.rows(SQL.changing_entries, stretch):
            changes.take(e.decode_body(kind, version, data))
    return changes


def resolve(snapshot: Snapshot, text: str, owner: str | None = None) -> Session:
    """Return the session that a text names: an id, a unique beginning of one, or a title."""
    exactly = snapshot.row(SQL.read_session, (text,)) if text else None
    seen = None if owner is None else read_circle(snapshot.rows, owner)
    if exactly is not None and (seen is None or SessionRow(*exactly).owner in seen):
        return read_session(snapshot, text)
    owners = owners_of(snapshot, owner)
    by_prefix = (
        [row[0] for row in snapshot.rows(SQL.resolve_prefix, (text.lower(), CANDIDATES_MAX, owners))] if text else []
    )
    by_title = snapshot.rows(SQL.resolve_title, (text, CANDIDATES_MAX, owners)) if text else []
    exact = [session_id for session_id, title in by_title if title == text]
    titled = exact or [session_id for session_id, _ in by_title]
    found = list(dict.fromkeys(titled + by_prefix))
    if not found:
        message = f"no session has the id or title {text[:80]!r}"
        raise NotFound(message)
    if len(found) > 1:
        message = f"{text[:80]!r} names several sessions: {', '.join(found)}"
        raise Ambiguous(message, found)
    return read_session(snapshot, found[0])


def lineage(snapshot: Snapshot, session_id: str, after: int = 0) -> list[Stretch]:
    """Return where a session's entries after a seq lie, a fork's inherited ones first; PastMissing if some are gone."""
    row = snapshot.row(SQL.read_journal, (session_id,))
    return [] if row is None else trace_entries(snapshot.row, Journal(row), after)


def known_lineage(snapshot: Snapshot, session_id: str) -> list[Stretch]:
    """Return where a session's entries lie; of a fork whose past is missing, its own ones."""
    try:
        return lineage(snapshot, session_id)
    except PastMissing:
        return own_entries(Journal(snapshot.row(SQL.read_journal, (session_id,))))


def page(snapshot: Snapshot, session_id: str, after: int, limit: int) -> list[tuple[int, str, str, int, int, e.Body]]:
    """Return up to `limit` entries after a seq: (seq, id, kind, version, time, body).

    They follow one another and reach the head, or the limit: a shorter page would be a shorter history, in silence.
    """
    found: list[tuple[int, str, str, int, int, e.Body]] = []
    for stretch in lineage(snapshot, session_id, after):
        start = max(stretch.after, (stretch.after >> SEQ_BITS << SEQ_BITS) + after)
        if start >= stretch.last or len(found) >= limit:
            continue
        rows = snapshot.rows(SQL.read_entries, (start, stretch.last, limit - len(found)))
        _check_contiguous(session_id, [row[0] for row in rows], stretch._replace(after=start), limit - len(found))
        for seq, entry_id, kind, version, ignorable, at, data in rows:
            body = e.decode_body(kind, version, data, ignorable=bool(ignorable))
            found.append((seq, entry_id, kind, version, at, body))
    return found


def _check_contiguous(session_id: str, seqs: list[int], stretch: Stretch, limit: int) -> None:
    """Raise when a page lacks entries of a stretch."""
    base = stretch.after >> SEQ_BITS << SEQ_BITS
    count = min(limit, stretch.last - stretch.after)
    for expected, seq in zip(range(stretch.after - base + 1, stretch.after - base + 1 + count), seqs, strict=False):
        if seq != expected:
            raise EntriesGoneError(session_id, expected)
    if len(seqs) < count:
        raise EntriesGoneError(session_id, stretch.after - base + len(seqs) + 1)


def read_entries(snapshot: Snapshot, session_id: str, after: int, limit: int) -> list[e.Entry]:
    """Return entries after a seq."""
    find_session(snapshot, session_id)
    return [
        entry(session_id, seq, entry_id, kind, at, body)
        for seq, entry_id, kind, _, at, body in page(snapshot, session_id, after, limit)
    ]


def entry(session_id: str, seq: int, entry_id: str, kind: str, at: int, body: e.Body, position: str = "") -> e.Entry:  # noqa: PLR0917
    """Return an entry as callers see it."""
    return e.Entry(
        id=entry_id,
        session_id=session_id,
        seq=seq,
        kind=kind,
        body=body,
        at_microseconds=at,
        position=position or str(seq),
    )


class TranscriptPage(NamedTuple):
    """A stretch of a session's entries, and, at its end, what is open."""

    rows: list[tuple[int, str, str, int, int, e.Body]]
    open_pieces: list[tuple[str, str]]
    complete: bool


def transcript_page(snapshot: Snapshot, session_id: str, after: int) -> TranscriptPage:
    """Return a page of a transcript; the last page comes with the open message's text, of the same moment."""
    session = find_session(snapshot, session_id)
    rows = page(snapshot, session_id, after, READ_ROWS_MAX)
    if len(rows) == READ_ROWS_MAX:
        return TranscriptPage(rows, [], complete=False)
    chunks = snapshot.rows(SQL.read_chunks, (session.journal,)) if session.open_message is not None else []
    return TranscriptPage(rows, [(part, text.decode()) for _, _, part, text in chunks], complete=True)


def fold_pages(pages: list[TranscriptPage]) -> list[Message]:
    """Return the messages of a transcript's pages."""
    rows = [(row[1], row[4], row[5]) for piece in pages for row in piece.rows]
    return fold_transcript(rows, join_chunks(pages[-1].open_pieces))


class Wanted(NamedTuple):
    """What a follower asks for: what came after a position, with the chunks or the entries only."""

    session_id: str
    position: Position
    chunks: bool = True


def follow_pages(snapshot: Snapshot, wanted: list[Wanted]) -> list[FollowPage | HansardError]:
    """Return the next page of each follower, all of one moment; one that fails does so alone."""
    pages: list[FollowPage | HansardError] = []
    for each in wanted:
        try:
            pages.append(follow_page(snapshot, each.session_id, each.position, chunks=each.chunks))
        except HansardError as error:
            pages.append(error)
    return pages


class FollowPage(NamedTuple):
    """What a follower is given next, and where it then stands."""

    items: list[e.Entry | e.Chunk]
    position: Position
    complete: bool


def follow_page(snapshot: Snapshot, session_id: str, position: Position, *, chunks: bool = True) -> FollowPage:
    """Return what came after a position: entries and chunks of one moment (rule 13)."""
    tip = snapshot.row(SQL.read_tip, (session_id,))
    if tip is None:
        message = f"there is no session {session_id}"
        raise NotFound(message)
    journal, head_seq, open_message = tip
    items: list[e.Entry | e.Chunk] = []
    rows = page(snapshot, session_id, position.seq, READ_ROWS_MAX) if head_seq > position.seq else []
    for seq, entry_id, kind, _, at, body in rows:
        if isinstance(body, e.MessageSealed):
            if chunks:
                _remainder(items, position, body)
            position = Position(seq)
        elif isinstance(body, e.MessageOpened):
            position = Position(seq, entry_id, 0)
        else:
            position = Position(seq, position.message_id, position.offset_bytes)
        items.append(entry(session_id, seq, entry_id, kind, at, body, str(position)))
    complete = len(rows) < READ_ROWS_MAX
    if chunks and complete and open_message is not None:
        if position.message_id != open_message:
            position = Position(position.seq, open_message, 0)
        for start, _, part, data in snapshot.rows(SQL.read_chunks_after, (journal, position.offset_bytes)):
            position = _give(items, position, start, part, data)
    return FollowPage(items, position, complete)


def _remainder(items: list[e.Entry | e.Chunk], position: Position, seal: e.MessageSealed) -> None:
    """Give what a sealed message has beyond the follower's offset, before the seal itself."""
    offset = position.offset_bytes if position.message_id == seal.message_id else 0
    start = 0
    for part, text in streamed_pieces(seal.parts):
        data = text.encode()
        _give(items, Position(position.seq, seal.message_id, offset), start, part, data)
        start += len(data)
        offset = max(offset, start)


def _give(items: list[e.Entry | e.Chunk], position: Position, start: int, part: str, data: bytes) -> Position:
    skip = max(0, position.offset_bytes - start)
    if skip >= len(data):
        return position
    here = Position(position.seq, position.message_id, start + len(data))
    if data[skip] & 0xC0 == CONTINUATION_BYTE:
        message = f"byte {position.offset_bytes} of {position.message_id} is inside a character"
        raise InvalidInput(message)
    items.append(
        e.Chunk(
            message_id=position.message_id,
            offset=start + skip,
            text=data[skip:].decode(),
            position=str(here),
            part=part,
        )
    )
    return here


def list_turns(snapshot: Snapshot, session_id: str) -> list[TurnInfo]:
    """Return a session's turns, oldest first."""
    session = find_session(snapshot, session_id)
    return [turn_value(session_id, row) for row in snapshot.rows(SQL.list_turns, (session.journal,))]


def queued_turns(snapshot: Snapshot) -> list[TurnInfo]:
    """Return the turns that wait to run, in every session, oldest first within each."""
    return [turn_value(row[0], row[1:]) for row in snapshot.rows(SQL.queued_turns)]


def find_turn(snapshot: Snapshot, name: str) -> TurnInfo | None:
    """Return the turn that an id, or a unique beginning of one, names; None for none, or for several."""
    rows = snapshot.rows(SQL.find_turns_by_id, (name,)) if name else []
    exact = [row for row in rows if row[1] == name] or rows
    return turn_value(exact[0][0], exact[0][1:]) if len(exact) == 1 else None


def find_route(snapshot: Snapshot, key: str) -> Route | None:
    """Return where a session key leads, or None."""
    row = snapshot.row(SQL.find_route, (key,))
    return None if row is None else Route(key=row[0], session_id=row[1], generation=row[2], reason=row[3])


def find_cursor(snapshot: Snapshot, channel: str, account: str) -> str | None:
    """Return how far a platform's stream was received, or None."""
    row = snapshot.row(SQL.find_cursor, (channel, account))
    return None if row is None else row[0]


class DeliveryFilter(NamedTuple):
    """Which deliveries to list."""

    session_id: str | None
    state: str | None
    channel: str | None
    limit: int
    after: Delivery | None


def list_deliveries(snapshot: Snapshot, wanted: DeliveryFilter) -> list[Delivery]:
    """Return deliveries, by session and id."""
    start, last = (0, ""), INTEGER_MAX
    if wanted.session_id is not None:
        last = find_session(snapshot, wanted.session_id).journal
        start = (last, "")
    if wanted.after is not None:
        start = max(start, (find_session(snapshot, wanted.after.session_id).journal, wanted.after.id))
    bindings = (*start, last, wanted.state, wanted.channel, wanted.limit)
    return [delivery_value(row[0], row[1:]) for row in snapshot.rows(SQL.list_deliveries, bindings)]
