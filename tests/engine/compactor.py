"""Another process that sums up a session and is killed at one step of it: `python -m tests.engine.compactor`.

The step is one of a commit, or `asked`: when the model is asked for the summary, or has given half of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from hansard.domain.requests import Request
from hansard.domain.settings import TurnLimits
from hansard.domain.settings.agent import CompactionSettings
from hansard.engine.compaction import compact_if_due
from hansard.engine.turns import Agent
from hansard.journal.store import Wiring
from hansard.record.api import Record
from hansard.testing.crash import CrashPoint
from tests.engine.stage import Answer, PlayedModel, fixed

SETTINGS = CompactionSettings(automatic=False, tail_tokens=400, summary_tokens_max=300)
ASKED = "asked"


class Armed:
    """A crash point that counts from when it is armed."""

    def __init__(self, point: CrashPoint | None) -> None:
        """It is not, yet."""
        self._point = point
        self.is_armed = False

    def __call__(self, step: str) -> None:
        """Die here, or go on."""
        if self.is_armed and self._point is not None:
            self._point(step)


def die(_: Request) -> str:
    """Be killed in the middle of an answer."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


async def run(home: Path, session_id: str, crash: Armed, answer: Answer) -> None:
    """Sum up, as a person asked for before."""
    async with Record.open(home, wiring=Wiring(reach=crash)) as record:
        agent = Agent(
            record=record, models=fixed([PlayedModel(answer)]), tools={}, limits=TurnLimits(), compaction=SETTINGS
        )
        await record.conversation(session_id)
        crash.is_armed = True
        await compact_if_due(agent, session_id, 100, after=True)
        crash.is_armed = False


if __name__ == "__main__":
    folder, session, name, occurrence, text = sys.argv[1:]
    cut = (int(occurrence) - 1) * 80
    given: Answer = [text[:cut], die] if name == ASKED else [text]
    armed = Armed(None if name == ASKED else CrashPoint(name, int(occurrence)))
    asyncio.run(run(Path(folder), session, armed, given))
