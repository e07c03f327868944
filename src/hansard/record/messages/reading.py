"""Messages and entries as callers read them: transcripts, pages of entries, first words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hansard.domain.limits import READ_ROWS_MAX
from hansard.domain.messages import Role
from hansard.errors import PastMissing
from hansard.journal.concepts import Body
from hansard.journal.follow import Shapes
from hansard.journal.reading import SEQ_BITS, Stretch, known_lineage, read_page
from hansard.journal.reading import SQL as JOURNAL
from hansard.record.entries import Chunk, Entry
from hansard.record.messages.entries import MESSAGES, MessageAdded
from hansard.record.messages.fold import MessageFold, added_message, fold_transcript, join_chunks
from hansard.record.sessions import find_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.domain.messages import Message
    from hansard.journal.backend import Reads
    from hansard.journal.calls import Caller

FIRST_ENTRIES = (4, 36)
"""Where to look for the first words of a session: at its very beginning, then somewhat further."""


def first_words(snapshot: Reads, session_ids: Sequence[str]) -> dict[str, str]:
    """Return the first that a person said in each session. Most say it at once; nobody reads on for long."""
    found: dict[str, str] = {}
    for session_id in session_ids:
        try:
            first = _first_words(snapshot, session_id, 0)
        except PastMissing:
            first = _first_words(snapshot, session_id, snapshot.row(JOURNAL.read_journal, (session_id,))[3])
        if first is not None:
            found[session_id] = first
    return found


def _first_words(snapshot: Reads, session_id: str, after: int) -> str | None:
    """Return the first that a person said in a session after a seq, if it is near."""
    for limit in FIRST_ENTRIES:
        rows = read_page(snapshot, session_id, after, limit)
        after += len(rows)
        said = [
            added_message(entry_id, at, body)
            for _, entry_id, _, _, at, body in rows
            if isinstance(body, MessageAdded) and body.role == Role.USER
        ]
        # Only what was said in a chat can have changed.
        is_in_chat = any(message.event_id for message in said)
        fold = read_fold(snapshot, known_lineage(snapshot, session_id)) if is_in_chat else MessageFold()
        if (first := next((each for each in map(fold.now, said) if not each.is_retracted), None)) is not None:
            return first.text
    return None


def read_fold(reading: Reads, stretches: Sequence[Stretch]) -> MessageFold:
    """Return what became of messages after they were said, by the entries of some stretches."""
    fold = MessageFold()
    for stretch in stretches:
        for kind, version, data in reading.rows(MESSAGES.queries.changing_entries, stretch):
            fold.add(reading.schema.decode_body(kind, version, data))
    return fold


def find_in(snapshot: Reads, stretches: Sequence[Stretch], entry_id: str) -> tuple[int, tuple[Any, ...]] | None:
    """Return the journal and the row of an entry of a session: what a fork's parent had after the fork is not one."""
    for stretch in reversed(stretches):
        journal = stretch.after >> SEQ_BITS
        found = snapshot.row(JOURNAL.find_entry, (journal, entry_id))
        if found is not None and stretch.after < (journal << SEQ_BITS) + found[0] <= stretch.last:
            return journal, found
    return None


def read_entries(snapshot: Reads, session_id: str, after: int, limit: int) -> list[Entry]:
    """Return entries after a seq."""
    find_session(snapshot, session_id)
    return [
        entry(session_id, seq, entry_id, kind, at, body)
        for seq, entry_id, kind, _, at, body in read_page(snapshot, session_id, after, limit)
    ]


def entry(session_id: str, seq: int, entry_id: str, kind: str, at: int, body: Body, position: str = "") -> Entry:  # noqa: PLR0917
    """Return an entry as callers see it."""
    return Entry(
        id=entry_id,
        session_id=session_id,
        seq=seq,
        kind=kind,
        body=body,
        at_microseconds=at,
        position=position or str(seq),
    )


def chunk(stream_id: str, offset: int, text: str, position: str, part: str) -> Chunk:
    """Return a piece of an open message as callers see it."""
    return Chunk(message_id=stream_id, offset=offset, text=text, position=position, part=part)


SHAPES: Shapes[Entry | Chunk] = Shapes(entry, chunk)


class TranscriptPage(NamedTuple):
    """A stretch of a session's entries, and, at its end, what is open."""

    rows: list[tuple[int, str, str, int, int, Body]]
    open_pieces: list[tuple[str, str]]
    complete: bool


def transcript_page(snapshot: Reads, session_id: str, after: int) -> TranscriptPage:
    """Return a page of a transcript; the last page comes with the open message's text, of the same moment."""
    session = find_session(snapshot, session_id)
    rows = read_page(snapshot, session_id, after, READ_ROWS_MAX)
    if len(rows) == READ_ROWS_MAX:
        return TranscriptPage(rows, [], complete=False)
    chunks = snapshot.rows(JOURNAL.read_chunks, (session.journal,)) if session.open_message is not None else []
    return TranscriptPage(rows, [(part, text.decode()) for _, _, part, text in chunks], complete=True)


def fold_pages(pages: list[TranscriptPage]) -> list[Message]:
    """Return the messages of a transcript's pages."""
    rows = [(row[1], row[4], row[5]) for piece in pages for row in piece.rows]
    return fold_transcript(rows, join_chunks(pages[-1].open_pieces))


async def load_transcript(caller: Caller, session_id: str) -> list[Message]:
    """Return every message of a session, page by page."""
    pages: list[TranscriptPage] = []
    after = 0
    while not pages or not pages[-1].complete:
        start = after
        pages.append(await caller.read(lambda snapshot: transcript_page(snapshot, session_id, start)))  # noqa: B023
        after = pages[-1].rows[-1][0] if pages[-1].rows else after
    return fold_pages(pages)
