"""While the record cannot be written nothing is shown, somebody is told, and all goes on by itself afterwards (L7)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hansard.domain.messages import Role, Status
from hansard.domain.sessions import TurnState
from hansard.engine.turns import run_turn
from hansard.errors import HansardError, NotFound
from hansard.journal.locks import FairLock
from hansard.record.turns.entries import TurnStarted
from tests.clock import leap_until
from tests.engine.stage import Gate, PlayedModel, answer_last, stage

PATIENCE_SECONDS = 60.0
"""Longer than any machine stalls by itself. It passes by leaps of the clock."""


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the write lock, as another process that hangs does."""
    lock = FairLock(home / "locks")
    lock.acquire()
    try:
        yield
    finally:
        lock.release()
        lock.close()


@pytest.mark.loss("B2", "A13")
async def test_a_turn_that_cannot_begin_begins_later(home: Path) -> None:
    """The record is locked for longer than the patience: the runner reports it, tries again, and answers."""
    model = PlayedModel([answer_last])
    async with stage(home, model, patience_seconds=PATIENCE_SECONDS) as on:
        await on.queue("hi")
        with locked(home):
            on.runner.wake(on.session_id)
            await leap_until(on.reported.is_set, PATIENCE_SECONDS)
            assert model.requests == []
        await on.settled()
        assert all(isinstance(error, HansardError) and error.retryable for error in on.reports)
        on.reports.clear()
        assert await on.texts() == ["hi", "<hi>"]
        await on.check()


@pytest.mark.loss("A5", "B2", "A13")
async def test_an_answer_that_cannot_be_recorded_is_not_shown_and_the_session_goes_on(home: Path) -> None:
    """Locked in the middle of an answer: what was durable stays, the turn ends, the next message is answered."""
    gate = Gate()
    model = PlayedModel(["One ", gate, "two."], [answer_last])
    async with stage(home, model, patience_seconds=PATIENCE_SECONDS) as on:
        await on.speak("count")
        await gate.reached()
        await on.until_text("One ")
        with locked(home):
            gate.open()
            await leap_until(on.reported.is_set, PATIENCE_SECONDS)
        await on.settled()
        assert all(isinstance(error, HansardError) for error in on.reports)
        on.reports.clear()
        await on.ask("and?")
        said = await on.transcript(Role.ASSISTANT)
        assert (said[0].status, said[0].text) in {
            (Status.COMPLETE, "One two."),
            (Status.INTERRUPTED, "One two."),
            (Status.INTERRUPTED, "One "),
        }
        assert said[-1].text.endswith("and?>")
        assert len(await on.states()) == 2
        await on.check()


async def test_closing_ends_although_the_record_cannot_be_written(home: Path) -> None:
    """Locked in the middle of an answer, and then the runner is closed: it gives up after its patience."""
    gate = Gate()
    async with stage(home, PlayedModel(["One ", gate]), patience_seconds=PATIENCE_SECONDS) as on:
        await on.speak("count")
        await gate.reached()
        await on.until_text("One ")
        with locked(home):
            closing = asyncio.create_task(on.runner.close())
            await leap_until(closing.done, PATIENCE_SECONDS)
            await closing
        assert on.reports
        on.reports.clear()


@pytest.mark.loss("D15")
async def test_a_turn_is_run_once_however_often_it_is_asked_for(home: Path) -> None:
    """The same queued turn is claimed by one of many that try; the others find that it does not wait any more."""
    model = PlayedModel([answer_last])
    async with stage(home, model) as on:
        spoken = await on.queue("hi")
        tries = [run_turn(on.agent, on.session_id, spoken.turn_id) for _ in range(8)]
        found = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(not isinstance(each, BaseException) for each in found) == 1
        assert all(isinstance(each, HansardError) for each in found if isinstance(each, BaseException))
        assert len([entry for entry in await on.entries() if isinstance(entry.body, TurnStarted)]) == 1
        assert await on.texts() == ["hi", "<hi>"]
        with pytest.raises(NotFound):
            await on.run_turn()
        assert await on.states() == [TurnState.COMPLETED]
