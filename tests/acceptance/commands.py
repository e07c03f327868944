"""Run a command of `hansard` in this process, which is no terminal."""

from __future__ import annotations

import io
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from hansard.cli.main import main
from tests.acceptance.shown.program import run_forked
from tests.tools.servers import environment

EXIT_DONE, EXIT_FAILED, EXIT_COULD_NOT_RUN, EXIT_INTERRUPTED = 0, 1, 2, 130


def run(home: Path, *arguments: str, code: int = EXIT_DONE) -> tuple[str, str]:
    """Run the command to its end, in this process, which is no terminal; it must end as expected."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(["--home", str(home), *arguments])
    texts = []
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
        texts.append(stream.read())
    assert (ended.value.code or EXIT_DONE) == code, texts
    return texts[0], texts[1]


def run_apart(home: Path, *arguments: str, stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `hansard` as a shell does."""
    ended = run_forked("--home", home, *arguments, variables=environment(), stdin=stdin)
    assert ended.returncode == code, ended.stderr
    return ended
