"""Hearing of other processes: that one committed, came or went.

After each commit a process writes a byte to its owner's lock file (`HostOwners.ring`). Linux tells whoever watches the
files of the others (inotify), so a process that nobody disturbs sleeps. Elsewhere the database is looked at again and
again.

Reads: names in `locks/owners`; the number of the last commit; the version of the schema. Writes: nothing. A writer
whose record was migrated by another process is told so.
Invariants: a process hears of a commit once it can read it; of a kill between a commit and its byte, by the file that
the kernel closes. On crash: nothing to do.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final, Protocol

import apsw
import msgspec

from hansard.domain.limits import FOLLOW_POLL_SECONDS
from hansard.errors import HansardError, RecordMigrated
from hansard.journal.backend import ReplacedError
from hansard.journal.follow import ANY, Followers
from hansard.journal.sqlite.connection import SQL, check_not_migrated
from hansard.journal.sqlite.reading import Readers, Snapshot

PAUSE_SECONDS: Final = 0.005
"""Between two looks at the database: others may commit thousands of times a second."""

AGAIN_SECONDS: Final = 0.25
"""After a look that failed."""

LOOK_SECONDS_MAX: Final = 10.0
"""How often to look although nothing was heard: somebody may have removed the lock file of a process that lives."""

OWNERS_SECONDS: Final = 2.0
"""How often other processes are taken to have come or gone where the kernel tells nothing."""

IN_MODIFY: Final = 0x2
IN_CLOSE_WRITE: Final = 0x8
IN_MOVED_TO: Final = 0x80
IN_CREATE: Final = 0x100
IN_DELETE: Final = 0x200
IN_DELETE_SELF: Final = 0x400
IN_MOVE_SELF: Final = 0x800
EVENT: Final = struct.Struct("iIII")
EVENT_BYTES_MAX: Final = 64 * 1024


class Heard(Enum):
    """What another process did."""

    NOTHING = auto()
    COMMIT = auto()
    OWNERS = auto()
    """It came or went, or the home was taken away."""


class Listening(Protocol):
    """Waits for other processes."""

    def wait(self, seconds: float) -> Heard | None:
        """Wait until one does something, or so long; None once `stop` was called."""

    def stop(self) -> None:
        """End the wait, from any thread."""

    def close(self) -> None:
        """Let go of what it uses."""


class InotifyListening:
    """Hears from the kernel of changes to the lock files of other owners."""

    def __init__(self, home: Path, own: str) -> None:
        """`own` is the name of this process's owner, which is not listened to. OSError: the kernel cannot do it."""
        self._home = home
        self._folder = home / "locks" / "owners"
        self._own = own
        self._is_deaf = False
        """Whether something could not be watched: the database is looked at again and again meanwhile."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._notify = self._check(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        with ExitStack() as stack:
            stack.callback(os.close, self._notify)
            self._watch_all()
            self._ended, self._end = os.pipe2(os.O_CLOEXEC)
            stack.pop_all()

    @staticmethod
    def _check(result: int) -> int:
        if result < 0:
            raise OSError(ctypes.get_errno(), "the kernel watches no more files")
        return result

    def _watch(self, path: Path, mask: int) -> None:
        self._check(self._libc.inotify_add_watch(self._notify, os.fsencode(path), ctypes.c_uint32(mask)))

    def _watch_all(self) -> None:
        """Watch what is not watched yet: the home, the folder of owners, and every owner but one."""
        self._watch(self._home, IN_DELETE_SELF | IN_MOVE_SELF)
        self._watch(self._folder, IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)
        for name in os.listdir(self._folder):
            if name != self._own:
                with suppress(FileNotFoundError):  # gone again
                    self._watch(self._folder / name, IN_MODIFY | IN_CLOSE_WRITE)

    def wait(self, seconds: float) -> Heard | None:
        poll = select.poll()
        poll.register(self._notify, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        longest = FOLLOW_POLL_SECONDS if self._is_deaf else seconds
        if any(descriptor == self._ended for descriptor, _ in poll.poll(longest * 1000)):
            return None
        masks = set(self._read_masks())
        if self._is_deaf or not masks <= {IN_MODIFY, IN_CLOSE_WRITE}:
            try:
                self._watch_all()
                self._is_deaf = False
            except OSError:
                self._is_deaf = True
        if masks - {IN_MODIFY}:
            return Heard.OWNERS
        return Heard.COMMIT if masks or self._is_deaf else Heard.NOTHING

    def _read_masks(self) -> Iterator[int]:
        """Yield what happened, one mask for each event; one tells that the kernel had to drop events."""
        try:
            data = os.read(self._notify, EVENT_BYTES_MAX)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            _, mask, _, length = EVENT.unpack_from(data, at)
            at += EVENT.size + length
            yield mask

    def stop(self) -> None:
        os.write(self._end, b".")

    def close(self) -> None:
        for descriptor in (self._notify, self._ended, self._end):
            os.close(descriptor)


class PolledListening:
    """Stands in where the kernel tells nothing: somebody may have committed at any time."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._owners_after = 0.0

    def wait(self, seconds: float) -> Heard | None:
        del seconds
        if self._stopped.wait(FOLLOW_POLL_SECONDS):
            return None
        if time.monotonic() < self._owners_after:
            return Heard.COMMIT
        self._owners_after = time.monotonic() + OWNERS_SECONDS
        return Heard.OWNERS

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        """It uses nothing."""


def listen(home: Path, own: str = "") -> Listening:
    """Listen to all owners of a home but one, in whichever way this system has."""
    if sys.platform == "linux":
        with suppress(OSError):
            return InotifyListening(home, own)
    return PolledListening()


class Watcher(threading.Thread):
    """Rings for journals that other processes changed, while somebody follows."""

    def __init__(
        self, readers: Readers, followers: Followers, listening: Listening, retire: Callable[[str], None]
    ) -> None:
        """Daemonic: a process never waits for it at exit. `retire` hears that another process migrated the record."""
        super().__init__(name="hansard-watcher", daemon=True)
        self._readers = readers
        self._followers = followers
        self._retire = retire
        self._connection = readers.connect()
        self._listening = listening
        self._pause = threading.Event()
        self._version = -1
        self._commits = -1

    def run(self) -> None:
        heard: Heard | None = Heard.COMMIT
        while heard is not None:
            if heard is Heard.OWNERS:
                self._followers.ring(None)
            is_seen = self._look_at_database()
            self._pause.wait(PAUSE_SECONDS)
            heard = self._listening.wait(LOOK_SECONDS_MAX if is_seen else AGAIN_SECONDS)
        self._connection.close()
        self._listening.close()

    def stop(self) -> None:
        """Stop after the look that runs, without waiting for it."""
        self._pause.set()
        self._listening.stop()

    def _look_at_database(self) -> bool:
        """Ring for what changed; return whether the database could be looked at."""
        try:
            version = self._connection.fetch(SQL.data_version)[0][0]
            if version == self._version:
                return True
            ((schema_version,),) = self._connection.fetch(SQL.schema_version)
            check_not_migrated(schema_version, self._readers.schema)
            journal_ids = self._connection.snapshot(self._read_touched)
        except RecordMigrated as error:
            self._retire(str(error))
            self._followers.ring(None)
            return True
        except ReplacedError:
            self._version = self._commits = -1
            self._followers.ring(None)  # who reads next has it looked at by the writer
            return False
        except (apsw.Error, OSError, HansardError):
            self._version = self._commits = -1
            return False
        self._version = version
        self._followers.ring(journal_ids)
        return True

    def _read_touched(self, snapshot: Snapshot) -> list[str] | None:
        before = self._commits
        self._commits = snapshot.row(SQL.read_record)[1]
        if before < 0:
            return None
        followed = msgspec.json.encode(self._followers.followed()).decode()
        # Others wrote to these, and maybe to journals that nobody follows here by name.
        return [ANY, *(row[0] for row in snapshot.rows(SQL.touched_since, (before, followed)))]


def watch_others(
    readers: Readers,
    followers: Followers,
    listening: Listening,
    retire: Callable[[str], None] = lambda _why: None,
) -> Callable[[], None]:
    """Ring for journals that other processes changed, from a thread, until the returned function is called."""
    watcher = Watcher(readers, followers, listening, retire)
    watcher.start()
    return watcher.stop
