"""Long work under the write lock: migrating, rebuilding, bringing many logs in line. Everybody can see how far it is.

Reads and writes: `locks/progress`, a small file of whoever holds the write lock. It is a message, never a lock: one
that is missing, old or damaged only means that nothing is known.
Invariants: work of less than half a second writes nothing. On crash: the file stays until the next opening ends.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
        """Nothing is under way."""
        self._path = str(progress_path(home))
        self.is_active = False
        self.moved_at = 0.0
        """When a part of it was last done, by the monotonic clock."""
        self._shown_at = 0.0
        self._progress = IDLE

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Hold the record for work that may take long; callers wait for it without a limit."""
        self.is_active = True
        self._shown_at = time.monotonic()
        try:
            yield
        finally:
            with suppress(OSError):
                os.unlink(self._path)
            self._progress = IDLE
            self.is_active = False

    def begin(self, doing: str, sessions_total: int, total: int) -> None:
        """Say what is done, and how much there is of it, in sessions and in bytes or entries."""
        self._progress = Progress(
            pid=os.getpid(), doing=doing, sessions=0, sessions_total=sessions_total, done=0, total=total, beat=0
        )

    def advance(self, *, sessions: int = 0, done: int = 0) -> None:
        """Get further."""
        now = self._progress
        self._progress = msgspec.structs.replace(now, sessions=now.sessions + sessions, done=now.done + done)
        self.moved_at = time.monotonic()
        self.show_life()

    def show_life(self) -> bool:
        """Write how far it is, twice a second. SQLite calls this during long statements; False lets it go on."""
        now = time.monotonic()
        if self._progress.doing and now - self._shown_at >= SHOW_SECONDS:
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
        """Return whether anything is further than at the last look."""
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
        self._is_working = is_working
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
            elif self._is_working():
                self.moved_at = time.monotonic()

    def take_news(self) -> Progress | None:
        """Return what is new, once."""
        news, self._news = self._news, None
        return news

    def end(self) -> None:
        """Look no more."""
        self._ended.set()


class ProgressLog:
    """Puts the progress of long work into the log, now and then."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self._told_at = -LOG_SECONDS

    def __call__(self, progress: Progress) -> None:
        """Tell it when the last time is long enough ago."""
        now = time.monotonic()
        if now - self._told_at >= LOG_SECONDS:
            self._told_at = now
            logger.warning("%s", progress.describe())
