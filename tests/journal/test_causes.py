"""Every cause has its own words, each error of the system has its cause, and no other module writes such sentences."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from hansard import Record, RecordDamaged, RecordUnavailable
from hansard.journal import causes
from hansard.journal.causes import ERRNO_CAUSES, WORDS, Cause, explain_delay, tell
from hansard.journal.sqlite.connection import explain
from tests.record.helpers_process import stranger
from tests.security.unprivileged import NOBODY, interpreter, own_folder, run

SOURCES = Path(causes.__file__).parents[1]

OWN_WORDS = re.compile(
    r"permission denied|disk is full|read-only disk|mounted read-only|too many (open )?files|no space left|"
    r"quota is|holds? (the |its |state\.db |a )*(write )?lock|disk does not answer|disk is slow|strerror",
    re.IGNORECASE,
)
"""Sentences that only the table may write."""

OTHER_FILES = frozenset({"gateway", "app", "channels", "cli", "interop", "models", "tools"})
"""Packages that read files which are not the record's (settings, imports, logins, programs): they use other words."""

HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


HINTS = {
    "own/file": "What was recorded is safe. The file is this user's own. Run: chmod u+rwX {top}/own/file",
    "own/closed": "The folder is this user's own. Run: chmod -R u+rwX {top}/own/closed",
    "own/closed/new": "The folder is this user's own. Run: chmod -R u+rwX {top}/own/closed",
    "own/foreign": "What was recorded is safe. {top}/own/foreign belongs to another user (user id 0), "
    "and others beside it may, too. Run: sudo chown {id} {top}/own/foreign",
    "new": "{top} belongs to another user (user id 0): choose another home (--home), "
    "or run Hansard as the user who owns this one.",
    "theirs/home": "{top}/theirs belongs to another user (user id 0): choose another home (--home), "
    "or run Hansard as the user who owns this one.",
}
"""What is said of a path that is not permitted."""

ASK = """
import sys
from hansard.journal.causes import explain
for path in sys.argv[1:]:
    print(explain(PermissionError(13, "Permission denied", path)).hint)
"""


@contextmanager
def held(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold a lock file."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_every_cause_has_words_of_its_own() -> None:
    """A sentence, a hint that says what is safe or what to do, and no two causes with the same sentence."""
    assert set(WORDS) == set(Cause)
    assert len({words.says for words in WORDS.values()}) == len(WORDS)
    for cause, words in WORDS.items():
        assert words.says[0].islower() or words.says.startswith("SQLite"), cause
        assert words.hint.endswith("."), cause
        assert not re.search(r"errno|\bthis call\b|nothing was (written|lost)", words.says + words.hint, re.IGNORECASE)


@pytest.mark.parametrize("number", sorted(ERRNO_CAUSES))
def test_an_error_of_the_system_names_its_file(number: int) -> None:
    """The file stands in the message; the number of the error does not."""
    error = explain(OSError(number, os.strerror(number), "/some/home/file"))
    assert error.cause == ERRNO_CAUSES[number]
    assert str(error) == f"{WORDS[ERRNO_CAUSES[number]].says} (/some/home/file)"
    if error.cause != Cause.NOT_PERMITTED:
        assert error.hint == WORDS[ERRNO_CAUSES[number]].hint


def test_what_helps_depends_on_the_owner() -> None:
    """A user's own file wants `chmod`, another user's `chown`; below another user's folder another home helps."""
    if os.geteuid():
        pytest.skip("only root can give files to another user")
    with own_folder() as top:
        own = top / "own"
        (own / "closed").mkdir(parents=True)
        (own / "file").touch()
        (own / "foreign").touch(0o600)
        for path, mode in ((own, 0o700), (own / "closed", 0), (own / "file", 0o444)):
            os.chown(path, NOBODY, NOBODY)
            path.chmod(mode)
        (top / "theirs").mkdir(0o700)
        top.chmod(0o755)
        told = run(interpreter(), "-c", ASK, *(str(top / name) for name in HINTS), given={}, cwd=top)
    assert told.stderr == ""
    said = dict(zip(HINTS, told.stdout.splitlines(), strict=True))
    assert said == {name: hint.format(top=top, id=NOBODY) for name, hint in HINTS.items()}


def test_the_errors_that_the_table_must_know() -> None:
    """Each of these has a cause of its own kind, and an unknown number is not taken for any of them."""
    wanted = "EACCES EPERM EROFS ENOSPC EDQUOT EFBIG EMFILE ENFILE EIO ENOENT ENOTDIR EISDIR ELOOP"
    assert {getattr(errno, name) for name in wanted.split()} <= set(ERRNO_CAUSES)
    assert explain(OSError(errno.EXDEV, "x")).cause == Cause.OTHER


@pytest.mark.parametrize(
    ("error", "cause", "kind"),
    [
        (apsw.NotADBError("x"), Cause.DAMAGED, RecordDamaged),
        (apsw.CorruptError("x"), Cause.DAMAGED, RecordDamaged),
        (apsw.FullError("x"), Cause.DISK_FULL, RecordUnavailable),
        (apsw.BusyError("x"), Cause.LOCKED_BY_STRANGER, RecordUnavailable),
        (apsw.LockedError("x"), Cause.LOCKED_BY_STRANGER, RecordUnavailable),
        (apsw.IOError("x"), Cause.DISK_FAILS, RecordUnavailable),
        (apsw.CantOpenError("x"), Cause.CANNOT_OPEN, RecordUnavailable),
        (apsw.SQLError("no such table: x"), Cause.DAMAGED, RecordDamaged),
        (apsw.SQLError('near "SELCT": syntax error'), Cause.OTHER, RecordUnavailable),
        (apsw.MisuseError("x"), Cause.OTHER, RecordUnavailable),
    ],
)
def test_an_error_of_sqlite_has_its_cause(tmp_path: Path, error: apsw.Error, cause: Cause, kind: type) -> None:
    """Where the files give no better reason."""
    database = tmp_path / "state.db"
    database.touch()
    told = explain(error, database)
    assert (told.cause, type(told)) == (cause, kind)


def test_a_file_that_is_too_short_is_damaged(tmp_path: Path) -> None:
    """SQLite calls a short read an error of the disk, and the disk has none."""
    error = apsw.exception_for(apsw.SQLITE_IOERR_SHORT_READ)
    assert explain(error, tmp_path / "state.db").cause == Cause.DAMAGED


def test_what_sqlite_cannot_open_is_looked_at(tmp_path: Path) -> None:
    """SQLite says "unable to open" for many causes; the message names the one that the files show."""
    unclear = apsw.CantOpenError("unable to open database file")
    (tmp_path / "folder.db").mkdir()
    assert explain(unclear, tmp_path / "folder.db").cause == Cause.IS_A_FOLDER
    assert explain(unclear, tmp_path / "gone" / "state.db").cause == Cause.MISSING
    (tmp_path / "file").touch()
    assert explain(unclear, tmp_path / "file" / "state.db").cause == Cause.NOT_A_FOLDER


def test_a_lock_names_its_holder(tmp_path: Path) -> None:
    """Who holds the write lock is named, and a stopped holder is told as such."""
    path = tmp_path / "write"
    path.touch()
    assert explain_delay(tmp_path).cause == Cause.SLOW
    with held(path) as process:
        waiting = explain_delay(tmp_path)
        assert waiting.cause == Cause.LOCK_HELD
        assert f"process {process.pid}" in str(waiting)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        stopped = explain_delay(tmp_path)
        assert stopped.cause == Cause.LOCK_HOLDER_STOPPED
        assert f"process {process.pid}" in str(stopped)
        process.send_signal(signal.SIGCONT)
    assert explain_delay(tmp_path).cause == Cause.SLOW
    own = os.open(path, os.O_RDWR)
    fcntl.flock(own, fcntl.LOCK_EX)
    assert explain_delay(tmp_path).cause == Cause.SLOW, "a lock of our own is not another process's"
    os.close(own)


async def test_a_strangers_transaction_names_its_process(home: Path) -> None:
    """A program that knows nothing of Hansard and holds the database is named while it does."""
    async with Record.open(home):
        pass
    with stranger(home / "state.db") as other:
        with pytest.raises(RecordUnavailable, match=r"another program holds state\.db locked") as refused:
            async with Record.open(home, patience_seconds=0.2):
                pass
        assert f"process {other.pid}" in str(refused.value)
        assert "transaction" in refused.value.hint


def test_no_other_module_writes_such_sentences() -> None:
    """A sentence about rights, disks or locks stands in the table and nowhere else."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        name = str(path.relative_to(SOURCES))
        if name == "journal/causes.py" or name.partition("/")[0] in OTHER_FILES:
            continue
        code = re.sub(r'""".*?"""|#.*', "", path.read_text(), flags=re.DOTALL)
        found += [f"{name}: {match.group()}" for match in OWN_WORDS.finditer(code)]
    assert found == []


def test_the_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    """Not the path below it, which does not exist."""
    (tmp_path / "locks").touch()
    below = str(tmp_path / "locks" / "owners" / "x")
    told = explain(NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), below))
    assert str(told) == f"{WORDS[Cause.NOT_A_FOLDER].says} ({tmp_path / 'locks'})"


def test_facts_stand_behind_the_sentence() -> None:
    """So that a narrow status line can leave them out."""
    assert str(tell(Cause.DISK_FULL, "/h", "")) == "the disk is full (/h)"
    assert str(tell(Cause.SLOW)) == WORDS[Cause.SLOW].says
