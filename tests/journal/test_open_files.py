"""The writer keeps only as many logs open as its process may open files, and closes some when there are too many."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from hansard import Message, Record
from tests.interop.told import export_jsonl
from tests.record.helpers_facts import assert_clean
from tests.record.helpers_process import ROOT, Worker

FEW = ["prlimit", "--nofile=256"]
SESSIONS = 400


@pytest.mark.loss("B15")
def test_more_sessions_than_open_files(home: Path) -> None:
    """`ulimit -n 256` and 400 sessions: every one is written."""
    with Worker(home, prefix=FEW) as worker:
        assert len(worker.ask("sessions", count=SESSIONS)) == SESSIONS
        assert worker.ask("trouble") == ""
        assert worker.ask("verify") == []


@pytest.mark.loss("B15")
def test_a_process_that_has_no_file_left_closes_logs(home: Path) -> None:
    """Others in the process take nearly all files, while logs are open: the writer gives its own back and goes on."""
    with Worker(home, prefix=FEW) as worker:
        worker.ask("sessions", count=70)
        worker.ask("hoard", leave=2)
        worker.ask("append", session="s0", id="after")
        worker.ask("append", session="s69", id="after")
        worker.ask("release")
        assert worker.ask("verify") == []


@pytest.mark.loss("B15", "N3")
async def test_an_import_of_more_sessions_than_open_files(home: Path, tmp_path: Path) -> None:
    """`ulimit -n 256; hansard import` of 300 sessions: all of them."""
    count = 300
    async with Record.open(tmp_path / "origin") as record:
        for number in range(count):
            await record.create_session(id=f"s{number}", source="test")
        await asyncio.gather(*(record.append(f"s{number}", Message.user("x")) for number in range(count)))
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")
    command = [
        *FEW,
        str(Path(sys.executable).with_name("hansard")),
        "--home",
        str(home),
        "import",
        "hansard",
        str(path),
    ]
    ran = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    async with Record.open(home) as record:
        assert len(await record.sessions()) == count
        await assert_clean(record)
