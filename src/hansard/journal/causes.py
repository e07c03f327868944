"""Why the record could not be used: one table from causes to the sentence and the hint that a person sees.

An error of the system or of SQLite becomes a `Cause`, and the table gives its words. No other module writes sentences
about permissions, disks or locks, so none of them can appear for another cause.

Reads: names, rights and free space of the files that an error is about; /proc/locks. Writes: nothing.
"""

from __future__ import annotations

import errno
import os
import resource
import shlex
import socket
import stat
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hansard.errors import HansardError, LeaseHeld, RecordDamaged, RecordUnavailable


class Cause(StrEnum):
    """What is in the way."""

    NOT_PERMITTED = "not_permitted"
    READ_ONLY = "read_only"
    DISK_FULL = "disk_full"
    QUOTA = "quota"
    SIZE_LIMIT = "size_limit"
    TOO_MANY_FILES = "too_many_files"
    DISK_FAILS = "disk_fails"
    MISSING = "missing"
    NOT_A_FOLDER = "not_a_folder"
    IS_A_FOLDER = "is_a_folder"
    IS_A_LINK = "is_a_link"
    NOT_A_FILE = "not_a_file"
    LOCKED_BY_STRANGER = "locked_by_stranger"
    LOCK_HELD = "lock_held"
    LOCK_HOLDER_STOPPED = "lock_holder_stopped"
    DAMAGED = "damaged"
    CANNOT_OPEN = "cannot_open"
    REPLACED = "replaced"
    SLOW = "slow"
    CLOSED = "closed"
    NO_MEMORY = "no_memory"
    OTHER = "other"


class CauseWords(NamedTuple):
    """How a person is told of a cause: what happened; what is safe and what to do; the class of the error."""

    says: str
    hint: str
    kind: type[HansardError] = RecordUnavailable


SAFE: Final = "What was recorded is safe"
SAFE_AND_READABLE: Final = f"{SAFE} and can be read"
NOTHING: Final = "Nothing is recorded in this home yet"
"""In place of the others, where it is so."""

WORDS: Final[dict[Cause, CauseWords]] = {
    Cause.NOT_PERMITTED: CauseWords(
        "permission denied",
        "Let this user read and write there, or run Hansard as the user who owns the home.",
    ),
    Cause.READ_ONLY: CauseWords(
        "the disk is mounted read-only",
        f"{SAFE_AND_READABLE}. To write, mount the disk writable or choose another home (--home).",
    ),
    Cause.DISK_FULL: CauseWords(
        "the disk is full",
        f"{SAFE_AND_READABLE}. Free some space (`df` shows it; `df -i` counts files) and try again; "
        "a Hansard that is running goes on by itself.",
    ),
    Cause.QUOTA: CauseWords(
        "this user's disk quota is used up",
        f"{SAFE_AND_READABLE}. Free some space or raise the quota, then try again; "
        "a Hansard that is running goes on by itself.",
    ),
    Cause.SIZE_LIMIT: CauseWords(
        "a file has reached the size that this process may write",
        f"{SAFE_AND_READABLE}. Raise the limit (`ulimit -f`, or LimitFSIZE in a systemd unit) and start Hansard again.",
    ),
    Cause.TOO_MANY_FILES: CauseWords(
        "too many files are open",
        f"{SAFE}. `ulimit -n` shows the limit. Set a higher one (`ulimit -n 4096`, or LimitNOFILE in a systemd unit; "
        "an administrator may have to allow it) and start Hansard again.",
    ),
    Cause.DISK_FAILS: CauseWords(
        "the disk reported an error",
        "Copy the home to another disk now: some of it may not be readable here. Then look for errors of the disk in "
        "the system's log (`journalctl -k`), and run `hansard --home COPY verify`.",
    ),
    Cause.MISSING: CauseWords(
        "a file or folder is missing",
        "If somebody moved it, put it back or give the right --home. Then start Hansard again.",
    ),
    Cause.NOT_A_FOLDER: CauseWords(
        "a file lies where a folder must be",
        "Move that file away, keep it, and try again. If it lies in the place of the home, check --home and "
        "HANSARD_HOME first. In the place of sessions/, the logs are then written anew from state.db.",
    ),
    Cause.IS_A_FOLDER: CauseWords(
        "a folder lies where a file must be",
        f"{SAFE}. Move that folder away and try again.",
    ),
    Cause.IS_A_LINK: CauseWords(
        "a symbolic link lies where a file must be",
        f"{SAFE}. Put the file itself in place of the link and try again.",
    ),
    Cause.NOT_A_FILE: CauseWords(
        "something else lies where a file must be",
        f"{SAFE}. Move it away and try again.",
    ),
    Cause.LOCKED_BY_STRANGER: CauseWords(
        "another program holds state.db locked",
        f"{SAFE}. End that program's transaction (a database shell, a backup), then try again; "
        "a Hansard that is running goes on by itself.",
    ),
    Cause.LOCK_HELD: CauseWords(
        "another Hansard process holds the write lock",
        f"{SAFE}. That process may be rebuilding the database. Wait until it is done, or end it, and try again.",
    ),
    Cause.LOCK_HOLDER_STOPPED: CauseWords(
        "the process that holds the write lock is stopped",
        f"{SAFE}. Let that process go on (`kill -CONT` and its number, or `fg` in its shell) or `kill -KILL` it.",
    ),
    Cause.DAMAGED: CauseWords(
        "state.db is damaged",
        "It was left as it is. Move state.db away, with state.db-wal and state.db-shm if they are there, and keep "
        "them. Then run the command again: the database is rebuilt from the logs.",
        RecordDamaged,
    ),
    Cause.CANNOT_OPEN: CauseWords(
        "SQLite cannot open the database",
        "Check that the file and its folder can be read and written by this user, then try again.",
    ),
    Cause.REPLACED: CauseWords(
        "state.db was moved or replaced while it was in use",
        "What was acknowledged is in the logs. Try again: the database is opened anew and caught up from the logs.",
    ),
    Cause.SLOW: CauseWords(
        "the disk has neither answered nor reported an error",
        f"{SAFE}. The disk or the machine is very slow, or this process was stopped for a while. Try again.",
    ),
    Cause.CLOSED: CauseWords(
        "the record is closed",
        f"{SAFE}. Open the record again.",
    ),
    Cause.NO_MEMORY: CauseWords(
        "there is not enough memory",
        f"{SAFE}. End other programs and try again.",
    ),
    Cause.OTHER: CauseWords(
        "the system reported an error",
        "Nothing more is known. Run the command again as `hansard --debug …`, with --debug directly after `hansard`.",
    ),
}

ERRNO_CAUSES: Final[dict[int, Cause]] = {
    errno.EACCES: Cause.NOT_PERMITTED,
    errno.EPERM: Cause.NOT_PERMITTED,
    errno.EROFS: Cause.READ_ONLY,
    errno.ENOSPC: Cause.DISK_FULL,
    errno.EDQUOT: Cause.QUOTA,
    errno.EFBIG: Cause.SIZE_LIMIT,
    errno.EMFILE: Cause.TOO_MANY_FILES,
    errno.ENFILE: Cause.TOO_MANY_FILES,
    errno.EIO: Cause.DISK_FAILS,
    errno.ENOENT: Cause.MISSING,
    errno.ENOTDIR: Cause.NOT_A_FOLDER,
    errno.EEXIST: Cause.NOT_A_FOLDER,
    errno.EISDIR: Cause.IS_A_FOLDER,
    errno.ELOOP: Cause.IS_A_LINK,
    errno.ENOMEM: Cause.NO_MEMORY,
}

SPARE_BYTES: Final = 64 * 1024
"""A file that lacks less than this to the limit of its size has reached it: SQLite writes the WAL in pieces."""

SPARE_FILES: Final = 8
"""A process that may open fewer files than this cannot open a database, its WAL and what belongs to them."""


def tell(cause: Cause, *facts: object) -> HansardError:
    """Return the error of a cause; the facts (file, process, details) stand in parentheses after its sentence."""
    words = WORDS[cause]
    named = ", ".join(str(fact) for fact in facts if fact)
    error = words.kind(f"{words.says} ({named})" if named else words.says)
    error.hint = (_hint_of_rights(str(facts[0])) if cause is Cause.NOT_PERMITTED and facts else "") or words.hint
    error.cause = cause
    return error


def explain(error: Exception) -> HansardError:
    """Return our error for one of the system. A backend explains those of its database."""
    if isinstance(error, HansardError):
        return error
    if isinstance(error, OSError):
        cause = ERRNO_CAUSES.get(error.errno or 0, Cause.OTHER)
        file = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else ""
        if cause is Cause.NOT_A_FOLDER:
            file = _first_non_folder(file)
        detail = "" if cause is not Cause.OTHER else error.strerror or error
        return tell(cause, file, detail)
    return tell(Cause.OTHER, f"{type(error).__name__}: {error}")


def framed(problem: HansardError, frame: str, kind: type[HansardError] | None = None) -> HansardError:
    """Return a problem with what it prevented in front of it; the hint stays that of its cause."""
    error = (kind or type(problem))(f"{frame}: {problem}")
    error.hint = problem.hint
    error.cause = problem.cause
    return error


def misplaced(path: str, mode: int) -> HansardError:
    """Return the error of something that is no file at the place of one of the record's files."""
    kinds = {stat.S_IFDIR: Cause.IS_A_FOLDER, stat.S_IFLNK: Cause.IS_A_LINK}
    problem = tell(kinds.get(stat.S_IFMT(mode), Cause.NOT_A_FILE), path)
    return framed(problem, "the record cannot be used as it is", RecordDamaged)


def explain_waiting(locks: Path | str) -> HansardError | None:
    """Return the error of another process that holds the write lock; None when none is known to hold it."""
    held = _locks_of(os.path.join(locks, "write"))
    holder = _first_other(lock.pid for lock in held if lock.kind == "FLOCK" and lock.mode == "WRITE")
    if holder is None:
        return None
    error = tell(Cause.LOCK_HOLDER_STOPPED if holder.is_stopped else Cause.LOCK_HELD, holder)
    if holder.is_stopped:
        goes_on = f"`kill -CONT {holder.pid}`, or `fg` in the shell where it was stopped"
        error.hint = f"{SAFE}. Let that process go on ({goes_on}), or end it: `kill -KILL {holder.pid}`."
    return error


def explain_delay(locks: Path | str) -> HansardError:
    """Return why something that has reported no error takes longer than its patience."""
    if (waiting := explain_waiting(locks)) is not None:
        return waiting
    stranger = find_transaction_holder(os.path.join(os.path.dirname(locks), "state.db"))
    return tell(Cause.LOCKED_BY_STRANGER, stranger) if stranger is not None else tell(Cause.SLOW)


def find_hindrance(home: Path) -> HansardError | None:
    """Return why a home cannot be opened for writing now, as far as that can be told without writing."""
    try:
        _check_rights(str(home / "locks" / "owners"), os.W_OK | os.X_OK)
        _check_file(str(home / "locks" / "write"), os.W_OK)
    except OSError as error:
        return explain(error)
    database = str(home / "state.db")
    if (found := look_for_cause(database, writes=True)) is not None:
        return found
    stranger = find_transaction_holder(database)
    return None if stranger is None else tell(Cause.LOCKED_BY_STRANGER, stranger)


def look_for_cause(database: str, *, writes: bool) -> HansardError | None:
    """Return why a database cannot be used, as far as its names, rights and disk tell. It is never opened here."""
    folder = os.path.dirname(database) or "."
    if _lacks_descriptors():
        return tell(Cause.TOO_MANY_FILES, database)
    try:
        space = os.statvfs(f"{folder}/.")  # fails where a file lies in place of the folder
        for side in ("", "-wal", "-shm"):
            if os.path.lexists(f"{database}{side}"):
                _check_file(f"{database}{side}", os.R_OK | (os.W_OK if writes else 0))
        _check_rights(folder, os.X_OK | (os.W_OK if writes else 0))
    except OSError as error:
        return explain(error)
    if not writes:
        return None
    if space.f_flag & os.ST_RDONLY:
        return tell(Cause.READ_ONLY, database)
    if (full := _at_size_limit(database)) is not None:
        return tell(Cause.SIZE_LIMIT, full)
    return tell(Cause.DISK_FULL, database) if space.f_bavail == 0 else None


def _lacks_descriptors() -> bool:
    try:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - len(os.listdir("/proc/self/fd")) < SPARE_FILES
    except OSError as error:
        return error.errno in {errno.EMFILE, errno.ENFILE}


def _at_size_limit(database: str) -> str | None:
    """Return the file of a database that may not grow any more; None when each may."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    sizes = {path: os.path.getsize(path) for side in ("", "-wal", "-shm") if os.path.exists(path := database + side)}
    return next((path for path, size in sizes.items() if size + SPARE_BYTES > limit), None)


def _first_non_folder(path: str) -> str:
    """Return the part of a path that lies where a folder must be; the whole path when none is found."""
    place = path
    while place and not os.path.lexists(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    return place if place and not os.path.isdir(place) else path


def _check_file(path: str, rights: int) -> None:
    if stat.S_ISDIR(os.stat(path).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    _check_rights(path, rights)


def _check_rights(path: str, rights: int) -> None:
    """Raise when this user lacks rights; a disk that is mounted read-only is another cause and is told as such."""
    effective = os.access in os.supports_effective_ids
    if os.access(path, rights, effective_ids=effective):
        return
    number = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else errno.EACCES
    raise OSError(number, os.strerror(number), path)


OWN_RIGHTS: Final = {True: 0o700, False: 0o600}
"""What an owner needs to use a folder, and a file."""


def _hint_of_rights(path: str) -> str:
    """Return what gives this user the rights to a path: that depends on who owns it, or what it would lie in.

    Empty when nothing there is in the way. Safe is what could be looked at.
    """
    place = os.path.abspath(path)
    look = _look_at_path(place)
    is_there = look is not None
    if look is not None and _may_use(place, look):
        place, look = os.path.dirname(place), None  # the file may be used: what it lies in may not
    while look is None and place != "/":
        look = _look_at_path(place)
        place = place if look is not None else os.path.dirname(place)
    if look is None or _may_use(place, look):
        return ""
    is_folder, named = stat.S_ISDIR(look.st_mode), shlex.quote(os.path.realpath(place))
    kind, recursive = ("folder", "-R ") if is_folder else ("file", "")
    safe = f"{SAFE}. " if is_there and (not is_folder or os.access(place, os.X_OK)) else ""
    if look.st_uid == os.geteuid():
        missing = OWN_RIGHTS[is_folder] & ~look.st_mode
        return f"{safe}The {kind} is this user's own. Run: chmod {recursive}u+rwX {named}" if missing else ""
    around = _look_at_path(os.path.dirname(place))
    owner = f"{safe}{place} belongs to another user (user id {look.st_uid})"
    if around is None or around.st_uid != os.geteuid() or place == "/":
        return f"{owner}: choose another home (--home), or run Hansard as the user who owns this one."
    command = f"sudo chown {recursive}{os.geteuid()} {named}"
    if not is_folder:
        return f"{owner}, and others beside it may, too. Run: {command}"
    return (
        f"{owner}: run Hansard as that user. Only if it should be this user's, and that one runs no gateway: {command}"
    )


def _may_use(path: str, look: os.stat_result) -> bool:
    return os.access(path, os.R_OK | os.W_OK | (os.X_OK if stat.S_ISDIR(look.st_mode) else 0))


def _look_at_path(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


# Which process holds a lock, from Linux's /proc/locks. Elsewhere, and in other process namespaces, it is unknown.

WAL_LOCKS = range(120, 128)
"""Bytes of the wal-index that SQLite locks; 128 and above only say that somebody has the file open."""

STOPPED = frozenset("Tt")

READS = 4
"""The kernel gives its list in pieces. A lock can be missing when others come and go meanwhile, so it is read again."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds something others wait for."""

    pid: int
    name: str
    is_stopped: bool

    def __str__(self) -> str:
        return f"process {self.pid}{f', {self.name}' if self.name else ''}"


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that the kernel knows."""

    kind: str
    mode: str
    pid: int
    start: int


def name_owner(owner: str) -> str:
    """Return how people are told of an owner (HOST-PID-LETTERS): as a process, and elsewhere with its host."""
    host, _, pid = owner.rpartition("-")[0].rpartition("-")
    if not host or not pid.isdecimal():
        return owner
    return f"process {pid}" if host == socket.gethostname() else f"process {pid} on {host}"


def find_stopped(owner: str) -> int:
    """Return the process of an owner when it is stopped, and on this host; else 0."""
    host, _, pid = owner.rpartition("-")[0].rpartition("-")
    is_here = host == socket.gethostname() and pid.isdecimal()
    return int(pid) if is_here and look_at_process(int(pid)).is_stopped else 0


def explain_holding(what: str, owner: str) -> LeaseHeld:
    """Return the error of a turn that another owner runs; one that is stopped never ends it by itself."""
    message = f"{what}, in {name_owner(owner)}"
    if stopped := find_stopped(owner):
        return LeaseHeld(f"{message}, which is stopped", owner, f"Let that process go on: kill -CONT {stopped}")
    return LeaseHeld(message, owner)


def find_transaction_holder(database: str) -> Holder | None:
    """Return the other process that has a write transaction open; None when it cannot be known."""
    wal = (lock.pid for lock in _locks_of(f"{database}-shm") if lock.mode == "WRITE" and lock.start in WAL_LOCKS)
    return _first_other(wal) or _first_other(lock.pid for lock in _locks_of(database) if lock.mode == "WRITE")


def _first_other(pids: Iterator[int]) -> Holder | None:
    return next((look_at_process(pid) for pid in pids if pid not in {os.getpid(), 0, -1}), None)


def look_at_process(pid: int) -> Holder:
    """Return what a process is called and whether it is stopped, as far as this machine tells."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            before, _, after = file.read().rpartition(")")
    except OSError:
        return Holder(pid=pid, name="", is_stopped=False)
    return Holder(pid=pid, name=before.partition("(")[2], is_stopped=after.split()[0] in STOPPED)


def _locks_of(path: str) -> Iterator[Lock]:
    """Yield the locks of a file that are held, not waited for."""
    try:
        found = os.stat(path)
        lists = [Path("/proc/locks").read_text(encoding="ascii") for _ in range(READS)]
    except OSError:
        return
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in {line.partition(":")[2] for each in lists for line in each.splitlines()}:
        fields = line.split()
        if fields[0] != "->" and fields[4] == place:
            yield Lock(kind=fields[0], mode=fields[2], pid=int(fields[3]), start=int(fields[5]))
