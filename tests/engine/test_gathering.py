"""The start of a turn waits for the parts of what was said; nothing else does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hansard.domain.messages import Message
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.engine.runner import PARTS_SECONDS_MAX
from hansard.intake.speak import speak
from hansard.record.turns.entries import TurnEnded
from tests.engine.stage import WAIT_SECONDS_MAX, PlayedModel, Stage, stage

LONG_SECONDS = 6000
"""Longer than any test."""


async def said(on: Stage, session_id: str) -> str:
    """Something is said in a session; return the turn that is to answer it."""
    return (await speak(on.record, session_id, [Message.user("a part")], Busy.QUEUE)).turn_id


async def states(on: Stage, session_id: str) -> list[TurnState]:
    """How the turns of a session stand."""
    return [turn.state for turn in await on.record.turns.list(session_id)]


async def test_what_is_whole_is_run_at_once(home: Path) -> None:
    """Nothing is held back that does not ask for it; another session's parts are not waited for."""
    async with stage(home, PlayedModel(["ok"])) as on:
        other = (await on.record.create_session(source="test")).id
        on.runner.wake(on.session_id, await said(on, on.session_id), after_seconds=LONG_SECONDS)
        assert not on.runner.busy
        on.runner.wake(other, await said(on, other))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await on.runner.idle()
        assert await states(on, other) == [TurnState.COMPLETED]
        assert await states(on, on.session_id) == [TurnState.QUEUED]


async def test_each_part_begins_the_wait_anew_and_the_last_one_ends_it(home: Path) -> None:
    """A turn runs once, a while after the last part; or at once, when what comes is no part any more."""
    model = PlayedModel(["ok"])
    async with stage(home, model) as on:
        turn_id = await said(on, on.session_id)
        for seconds in (0.01, 0.01, LONG_SECONDS):
            on.runner.wake(on.session_id, turn_id, after_seconds=seconds)
        other = (await on.record.create_session(source="test")).id
        on.runner.wake(other, await said(on, other), after_seconds=0.05)
        await Stage(on.agent, other).until_body(TurnEnded)
        assert await states(on, on.session_id) == [TurnState.QUEUED], "its first two waits were the shorter ones"
        on.runner.wake(on.session_id, turn_id, after_seconds=0.01)
        await on.until_body(TurnEnded)
        assert len(model.requests) == 2
        turn_id = await said(on, on.session_id)
        on.runner.wake(on.session_id, turn_id, after_seconds=LONG_SECONDS)
        on.runner.wake(on.session_id, turn_id)
        await on.until_body(TurnEnded, 2)
        assert len(model.requests) == 3


async def test_no_turn_is_forgotten(home: Path) -> None:
    """Of two turns of a session the first is run when the second comes; when draining, all that wait are run."""
    async with stage(home, PlayedModel(["ok"])) as on:
        first = await said(on, on.session_id)
        on.runner.wake(on.session_id, first, after_seconds=LONG_SECONDS)
        on.runner.wake(on.session_id, "another", after_seconds=LONG_SECONDS)
        assert on.runner.busy
        await on.settled()
        assert await states(on, on.session_id) == [TurnState.COMPLETED]
        on.runner.wake(on.session_id, await said(on, on.session_id), after_seconds=LONG_SECONDS)
        on.runner.leave_waiting()
        await on.settled()
        assert await states(on, on.session_id) == [TurnState.COMPLETED, TurnState.COMPLETED]
        on.runner.wake(on.session_id, await said(on, on.session_id), after_seconds=LONG_SECONDS)
        await on.runner.close()
        on.runner.leave_waiting()
        assert not on.runner.busy, "what waits is in the record, for whoever serves next"


async def test_parts_that_never_end_are_answered_all_the_same(home: Path) -> None:
    """After a while the turn runs, whatever is still to come."""
    async with stage(home, PlayedModel(["ok"])) as on:
        turn_id = await said(on, on.session_id)
        on.runner.wake(on.session_id, turn_id, after_seconds=LONG_SECONDS)
        waits = on.runner._gathered[on.session_id]  # noqa: SLF001 - a clock that a test cannot turn
        on.runner._gathered[on.session_id] = waits._replace(since=waits.since - PARTS_SECONDS_MAX - 1)  # noqa: SLF001
        on.runner.wake(on.session_id, turn_id, after_seconds=LONG_SECONDS)
        await on.settled()
        assert await states(on, on.session_id) == [TurnState.COMPLETED]
