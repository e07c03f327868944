"""Where a record may live: SQLite's WAL needs shared memory and working locks, which network file systems lack."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from hansard.errors import UnsafeFilesystem

if TYPE_CHECKING:
    from pathlib import Path

UNSAFE = frozenset(
    {
        "9p",
        "afpfs",
        "afs",
        "ceph",
        "cifs",
        "coda",
        "drvfs",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "prl_fs",
        "smb3",
        "smbfs",
        "vboxsf",
        "vmhgfs",
        "webdav",
    }
)
"""File systems that several hosts share, or that only pretend to lock."""


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


def check_filesystem(home: Path, mountinfo: str | None = None) -> None:
    """Refuse a home where the WAL is not safe, before anything is written there."""
    if mountinfo is None:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8") as file:
                mountinfo = file.read()
        except OSError:
            mountinfo = ""
    kind = filesystem_type(os.path.realpath(home), mountinfo)
    if kind in UNSAFE:
        message = f"{home} lies on {kind}: SQLite's write-ahead log is not safe on a file system that hosts share"
        raise UnsafeFilesystem(message)


def check_locks(path: Path) -> None:
    """Refuse a file system whose locks do not exclude: two handles must not both get one."""
    first = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    second = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    finally:
        os.close(first)
        os.close(second)
    message = f"the file system of {path.parent} grants one lock twice"
    raise UnsafeFilesystem(message)
