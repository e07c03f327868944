"""The start of a turn waits for the parts of what was said; nothing else does. And Telegram's library comes late."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import cast

from hansard.app.gathering import GATHER_SECONDS_MAX, Gathering
from hansard.engine.runner import Runner
from hansard.intake.receive import Wake

LATE = """
import sys
import hansard.cli.gateway
print({"telegram", "httpx", "aiohttp", "nio"} & {name.partition(".")[0] for name in sys.modules})
"""


class Woken:
    """In place of a runner: it notes what it is to run, and when."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.turns: list[tuple[str, str]] = []
        self.rang = asyncio.Event()

    def wake(self, session_id: str, turn_id: str = "") -> None:
        """Note it."""
        self.turns.append((session_id, turn_id))
        self.rang.set()


def gathering() -> tuple[Gathering, Woken]:
    """A gathering, and who hears of it."""
    woken = Woken()
    return Gathering(cast("Runner", woken)), woken


async def test_what_is_whole_is_run_at_once() -> None:
    """Nothing is held back that does not ask for it; another session's parts are not waited for."""
    gathers, woken = gathering()
    gathers.wake(Wake("a", "1", 60))
    gathers.wake(Wake("b", "2"))
    assert woken.turns == [("b", "2")]
    gathers.drop()


async def test_each_part_begins_the_wait_anew_and_the_last_one_ends_it() -> None:
    """A turn runs once, a while after the last part; or at once, when what comes is no part any more."""
    gathers, woken = gathering()
    for seconds in (0.01, 0.01, 600):
        gathers.wake(Wake("a", "1", seconds))
    gathers.wake(Wake("b", "1", 0.05))
    async with asyncio.timeout(120):
        await woken.rang.wait()
    assert woken.turns == [("b", "1")], "the first two waits of a would have ended before that of b"
    woken.rang.clear()
    gathers.wake(Wake("a", "1", 0.01))
    async with asyncio.timeout(120):
        await woken.rang.wait()
    assert woken.turns == [("b", "1"), ("a", "1")]
    gathers.wake(Wake("a", "2", 60))
    gathers.wake(Wake("a", "2"))
    assert woken.turns == [("b", "1"), ("a", "1"), ("a", "2")]


async def test_no_turn_is_forgotten() -> None:
    """Of two turns of a session the first is run when the second comes; when draining, all that wait are run."""
    gathers, woken = gathering()
    gathers.wake(Wake("a", "1", 60))
    gathers.wake(Wake("a", "2", 60))
    assert woken.turns == [("a", "1")]
    gathers.flush()
    assert woken.turns == [("a", "1"), ("a", "2")]
    gathers.flush()
    gathers.wake(Wake("a", "3", 60))
    gathers.drop()
    gathers.flush()
    assert len(woken.turns) == 2


async def test_parts_that_never_end_are_answered_all_the_same() -> None:
    """After a while the turn runs, whatever is still to come."""
    gathers, woken = gathering()
    gathers.wake(Wake("a", "1", 60))
    timer, since, wake = gathers._waiting["a"]  # noqa: SLF001 - a clock that a test cannot turn
    gathers._waiting["a"] = (timer, since - GATHER_SECONDS_MAX - 1, wake)  # noqa: SLF001
    gathers.wake(Wake("a", "1", 60))
    assert woken.turns == [("a", "1")]


def test_no_library_of_a_platform_is_loaded_before_it_is_used() -> None:
    """`hansard gateway` without Telegram does not pay for Telegram: its library is not even imported."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "set()\n"
