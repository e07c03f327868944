"""A town whose agent has to ask before it calls a tool."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import msgspec
import pytest

from hansard.domain.permissions import CallVerdict, ToolRule
from hansard.domain.policy import Policy
from hansard.engine.runner import Runner
from hansard.record.messages.entries import Entry
from hansard.record.questions import QuestionAsked
from hansard.testing.fakes import Counting, tools_by_name
from tests.engine.stage import WAIT_SECONDS_MAX
from tests.intake.town import Town

ASKS = Policy(rules=(ToolRule(do=CallVerdict.ASK, tool="counting"),))


def equip(here: Town, tool: Counting, policy: Policy = ASKS) -> None:
    """Give the town's agent a tool that asks."""
    agent = msgspec.structs.replace(here.runner._agent, tools=tools_by_name(tool), policy=policy)  # noqa: SLF001 - the town's own
    here.runner = Runner(agent, lambda _id, error: pytest.fail(str(error)))


async def say(here: Town, text: str, sender: str, chat: str) -> None:
    """Somebody says something to the agent; whatever waits is run, and nobody waits for it."""
    for wake in await here.say(text, sender, chat, is_for_agent=True):
        here.runner.wake(wake.session_id, wake.turn_id)


async def asked(here: Town, session_id: str, count: int = 1) -> QuestionAsked:
    """Wait until the question is in the record."""
    async with asyncio.timeout(WAIT_SECONDS_MAX), aclosing(here.record.follow(session_id, 0, chunks=False)) as items:
        async for item in items:
            if isinstance(item, Entry) and isinstance(item.body, QuestionAsked):
                count -= 1
                if not count:
                    return item.body
    raise AssertionError("a follower never ends")


async def settled(here: Town, session_id: str) -> None:
    """Wait until nothing is left to run."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await here.runner.settled(session_id)
