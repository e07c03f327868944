"""A process that takes one batch in, does what it asks for beside, and is killed on the way.

Its arguments: HOME, the scene, the crash point and its number.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from hansard.intake.receive import ChannelIntake
from hansard.journal.store import Wiring
from hansard.ports.channel import Batch, Event, EventKind, RemoteFile
from hansard.record.api import Record
from hansard.testing.crash import CrashPoint
from tests.intake.town import ANN, EVE, HOME_OF_ANN, ROOM, Doorman, settings_of

EVES = "matrix:room:!eve:elsewhere.net"

BYTES = b"the bytes of a file"

SCENES = {
    "invitations": Batch(
        cursor="c1",
        events=(
            Event(id="$invited", kind=EventKind.INVITATION, chat=ROOM, sender=ANN),
            Event(id="$strange", kind=EventKind.INVITATION, chat=EVES, sender=EVE),
        ),
    ),
    "files": Batch(
        cursor="c1",
        events=(
            Event(
                id="$file",
                kind=EventKind.MESSAGE,
                chat=HOME_OF_ANN,
                sender=ANN,
                text="look",
                is_direct=True,
                files=(RemoteFile(reference="mxc://file", name="a.txt"),),
            ),
        ),
    ),
}


def doorman() -> Doorman:
    """The platform: it answers, and gives files."""
    channel = Doorman()
    channel.files["mxc://file"] = BYTES
    return channel


async def play(home: Path, scene: str, channel: Doorman, reach: CrashPoint | None = None) -> None:
    """Take the batch in, and do what it asks for."""
    async with Record.open(home, wiring=Wiring(reach=reach) if reach else Wiring()) as record:
        intake = ChannelIntake(record, channel, settings_of(), channel)
        await intake.take_batch(SCENES[scene])
        for job in intake.jobs():
            await job.finish_jobs()


def killed_at(home: Path, scene: str, point: str, number: int) -> bool:
    """Run this program until it is killed; return whether it was."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.security.crash_worker", str(home), scene, point, str(number)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL or ran.stdout == b"survived", ran.stderr
    return ran.returncode == -signal.SIGKILL


if __name__ == "__main__":
    asyncio.run(play(Path(sys.argv[1]), sys.argv[2], doorman(), CrashPoint(sys.argv[3], int(sys.argv[4]))))
    sys.stdout.write("survived")
