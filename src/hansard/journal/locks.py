"""Locks between processes. They are held by the operating system, so they die with their holder.

Reads: nothing. Writes: empty files below `locks/`.
Invariants: a lock file that several processes share is never unlinked; a forked child holds nothing.
On crash: the kernel releases every lock; an owner's file stays and reads as dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from typing import TYPE_CHECKING

from hansard.errors import HomeMoved

if TYPE_CHECKING:
    from pathlib import Path

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
        """Open the file, creating it."""
        self.path = str(path)
        self.descriptor = os.open(self.path, OPEN_FLAGS, 0o600)
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
        """Return whether the file at the path is the one that is open here."""
        held = os.fstat(self.descriptor)
        try:
            named = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)

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
            message = f"{lost} was moved or removed while this program had it open"
            raise HomeMoved(message) from None
        os.close(self.descriptor)
        self.descriptor = descriptor
        self.replaced = True

    def release(self) -> None:
        """Give the lock back."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, and with it the lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class FairLock:
    """The write lock of a record: a turnstile in front of the lock, so that nobody starves (rule 9)."""

    def __init__(self, folder: Path) -> None:
        """Open both lock files."""
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
        """Let the next in line go."""
        self._write.release()

    @property
    def replaced(self) -> bool:
        """Whether a lock file was removed or replaced by others since `trust_again`."""
        return self._queue.replaced or self._write.replaced

    def trust_again(self) -> None:
        """Note that everything which depends on the lock files was looked at."""
        self._queue.replaced = self._write.replaced = False

    def close(self) -> None:
        """Close both files."""
        self._queue.close()
        self._write.close()


class TryLock:
    """A lock that is taken when nobody has it, and not waited for."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self._file = LockFile(path)

    def take_lock(self) -> bool:
        """Return whether this process has it now, on the file that lies at the path."""
        if not self._file.is_in_place():
            self._file.reopen()
        try:
            fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Give it back."""
        self._file.release()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class OwnerLock:
    """Held by a process for as long as it lives: how others know that its turns are not orphans (rule 10)."""

    def __init__(self, folder: Path, owner: str) -> None:
        """Take the lock of a new, unique owner."""
        self.owner = owner
        self._file = LockFile(folder / owner)
        self._file.acquire()

    def renew(self) -> None:
        """Take the lock again if its file was removed or replaced."""
        if not self._file.is_in_place():
            self._file.acquire()

    def drop(self) -> None:
        """Let the lock fall and leave the file, as a process that is killed does."""
        self._file.close()

    def close(self) -> None:
        """Say goodbye: the file of an owner that is gone serves nobody, and its name is never used again."""
        if self._file.descriptor >= 0:
            _unlink(self._file.path)
        self._file.close()


def any_owner_is_alive(folder: Path) -> bool:
    """Return whether any process has the home open; a lock file that may not be read counts as one that is held."""
    try:
        return any(owner_is_alive(folder, entry.name) for entry in list(os.scandir(folder)))
    except FileNotFoundError:
        return False
    except PermissionError:
        return True


def owner_is_alive(folder: Path, owner: str) -> bool:
    """Return whether the process with this owner name still runs. Never guessed from a pid or a time."""
    try:
        descriptor = os.open(folder / owner, os.O_RDONLY | os.O_CLOEXEC)
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
    with contextlib.suppress(OSError):  # it stays behind, and reads as dead
        os.unlink(path)
