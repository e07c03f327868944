"""Limits of a day across processes, and a day that adds up to what providers say themselves."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from pathlib import Path

import pytest

from hansard.domain.budgets import Budget
from hansard.domain.messages import Message
from hansard.domain.settings import TurnLimits
from hansard.engine.turns import Agent, run_turn
from hansard.record.api import Record
from hansard.testing.fakes import Echo, tools_by_name
from tests.engine.spender import BUDGETS
from tests.engine.stage import fixed
from tests.models.helpers import asking
from tests.models.providers.behaviour import Behaviour, Call, Figures
from tests.models.providers.server import Provider
from tests.tools.servers import ROOT

PROVES = bool(os.environ.get("HANSARD_PROVE"))
PROCESSES = 3
SESSIONS = 30 if PROVES else 10
LIMITS = list(BUDGETS) if PROVES else ["turns", "tokens"]
STYLES = ["openai", "anthropic", "google", "openai-responses"] if PROVES else ["openai", "anthropic"]
WAIT_SECONDS_MAX = 90.0


async def start(home: Path, limit: str, number: int) -> Process:
    """Start a process that waits for the word to spend."""
    arguments = ("-m", "tests.engine.spender", str(home), limit, str(number), str(SESSIONS))
    process = await create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.drawn(1)
@pytest.mark.parametrize("limit", LIMITS)
async def test_limits_hold_across_processes(home: Path, limit: str) -> None:
    """Three processes with ten sessions each ask at once: as many turns run as one after the other would."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        processes = await asyncio.gather(*(start(home, limit, number) for number in range(PROCESSES)))
        given = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [process.returncode for process in processes] == [0] * PROCESSES
    states = [state for output, _ in given for state in json.loads(output)]
    assert (states.count("completed"), states.count("failed")) == (10, PROCESSES * SESSIONS - 10)
    async with Record.open(home) as record:
        day = await record.budgets.day("person:ann", BUDGETS[limit])
        assert (day.together.turns, day.together.tokens, day.together.cost_micros) == (10, 1000, 100_000)
        assert (await record.verify()).ok


@pytest.mark.drawn(1)
@pytest.mark.parametrize("style", STYLES)
async def test_a_day_adds_up_to_the_providers_own_figures(home: Path, style: str) -> None:
    """Over answers, tools, refusals and retries, what is counted is what the provider said that it took."""
    behaviours = [
        Behaviour(figures=Figures(input_tokens=100, output_tokens=11)),
        Behaviour(status=503),
        Behaviour(
            calls=(Call(id="c1", name="echo", arguments='{"text":"x"}'),),
            figures=Figures(input_tokens=203, output_tokens=17, cache_read_tokens=64),
        ),
        Behaviour(figures=Figures(input_tokens=307, output_tokens=5)),
        Behaviour(status=429, headers={"retry-after": "0"}),
        Behaviour(figures=Figures(input_tokens=401, output_tokens=23)),
    ]
    limits = TurnLimits(retry_seconds_max=0.01)
    async with Provider(style, behaviours) as provider, Record.open(home) as record, asking(provider) as model:
        agent = Agent(record=record, models=fixed([model]), tools=tools_by_name(Echo()), limits=limits)
        for owner in ("person:ann", "person:ben", "person:ann"):
            session = await record.create_session(source="test", owner=owner)
            await record.accept([(session.id, Message.user("go"))], queue_turn=True)
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await run_turn(agent, session.id)
        answered = [each.figures for each in behaviours if each.status == 200 and each.figures is not None]
        assert len(provider.answers) == len(behaviours)
        ann = await record.budgets.day("person:ann", Budget())
        ben = await record.budgets.day("person:ben", Budget())
        total = sum(each.input_tokens + each.output_tokens for each in answered)
        assert ann.together.tokens == total
        assert (ann.person.tokens, ben.person.tokens) == (111 + 424, 220 + 312)
        assert (ann.together.turns, ann.person.turns, ben.person.turns) == (3, 2, 1)
