"""A short, always equal story that ends in SIGKILL: `python -m tests.crash.scene HOME [--last accept --point logged]`.

With a point, the process dies there while it takes its last step; without one, right after it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

from hansard import Cursor, Intake, Message, Record
from hansard.journal.store import Wiring
from hansard.testing import CrashPoint
from hansard.testing.conformance_kit import begin_new
from tests.crash.worker import tell

LEFT, RIGHT, KEY, CHANNEL, ACCOUNT = "left", "right", "matrix:room:!scene", "matrix", "bot"


class Armed:
    """A crash point that does nothing before it is armed."""

    def __init__(self, point: str) -> None:
        """Choose the step; none for a story that is told to its end."""
        self._point = CrashPoint(point) if point else None
        self.armed = False
        self._logged = False

    def __call__(self, step: str) -> None:
        """Die here, or go on. A commit that logged nothing is the keeper's note, not the last step."""
        after = {"ringing", "committed"}
        self._logged = step == "logged" or (self._logged and step in after)
        if self.armed and self._point is not None and (step not in after or self._logged):
            self._point(step)


def event(number: int) -> tuple[Message, Intake, Cursor]:
    """Return one inbound event of the story."""
    return (
        Message.user(f"event {number}", id=f"e{number}"),
        Intake(channel=CHANNEL, account=ACCOUNT, event_id=f"e{number}"),
        Cursor(channel=CHANNEL, account=ACCOUNT, value=str(number)),
    )


async def tell_story(record: Record, last: str, armed: Armed) -> None:
    """Two sessions, a route, an event; a reply in the middle of being said; and the last step."""
    for session in (LEFT, RIGHT):
        await record.create_session(id=session, source="crash", title=f"the {session} one")
        for number in (1, 2, 3):
            await record.append(session, Message.user(f"{session} {number}", id=f"{session[0]}{number}"))
    await record.routes.move(KEY, LEFT)
    message, intake, cursor = event(1)
    await record.accept([(LEFT, message)], intake, cursor)
    async with record.turn(RIGHT) as turn, turn.reply(id="spoken") as reply:
        await reply.write("said and ")
        await record.append(RIGHT, Message.user("right 4", id="r4"))  # queued behind the chunk: durable after it
        await reply.write("shown")
        await record.append(RIGHT, Message.user("right 5", id="r5"))
        tell("shown", text="said and shown")
        armed.armed = True
        if last == "append":
            await record.append(LEFT, Message.user("the last word", id="last"))
        elif last == "accept":
            message, intake, cursor = event(2)
            await record.accept([(LEFT, message)], intake, cursor)
        elif last == "reset":
            await begin_new(record, KEY)
        tell("last", step=last)
        os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    """Tell the story and die."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--last", default="")
    parser.add_argument("--point", default="")
    options = parser.parse_args()
    armed = Armed(options.point)
    async with Record.open(options.home, wiring=Wiring(reach=armed)) as record:
        await tell_story(record, options.last, armed)


if __name__ == "__main__":
    asyncio.run(main())
