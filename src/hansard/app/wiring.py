"""Everything put together, for as long as a process talks.

The settings become: models, tools and the servers behind them, who writes voice notes down; and facts of the record
about people and their rights, with the user of this machine who loaded them. Models are found and opened when they are
first wanted, or ahead of it while a person types.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from hansard.app.home_files import read_wording
from hansard.app.keys import UNSENDABLE, VARIABLES, find_key, is_sendable, read_keys
from hansard.app.secrecy import hidden_paths
from hansard.domain.http_answers import origin_of
from hansard.domain.policy import policy_of
from hansard.domain.settings import Settings
from hansard.engine.recovery import queue_lost
from hansard.engine.runner import Runner
from hansard.engine.turns import ASKS_AGAIN, Agent
from hansard.errors import ConfigInvalid, ModelMissing
from hansard.journal.locks import Progress
from hansard.models.clients import PLACEHOLDER_KEY, STYLES
from hansard.models.demo import DemoModel
from hansard.models.demo_files import demo_folder
from hansard.models.discovery import discover
from hansard.models.pydantic import open_provider, preload
from hansard.models.scripted import ScriptedModel
from hansard.models.transcription import OpenAITranscriber
from hansard.ports import SystemClock
from hansard.ports.model import Model
from hansard.ports.tool import Tool
from hansard.record.api import Record
from hansard.tasks import Retiring, cancel_all
from hansard.tools.builtin import CurrentTime, MemoryTool, SessionSearch
from hansard.tools.mcp import McpServers, ServerTrouble


def loading_user() -> str:
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
            record=self._record,
            models=self.models,
            tools=self._tools,
            limits=settings.limits,
            instructions=settings.system_prompt,
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
        await self._retiring.close()
        await self._servers.close()
        if self._transcriber is not None:
            await self._transcriber.close()
        await self.models.close()


class App(msgspec.Struct, frozen=True, kw_only=True):
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
            yield App(record=record, settings=settings, models=models, runner=runner, wiring=wiring)
        finally:
            try:
                await runner.close()
            finally:
                await wiring.close()


def with_keys(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment as discovery sees it: a key in the file of keys counts like one in a variable."""
    keys, _ = read_keys(home)
    return {**{VARIABLES[provider]: "in keys.toml" for provider in keys}, **environment}


def open_transcriber(home: Path, settings: Settings, environment: Mapping[str, str]) -> OpenAITranscriber | None:
    """Return who writes voice notes down; None when the settings name nobody. Nothing is opened yet."""
    if settings.transcription.model is None:
        return None
    base_url = settings.providers.openai.base_url or STYLES["openai"].base_url
    key = transcription_key(home, settings, environment, base_url)
    return OpenAITranscriber(settings.transcription, key=key, base_url=base_url)


def transcription_key(home: Path, settings: Settings, environment: Mapping[str, str], base_url: str) -> str:
    """Return the key for voice notes: the one that is named for them, or the provider's own for the provider's host."""
    own = settings.transcription
    if own.key_variable is not None:
        secret = environment.get(own.key_variable, "").strip()
        if not is_sendable(secret):
            raise ConfigInvalid(f"environment variable {own.key_variable}: {UNSENDABLE}")
        return secret or PLACEHOLDER_KEY
    if own.base_url is not None and origin_of(own.base_url) != origin_of(base_url):
        return PLACEHOLDER_KEY
    key = find_key("openai", home, environment)
    return PLACEHOLDER_KEY if key is None else key.reveal()


def made_of(home: Path, settings: Settings) -> tuple[object, ...]:
    """Return what models are opened by: when it is the same again, they are. Of keys, whether they are the same."""
    keys = tuple((provider, hash(key.reveal())) for provider, key in sorted(read_keys(home)[0].items()))
    models = settings.model, settings.fallback_models, settings.picture_models, settings.text_models
    return models, settings.providers, settings.limits.stall_seconds, keys


def sees_pictures(settings: Settings, model: str) -> bool | None:
    """Return whether a model takes pictures, as the settings say; None: they do not say."""
    return False if model in settings.text_models else True if model in settings.picture_models else None


CHOSEN_MAX = 32
"""Models that sessions chose by name and that stay open: whoever may choose may choose many, one after another."""


class Models:
    """The configured model and its fallbacks, or what was found."""

    def __init__(
        self, home: Path, settings: Settings, environment: Mapping[str, str], *, is_named: bool = False
    ) -> None:
        """Nothing is opened yet. `is_named`: somebody named the model for this run."""
        self._home = home
        self._settings = settings
        self._environment = environment
        self._opening: asyncio.Task[list[Model]] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._chosen: dict[str, Model] = {}
        self._retiring = Retiring()
        self._over: Callable[[], Coroutine[Any, Any, object]] = never
        self._made_of = made_of(home, settings)
        self.name = settings.model or ""
        self.is_named = is_named
        """Whether it comes before a session's own, as it does until somebody chooses one in this run."""

    def apply_settings(self, settings: Settings, over: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Give the models of these settings from now on. Those of before are closed when `over` is."""
        self._settings, made = settings, made_of(self._home, settings)
        if made == self._made_of:
            return
        self._made_of, self.name = made, settings.model or ""
        left = [task for task in (self._warming, self._opening) if task is not None]
        chosen, self._chosen = self._chosen, {}
        self._warming = self._opening = None
        self._retiring.add(lambda: close_opened(left, chosen), over)
        self.warm()

    def close_after(self, over: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Close models that were not chosen for long, after `over`: until then turns may still use them."""
        self._over = over

    async def __call__(self) -> Sequence[Model]:
        """Return the models, opened once; a failure is tried anew the next time."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> list[Model]:
        name, base_url = self._settings.model, None
        if not name:
            found = await discover(with_keys(self._home, self._environment))
            if found is None:
                self.name = "no model"
                raise ModelMissing("there is no model to talk to")
            name, base_url = found.name, found.base_url
        self.name = name
        return [self._open_one(name, base_url), *map(self._open_one, self._settings.fallback_models)]

    async def choose(self, name: str) -> Model:
        """Return the model of a name, for a session that has one of its own. The last chosen ones stay open."""
        model = self._chosen.pop(name, None) or self._open_one(name)
        self._chosen[name] = model
        if len(self._chosen) > CHOSEN_MAX:
            self._retiring.add(self._chosen.pop(next(iter(self._chosen))).close, self._over)
        return model

    def _open_one(self, name: str, base_url: str | None = None) -> Model:
        """Open a model by its name. `base_url`: where it was found on this machine."""
        prefix, _, rest = name.partition(":")
        provider = prefix.removesuffix("-responses")
        if provider == "demo":
            return DemoModel(demo_folder(self._environment))
        if provider == "scripted":
            return ScriptedModel(rest)
        key = find_key(provider, self._home, self._environment)
        configured = getattr(self._settings.providers, provider, None)
        return open_provider(
            name,
            key=key.reveal() if key is not None else None,
            base_url=base_url or (configured.base_url if configured is not None else None),
            stall_seconds=self._settings.limits.stall_seconds,
            sees=sees_pictures(self._settings, name),
            key_source=key.source if key is not None else "",
        )

    def warm(self) -> None:
        """Begin to open the models and to import what they need, in the background; a failure shows when it matters."""
        if self._warming is None:
            self._warming = asyncio.create_task(self._warm())

    async def _warm(self) -> None:
        try:
            models = await self()
        except ModelMissing:
            return
        if not isinstance(models[0], ScriptedModel):
            await asyncio.to_thread(preload, "openai:" if isinstance(models[0], DemoModel) else models[0].name)
        if isinstance(models[0], DemoModel):
            await models[0].warm()

    async def close(self) -> None:
        await self._retiring.close()
        await close_opened([task for task in (self._warming, self._opening) if task is not None], self._chosen)


async def never() -> None:
    """Wait for ever: what is closed after this is closed when all is left."""
    await asyncio.Event().wait()


async def close_opened(tasks: list[asyncio.Task[Any]], chosen: dict[str, Model]) -> None:
    """End tasks that open models, and close what they opened, and what sessions had chosen."""
    for model in chosen.values():
        await model.close()
    await cancel_all(*tasks)
    for task in tasks:
        if not task.cancelled() and task.exception() is None:
            for model in task.result() or ():
                await model.close()
