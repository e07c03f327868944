"""Keep the secrets of a process from the programs that it starts. Linux only; elsewhere nothing is done.

The kernel shows the environment with which a process was started, in `/proc/PID/environ`, to every process of the same
user, and `os.environ` cannot change that. So a process whose environment holds secrets starts itself anew with a clean
one. Its variables go through a pipe, which it reads once. From then on the kernel shows neither its memory nor its
environment to others (`PR_SET_DUMPABLE`); core dumps and debuggers do not work either.

Reads: the environment, the settings. Writes nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hansard.app import ENVIRONMENT_PIPE
from hansard.app.config import read_config

STAYS: Final = re.compile(
    rb"(HOME|LANG|LANGUAGE|LOGNAME|OPENSSL_CONF|PATH|SHELL|TERM|TMPDIR|TZ|USER|VIRTUAL_ENV)\Z"
    rb"|FAKETIME|GCONV_|GLIBC_|LC_|LD_|MALLOC_|PYTHON|SSL_CERT_|XDG_"
)
"""Variables that an interpreter or its libraries read when they start. They stay where all can see them."""

SECRET_NAME: Final = re.compile(rb"KEY|TOKEN|SECRET|PASS|CREDENTIAL", re.IGNORECASE)
SECRET_VALUE: Final = re.compile(rb"://[^/@\s]*:[^/@\s]+@")
"""An address with a password in it."""

PR_SET_DUMPABLE: Final = 4


def hide_environment(home: Path, *, may_start_programs: bool = False) -> None:
    """Start this process anew with a clean environment, when a program of others may be started and there is a secret.

    Everything else stays: process id, standard streams, terminal, signals. Nothing may have been read or opened yet.
    `may_start_programs`: one may be configured later, while the process runs.
    """
    if sys.platform != "linux" or not sys.executable:
        return
    settings = read_config(home, os.environ, {})[0].settings
    if not may_start_programs and not any(each.enabled and each.command for each in settings.mcp.values()):
        return
    hide_memory()
    named = {name.encode() for each in settings.mcp.values() for name in (*each.env, each.token_variable or "")}
    if not any(is_secret(name, value, named) for name, value in os.environb.items()):
        return
    clean = {name: value for name, value in os.environb.items() if STAYS.match(name)}
    moved = b"\0".join(b"%b=%b" % each for each in os.environb.items() if each[0] not in clean)
    if (reading := fill_pipe(moved)) is None:
        return
    clean[ENVIRONMENT_PIPE.encode()] = str(reading).encode()
    # A Ctrl-C from here on waits until the new program can take care of it (`take_environment`).
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], clean)  # noqa: S606 - this very program again


def is_secret(name: bytes, value: bytes, named: Iterable[bytes]) -> bool:
    """Whether a variable looks like a secret, or the settings say that it holds one."""
    if STAYS.match(name) or not value:
        return False
    return name in named or SECRET_NAME.search(name) is not None or SECRET_VALUE.search(value) is not None


def fill_pipe(data: bytes) -> int | None:
    """Return a descriptor that outlives `exec` and gives the data; None when no pipe holds as much."""
    reading, writing = os.pipe()
    try:
        if len(data) > fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ):
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, len(data))
        os.set_blocking(writing, False)
        is_filled = os.write(writing, data) == len(data)
    except OSError:
        is_filled = False
    os.close(writing)
    if not is_filled:
        os.close(reading)
        return None
    os.set_inheritable(reading, True)  # noqa: FBT003 - as the library has it
    return reading


def take_environment() -> None:
    """Take the variables that the same process passed on before it started itself anew. Call it before all else."""
    number = os.environ.pop(ENVIRONMENT_PIPE, None)
    if number is None or not number.isdigit():
        return
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    hide_memory()
    try:
        with os.fdopen(int(number), "rb") as pipe:
            moved = pipe.read()
    except OSError:
        return
    for each in filter(None, moved.split(b"\0")):
        name, _, value = each.partition(b"=")
        os.environb[name] = value


def hide_memory() -> None:
    """Let no other process of this user look into this one."""
    import ctypes  # noqa: PLC0415 - it takes time, and most commands need it not

    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def hidden_paths(home: Path) -> tuple[str, ...]:
    """Return what programs of others may not see: the home, and what the links in it lead to."""
    links = [path.resolve() for path in home.glob("*") if path.is_symlink()]
    return tuple(str(path) for path in (home.resolve(), *sorted(set(links))) if path.exists())
