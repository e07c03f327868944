"""Work of an opening that can take long: reading logs into the database, and folding entries into the projections.

Reads: every entry; logs. Writes: every projection; what `reconcile` writes.
Invariants: the fold is the one that commits, adoption and `verify` run (`Schema.project`). Logs are read in
pieces, each committed. On crash: a migration is rolled back; reading the logs goes on after the last piece.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import msgspec

from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.limits import READ_ROWS_MAX
from hansard.errors import LogUnwritable, RecordDamaged
from hansard.journal.backend import LogSeen
from hansard.journal.concepts import EntryPlace
from hansard.journal.lines import EntryRow, decode_line, log_name, part_name
from hansard.journal.progress import MIGRATING
from hansard.journal.reading import Journal
from hansard.journal.sqlite.connection import SQL, fetch
from hansard.journal.sqlite.reading import Snapshot
from hansard.journal.sqlite.reconcile import PIECE_BYTES, log_continues

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hansard.journal.concepts import Schema
    from hansard.journal.files import LogFiles
    from hansard.journal.progress import Work

logger = logging.getLogger("hansard.record")

JOURNALS_MAX = 1_000
"""Short logs that are read into the database in one transaction."""


class JournalDifference(NamedTuple):
    """A journal whose files are not as the database says."""

    journal_id: str
    size_bytes: int
    """By how much its log differs."""


def group_differences(differences: Iterable[JournalDifference]) -> Iterator[list[JournalDifference]]:
    """Put logs together, up to what one transaction may hold. Of a long log only the last piece is left by then."""
    group: list[JournalDifference] = []
    size_bytes = 0
    for difference in differences:
        if group and (size_bytes > PIECE_BYTES or len(group) == JOURNALS_MAX):
            yield group
            group, size_bytes = [], 0
        group.append(difference)
        size_bytes += min(difference.size_bytes, PIECE_BYTES)
    if group:
        yield group


def refold(connection: apsw.Connection, schema: Schema, work: Work) -> None:
    """Empty every projection and fold all entries into them again, in the caller's transaction."""
    ((journals, entries),) = fetch(connection, SQL.count_entries)
    work.begin(MIGRATING, journals, entries)
    reads = Snapshot(connection, schema)
    with ExitStack() as stack:
        for concept in schema.concepts:
            if concept.refold is not None:
                stack.enter_context(concept.refold(reads, connection.cursor().execute))
        for table in schema.tables:
            connection.execute(f"DELETE FROM {table.name}")  # noqa: S608 - our own names
        for row in _list_journals(connection):
            _refold_journal(connection, schema, Journal(row), work)
            work.advance(sessions=1)


class MemoryFold:
    """An empty database of the same schema, to fold one journal's entries into."""

    def __init__(self, schema: Schema) -> None:
        """Create the tables."""
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(SQL.tables + schema.create_tables())
        self.run = self._connection.cursor().execute

    def begin(self) -> None:
        """Start with empty tables."""
        if self._connection.in_transaction:
            self.run(SQL.rollback)
        self.run(SQL.begin)

    def dump(self, query: str, bindings: tuple[Any, ...]) -> list[Any]:
        """Return a table's rows."""
        return self.run(query, bindings).fetchall()


def _list_journals(connection: apsw.Connection) -> Iterator[tuple[object, ...]]:
    after = 0
    while rows := fetch(connection, SQL.list_journals, (after, READ_ROWS_MAX)):
        yield from rows
        after = rows[-1][0]


def _refold_journal(connection: apsw.Connection, schema: Schema, journal: Journal, work: Work) -> None:
    run = connection.cursor().execute
    after, last = journal.entry_key(journal.base_seq), journal.entry_key(journal.head_seq)
    messages = active_at = 0
    while rows := fetch(connection, SQL.read_full_entries, (after, last, READ_ROWS_MAX)):
        for row in map(EntryRow._make, rows):
            try:
                body = schema.decode_body(row.kind, row.version, row.body, ignorable=bool(row.ignorable))
                schema.project(EntryPlace(run, journal, row.seq, row.id, row.at), body)
            except (msgspec.MsgspecError, apsw.ConstraintError) as error:
                logger.error("entry %d of %s cannot be read: %s", row.seq, journal.id, error)  # noqa: TRY400
                continue
            messages += schema.count(body)
            active_at = row.at
        after = journal.entry_key(rows[-1][0])
        work.advance(done=len(rows))
    fetch(connection, SQL.update_journal_fold, (messages, active_at, journal.key))


def list_logs(files: LogFiles) -> Iterator[LogSeen]:
    """Yield every log and part file of the home. Links to folders are followed, as they are when a log is written.

    A folder that cannot be listed is an error: its sessions would be missing in silence.
    """
    folders = [("", files.home)]
    while folders:
        prefix, folder = folders.pop()
        for entry in _list_folder(folder):
            if prefix and prefix.count("/") < LOG_FOLDERS_DEEP and (entry.is_dir() or _is_broken_folder(entry)):
                folders.append((f"{prefix}{entry.name}/", entry.path))
            elif not prefix and entry.name == "sessions":
                folders.append(("sessions/", entry.path))
            elif not prefix and entry.name != "home.jsonl":
                continue
            else:
                stem, _, suffix = entry.name.rpartition(".")
                journal_id = HOME_JOURNAL if not prefix else stem
                name = {"jsonl": log_name, "part": part_name}.get(suffix)
                is_ours = name is not None and name(journal_id) == f"{prefix}{entry.name}"
                if is_ours and (entry.is_file() or entry.is_symlink()):
                    seen = entry.stat(follow_symlinks=False)
                    yield LogSeen(suffix, journal_id, seen.st_size, seen.st_ctime_ns)


LOG_FOLDERS_DEEP = 3
"""Folders above a log, at most: `sessions/2026/11/`."""


def _list_folder(path: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(path))
    except FileNotFoundError:
        if not os.path.islink(path):
            return []
        message = f"{path} is a link to a folder that is not there: the logs in it cannot be read"
        raise RecordDamaged(message) from None


def _is_broken_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a link to nowhere in the place of a folder."""
    return entry.is_symlink() and "." not in entry.name and not os.path.exists(entry.path)


def find_differences(
    connection: apsw.Connection, files: LogFiles, work: Work, *, unsynced: bool = True, since_ns: int | None = None
) -> list[JournalDifference]:
    """Return the journals whose files are not as the database says, by name and size.

    `unsynced` ones count as different: after a power cut their size may be right and their content not. With
    `since_ns`, the last line is compared as well of every log that changed after that time and of every journal that
    changed since heads were last compared: a log of another history may be just as long.
    """
    recent = {row[0] for row in fetch(connection, SQL.unchecked_journals)} if since_ns is not None else set()
    logs: dict[str, LogSeen] = {}
    parts: dict[str, int] = {}
    for seen in list_logs(files):
        if seen.suffix == "jsonl":
            logs[seen.journal_id] = seen
        else:
            parts[seen.journal_id] = seen.size_bytes
        work.show_life()
    different = []
    after = 0
    while rows := fetch(connection, SQL.list_journals, (after, READ_ROWS_MAX)):
        after = rows[-1][0]
        for row in rows:
            journal = Journal(row)
            log = logs.pop(journal.id, NO_LOG)
            sizes = log.size_bytes, parts.pop(journal.id, 0)
            if sizes != (journal.log_end, journal.part_end) or (unsynced and journal.log_synced < journal.log_end):
                different.append(JournalDifference(journal.id, abs(sizes[0] - journal.log_end)))
                continue
            is_suspect = since_ns is not None and (log.changed_ns > since_ns or journal.id in recent)
            if (is_suspect or journal.id == HOME_JOURNAL) and _is_foreign(files, journal):
                different.append(JournalDifference(journal.id, 0))
    for journal_id in sorted(logs, key=lambda journal_id: (journal_id != HOME_JOURNAL, journal_id)):
        work.show_life()
        if _has_first_line(files, journal_id):
            different.append(JournalDifference(journal_id, logs[journal_id].size_bytes))
    return different


NO_LOG = LogSeen("jsonl", "", 0, 0)


def _is_foreign(files: LogFiles, journal: Journal) -> bool:
    """Return whether a log of the right size ends with another line: that of another home's journal can."""
    try:
        return not log_continues(files, journal)
    except (LogUnwritable, RecordDamaged, OSError):
        return False  # whoever writes to it is told


def _has_first_line(files: LogFiles, journal_id: str) -> bool:
    """Return whether a log that the database does not know begins like one of ours."""
    name = log_name(journal_id)
    look = files.stat_file(name)
    for _, data in files.read_lines(name, 0, look.size if look is not None else 0):
        return decode_line(data) is not None
    return False
