"""A process that takes one batch in and is killed on the way: HOME, the point and its number are its arguments."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from hansard.intake.receive import ChannelIntake
from hansard.journal.store import Wiring
from hansard.ports.channel import Batch, Event, EventKind
from hansard.record.api import Record
from hansard.testing.crash import CrashPoint
from tests.intake.town import ANN, HOME_OF_ANN, Doorman, settings_of


def event(number: int, text: str, kind: EventKind = EventKind.MESSAGE, about: str = "") -> Event:
    """One event of the batch."""
    return Event(id=f"$batch{number}", kind=kind, chat=HOME_OF_ANN, sender=ANN, text=text, is_direct=True, about=about)


BATCH = Batch(
    cursor="c1",
    events=(
        event(1, "teh first"),
        event(2, "the first", EventKind.EDIT, "$batch1"),
        event(3, "/title Trip"),
        event(4, "/new"),
        event(5, "second"),
        event(6, "/fork Copy"),
        event(7, "third"),
    ),
)


async def main(home: Path, reach: CrashPoint) -> None:
    """Take the batch; whoever survives it says so."""
    async with Record.open(home, wiring=Wiring(reach=reach)) as record:
        await ChannelIntake(record, Doorman(), settings_of()).take_batch(BATCH)
    sys.stdout.write("survived")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), CrashPoint(sys.argv[2], int(sys.argv[3]))))
