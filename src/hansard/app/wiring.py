"""Everything put together, for as long as a process talks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from hansard.app.models import Models
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.ports.clock import SystemClock
from hansard.record.api import Record
from hansard.tools.clock import CurrentTime
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
    """Return the tools, by name."""
    tools: list[Tool] = [CurrentTime(SystemClock()), SessionSearch(record)]
    return {tool.spec.name: tool for tool in tools}


@asynccontextmanager
async def open_app(
    home: Path, settings: Settings, environment: Mapping[str, str], report: Callable[[str, BaseException], None]
) -> AsyncIterator[App]:
    """Open the record and get ready to run turns. Leaving interrupts what runs, in the record."""
    models = Models(home, settings, environment)
    async with Record.open(home) as record:
        agent = Agent(record, models, make_tools(record), settings.limits, settings.system_prompt)
        runner = Runner(agent, report)
        try:
            yield App(record, settings, models, runner)
        finally:
            try:
                await runner.close()
            finally:
                await models.close()
