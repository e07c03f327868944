"""Power cuts: an ext4 file system is shut down under a writer, as if the plug was pulled, and mounted again.

What was acknowledged is in the database, the logs are caught up by opening, and the record verifies. A control shows
that the harness bites: with SQLite's usual setting the same cut takes acknowledged commits away.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import apsw
import pytest

from hansard import Record
from tests.counts import times
from tests.crash.checks import check_record
from tests.crash.evidence import Evidence
from tests.crash.processes import Program, programs
from tests.crash.rounds import SURVIVOR, VICTIM, go_on, remove_database, start_follower, start_writer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.crash.processes import Line
    from tests.tally import Tally

PROVE = bool(os.environ.get("HANSARD_PROVE"))
ROUNDS = times(test=1, long=2, prove=20)
IMAGE_BYTES = 512 * 1024 * 1024
SYSTEM_PATH = "/usr/sbin:/sbin:" + os.environ.get("PATH", "")
TOOLS = ("mkfs.ext4", "mount", "umount", "xfs_io")

pytestmark = pytest.mark.slow  # one after another: loop devices are few


def run(*command: object) -> subprocess.CompletedProcess[bytes]:
    """Run a system tool."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=False, capture_output=True, env={**os.environ, "PATH": SYSTEM_PATH})


class Disk:
    """An ext4 file system in a file, whose power can be cut."""

    def __init__(self, folder: Path) -> None:
        """Make the file system."""
        self.image = folder / "disk.ext4"
        self.place = folder / "disk"
        self.place.mkdir()
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        run("mkfs.ext4", "-q", "-F", self.image).check_returncode()

    def plug_in(self) -> bool:
        """Mount it; the journal is replayed. The loop device goes away with the mount."""
        return run("mount", "-t", "ext4", "-o", "loop", self.image, self.place).returncode == 0

    def cut(self) -> None:
        """Cut the power: nothing reaches the disk any more, not even the file system's own journal."""
        run("xfs_io", "-x", "-c", "shutdown", self.place).check_returncode()

    def pull_out(self) -> None:
        """Unmount it; nobody has a file open there."""
        run("umount", self.place).check_returncode()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk that is plugged in; unmounted at the end, whatever happened."""
    if os.geteuid() != 0:
        pytest.skip("a power cut needs root, to mount a file system")
    if missing := [tool for tool in TOOLS if shutil.which(tool, path=SYSTEM_PATH) is None]:
        pytest.skip(f"a power cut needs {', '.join(missing)}")
    made = Disk(tmp_path)
    if not made.plug_in():
        pytest.skip("this machine mounts no loop devices")
    try:
        yield made
    finally:
        while made.place.is_mount() and run("umount", made.place).returncode != 0:
            run("umount", "--lazy", made.place)


async def cut_under(disk: Disk, writers: list[Program], draw: random.Random) -> float:
    """Wait until every writer is at work, cut the power at a random moment, bury the writers; return the moment.

    What a machine without power says does not count: an fsync that is under way while ext4 shuts down can succeed for
    data that never reaches the disk (plain SQLite with synchronous=FULL meets it too, about once in 15 cuts).
    """
    for writer in writers:
        lines = draw.randint(1, 100)
        assert await writer.until(lambda _line, writer=writer, lines=lines: len(writer.lines) >= lines)  # type: ignore[misc]
    await asyncio.sleep(draw.uniform(0, 1.5))  # not synchronisation: this is the random moment
    moment = time.monotonic()
    disk.cut()
    for writer in writers:
        await writer.bury()
    disk.pull_out()
    assert disk.plug_in()
    return moment


def lines_before(moment: float, program: Program) -> list[Line]:
    """Return what a program said while there was power."""
    return [line for line in program.lines if line["at"] < moment]


@pytest.mark.loss("A1", "B12", "B17", "B18")
@pytest.mark.parametrize("repeat", range(ROUNDS))
async def test_nothing_acknowledged_is_lost_by_a_power_cut(disk: Disk, seed: int, repeat: int, tally: Tally) -> None:
    """After two power cuts all that two writers acknowledged and a follower showed is there, in both legs."""
    draw = random.Random(f"{seed} power cut {repeat}")
    home = disk.place / "home"
    evidence = Evidence(seed=seed)
    violations = []
    for life in ("first", "second"):
        async with programs() as started:
            writers = [await start_writer(home, seed, f"v-{life}", VICTIM, errors=disk.image.parent / "v")]
            writers.append(await start_writer(home, seed, f"s-{life}", SURVIVOR, errors=disk.image.parent / "s"))
            follower = await start_follower(home, evidence, errors=disk.image.parent / "f")
            started += [*writers, follower]
            moment = await cut_under(disk, [*writers, follower], draw)
        for writer in writers:
            evidence.add_writer(lines_before(moment, writer))
        evidence.add_follower(lines_before(moment, follower))
        async with Record.open(home) as record:
            _, found = await check_record(record, evidence)
            violations += [f"after the {life} cut: {violation}" for violation in found]
    remove_database(home)
    async with Record.open(home) as record:
        _, found = await check_record(record, evidence)
        violations += [f"logs alone: {violation}" for violation in found]
    violations += await go_on(home, evidence)
    counts = {"cuts": 2, "acknowledged": len(evidence.acknowledged), "shown_bytes": evidence.shown_bytes()}
    tally.add("power cut", seed, {**counts, "violations": violations})
    assert len(evidence.acknowledged) > 0
    assert not violations, "\n".join(violations)


async def count_lost(disk: Disk, synchronous: str, draw: random.Random) -> int:
    """Return how many acknowledged commits of a raw writer a power cut takes away."""
    path = disk.place / f"{synchronous}.db"
    async with programs() as started:
        writer = await Program.start(
            "tests.crash.raw", path, synchronous, errors=disk.image.parent / f"{synchronous}.errors"
        )
        started.append(writer)
        moment = await cut_under(disk, [writer], draw)
    acknowledged = {line["number"] for line in lines_before(moment, writer)}
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        present = {number for (number,) in connection.execute("SELECT number FROM said").fetchall()}
    return len(acknowledged - present)


async def test_the_power_cut_takes_what_was_not_synced(disk: Disk, seed: int) -> None:
    """The control: SQLite with synchronous=NORMAL loses acknowledged commits in this harness, with FULL none."""
    draw = random.Random(f"{seed} control")
    assert await count_lost(disk, "NORMAL", draw) > 0
    assert await count_lost(disk, "FULL", draw) == 0
