"""The oracle finds every planted mistake, and where nothing is planted it finds nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.security import oracle, oracle_story, oracle_turns
from tests.security.oracle import Finding, judge
from tests.security.planted import PLANTED, SCENARIOS, Planted, Scenario
from tests.security.world import Setup, World


async def play(home: Path, setup: Setup, *scenarios: Scenario) -> list[Finding]:
    """Let people do something; return what the oracle says."""
    world = World(home, setup)
    async with world.alive():
        for scenario in scenarios:
            await scenario(world)
        evidence = await world.evidence()
    return judge(*evidence)


@pytest.mark.drawn(5)
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
async def test_a_planted_mistake_is_found(home: Path, planted: Planted) -> None:
    """The oracle names what is wrong."""
    findings = await play(home, planted.setup, planted.scenario)
    assert planted.found in {finding.rule for finding in findings}, findings


@pytest.mark.drawn(1)
@pytest.mark.parametrize("rooms", ["shared", "per_person"])
async def test_without_a_mistake_nothing_is_found(home: Path, rooms: str) -> None:
    """People do all of the same, and Hansard is as it is."""
    assert await play(home, Setup(rooms=rooms), *SCENARIOS) == []


def test_every_mistake_is_another() -> None:
    """Ten at least, each with a name of its own."""
    assert len({planted.name for planted in PLANTED}) == len(PLANTED) >= 10


@pytest.mark.parametrize("module", [oracle, oracle_story, oracle_turns])
def test_the_oracle_knows_nothing_of_hansard(module: object) -> None:
    """It imports the standard library and itself."""
    tree = ast.parse(Path(str(module.__file__)).read_text())  # type: ignore[attr-defined]
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in names if name.split(".")[0] == "hansard"]
    assert {name for name in names if name.startswith("tests")} <= {
        "tests.security.oracle_story",
        "tests.security.oracle_turns",
    }
