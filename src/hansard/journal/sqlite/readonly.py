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
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import apsw

from hansard.errors import HansardError, RecordDamaged, RecordReadOnly, RecordUnavailable, UsedAfterFork
from hansard.journal.blobs import Blobs
from hansard.journal.causes import SAFE, Cause, explain, explain_delay, framed, tell
from hansard.journal.files import HomeFolder, LogFiles
from hansard.journal.follow import Followers
from hansard.journal.locks import any_owner_is_alive, owner_is_alive
from hansard.journal.progress import Work
from hansard.journal.queue import Latency, WriteQueue
from hansard.journal.sqlite.connection import SQL, fetch, open_untouched
from hansard.journal.sqlite.database import find_differences, list_logs
from hansard.journal.sqlite.keeper import WATCHER_SECONDS, Ticker, Watcher
from hansard.journal.sqlite.legs import EntriesMissingError, check_heads
from hansard.journal.sqlite.migrate import check_version, is_unfinished
from hansard.journal.sqlite.reading import ReaderPool, Readers, files_fit, look_at
from hansard.journal.store import (
    Store,
    Wiring,
    check_not_inherited,
    finish_companions,
    home_at,
    start_companions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from hansard.journal.concepts import Schema
    from hansard.journal.queue import Item

logger = logging.getLogger("hansard.record")

AGREE_SECONDS: Final = 1.0
"""How long a log may differ from the database while another process writes: a commit takes a few milliseconds."""

AGREE_PAUSE_SECONDS: Final = 0.01

COPY_PATIENCE_SECONDS: Final = 30.0
"""Nobody else uses a private copy, so this bounds only what its own disk does."""


class RefusingQueue(WriteQueue):
    """A queue that takes nothing."""

    def submit(self, item: Item, *, ring: bool = True) -> None:
        """Refuse an item."""
        del item, ring
        message = "this record was opened for reading only"
        raise RecordReadOnly(message)


class NoWriter:
    """Stands where a writer would: whatever is to be written is refused."""

    def __init__(self) -> None:
        """Nothing ever waits."""
        self.queue = RefusingQueue()
        self.migrated = ""
        self.problem: HansardError | None = None
        self.latency = Latency()

    def describe_trouble(self) -> str:
        """Nothing is written, so nothing prevents it."""
        return ""


class ReadOnlyStore:
    """The files of a home, read where they lie. It has what a `Store` has for those who read."""

    is_read_only = True

    def __init__(self, home: Path, schema: Schema, wiring: Wiring, note: str) -> None:
        """Nothing is opened before it is needed."""
        self.schema = schema
        self.home = self.source = home
        self.note = note
        self.wiring = wiring
        self.clock = wiring.clock
        self.owner = ""
        self.files = LogFiles(home)
        folder = HomeFolder(home)
        self.blobs = Blobs(folder)
        self.readers = Readers(home / "state.db", ReaderPool(folder, schema), open_untouched)
        self.companions = start_companions(self)
        self.followers = Followers(self._start_watching, self._stop_watching)
        self.writer = NoWriter()
        self.work = Work(home)
        self.problem = tell(Cause.CLOSED)
        self._watcher: Ticker | None = None
        self._process = os.getpid()

    def check_process(self) -> None:
        """Refuse a child of fork(): SQLite's connections stayed with its parent."""
        if os.getpid() != self._process:
            message = "this record was opened before fork(); open it again in the child"
            raise UsedAfterFork(message)

    def is_alive(self, owner: str) -> bool:
        """Return whether an owner's process lives."""
        return owner_is_alive(self.home / "locks" / "owners", owner)

    def settled(self) -> AbstractContextManager[None]:
        """There is no lock to take: whoever compares looks several times."""
        return nullcontext()

    def _start_watching(self) -> None:
        watcher = Watcher(self.readers, self.followers)
        self._watcher = Ticker("hansard-watcher", watcher.step, WATCHER_SECONDS, watcher.close)
        self._watcher.start()

    def _stop_watching(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.request_stop()

    def close(self) -> None:
        """Close every file."""
        self._stop_watching()
        finish_companions(self, wrote=False)
        self.readers.close()
        self.files.close()


class CopiedStore(Store):
    """A private copy of a home: the database is its own, and logs that a repair changes are copied first."""

    is_read_only = True

    def __init__(self, home: Path, folder: Path, schema: Schema, wiring: Wiring, note: str) -> None:
        """Read the logs and attachments of the home; write below the folder."""
        super().__init__(folder, schema, wiring, files=CopiedFiles(home, folder), blobs=Blobs(HomeFolder(home)))
        self.source = home
        self.note = note

    def close_copy(self) -> None:
        """Close it, and remove the folder."""
        try:
            self.close(COPY_PATIENCE_SECONDS)
        finally:
            shutil.rmtree(self.home, ignore_errors=True)


class CopiedFiles(LogFiles):
    """The log files of a home as they are; one that is to be changed is copied into a folder first."""

    def __init__(self, home: Path, folder: Path) -> None:
        """Read from the home, write below the folder."""
        super().__init__(home)
        self._folder = str(folder)
        self._copied: set[str] = set()

    def path(self, name: str) -> str:
        """Return where a file lies now."""
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
        """Cut the copy."""
        self._copy(name)
        super().cut(name, size)

    def remove(self, name: str) -> None:
        """Let the copy be absent."""
        self._copy(name, content=False)
        super().remove(name)

    def replace(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write the copy anew."""
        self._copy(name, content=False)
        return super().replace(name, pieces)


def cannot_read(home: Path, problem: HansardError) -> HansardError:
    """Return why a home cannot be read."""
    return framed(problem, f"the record at {home} could not be read")


AnyStore = Store | ReadOnlyStore


class HomeInspection(NamedTuple):
    """What a look at a home found: why the database is not the whole truth, and whether it can be used at all."""

    why: str = ""
    has_database: bool = True
    is_shared: bool = False


def open_reading(path: str | Path, schema: Schema, wiring: Wiring) -> ReadOnlyStore | CopiedStore:
    """Open a home for reading only. Blocking; as long as a rebuild when a copy has to be made."""
    home = home_at(path)
    check_not_inherited(home)
    try:
        os.stat(home)
        judged = judge(home, LogFiles(home), schema)
        if judged.why and not judged.is_shared:
            return open_copy(home, schema, wiring, judged)
    except OSError as error:
        raise cannot_read(home, explain(error)) from error
    return ReadOnlyStore(home, schema, wiring, judged.why)


def close_reading(store: ReadOnlyStore | CopiedStore) -> None:
    """Close what `open_reading` opened. Blocking."""
    if isinstance(store, CopiedStore):
        store.close_copy()
    else:
        store.close()


def judge(home: Path, files: LogFiles, schema: Schema) -> HomeInspection:
    """Look whether the database of a home can be read by this version and holds everything that its logs do."""
    path = home / "state.db"
    try:
        if look_at(path).identity[0] is None:
            return HomeInspection("state.db is missing", has_database=False)
        if not files_fit(path):
            return HomeInspection("state.db and state.db-wal do not belong together")
        with untouched(path) as connection:
            return judge_database(connection, home, files, schema)
    except EntriesMissingError as error:
        return HomeInspection(str(error))
    except RecordDamaged as error:
        return HomeInspection(str(error), has_database=False)
    except apsw.Error as error:
        problem = explain(error, path, writes=False)
        if problem.cause != Cause.DAMAGED:
            raise cannot_read(home, problem) from error
        return HomeInspection(str(problem), has_database=False)


def judge_database(connection: apsw.Connection, home: Path, files: LogFiles, schema: Schema) -> HomeInspection:
    """Compare an open database with this version and with the logs."""
    version = check_version(connection, schema)
    if version == 0:
        return HomeInspection("state.db is empty", has_database=False)
    if version < schema.version:
        return HomeInspection("state.db was written by an older Hansard")
    for kind, kind_version, ignorable in fetch(connection, SQL.list_kinds):
        schema.check_kind(kind, kind_version, ignorable=bool(ignorable))
    is_shared = any_owner_is_alive(home / "locks" / "owners")
    if is_unfinished(connection, schema):
        if is_shared:
            raise cannot_read(home, explain_delay(home / "locks"))
        return HomeInspection("the rebuild of state.db is not finished")
    check_heads(connection, every=False)
    different = lasting_differences(connection, files, AGREE_SECONDS if is_shared else 0)
    if not different:
        return HomeInspection()
    what = f"{len(different)} of the logs {'differs' if len(different) == 1 else 'differ'} from state.db"
    if is_shared:
        why = f"{what}; another process has the home open, so what state.db lacks is not shown"
        return HomeInspection(why, is_shared=True)
    return HomeInspection(what)


@contextmanager
def untouched(path: Path) -> Iterator[apsw.Connection]:
    """Open a database for a moment, without writing."""
    connection = open_untouched(path)
    try:
        yield connection
    finally:
        connection.close(True)  # noqa: FBT003 - force


def lasting_differences(connection: apsw.Connection, files: LogFiles, seconds: float) -> list[str]:
    """Return the journals whose files are not as the database says, and stay so for a while."""
    deadline = time.monotonic() + seconds
    different = find_different(connection, files)
    while different and time.monotonic() < deadline:
        time.sleep(AGREE_PAUSE_SECONDS)
        different &= find_different(connection, files)
    return sorted(different)


def find_different(connection: apsw.Connection, files: LogFiles) -> set[str]:
    """Return the journals whose files are not as the database says, at this moment."""
    found = find_differences(connection, files, Work(Path(files.home)), unsynced=False)
    return {each.journal_id for each in found}


def open_copy(home: Path, schema: Schema, wiring: Wiring, judged: HomeInspection) -> CopiedStore:
    """Make a private copy of a home's database, or none, and let opening repair it from the logs."""
    if not judged.has_database and next(list_logs(LogFiles(home)), None) is None:
        raise cannot_read(home, RecordDamaged(f"{judged.why}, and there are no logs to read instead"))
    try:
        folder = Path(tempfile.mkdtemp(prefix="hansard-read-"))
    except OSError as error:
        raise cannot_copy(home, judged, explain(error)) from error
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if judged.has_database:
            try:
                with untouched(home / "state.db") as connection:
                    connection.execute(SQL.vacuum_into, (str(folder / "state.db"),))
            except apsw.FullError as error:
                raise cannot_copy(home, judged, explain(error, folder)) from error
            except apsw.Error as error:
                raise cannot_read(home, explain(error, home / "state.db", writes=False)) from error
        store = CopiedStore(home, folder, schema, wiring, f"{judged.why}, so a temporary copy was read")
        stack.callback(store.abandon)
        try:
            store.open(COPY_PATIENCE_SECONDS)
        except RecordUnavailable as error:
            problem = tell(Cause(error.cause), folder.parent) if error.cause else error
            raise cannot_copy(home, judged, problem) from error
        stack.pop_all()
    return store


def cannot_copy(home: Path, judged: HomeInspection, problem: HansardError) -> HansardError:
    """Return why no temporary copy of a home could be read."""
    folder = tempfile.gettempdir()
    error = framed(problem, f"the record at {home} needs a temporary copy in {folder} to be read ({judged.why})")
    error.hint = f"{SAFE}. Set TMPDIR to a folder with enough room, or repair what the message names, and try again."
    return error
