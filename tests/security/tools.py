"""Tools that a town's agent is given, who may have them called, and what became of the calls."""

from __future__ import annotations

import msgspec
import pytest

from hansard.domain.messages import ToolOutcome, ToolResult
from hansard.domain.permissions import CallVerdict, ToolRule
from hansard.domain.policy import Policy, policy_of
from hansard.engine.runner import Runner
from hansard.testing.fakes import Counting, tools_by_name
from hansard.tools.builtin import MemoryTool
from tests.engine.stage import call
from tests.intake.town import ANN, Town

PAYS = Policy(
    rules=(ToolRule(do=CallVerdict.ALLOW, tool="counting", person=ANN), ToolRule(do=CallVerdict.DENY, tool="counting"))
)
"""Only Ann may pay."""
PAY = [call("counting", '{"what":"100 euros"}')]


def equip(here: Town, tool: Counting, policy: Policy = PAYS) -> None:
    """Give the town's agent the tool that pays."""
    agent = msgspec.structs.replace(here.runner._agent, tools=tools_by_name(tool), policy=policy)  # noqa: SLF001 - the town's own
    here.runner = Runner(agent, lambda _id, error: pytest.fail(str(error)))


async def outcomes(here: Town, session_id: str) -> list[ToolOutcome]:
    """What became of each call that is in the record, those that were taken back included."""
    entries = await here.entries(session_id)
    parts = [part for entry in entries for part in getattr(entry.body, "parts", ())]
    return [part.outcome for part in parts if isinstance(part, ToolResult)]


def equip_memory(here: Town, tool: MemoryTool) -> None:
    """Give the town's agent the memory, which the settings let everybody use without asking."""
    policy = msgspec.structs.replace(policy_of(here.settings), rules=(ToolRule(do=CallVerdict.ALLOW, tool="memory"),))
    agent = msgspec.structs.replace(here.runner._agent, tools=tools_by_name(tool), policy=policy)  # noqa: SLF001 - the town's own
    here.runner = Runner(agent, lambda _id, error: pytest.fail(str(error)))
