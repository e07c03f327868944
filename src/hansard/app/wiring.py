"""Everything put together, for as long as a process talks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from hansard.app.models import Models, open_transcriber
from hansard.domain.policy import policy_of
from hansard.engine.recovery import queue_lost
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.ports.clock import SystemClock
from hansard.record.api import Record
from hansard.tools.clock import CurrentTime
from hansard.tools.mcp import McpServers
from hansard.tools.memory import MemoryTool
from hansard.tools.session_search import SessionSearch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from hansard.domain.settings import Settings
    from hansard.ports.tool import Tool


class App(NamedTuple):
    """A process that talks."""

    record: Record
    settings: Settings
    models: Models
    runner: Runner


def make_tools(record: Record) -> dict[str, Tool]:
    """Return Hansard's own tools, by name."""
    tools: list[Tool] = [CurrentTime(SystemClock()), MemoryTool(record.books.memory), SessionSearch(record)]
    return {tool.spec.name: tool for tool in tools}


@asynccontextmanager
async def open_app(
    home: Path,
    settings: Settings,
    environment: Mapping[str, str],
    report: Callable[[str, BaseException], None],
    *,
    is_named: bool = False,
) -> AsyncIterator[App]:
    """Open the record and get ready to run turns. Leaving interrupts what runs, in the record.

    `is_named`: the model was named for this run, and comes before a session's own.
    """
    models = Models(home, settings, environment, is_named=is_named)
    async with Record.open(home) as record:
        tools = make_tools(record)
        servers = McpServers(settings.mcp, environment, tools)
        agent = Agent(
            record,
            models,
            tools,
            settings.limits,
            settings.system_prompt,
            choose=models.choose,
            is_named=lambda: models.is_named,
            compaction=settings.compaction,
            policy=policy_of(settings),
            transcriber=(transcriber := open_transcriber(home, settings, environment)),
            prepare=servers.prepare if settings.mcp else None,
        )
        await queue_lost(agent)
        runner = Runner(agent, report)
        try:
            yield App(record, settings, models, runner)
        finally:
            try:
                await runner.close()
            finally:
                await servers.close()
                if transcriber is not None:
                    await transcriber.close()
                await models.close()
