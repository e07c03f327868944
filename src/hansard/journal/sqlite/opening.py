"""Opening a database: which of its files belong together, whether both legs are of one home, and where they differ.

Reads: stamps of `state.db` and its WAL; heads and entries; names, sizes and last lines of logs. Writes: names of files
that do not belong together (`.orphan-…`); logs, with entries that only a database holds that is set aside.
Invariants: a WAL is never replayed into a database that it does not continue; a database of another home is refused
before anything is written. Runs under the write lock. On crash: it runs again, on the files that are left.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from hansard.domain.ids import HOME_JOURNAL, log_stem
from hansard.domain.limits import KIB, READ_ROWS_MAX
from hansard.errors import LegsMixed, LogUnwritable, RecordDamaged, RecordTooNew
from hansard.journal.backend import DamageError, LogSeen
from hansard.journal.concepts import Schema
from hansard.journal.entries import (
    BOUNDARY_BYTES,
    SEQ_BITS,
    Journal,
    decode_line,
    log_continues,
    log_name,
    log_size,
    read_log,
    row_digest,
)
from hansard.journal.files import LogFiles
from hansard.journal.locks import Work
from hansard.journal.sqlite.connection import (
    SQL,
    STAMPED_VERSION,
    check_version,
    fetch,
    list_journals,
    open_alone,
    open_connection,
    schema_version,
)
from hansard.journal.sqlite.reading import LOOK_SECONDS, LOOKS_MAX, Identity, look_at
from hansard.journal.sqlite.rebuilding import copy_to_logs, read_entries, set_files_aside
from hansard.journal.sqlite.stamps import (
    DatabaseVerdict,
    does_fit,
    judge_files,
    read_database_file,
    read_wal_file,
)
from hansard.journal.sqlite.tails import LogTail
from hansard.journal.transaction import decode_text

logger = logging.getLogger("hansard.record")

SAMPLES_MAX = 20
"""Sessions whose logs are compared with the database when the home journals of both differ or one is missing."""

TAIL_ENTRIES_MAX = 200
"""Last entries of a journal that are counted at each opening. `verify` counts all of them."""


def connect(path: Path, files: LogFiles, lost: Identity, schema: Schema) -> tuple[apsw.Connection, bool]:
    """Return a connection, and whether the heads of all journals must be compared with their entries.

    `lost` is what this process was connected to before, when it vanished or was replaced.
    """
    check = partial(check_version, schema=schema)
    every = set_orphans_aside(path, files, lost)
    try:
        connection = _connect_to_fitting(path, check)
    except apsw.CorruptError:
        database = read_database_file(path)
        if database is None or not database.is_short:
            raise
        set_files_aside(path, "", "-wal", "-shm")  # it was cut off, and the logs have what it had
        return open_connection(path, check=check), True
    if connection is not None:
        return connection, every
    set_files_aside(path, "-wal", "-shm")
    return open_connection(path, check=check), True


def set_orphans_aside(path: Path, files: LogFiles, lost: Identity) -> bool:
    """Move away what does not belong together; return whether the heads of all journals must be compared.

    When a WAL or wal-index vanished under a connection that used it, the database may hold half of a checkpoint:
    all of it is set aside, and rebuilt from the logs.
    """
    verdict = judge_place(path, lost)
    if not verdict.opens and look_at(path).identity[0] is not None:
        save_alone(path, files, has_words=verdict is DatabaseVerdict.SET_BOTH_ASIDE)
    if verdict is DatabaseVerdict.SET_BOTH_ASIDE:
        set_files_aside(path, "", "-wal", "-shm")
    elif verdict is DatabaseVerdict.SET_WAL_ASIDE:
        set_files_aside(path, "-wal", "-shm")
    elif look_at(path).identity[1] is None:
        set_files_aside(path, "-shm")
    return verdict in {DatabaseVerdict.SET_WAL_ASIDE, DatabaseVerdict.OPEN_AND_COMPARE}


def save_alone(path: Path, files: LogFiles, *, has_words: bool = True) -> None:
    """Refuse a database of another home than the logs; write what it alone holds without its WAL into the logs."""
    with open_alone(path) as connection, suppress(apsw.Error):
        check_legs(connection, files)
        if has_words:
            copy_to_logs(connection, files)


def judge_place(path: Path, lost: Identity) -> DatabaseVerdict:
    """Look until the files belong together, or surely do not: another process may run a checkpoint meanwhile."""
    for attempt in range(LOOKS_MAX):
        if attempt:
            time.sleep(LOOK_SECONDS)
        wal_file, database_file = read_wal_file(path), read_database_file(path)
        database, wal, shm = look_at(path).identity
        is_lost = bool(lost) and database is not None and database == lost[0]
        has_wal = wal is not None and (shm is not None or not is_lost)
        verdict = judge_files(database_file, wal_file, has_wal=has_wal, is_lost=is_lost)
        is_short = database_file is not None and database_file.is_short  # also in the middle of a checkpoint
        if verdict.opens and not is_short:
            break
    return verdict


def _connect_to_fitting(path: Path, check: Callable[[apsw.Connection], int]) -> apsw.Connection | None:
    """Connect; return None when SQLite does not replay as much of the WAL as `state.db` needs.

    It stops at the first frame whose checksum is wrong. A `state.db` that already holds a later state must not be
    read through the earlier pages of such a WAL. It is left as it is when it is not whole without the WAL either.
    """
    wal, database = read_wal_file(path), read_database_file(path)
    with ExitStack() as stack:
        try:
            connection = open_connection(path, check=check)
            stack.callback(connection.close)
            if wal is not None and wal.stamps and database is not None:
                is_stamped = schema_version(connection) >= STAMPED_VERSION
                state = fetch(connection, SQL.read_stamp)[0][0] if is_stamped else b""
                if not does_fit(database, wal.until(state)):
                    return None
        except apsw.CorruptError:
            if wal is None or not is_whole_alone(path):
                raise
            return None
        stack.pop_all()
    return connection


# The two legs compared.


class DamagedDatabaseError(Exception):
    """A head of the database names entries that it does not hold, or its pages are damaged: rebuild it."""


def check_heads(connection: apsw.Connection, *, every: bool) -> None:
    """Compare the heads of journals with their entries: of those that changed since they were last compared, or all.

    All of them are compared, with the chain of all their entries and every page, when the files did not fit together.
    """
    if every:
        for (problem,) in fetch(connection, SQL.integrity_check):
            if problem != "ok":
                raise DamagedDatabaseError(f"state.db is damaged: {problem}")
        for (text,) in fetch(connection, SQL.list_chunk_texts):
            decode_text(text)
        for journal in map(Journal, list_journals(connection)):
            _check_chain(connection, journal)
    depth = 1 << SEQ_BITS if every else TAIL_ENTRIES_MAX
    for journal_id, head_seq in fetch(connection, SQL.wrong_heads, (depth, int(every))):
        message = f"state.db says that {journal_id} has {head_seq} entries, and does not hold all of them"
        raise DamagedDatabaseError(message)


def _check_chain(connection: apsw.Connection, journal: Journal) -> None:
    """Compare each entry with its digest. SQLite reads a page that was torn as one that ends in zeros."""
    digest = journal.base_digest
    for row in read_entries(connection, journal):
        if row_digest(journal.id, digest, row) != row.digest:
            raise DamagedDatabaseError(f"state.db is damaged: entry {row.seq} of {journal.id} does not have its digest")
        digest = row.digest


def is_whole_alone(path: Path) -> bool:
    try:
        with open_alone(path) as connection:
            check_heads(connection, every=True)
    except (DamagedDatabaseError, DamageError, apsw.Error):
        return False
    return True


def check_legs(connection: apsw.Connection, files: LogFiles) -> None:
    """Refuse a database of another home than the logs: their entries must never be mixed.

    The first entry of a home is unlike that of any other home. Where the home journal is missing from one leg, or tells
    another history, the sessions that both legs know decide.
    """
    home = _agree(connection, files, HOME_JOURNAL)
    if home:
        return
    samples = (_agree(connection, files, row[1]) for row in fetch(connection, SQL.list_journals, (0, READ_ROWS_MAX)))
    found = set(islice((agrees for agrees in samples if agrees is not None), SAMPLES_MAX))
    if True in found or (home is None and not found):
        return
    message = (
        f"state.db and the logs (home.jsonl, sessions/) in {files.home} belong to two different homes. To keep "
        f"the logs, move state.db, state.db-wal and state.db-shm away: the database is rebuilt. To keep the database, "
        f"move home.jsonl and sessions/ away: the logs are written anew"
    )
    raise LegsMixed(message)


def _agree(connection: apsw.Connection, files: LogFiles, journal_id: str) -> bool | None:
    """Return whether both legs have the same first entry in a journal; None when one of them has none."""
    row = fetch(connection, SQL.read_journal, (journal_id,))
    if not row:
        return None
    journal = Journal(row[0])
    stored = fetch(connection, SQL.read_digest, (journal.entry_key(journal.base_seq + 1),))
    try:
        _, data = next(files.read_lines(log_name(journal_id), 0, log_size(files, journal_id)), (0, b""))
    except RecordDamaged:
        return None
    line = decode_line(data)
    if line is None or not stored:
        return None
    return bool(stored[0][0].hex() == line.digest)


# Logs whose names or sizes are not as the database says.


class JournalDifference(NamedTuple):
    """A journal whose files are not as the database says."""

    journal_id: str
    size_bytes: int
    """By how much its log differs."""


def list_logs(files: LogFiles) -> Iterator[LogSeen]:
    """Yield every log and part file of the home, and whatever else has the name of one.

    Links to folders are followed, as they are when a log is written.

    A folder that cannot be listed is an error: its sessions would be missing in silence.
    """
    folders = [("", files.home)]
    while folders:
        prefix, folder = folders.pop()
        for entry in _list_folder(folder):
            is_folder = entry.is_dir() and not entry.name.endswith((".jsonl", ".part"))
            if prefix and prefix.count("/") < LOG_FOLDERS_DEEP and (is_folder or _is_broken_folder(entry)):
                folders.append((f"{prefix}{entry.name}/", entry.path))
            elif not prefix and entry.name == "sessions":
                folders.append(("sessions/", entry.path))
            elif not prefix and entry.name != "home.jsonl":
                continue
            else:
                stem, _, suffix = entry.name.rpartition(".")
                journal_id = stem if prefix else HOME_JOURNAL
                if suffix in LOG_SUFFIXES and log_stem(journal_id) == f"{prefix}{stem}":
                    try:
                        seen = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # a reply ended meanwhile, and its part file is gone
                    yield LogSeen(
                        suffix=suffix, journal_id=journal_id, size_bytes=seen.st_size, changed_ns=seen.st_ctime_ns
                    )


LOG_SUFFIXES = frozenset({"jsonl", "part"})

LOG_FOLDERS_DEEP = 3
"""Folders above a log, at most: `sessions/2026/11/`."""


def _list_folder(path: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(path))
    except FileNotFoundError:
        if not os.path.islink(path):
            return []
        raise RecordDamaged(f"{path} is a link to a folder that is not there: the logs in it cannot be read") from None


def _is_broken_folder(entry: os.DirEntry[str]) -> bool:
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
    for journal in map(Journal, list_journals(connection)):
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
        if _has_line(files, journal_id):
            different.append(JournalDifference(journal_id, logs[journal_id].size_bytes))
    return different


def was_put_back(
    connection: apsw.Connection, files: LogFiles, schema: Schema, differences: Iterable[JournalDifference]
) -> bool:
    """Return whether a log continues the database by more than the one commit that a crash can leave.

    Whoever writes next to that log looks first. A log of another history tells nothing.
    """
    ((_, commits),) = fetch(connection, SQL.read_record)
    for each in differences:
        with suppress(LogUnwritable, RecordDamaged, RecordTooNew, OSError):  # whoever writes to it is told
            size = log_size(files, each.journal_id)
            row = fetch(connection, SQL.read_journal, (each.journal_id,))
            journal = Journal(row[0]) if row else None
            fits = journal is None or (size >= journal.log_end and log_continues(files, journal))
            tail = LogTail(schema, each.journal_id, journal, size, fits=fits)
            tail.scan(files)
            if tail.marks and (tail.tx > commits + 1 or tail.tx_seq > tail.base_seq + 1):
                return True
    return False


def latest_commit(files: LogFiles, differences: Iterable[JournalDifference], work: Work) -> int:
    """Return the number of the last commit that logs know, by their last lines."""
    latest = 0
    for each in differences:
        work.show_life()
        with suppress(LogUnwritable, RecordDamaged, OSError):  # whoever writes to it is told
            size = log_size(files, each.journal_id)
            for length in (END_BYTES, BOUNDARY_BYTES):
                lines = files.read_lines(log_name(each.journal_id), max(0, size - length), size)
                commits = [line.tx for _, data in lines if (line := decode_line(data)) is not None]
                latest = max(latest, *commits, 0)
                if commits:
                    break
    return latest


END_BYTES: Final = 4 * KIB
"""How much of a log is read, at first, to find its last whole lines."""

NO_LOG = LogSeen(suffix="jsonl", journal_id="", size_bytes=0, changed_ns=0)


def _is_foreign(files: LogFiles, journal: Journal) -> bool:
    """Return whether a log of the right size ends with another line: that of another home's journal can."""
    try:
        return not log_continues(files, journal)
    except (LogUnwritable, RecordDamaged, OSError):
        return False  # whoever writes to it is told


def _has_line(files: LogFiles, journal_id: str) -> bool:
    """Return whether a log that the database does not know holds a line, or cannot be read: whoever opens is told."""
    try:
        return any(line for _, _, line in read_log(files, journal_id, 0, log_size(files, journal_id)))
    except (RecordDamaged, LogUnwritable):
        return True
