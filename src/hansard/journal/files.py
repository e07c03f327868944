"""Files of a home: logs, which are appended to under the lock, cut, replaced whole and read by lines; and blobs.

Reads and writes: `home.jsonl`, `sessions/**`, `blobs/`. It never opens `state.db*`: only SQLite may (rule 5).
Invariants: one write for each file and commit; a file is replaced by rename only; new folders are fsynced.
On crash: a file is longer than the database accounts for, and `reconcile` decides about the rest; a temporary file of
a blob stays behind, which nothing refers to.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import resource
import secrets
import stat
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hansard.domain.limits import (
    BLOB_BYTES_MAX,
    LINE_BYTES_MAX,
    LOG_HANDLES_MAX,
    LOG_HANDLES_MIN,
    LOG_HANDLES_SHARE,
)
from hansard.errors import HomeMoved, InvalidInput, LogUnwritable, NotFound, RecordDamaged, TooLarge
from hansard.journal.causes import explain, framed, misplaced

logger = logging.getLogger("hansard.record")

READ_BYTES = 256 * 1024
APPEND_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a file that every file of the home shares: the disk is full. All others concern the file alone."""

HANDLE_ERRORS = frozenset({errno.EMFILE, errno.ENFILE})
"""Too many files are open, in this process or on this machine."""


class FileStat(NamedTuple):
    """What a file looked like under the lock."""

    device: int
    inode: int
    size: int


def sync_descriptor(descriptor: int) -> None:
    """Put a file's content on the disk, really."""
    if sys.platform == "darwin":
        import fcntl  # noqa: PLC0415 - only there

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_file(path: str, flags: int = os.O_NOFOLLOW) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str) -> None:
    """Put a folder's names on the disk."""
    sync_file(path, os.O_DIRECTORY)


def sync_filesystem(path: str) -> bool:
    """Put everything on the disk that lies on one file system; return False where the system cannot do that.

    For very many files at once: an fsync of each would take minutes.
    """
    if sys.platform != "linux":
        return False
    import ctypes  # noqa: PLC0415 - rarely needed

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        result: int = ctypes.CDLL(None, use_errno=True).syncfs(descriptor)
    finally:
        os.close(descriptor)
    if result != 0:
        raise OSError(ctypes.get_errno(), "the file system could not be synced", path)
    return True


def make_folder(path: str, *, below: str = "") -> None:
    """Create a folder and its parents, private, each fsynced into its parent (rule 8).

    `below` names a folder that is never created: a running process must not make its home anew.
    """
    if os.path.isdir(path):
        return
    if path == below:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    parent = os.path.dirname(path)
    make_folder(parent, below=below)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    sync_folder(parent)


class HomeFolder:
    """The folder of a home, as it was when the store was opened. Only opening a store creates it."""

    def __init__(self, path: Path) -> None:
        """Remember which folder lies at the path now."""
        self.path = str(path)
        found = os.stat(self.path)
        self._seen = (found.st_dev, found.st_ino)

    def is_there(self) -> bool:
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (found.st_dev, found.st_ino) == self._seen

    def check(self) -> None:
        """Refuse when the folder at the path is gone or another one."""
        if not self.is_there():
            raise HomeMoved(f"the home {self.path} was moved, removed or replaced while this program had it open")


Keep = Callable[[Callable[[], None]], None]


def write_durably(path: str, pieces: Iterable[bytes], *, temporary: str, below: str, keep: Keep | None = None) -> int:
    """Replace a file by rename, durable before and after; return its size. Folders `below` the home are made.

    `keep` is called once the new file is on the disk, with what puts it in the place of the old one.
    """
    make_folder(os.path.dirname(path), below=below)
    with suppress(OSError):
        os.unlink(temporary)  # left by a process that was killed here, maybe one of another user
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    size = 0
    try:
        for piece in pieces:
            write_all(descriptor, piece)
            size += len(piece)
        sync_descriptor(descriptor)
        replace = partial(os.rename, temporary, path)
        if keep is None:
            replace()
        else:
            keep(replace)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError) and error.filename in (None, temporary):
            error.filename = path
        raise
    finally:
        os.close(descriptor)
    sync_folder(os.path.dirname(path))
    return size


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; a short write on a full disk becomes the error that it is."""
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]


def is_of_one_file(error: OSError) -> bool:
    """Return whether an error of a log file concerns its journal alone (rule 6), and not the whole store.

    This is the only place that decides it. An error of `state.db` always concerns the whole store.
    """
    return error.errno not in DISK_ERRORS


def count_handles() -> int:
    """Return how many log files to keep open: a share of what this process may open at all."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return LOG_HANDLES_MAX
    return max(LOG_HANDLES_MIN, min(LOG_HANDLES_MAX, limit // LOG_HANDLES_SHARE))


FILE_KINDS = {".part": "the file of an unfinished reply", ".tail": "the file that keeps lines outside the record"}
"""What a person is told that a file is; others are logs."""


class LogFiles:
    """The log files of one home, by their relative names.

    An error that concerns one file alone is raised as `LogUnwritable`; one of the whole disk stays an `OSError`.
    """

    def __init__(self, home: Path) -> None:
        self.home = str(home)
        self.suspect: set[str] = set()
        """Journals whose log failed to reach the disk (rule 3) or tells another history: all of it is compared again
        before it is touched, and one of no other history is written anew."""
        self._handles: OrderedDict[str, tuple[int, int, int]] = OrderedDict()
        self._handles_max = count_handles()

    def path(self, name: str) -> str:
        return f"{self.home}/{name}"

    def name_error(self, name: str, error: OSError, done: str = "written") -> Exception:
        """Return what to raise for an error of a file; `done` says what cannot be done with it."""
        error.filename = error.filename or self.path(name)
        if not is_of_one_file(error) or not os.path.isdir(self.home):
            return error
        what = FILE_KINDS.get(os.path.splitext(name)[1], "a log")
        named = framed(explain(error), f"{what} cannot be {done}", LogUnwritable)
        assert isinstance(named, LogUnwritable)
        named.name = name
        named.is_unread = done != "written"
        return named

    def stat_file(self, name: str) -> FileStat | None:
        """Return a file's identity and size without opening it; None when it is absent."""
        try:
            found = os.stat(self.path(name), follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.name_error(name, error, "found") from error
        if not stat.S_ISREG(found.st_mode):
            raise misplaced(self.path(name), found.st_mode)
        return FileStat(found.st_dev, found.st_ino, found.st_size)

    def was_replaced(self, name: str, seen: FileStat | None) -> bool:
        """Return whether another file lies in the place of one that was appended to."""
        handle = self._handles.get(name)
        return handle is not None and seen is not None and handle[1:] != seen[:2]

    def append(self, name: str, data: bytes, seen: FileStat | None) -> None:
        """Append with one write, to the very file that was looked at under the lock."""
        self.write(name, self.open(name, seen), data)

    def open(self, name: str, seen: FileStat | None) -> int:
        """Return a descriptor to append to the very file that was looked at under the lock."""
        handle = self._handles.get(name)
        if handle is not None and seen is not None and handle[1:] == seen[:2]:
            self._handles.move_to_end(name)
            return handle[0]
        try:
            return self._open(name)[0]
        except OSError as error:
            raise self.name_error(name, error) from error

    def write(self, name: str, descriptor: int, data: bytes) -> None:
        try:
            write_all(descriptor, data)
        except OSError as error:
            raise self.name_error(name, error) from error

    def _open(self, name: str) -> tuple[int, int, int]:
        self.forget(name)
        path = self.path(name)
        try:
            descriptor = self._open_path(path)
        except FileNotFoundError:
            make_folder(os.path.dirname(path), below=self.home)
            descriptor = self._open_path(path)
        found = os.fstat(descriptor)
        handle = (descriptor, found.st_dev, found.st_ino)
        self._handles[name] = handle
        if len(self._handles) > self._handles_max:
            self._close_oldest()
        return handle

    def _open_path(self, path: str) -> int:
        """Open a file to append to it. When too many files are open, close some of ours, and keep fewer from now on."""
        while True:
            try:
                return os.open(path, APPEND_FLAGS, 0o600)
            except OSError as error:
                if error.errno not in HANDLE_ERRORS or not self._handles:
                    raise
            self.release_handles()

    def release_handles(self) -> bool:
        """Close half of the open files, the longest unused first; return whether there was any."""
        count = len(self._handles)
        self._handles_max = max(1, count // 2)
        while len(self._handles) > count // 2:
            self._close_oldest()
        return count > 0

    def _close_oldest(self) -> None:
        _, (oldest, _, _) = self._handles.popitem(last=False)
        os.close(oldest)

    def forget(self, name: str) -> None:
        handle = self._handles.pop(name, None)
        if handle is not None:
            os.close(handle[0])

    def cut(self, name: str, size: int) -> None:
        """Take back what this writer appended and did not commit."""
        try:
            os.truncate(self.path(name), size)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.name_error(name, error) from error

    def remove(self, name: str) -> None:
        """Remove a part file whose seal is in both legs."""
        self.forget(name)
        try:
            os.unlink(self.path(name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.name_error(name, error) from error

    def sync(self, name: str) -> None:
        """Put a file that was appended to, and its name, on the disk."""
        descriptor = self.open(name, None)  # to append: it need not be readable
        try:
            sync_descriptor(descriptor)
            sync_folder(os.path.dirname(self.path(name)))
        except OSError as error:
            raise self.name_error(name, error) from error

    def put_aside(self, name: str) -> None:
        """Move what lies in a file's place out of the way, and keep it."""
        self.forget(name)
        aside = f"{name}.orphan-{secrets.token_hex(4)}"
        try:
            os.rename(self.path(name), self.path(aside))
        except OSError as error:
            raise self.name_error(name, error) from error
        logger.warning("%s cannot be used; it was set aside as %s", name, aside)

    def replace(self, name: str, pieces: Iterable[bytes], keep: Keep | None = None) -> int:
        """Write a whole file anew, durably; return its size. `keep` is called with what replaces the old one."""
        self.forget(name)
        path = self.path(name)
        try:
            return write_durably(path, pieces, temporary=f"{path}.new", below=self.home, keep=keep)
        except OSError as error:
            raise self.name_error(name, error) from error

    def read(self, name: str, start: int, end: int) -> Iterator[bytes]:
        """Yield a stretch of a file in blocks. The file is opened for each block, never held."""
        while start < end:
            try:
                descriptor = os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                return
            except OSError as error:
                raise self.name_error(name, error, "read") from error
            try:
                block = os.pread(descriptor, min(READ_BYTES, end - start), start)
            finally:
                os.close(descriptor)
            if not block:
                return
            start += len(block)
            yield block

    def read_lines(self, name: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield (offset after the line, line) with its newline; the last may lack one.

        A line over the limit is damage: it is given in part, and nothing after it.
        """
        rest = b""
        for block in self.read(name, start, end):
            rest += block
            *lines, rest = rest.split(b"\n")
            for line in lines:
                start += len(line) + 1
                yield start, line + b"\n"
            if len(rest) > LINE_BYTES_MAX:
                break
        if rest:
            yield start + len(rest), rest

    def close(self) -> None:
        for name in list(self._handles):
            self.forget(name)


# Blobs: attachments by their digest. One is complete under its name or absent; the same bytes are stored once.

ONE_COPY = (
    "There is only this one copy of an attachment. Put the file back from a backup; everything else is as it was."
)

DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class FileBlobs:
    """The blobs of one home."""

    def __init__(self, home: HomeFolder) -> None:
        """Nothing is created before the first blob."""
        self._home = home
        self._folder = f"{home.path}/blobs"

    def path(self, digest: str) -> str:
        if not DIGEST.match(digest):
            raise InvalidInput(f"a blob's name is its SHA-256 in hexadecimal, not {digest[:80]!r}")
        return f"{self._folder}/{digest[:2]}/{digest}"

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their digest."""
        if len(data) > BLOB_BYTES_MAX:
            raise TooLarge(f"a blob of {len(data)} bytes; the limit is {BLOB_BYTES_MAX}")
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        try:
            if not os.path.exists(path):
                self._home.check()
                write_durably(path, [data], temporary=f"{path}.{secrets.token_hex(4)}.new", below=self._home.path)
        except OSError as error:
            raise framed(explain(error), f"the attachment could not be stored in {self._folder}") from error
        return digest

    def require(self, digest: str) -> None:
        """Refuse a reference to a blob that is not there."""
        if not os.path.isfile(self.path(digest)):
            raise NotFound(f"there is no blob {digest}; store it with record.blobs.put first")

    def get(self, digest: str) -> bytes:
        """Return a blob's bytes, and make sure that they are the ones that were stored."""
        try:
            with open(self.path(digest), "rb") as file:
                data = file.read(BLOB_BYTES_MAX + 1)
        except FileNotFoundError:
            missing = NotFound(f"an attachment is missing: {self.path(digest)}")
            missing.hint = ONE_COPY
            raise missing from None
        except OSError as error:
            raise framed(explain(error), f"the attachment {self.path(digest)} could not be read") from error
        if hashlib.sha256(data).hexdigest() != digest:
            damaged = RecordDamaged(f"an attachment is damaged: {self.path(digest)}")
            damaged.hint = ONE_COPY
            raise damaged
        return data
