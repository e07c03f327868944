"""Locks between processes, and how far the holder of the write lock is with work that others wait for.

Locks are held by the operating system, so they die with their holder.

Reads: `locks/progress`. Writes: files below `locks/` that are empty or, an owner's, of one byte; `locks/progress`.
Invariants: a lock file that several processes share is never unlinked; a forked child holds nothing.
On crash: the kernel releases every lock; an owner's file stays and reads as dead.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from hansard.domain.ids import random_letters
from hansard.errors import HomeMoved

OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC

_handles: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _forget_in_child() -> None:
    """Close every inherited lock: a child must not keep a lock alive after its parent was killed."""
    for handle in list(_handles):
        handle.close()


os.register_at_fork(after_in_child=_forget_in_child)


class LockFile:
    """One file that is locked by flock; opened again if somebody removed or replaced it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.descriptor = os.open(self.path, OPEN_FLAGS, 0o600)
        self._opened = os.fstat(self.descriptor)
        self.replaced = False
        """Whether the file was opened again: other locks of this process may lie on removed files, too."""
        _handles.add(self)

    def acquire(self) -> None:
        """Wait for the lock, and make sure that it is still the file that others lock."""
        while True:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX)
            try:
                if self.is_in_place():
                    return
                self.reopen()
            except BaseException:
                self.release()  # others wait for it
                raise

    def is_in_place(self) -> bool:
        try:
            named = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(self._opened, named)

    def reopen(self) -> None:
        """Open the file at the path instead of the one that is open, which is released by that.

        Its folder is never made anew: the home may have been moved, and is not here any more.
        """
        try:
            descriptor = os.open(self.path, OPEN_FLAGS, 0o600)
        except (FileNotFoundError, NotADirectoryError):
            folder = os.path.dirname(self.path)
            home = os.path.dirname(folder)
            lost = f"the folder of locks {folder}" if os.path.isdir(home) else f"the home {home}"
            raise HomeMoved(f"{lost} was moved or removed while this program had it open") from None
        os.close(self.descriptor)
        self.descriptor = descriptor
        self._opened = os.fstat(descriptor)
        self.replaced = True

    def release(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1  # nobody writes to it any more, whatever has its number next
        if descriptor >= 0:
            os.close(descriptor)


class FairLock:
    """The write lock of a record: a turnstile in front of the lock, so that nobody starves (rule 9)."""

    def __init__(self, folder: Path) -> None:
        self._queue = LockFile(folder / "queue")
        self._write = LockFile(folder / "write")

    def acquire(self) -> None:
        """Wait in line, then wait for the holder. Callers bound their own waiting; the line does not."""
        self._queue.acquire()
        try:
            self._write.acquire()
        finally:
            self._queue.release()

    def release(self) -> None:
        self._write.release()

    @property
    def replaced(self) -> bool:
        """Whether a lock file was removed or replaced by others since `trust_again`."""
        return self._queue.replaced or self._write.replaced

    def trust_again(self) -> None:
        """Note that everything which depends on the lock files was looked at."""
        self._queue.replaced = self._write.replaced = False

    def close(self) -> None:
        self._queue.close()
        self._write.close()


class TryLock:
    """A lock that is taken when nobody has it, and not waited for. Its file is made when it is first taken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: LockFile | None = None

    def take_lock(self) -> bool:
        """Return whether this process has it now, on the file that lies at the path."""
        if self._file is None:
            self._file = LockFile(self._path)
        elif not self._file.is_in_place():
            self._file.reopen()
        try:
            fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        if self._file is not None:
            self._file.release()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def find_owners(home: Path) -> list[bool]:
    """Return for each owner's lock file whether its process lives; one that may not be read counts as held."""
    try:
        return [is_locked(entry.path) for entry in list(os.scandir(home / "locks" / "owners"))]
    except FileNotFoundError:
        return []
    except PermissionError:
        return [True]


def is_locked(path: Path | str) -> bool:
    """Return whether a process holds a lock file. Never guessed from a pid or a time."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def remove_dead_owner(path: str) -> None:
    """Remove an owner's file if its owner is gone, while holding its lock: an owner that is just starting sees that."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _unlink(path)
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)


def _unlink(path: str) -> None:
    with suppress(OSError):  # it stays behind, and reads as dead
        os.unlink(path)


class HostOwners:
    """The processes of this host that have a home open: each holds a lock file of its own (rule 10).

    A process holds it for as long as it lives: that is how others know that its turns are not orphans.
    """

    def __init__(self, home: Path) -> None:
        """Look on; `join` makes this process one of them."""
        self.owner = ""
        self.held_locks: list[Callable[[], None]] = []
        self._folder = home / "locks" / "owners"
        self._lock: LockFile | None = None

    def join(self) -> None:
        """Take a lock of this process's own."""
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{random_letters(6)}"
        self._lock = LockFile(self._folder / self.owner)
        self._lock.acquire()
        self.ring()  # the byte has its place on the disk before the disk is full

    def is_alive(self, owner: str) -> bool:
        return is_locked(self._folder / owner)

    def remove_dead(self) -> None:
        """Remove the lock files of owners that are gone and whose turns are closed."""
        for entry in list(os.scandir(self._folder)):
            if entry.name != self.owner:
                remove_dead_owner(entry.path)

    def ring(self) -> None:
        """Tell other processes that this one committed: they watch its lock file."""
        assert self._lock is not None
        with suppress(OSError):  # on a full disk they find out with the next commit
            os.pwrite(self._lock.descriptor, b"!", 0)

    def take_again(self) -> None:
        """Take locks again whose files were removed or replaced."""
        assert self._lock is not None
        if not self._lock.is_in_place():
            self._lock.acquire()
        for take_again in self.held_locks:
            take_again()

    def leave(self, *, killed: bool) -> None:
        """Give the lock back; or let it fall and leave its file, as a process that is killed does."""
        assert self._lock is not None
        if not killed and self._lock.descriptor >= 0:
            _unlink(self._lock.path)  # it serves nobody, and its name is never used again
        self._lock.close()


# Long work under the write lock (migrating, rebuilding, bringing many logs in line): everybody can see how far it is.
# `locks/progress` is a small file of whoever holds the write lock. It is a message, never a lock: one that is missing,
# old or damaged only means that nothing is known. Work of less than half a second writes nothing.

SHOW_SECONDS = 0.5
"""How often the progress of long work is written and shown."""

QUIET_SECONDS = 1.0
"""Work that takes less is not shown to people."""

LOG_SECONDS = 10.0
"""How often progress is logged where no person is shown it."""

logger = logging.getLogger("hansard.record")

REBUILDING = "rebuilding the record from its logs"
MIGRATING = "migrating the record to this version"
COMPARING = "bringing the record and its logs in line"
DOINGS = frozenset({REBUILDING, MIGRATING, COMPARING})


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a process is with work that others have to wait for."""

    pid: int
    doing: str
    sessions: int
    sessions_total: int
    done: int
    total: int
    beat: int
    """Grows with each sign of life."""

    def describe(self) -> str:
        """Return it as a sentence for a person, who runs that process or waits for it."""
        percent = f" ({min(100 * self.done // self.total, 100)} %)" if self.total else ""
        far = f": {self.sessions:,} of {self.sessions_total:,} sessions{percent}" if self.sessions_total else ""
        if self.pid == os.getpid():
            return f"{self.doing[0].upper()}{self.doing[1:]}{far}"
        return f"Waiting for process {self.pid}, which is {self.doing}{far}"


IDLE = Progress(pid=0, doing="", sessions=0, sessions_total=0, done=0, total=0, beat=0)
DECODER = msgspec.json.Decoder(Progress)


def progress_path(home: Path) -> Path:
    """Return where the holder of the write lock says how far it is."""
    return home / "locks" / "progress"


def read_progress(home: Path) -> Progress | None:
    """Return what the holder of the write lock says; None when it says nothing, or nothing that can be read."""
    try:
        progress = DECODER.decode(progress_path(home).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None
    return progress if progress.doing in DOINGS else None


class Work:
    """The long work of this process on one record."""

    def __init__(self, home: Path) -> None:
        self._path = str(progress_path(home))
        self.is_active = False
        self.moved_at = 0.0
        """When it last got further than any attempt before, by the monotonic clock."""
        self._shown_at = 0.0
        self._left: dict[str, int] = {}
        """For each kind of work, the least that this attempt has left to do."""
        self._least_left: dict[str, int] = {}
        """The same of the attempts that failed. Emptied on success."""
        self._is_repeating = False
        """Whether this attempt has not yet got further than a failed one: that is no progress."""
        self._progress = IDLE

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Hold the record for work that may take long. Callers wait for it while it gets further."""
        self.is_active = True
        self._shown_at = time.monotonic()
        self._left = {}
        try:
            yield
        except BaseException:
            for doing, left in self._left.items():
                self._least_left[doing] = min(left, self._least_left.get(doing, left))
            raise
        else:
            self._least_left.clear()
        finally:
            with suppress(OSError):
                os.unlink(self._path)
            self._progress = IDLE
            self.is_active = False

    def begin(self, doing: str, sessions_total: int, total: int) -> None:
        """Say what is done, and how much there is of it, in sessions and in bytes or entries."""
        self._is_repeating = doing in self._least_left
        self._progress = Progress(
            pid=os.getpid(), doing=doing, sessions=0, sessions_total=sessions_total, done=0, total=total, beat=0
        )

    def advance(self, *, sessions: int = 0, done: int = 0) -> None:
        was = self._progress
        now = msgspec.structs.replace(was, sessions=was.sessions + sessions, done=was.done + done)
        self._progress = now
        left = max(0, now.sessions_total + now.total - now.sessions - now.done)
        self._left[now.doing] = min(left, self._left.get(now.doing, left))
        if left < self._least_left.get(now.doing, left + 1):
            self._is_repeating = False
        if not self._is_repeating:
            self.moved_at = time.monotonic()
        self.show_life()

    def show_life(self) -> bool:
        """Write how far it is, twice a second. SQLite calls this during long statements; False lets it go on."""
        now = time.monotonic()
        if self._progress.doing and not self._is_repeating and now - self._shown_at >= SHOW_SECONDS:
            self._shown_at = now
            self._progress = msgspec.structs.replace(self._progress, beat=self._progress.beat + 1)
            with suppress(OSError):
                self._write(msgspec.json.encode(self._progress))
        return False

    def _write(self, data: bytes) -> None:
        temporary = f"{self._path}.new"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
        os.rename(temporary, self._path)


class ProgressWatch:
    """Tells whether this process, or another one, got on with long work since the last look."""

    def __init__(self, home: Path, work: Work) -> None:
        """Look at this process's own work, and at what others say."""
        self._home = home
        self._work = work
        self._seen: tuple[float, Progress | None] = (work.moved_at, None)

    def has_moved(self) -> bool:
        before, self._seen = self._seen, (self._work.moved_at, read_progress(self._home))
        return self._seen != before and self._seen != (before[0], None)


class OpeningWatch(threading.Thread):
    """Watches, beside a thread that opens a record, whether somebody gets on with work that has to be waited for."""

    def __init__(self, home: Path, is_working: Callable[[], bool]) -> None:
        """`is_working` says whether this very process holds the record for long work."""
        super().__init__(name="hansard-opening", daemon=True)
        self.home = home
        self.moved_at = time.monotonic()
        """When somebody was last seen to get further, by the monotonic clock."""
        self.is_working = is_working
        self._ended = threading.Event()
        self._news: Progress | None = None

    def run(self) -> None:
        """Look four times a second. What a killed process left behind does not change, and is no news."""
        seen = read_progress(self.home)
        while not self._ended.wait(SHOW_SECONDS / 2):
            progress = read_progress(self.home)
            if progress != seen:
                seen = self._news = progress
                self.moved_at = time.monotonic()
            elif self.is_working():
                self.moved_at = time.monotonic()

    def take_news(self) -> Progress | None:
        news, self._news = self._news, None
        return news

    def end(self) -> None:
        self._ended.set()


class ProgressLog:
    """Puts the progress of long work into the log, now and then."""

    def __init__(self) -> None:
        self._told_at = -LOG_SECONDS

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._told_at >= LOG_SECONDS:
            self._told_at = now
            logger.warning("%s", progress.describe())
