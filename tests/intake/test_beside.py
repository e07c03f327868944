"""Jobs beside the receiving loop: bounded, tried again, and never the end of others."""

from __future__ import annotations

import asyncio

import pytest

from hansard.errors import HomeMoved
from hansard.intake.beside import Beside
from tests.gateway.stage import until


async def test_a_job_that_fails_is_tried_again_and_others_go_on() -> None:
    """An error that nobody foresaw is reported; the job is open still, and is done the next time."""
    open_jobs = ["one", "two"]
    tries: list[str] = []
    reports: list[str] = []

    async def list_due() -> list[str]:
        return open_jobs

    async def perform(job: str) -> None:
        tries.append(job)
        if tries.count("one") == 1 and job == "one":
            raise ValueError(job)
        open_jobs.remove(job)

    beside = Beside(
        list_due, perform, name=str, together_max=2, report=lambda name, error: reports.append(f"{name} {error!r}")
    )
    async with asyncio.timeout(60):
        await beside.settle()
    assert (tries, open_jobs) == (["one", "two", "one"], [])
    assert reports == ["one ValueError('one')"]


async def test_so_many_run_together() -> None:
    """More wait until one has ended; when the loop ends, so do those that run."""
    let = asyncio.Event()
    running: set[int] = set()
    done: list[int] = []

    async def list_due() -> list[int]:
        return [number for number in range(5) if number not in done]

    async def perform(job: int) -> None:
        running.add(job)
        try:
            await let.wait()
            done.append(job)
        finally:
            running.discard(job)

    beside = Beside(list_due, perform, name=str, together_max=2, report=lambda _name, _error: None)
    loop = asyncio.create_task(beside.run())
    await until(lambda: running == {0, 1})
    let.set()
    await until(lambda: len(done) == 5)
    let.clear()
    done.clear()
    beside.wake()
    await until(lambda: len(running) == 2)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert running == set()


async def test_an_error_after_which_the_program_ends() -> None:
    """Whoever runs the loop hears of it."""

    async def list_due() -> list[str]:
        return ["one"]

    async def perform(job: str) -> None:
        raise HomeMoved(job)

    beside = Beside(list_due, perform, name=str, together_max=2, report=lambda _name, _error: None)
    async with asyncio.timeout(60):
        with pytest.raises(HomeMoved):
            await beside.run()
