"""A process that takes one batch in, or runs a command, and is killed on the way.

Its arguments: HOME, the point and its number; for a command at the terminal also its session and its text.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from hansard.intake.commands.registry import run_command
from hansard.intake.commands.scene import CommandScene
from hansard.intake.receive import ChannelIntake
from hansard.intake.speak import parse
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


async def main(home: Path, reach: CrashPoint, typed: list[str]) -> None:
    """Take the batch, or run the command; whoever survives it says so."""
    async with Record.open(home, wiring=Wiring(reach=reach)) as record:
        if typed:
            session_id, text = typed
            command = parse(text)
            assert command is not None
            await run_command(CommandScene(record=record, session_id=session_id), text, command)
        else:
            await ChannelIntake(record, Doorman(), settings_of()).take_batch(BATCH)
    sys.stdout.write("survived")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), CrashPoint(sys.argv[2], int(sys.argv[3])), sys.argv[4:]))
