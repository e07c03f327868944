"""The models of this process: found and opened when they are first wanted, or ahead of it while a person types."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from hansard.app.keys import UNSENDABLE, VARIABLES, find_key, is_sendable, read_keys
from hansard.domain.bounds import origin_of
from hansard.errors import ConfigInvalid, ModelMissing
from hansard.models.clients import PLACEHOLDER_KEY, STYLES
from hansard.models.demo import DemoModel
from hansard.models.demo_files import demo_folder
from hansard.models.discovery import discover
from hansard.models.pydantic import open_provider, preload
from hansard.models.scripted import ScriptedModel
from hansard.models.transcription import OpenAITranscriber
from hansard.tasks import Retiring, cancel_all

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from hansard.domain.settings import Settings
    from hansard.ports.model import Model


class Chosen(NamedTuple):
    """A model by its name, and where it is reached when it was found on this machine."""

    name: str
    base_url: str | None = None


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
        names = [Chosen(self._settings.model)] if self._settings.model else [await self._discover()]
        names += [Chosen(name) for name in self._settings.fallback_models]
        self.name = names[0].name
        return [self._open_one(chosen) for chosen in names]

    async def _discover(self) -> Chosen:
        found = await discover(with_keys(self._home, self._environment))
        if found is None:
            self.name = "no model"
            raise ModelMissing("there is no model to talk to")
        return Chosen(found.name, found.base_url)

    async def choose(self, name: str) -> Model:
        """Return the model of a name, for a session that has one of its own. The last chosen ones stay open."""
        model = self._chosen.pop(name, None) or self._open_one(Chosen(name))
        self._chosen[name] = model
        if len(self._chosen) > CHOSEN_MAX:
            self._retiring.add(self._chosen.pop(next(iter(self._chosen))).close, self._over)
        return model

    def _open_one(self, chosen: Chosen) -> Model:
        prefix, _, rest = chosen.name.partition(":")
        provider = prefix.removesuffix("-responses")
        if provider == "demo":
            return DemoModel(demo_folder(self._environment))
        if provider == "scripted":
            return ScriptedModel(rest)
        key = find_key(provider, self._home, self._environment)
        configured = getattr(self._settings.providers, provider, None)
        return open_provider(
            chosen.name,
            key=key.reveal() if key is not None else None,
            base_url=chosen.base_url or (configured.base_url if configured is not None else None),
            stall_seconds=self._settings.limits.stall_seconds,
            sees=sees_pictures(self._settings, chosen.name),
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
        """Let go of connections and processes."""
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
