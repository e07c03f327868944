"""Titles by the model: after the first exchange, in the background, never over a person's, never in anybody's way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from hansard.domain.budgets import Usage
from hansard.domain.policy import Policy
from hansard.domain.requests import Request
from hansard.engine.titles import TITLE_PROMPT, clean_title, is_asked
from tests.engine.stage import Answer, Gate, PlayedModel, Stage, failure, stage

WAIT_SECONDS = 120.0


class Titling(PlayedModel):
    """Answers as it is told; when it is asked for a title, with that."""

    def __init__(self, title: Answer, *answers: Answer) -> None:
        """Both kinds of requests are kept apart."""
        super().__init__(*answers)
        self.asked: list[Request] = []
        self._title = PlayedModel(title)

    def stream(self, request: Request):  # type: ignore[no-untyped-def]  # noqa: ANN201 - as its base
        """Play a title or an answer."""
        if request.system == TITLE_PROMPT:
            self.asked.append(request)
            return self._title.stream(request)
        return super().stream(request)


def with_titles(on: Stage, titles: bool | None = None) -> None:  # noqa: FBT001
    """Let the stage's agent ask for titles."""
    on.agent = msgspec.structs.replace(on.agent, policy=Policy(titles=titles))
    on.runner.use_agent(on.agent)


async def titled(on: Stage) -> str | None:
    """Wait for the title, and return it."""
    async with asyncio.timeout(WAIT_SECONDS):
        await on.runner.beside.titled(on.session_id)
    return (await on.record.sessions.read(on.session_id)).title


async def test_a_session_gets_its_title(home: Path) -> None:
    """Once, after the first exchange, from what was said in it; what asking took is counted."""
    model = Titling(['Title: "Tea in *Bern*."\n', Usage(input_tokens=5, output_tokens=2)], ["Good."], ["Better."])
    async with stage(home, model) as on:
        with_titles(on)
        await on.ask("Where is good tea in Bern?")
        assert await titled(on) == "Tea in Bern"
        await on.ask("And coffee?")
        assert await titled(on) == "Tea in Bern"
        assert len(model.asked) == 1
        assert "Where is good tea" in str(model.asked[0].messages)
        assert model.asked[0].tools == ()
        assert (await on.conversation()).usage["played"].input_tokens == 5
        assert (await on.record.verify()).ok


async def test_a_persons_title_stays(home: Path) -> None:
    """Given before, nobody is asked; given while the model thinks, it is the one that counts."""
    gate = Gate()
    model = Titling([gate, "Model's title"], ["ok"])
    async with stage(home, model) as on:
        with_titles(on)
        await on.ask("hello")
        await gate.reached()
        await on.record.set_title(on.session_id, "Mine")
        gate.open()
        assert await titled(on) == "Mine"
    async with stage(home / "other", model) as on:
        with_titles(on)
        await on.record.set_title(on.session_id, "Mine")
        await on.ask("hello")
        assert await titled(on) == "Mine"
    assert len(model.asked) == 1


async def test_no_turn_waits_for_a_title(home: Path) -> None:
    """The next question is answered while the title is still being thought about, and leaving does not wait either."""
    gate = Gate()
    model = Titling([gate, "Late"], ["one"], ["two"])
    async with stage(home, model) as on:
        with_titles(on)
        await on.ask("first")
        await gate.reached()
        await on.ask("second")
        assert (await on.texts())[-1] == "two"
        async with asyncio.timeout(WAIT_SECONDS):
            await on.runner.close()
        assert (await on.record.sessions.read(on.session_id)).title is None


@pytest.mark.parametrize("title", [[failure()], ["x" * 500], ["\n"], [RuntimeError("broken")]], ids=str)
async def test_what_is_no_title_changes_nothing(home: Path, title: Answer) -> None:
    """A failure, an essay, nothing at all: the session has no title, and nobody is told."""
    async with stage(home, Titling(title, ["ok"])) as on:
        with_titles(on)
        await on.ask("hello")
        assert await titled(on) is None
        assert await on.notices() == []
        on.reports.clear()


def test_who_is_asked() -> None:
    """Every model but the demo and scripted ones, unless the settings say otherwise."""
    assert is_asked(None, "openai:gpt-5")
    assert not is_asked(None, "demo")
    assert not is_asked(None, "scripted:a.toml")
    assert is_asked(True, "demo")  # noqa: FBT003
    assert not is_asked(False, "openai:gpt-5")  # noqa: FBT003


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Tea", "Tea"),
        ("  **Tea**\nmore", "Tea"),
        ('"Tea."', "Tea"),
        ("Title: Tea", "Tea"),
        ("# Tea time", "Tea time"),
        ("a\x1b[31mb", "a[31mb"),
        ("", ""),
        ("x" * 81, ""),
    ],
)
def test_titles_are_clean(answer: str, title: str) -> None:
    """One line of plain text, without marks, quotes or signs that a terminal would act on."""
    assert clean_title(answer) == title
