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
        await beside.finish_jobs()
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


async def test_a_job_that_ends_while_the_open_ones_are_listed_is_done_once() -> None:
    """A list that was read before a job ended still names it."""
    open_jobs = ["one"]
    done: list[str] = []
    may_end, has_ended = asyncio.Event(), asyncio.Event()

    async def list_due() -> list[str]:
        listed = [*open_jobs]
        if "one" in running:
            may_end.set()
            await has_ended.wait()
            await asyncio.sleep(0)  # the task of the job is over, too
        return listed

    running: set[str] = set()

    async def perform(job: str) -> None:
        running.add(job)
        beside.wake()
        await may_end.wait()
        open_jobs.clear()
        running.discard(job)
        done.append(job)
        has_ended.set()

    beside = Beside(list_due, perform, name=str, together_max=2, report=lambda _name, _error: None)
    loop = asyncio.create_task(beside.run())
    await until(lambda: bool(done))
    async with asyncio.timeout(60):
        await beside.finish_jobs()
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert done == ["one"]


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
