"""Leaving early: the request ends, the connection is closed, and nothing is left running."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from hansard.domain.requests import Delta
from tests.clock import leap
from tests.models.helpers import HELLO, STALL_SECONDS, WAIT_SECONDS_MAX, ask, asking
from tests.models.providers.behaviour import Behaviour
from tests.models.providers.server import Provider


async def test_closing_the_generator_closes_the_connection(style: str) -> None:
    """Whoever stops reading frees the provider at once."""
    behaviour = Behaviour(stall_after_events=5)
    async with Provider(style, [behaviour]) as provider, asking(provider) as model:
        async with asyncio.timeout(WAIT_SECONDS_MAX), aclosing(model.stream(HELLO)) as events:
            assert isinstance(await anext(events), Delta)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await provider.answers[0].left.wait()


@pytest.mark.parametrize("after", [0, 1, 5])
async def test_cancelling_closes_the_connection(style: str, after: int) -> None:
    """A turn that is cancelled while it waits frees the provider at once, and is cancelled and nothing else."""
    behaviour = Behaviour(stall_after_events=after)
    async with Provider(style, [behaviour]) as provider, asking(provider) as model:
        turn = asyncio.create_task(ask(model))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            exchange = await provider.asked(1)
            await exchange.stalled.wait()
        turn.cancel()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            with pytest.raises(asyncio.CancelledError):
                await turn
            await exchange.left.wait()


async def test_cancelling_before_the_headers(style: str) -> None:
    """A turn that is cancelled before the provider says anything frees it as well."""
    async with Provider(style, [Behaviour(head_delay_seconds=600)]) as provider, asking(provider) as model:
        turn = asyncio.create_task(ask(model))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            exchange = await provider.asked(1)
        turn.cancel()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            with pytest.raises(asyncio.CancelledError):
                await turn
            await exchange.left.wait()


async def test_model_is_usable_after_leaving(style: str) -> None:
    """An answer that was left does not disturb the next one."""
    behaviours = [Behaviour(stall_after_events=5), Behaviour()]
    async with Provider(style, behaviours) as provider, asking(provider) as model:
        async with asyncio.timeout(WAIT_SECONDS_MAX), aclosing(model.stream(HELLO)) as events:
            await anext(events)
        assert (await ask(model)).text == "Hello, world."


async def test_leaving_one_of_many(style: str) -> None:
    """To leave one answer leaves the others alone."""
    behaviour = Behaviour(pieces=("a",) * 5, delay_seconds=0.02)
    async with Provider(style, [behaviour]) as provider, asking(provider) as model:
        turns = [asyncio.create_task(ask(model)) for _ in range(6)]
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await provider.asked(6)
        turns[2].cancel()
        answers = await asyncio.gather(*turns, return_exceptions=True)
    assert isinstance(answers.pop(2), asyncio.CancelledError)
    assert {answer.text for answer in answers if not isinstance(answer, BaseException)} == {"aaaaa"}
    assert len(answers) == 5


async def test_slow_reader_loses_nothing(style: str) -> None:
    """A reader that is slower than the patience is not taken for a stall of the provider."""
    behaviour = Behaviour(pieces=("a", "b"))
    async with Provider(style, [behaviour]) as provider, asking(provider, stall_seconds=STALL_SECONDS) as model:
        text = ""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            async for event in model.stream(HELLO):
                leap(0 if text else STALL_SECONDS * 1.5)
                await asyncio.sleep(0.01)
                text += event.text if isinstance(event, Delta) else f"[{type(event).__name__}]"
    assert text == "ab[Finished]"
