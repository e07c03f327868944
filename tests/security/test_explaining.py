"""`/why` and `hansard explain`: the reasons of each decision, as they held when it was made; and in advance."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from hansard.cli.main import cli
from hansard.intake.commands.turns import NOTHING_BEGUN
from hansard.testing.fakes import Counting
from tests.engine.stage import PlayedModel
from tests.intake.town import ANN, BOB, ROOM, settings_of, town
from tests.security.tools import PAY, equip

CONFIG = """
[people.ann]
matrix = ["@ann:example.org"]

[[tools.rules]]
do = "allow"
tool = "mcp__bank__pay"
person = "ann"
"""


def run(home: Path, *arguments: str) -> str:
    """Run `hansard` and return what it prints."""
    result = CliRunner().invoke(cli, ["--home", str(home), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


async def test_why(home: Path) -> None:
    """The last turn's askers, verdict and rule are told in the chat; a turn can be named by its id."""
    async with town(home, settings_of(ANN, BOB), PlayedModel(PAY, ["paid"], PAY, ["no"])) as here:
        equip(here, Counting())
        await here.ask("/why", ANN, ROOM, is_for_agent=True)
        assert (await here.notices(await here.session(ROOM)))[-1] == NOTHING_BEGUN
        await here.ask("Pay", ANN, ROOM, is_for_agent=True)
        room = await here.session(ROOM)
        first = (await here.record.turns.list(room))[-1]
        await here.ask("/retry", BOB, ROOM, is_for_agent=True)
        await here.ask("/why", ANN, ROOM, is_for_agent=True)
        told = (await here.notices(room))[-1]
        assert f"Asked for by: {BOB} by retry in {ROOM}" in told
        assert f'deny for {BOB} in {ROOM}: rule 2 of [[tools.rules]] (do = "deny", tool = "counting")' in told
        await here.ask(f"/why {first.id[:12]}", BOB, ROOM, is_for_agent=True)
        told = (await here.notices(room))[-1]
        assert f"Asked for by: {ANN} by message in {ROOM}" in told
        assert f"allow for {ANN}" in told
        await here.check()


async def make_turn(home: Path) -> tuple[str, str]:
    """Let a turn run in a home; return its id, and the session's."""
    async with town(home, settings_of(ANN, BOB), PlayedModel(PAY, ["paid"])) as here:
        equip(here, Counting())
        await here.ask("Pay", ANN, ROOM, is_for_agent=True)
        room = await here.session(ROOM)
        return (await here.record.turns.list(room))[-1].id, room


def test_explain_a_turn(home: Path) -> None:
    """At the shell a turn is named by the beginning of its id, or by its session, whatever the settings say now."""
    turn_id, session_id = asyncio.run(make_turn(home))
    for name in (turn_id[:10], session_id):
        printed = run(home, "explain", name)
        assert f"Asked for by: {ANN} by message in {ROOM}" in printed
        assert "counting: allow" in printed
        assert "rule 1 of [[tools.rules]]" in printed


@pytest.mark.parametrize(
    ("person", "place", "verdict"),
    [("ann", ROOM, "allow"), ("@ann:example.org", ROOM, "allow"), (BOB, ROOM, "deny"), ("admin", "terminal", "deny")],
)
def test_explain_in_advance(home: Path, person: str, place: str, verdict: str) -> None:
    """What the rules say of a person, a tool and a place; where untrusted text changes it, that is told, too."""
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(CONFIG)
    printed = run(home, "explain", "--person", person, "--tool", "mcp__bank__pay", "--place", place)
    assert f"mcp__bank__pay: {verdict}" in printed
    assert ("holds untrusted text: ask" in printed) is (verdict == "allow")
