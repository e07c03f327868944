"""Everything put together, for as long as a process talks.

The settings become: models, tools and the servers behind them, who writes voice notes down; and facts of the record
about people and their rights, with the user of this machine who loaded them.
"""

from __future__ import annotations

import os
import pwd
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from hansard.app.models import Models, open_transcriber
from hansard.app.secrecy import hidden_paths
from hansard.app.toml_file import read_wording
from hansard.domain.policy import policy_of
from hansard.engine.recovery import queue_lost
from hansard.engine.runner import Runner
from hansard.engine.turns import ASKS_AGAIN, Agent
from hansard.ports import SystemClock
from hansard.record.api import Record
from hansard.tasks import Retiring
from hansard.tools.clock import CurrentTime
from hansard.tools.mcp import McpServers, ServerTrouble
from hansard.tools.memory import MemoryTool
from hansard.tools.session_search import SessionSearch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from pathlib import Path

    from hansard.domain.settings import Settings
    from hansard.journal.locks import Progress
    from hansard.ports.tool import Tool


def loading_user() -> str:
    """Return the user of this machine as whom the process runs."""
    try:
        return f"user:{pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"user:{os.geteuid()}"


async def declare_settings(record: Record, settings: Settings) -> None:
    """Record who is one person, and which rules hold for tools, where that is news."""
    by = loading_user()
    await record.people.declare(settings.people, by=by)
    await record.permissions.declare_rules(settings.tools.rules, by=by)


def make_tools(record: Record) -> dict[str, Tool]:
    """Return Hansard's own tools, by name."""
    tools: list[Tool] = [CurrentTime(SystemClock()), MemoryTool(record.memory), SessionSearch(record)]
    return {tool.spec.name: tool for tool in tools}


class AgentWiring:
    """Opened by the settings, and by others when they change. Nothing is started before a turn wants it."""

    def __init__(
        self,
        home: Path,
        record: Record,
        models: Models,
        settings: Settings,
        environment: Mapping[str, str],
        *,
        asks_again: str = ASKS_AGAIN,
        tell: Callable[[ServerTrouble], None] | None = None,
    ) -> None:
        """The models are opened, and closed, here too. `asks_again`: what people are told who may want to ask again.

        `tell` hears why a server of tools failed, which is for the log and the terminal alone.
        """
        self._home = home
        self._record = record
        self._environment = environment
        self._settings = settings
        self._retiring = Retiring()
        self._tell = tell
        self.models = models
        self._open_servers()
        self._transcriber = open_transcriber(home, settings, environment)
        self._asks_again = asks_again

    def _open_servers(self) -> None:
        self._tools = make_tools(self._record)
        self._servers = McpServers(
            self._settings.mcp, self._environment, self._tools, hidden=hidden_paths(self._home), tell=self._tell
        )

    def agent(self) -> Agent:
        """Return what turns need that begin now."""
        settings = self._settings
        return Agent(
            self._record,
            self.models,
            self._tools,
            settings.limits,
            settings.system_prompt,
            choose=self.models.choose,
            is_named=lambda: self.models.is_named,
            compaction=settings.compaction,
            policy=policy_of(settings),
            transcriber=self._transcriber,
            prepare=self._servers.prepare if settings.mcp else None,
            asks_again=self._asks_again,
        )

    def apply_settings(self, settings: Settings, over: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Go by these settings from now on. What only turns of before use is closed when `over` is."""
        before, self._settings = self._settings, settings
        self.models.apply_settings(settings, over)
        if settings.mcp != before.mcp:
            self._retiring.add(self._servers.close, over)
            self._open_servers()
        # A key may have changed with the same settings, and nothing is opened before a voice note comes.
        if self._transcriber is not None:
            self._retiring.add(self._transcriber.close, over)
        self._transcriber = open_transcriber(self._home, settings, self._environment)

    async def close(self) -> None:
        """Let go of connections and programs."""
        await self._retiring.close()
        await self._servers.close()
        if self._transcriber is not None:
            await self._transcriber.close()
        await self.models.close()


class App(NamedTuple):
    """A process that talks."""

    record: Record
    settings: Settings
    models: Models
    runner: Runner
    wiring: AgentWiring


@asynccontextmanager
async def open_app(
    home: Path,
    settings: Settings,
    environment: Mapping[str, str],
    report: Callable[[str, BaseException], None],
    *,
    is_named: bool = False,
    asks_again: str = ASKS_AGAIN,
    progress: Callable[[Progress], None] | None = None,
) -> AsyncIterator[App]:
    """Open the record and get ready to run turns. Leaving interrupts what runs, in the record.

    `is_named`: the model was named for this run, and comes before a session's own. `asks_again`: what people are
    told who may want to ask again. `progress` hears how far a migration or a rebuild of the record is; without it,
    that is logged.
    """
    models = Models(home, settings, environment, is_named=is_named)
    async with Record.open(home, words=read_wording(home)[0], progress=progress) as record:
        await declare_settings(record, settings)
        wiring = AgentWiring(
            home,
            record,
            models,
            settings,
            environment,
            asks_again=asks_again,
            tell=lambda trouble: report("", trouble),
        )
        agent = wiring.agent()
        await queue_lost(agent)
        runner = Runner(agent, report)
        models.close_after(runner.outlived)
        try:
            yield App(record, settings, models, runner, wiring)
        finally:
            try:
                await runner.close()
            finally:
                await wiring.close()
