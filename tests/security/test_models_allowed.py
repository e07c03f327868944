"""`models_allowed`: which models people may choose, and what becomes of a session whose model is not among them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hansard.app.config import read_config
from hansard.domain.policy import is_model_allowed, policy_of
from hansard.engine.runner import Runner
from hansard.ports.model import Model
from tests.engine.stage import PlayedModel
from tests.intake.town import Town, settings_of, town

PATTERNS = ("anthropic:*", "openai:gpt-5-mini", "demo")


@pytest.mark.parametrize(
    ("name", "patterns", "allowed"),
    [
        ("anthropic:dearest", PATTERNS, True),
        ("openai:gpt-5-mini", PATTERNS, True),
        ("openai:gpt-5", PATTERNS, False),
        ("openai-responses:gpt-5-mini", PATTERNS, False),
        ("ANTHROPIC:dearest", PATTERNS, False),
        ("demo", PATTERNS, True),
        ("demo", ("openai:*",), False),
        ("openai:anything", (), True),
    ],
)
def test_patterns(name: str, patterns: tuple[str, ...], allowed: bool) -> None:  # noqa: FBT001
    """A pattern fits the whole name, with its provider; no pattern, every model."""
    assert is_model_allowed(name, patterns) is allowed


def test_the_setting(home: Path) -> None:
    """It is a list of patterns, in the file or in a variable."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text('models_allowed = ["anthropic:*"]\n')
    config, findings = read_config(home, {}, {})
    assert (findings, config.settings.models_allowed) == ([], ("anthropic:*",))
    config, _ = read_config(home, {"HANSARD_MODELS_ALLOWED": "demo,openai:*"}, {})
    assert config.settings.models_allowed == ("demo", "openai:*")


def use(here: Town, *patterns: str, chosen: PlayedModel) -> None:
    """Let people choose these models from now on; whatever they choose is `chosen`."""
    settings = msgspec.structs.replace(here.settings, models_allowed=patterns)
    here.new_intake(settings)

    async def choose(_name: str) -> Model:
        return chosen

    agent = msgspec.structs.replace(here.runner._agent, policy=policy_of(settings), choose=choose)  # noqa: SLF001 - the town's own
    here.runner = Runner(agent, lambda _id, error: pytest.fail(str(error)))


async def test_from_choosing_to_falling_back(home: Path) -> None:
    """/model refuses what is not allowed; a chosen model that is no longer falls back, and people are told once."""
    chosen = PlayedModel(["from the chosen one"])
    async with town(home, settings_of(), PlayedModel(["from the configured one"])) as here:
        use(here, "openai:cheap*", chosen=chosen)
        await here.ask("/model openai:dear")
        assert "may not be chosen here" in (await here.notices())[-1]
        await here.ask("/model openai:cheap-1")
        await here.ask("one")
        assert (await here.words())[-1] == "from the chosen one"
        use(here, "anthropic:*", chosen=chosen)
        await here.ask("two")
        await here.ask("three")
        assert (await here.words())[-3:] == ["from the configured one", "three", "from the configured one"]
        told = [text for text in await here.notices() if "may not be chosen any more" in text]
        assert len(told) == 1
        assert told[0].startswith("The model openai:cheap-1 may not be chosen any more")
        await here.ask("/model default")
        assert "From the next answer on: default" in (await here.notices())[-1]
        await here.check()
