"""The disk of a home: whether a record may live there, and a reserve of space on it.

SQLite's WAL needs shared memory and working locks, which network file systems lack. The reserve is given back when the
disk is full, so that running turns can still end (rule 17).
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import secrets
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from hansard.domain.limits import RESERVE_BYTES
from hansard.errors import UnsafeFilesystem

UNSAFE = frozenset(
    {
        "9p",
        "afpfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "drvfs",
        "fuse.glusterfs",
        "fuse.grpcfuse",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "grpcfuse",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "prl_fs",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
        "webdav",
    }
)
"""File systems that several hosts share. One host alone sees nothing wrong with them, so they are refused by name;
every other one is judged by what it does (`check_behaviour`)."""

PROBE_BYTES: Final = 64
PROBE_ROOM_BYTES: Final = 1 << 20
"""Free space without which shared memory is not tried."""


def filesystem_type(path: str, mountinfo: str) -> str:
    """Return the type of the file system that holds a path, from the text of /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, described = left.split(" "), right.split(" ")
        if len(fields) < 5 or not described[0]:  # noqa: PLR2004 - the mount point is the fifth field
            continue
        mount = fields[4].encode().decode("unicode_escape")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, described[0]
    return kind


def read_mounts() -> str:
    """Return what the kernel says about mounts; empty where it does not."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def check_filesystem(home: Path, mountinfo: str | None = None) -> None:
    """Refuse a home where the WAL is not safe, before anything is written there."""
    kind = filesystem_type(os.path.realpath(home), read_mounts() if mountinfo is None else mountinfo)
    if kind in UNSAFE:
        message = f"{home} lies on {kind}: SQLite's write-ahead log is not safe on a file system that hosts share"
        raise UnsafeFilesystem(message)


def check_behaviour(path: Path) -> None:
    """Refuse a file system that does not do what SQLite's WAL needs, whatever its name. `path` is a file to try it on.

    Two handles of one file stand for two processes: a lock must not be granted to both, and what one writes, by a call
    or into shared memory, the other must see. That takes a fraction of a millisecond, so every opening does it.
    """
    first = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    second = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(first, fcntl.LOCK_EX)
        lacks = _find_lack(first, second)
    finally:
        os.close(first)
        os.close(second)
    if lacks:
        kind = filesystem_type(os.path.realpath(path), read_mounts())
        raise UnsafeFilesystem(f"{path.parent.parent} lies on {kind or 'a file system'} that {lacks}")


def _find_lack(first: int, second: int) -> str:
    """Return what the file system of two handles lacks; empty when it is fit. The first one is locked."""
    try:
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    else:
        return "grants one lock twice"
    if sys.platform == "linux" and _grants_ranges_twice(first, second):
        return "grants a lock of a part of a file twice"
    token = secrets.token_bytes(PROBE_BYTES)
    os.pwrite(first, token, 0)
    if os.pread(second, PROBE_BYTES, 0) != token:
        return "does not show one process what another one wrote"
    space = os.fstatvfs(first)
    if space.f_bavail * space.f_frsize < PROBE_ROOM_BYTES:
        return ""  # without room, writing to shared memory is a SIGBUS on some file systems
    try:
        is_shared = _shares_memory(first, second)
    except OSError as error:
        if error.errno not in {errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP}:
            raise
        is_shared = False
    return "" if is_shared else "has no memory that processes share"


def _grants_ranges_twice(first: int, second: int) -> bool:
    """Return whether two handles both get a lock of the same byte, as SQLite locks its files."""
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    fcntl.fcntl(first, fcntl.F_OFD_SETLK, lock)
    try:
        fcntl.fcntl(second, fcntl.F_OFD_SETLK, lock)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _shares_memory(first: int, second: int) -> bool:
    """Return whether two mappings of one file show the same bytes, also to those who read the file."""
    token = secrets.token_bytes(PROBE_BYTES)
    with mmap.mmap(first, PROBE_BYTES) as one, mmap.mmap(second, PROBE_BYTES) as other:
        one[:] = token
        return other[:] == token and os.pread(second, PROBE_BYTES, 0) == token


class Reserve:
    """A file of real blocks that nobody reads."""

    def __init__(self, home: Path) -> None:
        """Set the reserve aside where there is room for it."""
        self._path = str(home / "reserve")
        self._home = str(home)
        self.spent = False
        self.restore()

    def spend(self) -> None:
        """Give the blocks back: the disk is full, and what runs must be able to end."""
        self.spent = True
        with suppress(OSError):  # without a reserve there is nothing to give back, and what runs is tried again
            os.unlink(self._path)

    def has_room(self) -> bool:
        """Return whether the disk has room for more than the reserve. A home that cannot be reached has none."""
        try:
            space = os.statvfs(self._home)
        except OSError:
            return False
        return space.f_bavail * space.f_frsize >= 2 * RESERVE_BYTES

    def restore(self) -> bool:
        """Set the reserve aside again once there is room for more than it; return whether the disk has room."""
        if not self.has_room():
            return False
        try:
            self._clear_place()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        self.spent = False
        return True

    def _clear_place(self) -> None:
        """Move away a folder, and remove a link, that lies in the place of the reserve."""
        with suppress(FileNotFoundError):
            mode = os.lstat(self._path).st_mode
            if stat.S_ISDIR(mode):
                os.rename(self._path, f"{self._path}.orphan-{secrets.token_hex(4)}")
            elif not stat.S_ISREG(mode):
                os.unlink(self._path)
