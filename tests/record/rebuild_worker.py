"""A process that opens a home and says how far it is: `… -m tests.record.rebuild_worker HOME PATIENCE [CRASH [PAUSE]]`.

CRASH is `step:occurrence`, at which it dies. With PAUSE it rests at each journal for so many seconds, as on a slow
machine. Its first line is `opening`. Its last one is `opened JOURNALS MEGABYTES`: how many journals it brought in line,
and its memory at most.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path

from hansard import Record
from hansard.journal.locks import Progress
from hansard.journal.store import Wiring
from hansard.testing import CrashPoint
from hansard.testing.crash import count_steps


def show(progress: Progress) -> None:
    """Print how far it is, at once."""
    sys.stdout.write(f"{progress.describe()}\n")
    sys.stdout.flush()


async def main(home: Path, patience_seconds: float, crash: str = "", pause_seconds: float = 0) -> None:
    """Open the home and leave it."""
    counter, count = count_steps()
    name, _, occurrence = crash.partition(":")
    crash_point = CrashPoint(name, int(occurrence)) if name else None

    def reach(step: str) -> None:
        count(step)
        if step == "reconciled":
            time.sleep(pause_seconds)
        if crash_point is not None:
            crash_point(step)

    sys.stdout.write("opening\n")
    sys.stdout.flush()
    context = Record.open(home, patience_seconds=patience_seconds, wiring=Wiring(reach=reach), progress=show)
    async with context:
        # Not ru_maxrss: that begins with the memory of whoever started this process.
        (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
        megabytes = int(kilobytes) // 1024
        sys.stdout.write(f"opened {counter['reconciled']} {megabytes}\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2]), "".join(sys.argv[3:4]), float("".join(sys.argv[4:5]) or 0)))
