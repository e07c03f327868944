"""Something that was said in several parts is answered once, when its parts are there.

Reads, writes: nothing: parts and turn are in the record, and only the start of the turn waits.
On crash: the next start finds the turn queued, and runs it at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hansard.engine.runner import Runner
    from hansard.intake.receive import Wake

GATHER_SECONDS_MAX = 10.0
"""Somebody whose parts never end is answered all the same."""


class Gathering:
    """Wakes turns, at once or when nothing more of the same has come for a while."""

    def __init__(self, runner: Runner) -> None:
        """Nothing waits."""
        self._runner = runner
        self._waiting: dict[str, tuple[asyncio.TimerHandle, float, Wake]] = {}

    def wake(self, wake: Wake) -> None:
        """Run a turn: at once, also if its parts had been waited for, or after the pause that it asks for."""
        loop = asyncio.get_running_loop()
        before = self._waiting.pop(wake.session_id, None)
        since = loop.time()
        if before is not None:
            before[0].cancel()
            since = before[1]
            if before[2].turn_id != wake.turn_id:
                self._runner.wake(before[2].session_id, before[2].turn_id)
        if not wake.after_seconds or loop.time() - since > GATHER_SECONDS_MAX:
            self._runner.wake(wake.session_id, wake.turn_id)
            return
        timer = loop.call_later(wake.after_seconds, self._due, wake.session_id)
        self._waiting[wake.session_id] = (timer, since, wake)

    def flush(self) -> None:
        """Wait no longer for anything."""
        for session_id in list(self._waiting):
            self._due(session_id)

    def drop(self) -> None:
        """Run nothing any more here: what waits is in the record."""
        for timer, _, _ in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _due(self, session_id: str) -> None:
        timer, _, wake = self._waiting.pop(session_id)
        timer.cancel()
        self._runner.wake(wake.session_id, wake.turn_id)
