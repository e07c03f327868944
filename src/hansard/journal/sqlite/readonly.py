"""A record that is opened for reading only: nothing in the home is written, created, locked for writing or repaired.

Reads: state.db with its WAL, logs, blobs, the search index. Writes: nothing in the home; where the database alone is
not the whole truth, a private copy in the temporary folder, which is removed at the end.
Invariants: what is read is what a normal opening would show, or the note says what may be missing.
On crash: the private copy stays in the temporary folder, readable by this user only.

    state.db is there and agrees with the logs             it is read where it lies
    missing, damaged, older schema, other than the logs    a private copy is made and repaired as opening repairs a home
    a live process has the home open                       it is read where it lies; what it lacks is not shown
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import apsw
import msgspec

from hansard.errors import HansardError, RecordDamaged
from hansard.journal.backend import Blobs, Owners, ReplacedError
from hansard.journal.causes import SAFE, Cause, explain_delay, find_hindrance, framed, tell
from hansard.journal.concepts import Schema
from hansard.journal.files import FileBlobs, HomeFolder, Keep, LogFiles, write_durably
from hansard.journal.follow import Followers
from hansard.journal.locks import HostOwners, Work, find_owners, is_locked
from hansard.journal.sqlite.backend import SqliteBackend, SqliteLeg
from hansard.journal.sqlite.connection import (
    SQL,
    check_version,
    explain,
    fetch,
    is_guarded,
    is_unfinished,
    open_untouched,
)
from hansard.journal.sqlite.opening import (
    DamagedDatabaseError,
    JournalDifference,
    check_heads,
    find_differences,
    judge_place,
    list_logs,
)
from hansard.journal.sqlite.reading import ReaderPool, Readers, files_fit, last_written_ns, look_at
from hansard.journal.sqlite.rebuilding import copy_to_logs
from hansard.journal.sqlite.stamps import DatabaseVerdict
from hansard.journal.sqlite.watching import listen, watch_others
from hansard.ports import Clock

logger = logging.getLogger("hansard.record")

AGREE_SECONDS: Final = 1.0
"""How long a log may differ from the database while another process writes: a commit takes a few milliseconds."""

AGREE_PAUSE_SECONDS: Final = 0.01


class ReadOnlyLeg(SqliteLeg):
    """The files of a home that is read only: there is no lock to take, so whoever compares looks several times."""

    @contextmanager
    def settled(self) -> Iterator[None]:
        yield


class ReadOnlyBackend:
    """The files of a home, read where they lie."""

    failures: tuple[type[Exception], ...] = (apsw.Error, OSError)

    def __init__(self, home: Path, schema: Schema) -> None:
        self.home = home
        self.place = home / "state.db"
        self.schema = schema
        self.folder = HomeFolder(home)
        self.blobs: Blobs = FileBlobs(self.folder)
        self.owners: Owners = HostOwners(home)
        pool = ReaderPool(self.folder, schema)
        self.emptied = pool.emptied
        self.readers = Readers(self.place, pool, open_untouched)
        self.read = self.readers.read
        self.work = Work(home)

    @cached_property
    def leg(self) -> ReadOnlyLeg:
        return ReadOnlyLeg(LogFiles(self.home), self.folder, self.readers)

    def watch(self, followers: Followers) -> Callable[[], None]:
        return watch_others(self.readers, followers, listen(self.home))

    def explain(self, error: Exception) -> HansardError:
        return explain(error, self.place)

    def close(self, *, is_writing: bool = False, killed: bool = False) -> None:
        del is_writing, killed
        if "leg" in vars(self):
            self.leg.close()
        self.readers.close()


class CopiedFiles(LogFiles):
    """The log files of a home as they are; one that is to be changed is copied into a folder first."""

    def __init__(self, home: Path, folder: Path) -> None:
        super().__init__(home)
        self._folder = str(folder)
        self._copied: set[str] = set()

    def path(self, name: str) -> str:
        return f"{self._folder if name in self._copied else self.home}/{name}"

    def _copy(self, name: str, *, content: bool = True) -> None:
        if name in self._copied:
            return
        target = f"{self._folder}/{name}"
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        if content and os.path.exists(self.path(name)):
            shutil.copyfile(self.path(name), target)
        self._copied.add(name)

    def _open(self, name: str) -> tuple[int, int, int]:
        self._copy(name)
        return super()._open(name)

    def cut(self, name: str, size: int) -> None:
        self._copy(name)
        super().cut(name, size)

    def remove(self, name: str) -> None:
        """Let the copy be absent."""
        self._copy(name, content=False)
        super().remove(name)

    def put_aside(self, name: str) -> None:
        """Let the copy be absent; what lies in the home stays there."""
        self.remove(name)

    def replace(self, name: str, pieces: Iterable[bytes], keep: Keep | None = None) -> int:
        target = f"{self._folder}/{name}"
        size = write_durably(target, pieces, temporary=f"{target}.new", below=self._folder, keep=keep)
        self.forget(name)
        self._copied.add(name)  # until here it is the home's that is read
        return size


def cannot_read(home: Path, problem: HansardError) -> HansardError:
    return framed(problem, f"the record at {home} could not be read")


class HomeInspection(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at a home found: why the database is not the whole truth, and whether it can be used at all."""

    why: str = ""
    has_database: bool = True
    is_shared: bool = False
    trusts_index: bool = True


class ReadOpening(msgspec.Struct, frozen=True, kw_only=True):
    """What reads a home: its files where they lie, or a private copy; and why the database is not the whole truth."""

    home: Path
    note: str
    backend: ReadOnlyBackend
    copy: SqliteBackend | None = None

    def remove_copy(self) -> None:
        if self.copy is not None:
            shutil.rmtree(self.copy.home, ignore_errors=True)

    def explain(self, error: HansardError) -> HansardError:
        problem = tell(Cause(error.cause), tempfile.gettempdir()) if error.cause else error
        return cannot_copy(self.home, self.note, problem)


def open_read_only(home: Path, schema: Schema, clock: Clock, reach: Callable[[str], None]) -> ReadOpening:
    """Look at a home; make a copy of its database where that alone is not the whole truth. Blocking."""
    try:
        os.stat(home)
        judged = judge(home, LogFiles(home), schema)
        backend = ReadOnlyBackend(home, schema)
        if judged.why and not judged.is_shared:
            return ReadOpening(
                home=home, note=judged.why, backend=backend, copy=open_copy(home, schema, clock, reach, judged)
            )
    except OSError as error:
        raise cannot_read(home, explain(error)) from error
    return ReadOpening(home=home, note=judged.why, backend=backend)


def read_in_place(home: Path, schema: Schema) -> ReadOnlyBackend | None:
    """Return what reads a home where it lies, when opening it for writing would change nothing that people see.

    None: something is to be recovered, migrated or repaired, or a person is to be told why that cannot be done.
    """
    path = home / "state.db"
    try:
        if find_hindrance(home) is not None or is_locked(home / "locks" / "write"):
            return None
        written_ns = last_written_ns(path)
        if not is_guarded(path) or judge_place(path, ()) is not DatabaseVerdict.OPEN:
            return None
        if judge(home, LogFiles(home), schema, written_ns).why or not all(find_owners(home)):
            return None
        backend = ReadOnlyBackend(home, schema)
        if backend.read(lambda reads: next(schema.find_lost(reads, backend.owners.is_alive), None)) is None:
            return backend
        backend.close()
    except (HansardError, ReplacedError, OSError, apsw.Error):
        return None
    return None


def judge(home: Path, files: LogFiles, schema: Schema, since_ns: int | None = None) -> HomeInspection:
    """Look whether the database of a home can be read by this version and holds everything that its logs do.

    With `since_ns`, look as closely as an opening for writing does.
    """
    path = home / "state.db"
    try:
        if look_at(path).identity[0] is None:
            return HomeInspection(why="state.db is missing", has_database=False)
        if not files_fit(path):
            return HomeInspection(why="state.db and state.db-wal do not belong together")
        with untouched(path) as connection:
            return judge_database(connection, home, files, schema, since_ns)
    except DamagedDatabaseError as error:
        return HomeInspection(why=str(error))
    except RecordDamaged as error:
        return HomeInspection(why=str(error), has_database=False)
    except apsw.Error as error:
        trusts_index = any(find_owners(home)) or not isinstance(error, apsw.ProtocolError)
        problem = explain(error, path, writes=False)
        if trusts_index and problem.cause != Cause.DAMAGED:
            raise cannot_read(home, problem) from error
        why = str(problem) if trusts_index else "state.db-shm, the index of state.db-wal, is of another WAL"
        return HomeInspection(why=why, trusts_index=trusts_index)


def judge_database(
    connection: apsw.Connection, home: Path, files: LogFiles, schema: Schema, since_ns: int | None
) -> HomeInspection:
    version = check_version(connection, schema)
    if version == 0:
        return HomeInspection(why="state.db is empty", has_database=False)
    if version < schema.version:
        return HomeInspection(why="state.db was written by an older Hansard")
    for kind, kind_version, ignorable in fetch(connection, SQL.list_kinds):
        schema.check_kind(kind, kind_version, ignorable=bool(ignorable))
    is_shared = any(find_owners(home))
    if is_unfinished(connection, schema):
        if is_shared:
            raise cannot_read(home, explain_delay(home / "locks"))
        return HomeInspection(why="the rebuild of state.db is not finished")
    check_heads(connection, every=False)
    unsynced = since_ns is not None and not is_shared
    look = partial(find_differences, connection, files, Work(home), unsynced=unsynced, since_ns=since_ns)
    different = lasting_differences(look, AGREE_SECONDS if is_shared else 0)
    if not different:
        return HomeInspection()
    what = f"{len(different)} of the logs {'differs' if len(different) == 1 else 'differ'} from state.db"
    if is_shared:
        why = f"{what}; another process has the home open, so what state.db lacks is not shown"
        return HomeInspection(why=why, is_shared=True)
    return HomeInspection(why=what)


@contextmanager
def untouched(path: Path, *, trusts_index: bool = True) -> Iterator[apsw.Connection]:
    connection = open_untouched(path, trusts_index=trusts_index)
    try:
        yield connection
    finally:
        connection.close(True)  # noqa: FBT003 - force


def lasting_differences(look: Callable[[], list[JournalDifference]], seconds: float) -> set[str]:
    """Return the journals whose files are not as the database says, and stay so for a while."""
    deadline = time.monotonic() + seconds
    different = {each.journal_id for each in look()}
    while different and time.monotonic() < deadline:
        time.sleep(AGREE_PAUSE_SECONDS)
        different &= {each.journal_id for each in look()}
    return different


def open_copy(
    home: Path, schema: Schema, clock: Clock, reach: Callable[[str], None], judged: HomeInspection
) -> SqliteBackend:
    """Make a private copy of a home's database, or none; opening it repairs it from the logs."""
    has_logs = next(list_logs(LogFiles(home)), None) is not None
    no_leg = RecordDamaged(f"{judged.why}, and there are no logs to read instead")
    if not judged.has_database and not has_logs:
        raise cannot_read(home, no_leg)
    try:
        folder = Path(tempfile.mkdtemp(prefix="hansard-read-"))
    except OSError as error:
        raise cannot_copy(home, judged.why, explain(error)) from error
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        files, blobs = CopiedFiles(home, folder), FileBlobs(HomeFolder(home))
        if judged.has_database:
            try:
                with untouched(home / "state.db", trusts_index=judged.trusts_index) as connection:
                    connection.execute(SQL.vacuum_into, (str(folder / "state.db"),))
            except apsw.FullError as error:
                raise cannot_copy(home, judged.why, explain(error, folder)) from error
            except apsw.Error as error:
                problem = explain(error, home / "state.db", writes=False)
                if problem.cause != Cause.DAMAGED or not has_logs:
                    raise cannot_read(home, no_leg if problem.cause == Cause.DAMAGED else problem) from error
                (folder / "state.db").unlink(missing_ok=True)  # it is made from the logs, and from what only it holds
                with suppress(apsw.Error), untouched(home / "state.db") as connection:
                    copy_to_logs(connection, files)
        backend = SqliteBackend(folder, schema, clock, reach, files, blobs)
        stack.pop_all()
    return backend


def cannot_copy(home: Path, why: str, problem: HansardError) -> HansardError:
    folder = tempfile.gettempdir()
    error = framed(problem, f"the record at {home} needs a temporary copy in {folder} to be read ({why})")
    error.hint = f"{SAFE}. Set TMPDIR to a folder with enough room, or repair what the message names, and try again."
    return error
