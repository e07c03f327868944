"""Which process holds a lock, from Linux's /proc/locks. Elsewhere, and in other process namespaces, it is unknown."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

WAL_LOCKS = range(120, 128)
"""Bytes of the wal-index that SQLite locks; 128 and above only say that somebody has the file open."""

STOPPED = frozenset("Tt")

READS = 4
"""The kernel gives its list in pieces. A lock can be missing when others come and go meanwhile, so it is read again."""


class Holder(NamedTuple):
    """A process that holds a lock."""

    pid: int
    name: str
    is_stopped: bool

    def __str__(self) -> str:
        return f"process {self.pid}{f', {self.name}' if self.name else ''}"


class Lock(NamedTuple):
    """A lock that the kernel knows."""

    kind: str
    mode: str
    pid: int
    start: int


def find_lock_holder(path: str) -> Holder | None:
    """Return the other process that holds a lock file; None when none does or it cannot be known."""
    return _first_other(lock.pid for lock in _locks_of(path) if lock.kind == "FLOCK" and lock.mode == "WRITE")


def find_transaction_holder(database: str) -> Holder | None:
    """Return the other process that has a write transaction open; None when it cannot be known."""
    wal = (lock.pid for lock in _locks_of(f"{database}-shm") if lock.mode == "WRITE" and lock.start in WAL_LOCKS)
    return _first_other(wal) or _first_other(lock.pid for lock in _locks_of(database) if lock.mode == "WRITE")


def _first_other(pids: Iterator[int]) -> Holder | None:
    return next((_holder(pid) for pid in pids if pid not in {os.getpid(), 0, -1}), None)


def _holder(pid: int) -> Holder:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            before, _, after = file.read().rpartition(")")
    except OSError:
        return Holder(pid, "", is_stopped=False)
    return Holder(pid, before.partition("(")[2], after.split()[0] in STOPPED)


def _locks_of(path: str) -> Iterator[Lock]:
    """Yield the locks of a file that are held, not waited for."""
    try:
        found = os.stat(path)
        lines = {line.partition(":")[2] for _ in range(READS) for line in _read_locks()}
    except OSError:
        return
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:
        fields = line.split()
        if fields[0] != "->" and fields[4] == place:
            yield Lock(fields[0], fields[2], int(fields[3]), int(fields[5]))


def _read_locks() -> list[str]:
    with open("/proc/locks", encoding="ascii") as file:
        return file.read().splitlines()
