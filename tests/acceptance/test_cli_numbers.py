"""Every number that a command takes has bounds, and what is outside them is a usage error: never a traceback."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hansard.cli.main import cli
from hansard.cli.printing import WholeNumber
from hansard.record.api import Record
from tests.acceptance.commands import EXIT_COULD_NOT_RUN, run

HUGE = ("99999999999999999999", str(2**63), "9" * 5000, "-1", "-" + "9" * 30)
SESSION_ID = "20261115-201233-story2"
FILLED = {"name": SESSION_ID, "query": "ferry"}
"""What stands for the other arguments of the commands that take a number."""


def find_numbers(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield each command line that ends where a number is wanted."""
    required = [str(each.name) for each in command.params if isinstance(each, click.Argument) and each.required]
    words = [FILLED.get(name, "") for name in required]
    for each in command.params:
        if isinstance(each.type, click.types.IntParamType | click.types.FloatParamType):
            option = (each.opts[-1],) if isinstance(each, click.Option) else ("--",)
            yield (*path, *words, *option)
            assert isinstance(each.type, WholeNumber), f"{path} {each.name} is not bounded by the one type for numbers"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from find_numbers(below, (*path, name))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed home with one session."""
    home = tmp_path_factory.mktemp("numbers") / "home"
    asyncio.run(make_session(home))
    return home


async def make_session(home: Path) -> None:
    """Make that session."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION_ID, source="cli")


def test_every_number_is_bounded(told: Path) -> None:
    """Each number of each command, far too large or below zero: exit code 2, and the sentence names the bounds."""
    found = list(find_numbers(cli))
    assert ("sessions", "list", "--limit") in found
    assert ("search", "ferry", "--context") in found
    assert ("sessions", "undo", SESSION_ID, "--") in found
    for line in found:
        for number in HUGE:
            _, err = run(told, *line, number, code=EXIT_COULD_NOT_RUN)
            assert "is not in the range" in err, (line, number, err)
            assert "Traceback" not in err, (line, number)
            assert len(err) < 1000, (line, number, err)


@pytest.mark.parametrize("command", [["sessions", "--limit"], ["sessions", "fork", SESSION_ID, "--at"]])
def test_the_largest_number_is_taken(told: Path, command: list[str]) -> None:
    """What the bounds allow works, or is refused in words: it never overflows further in."""
    largest = str(WholeNumber().max)
    run(told, *command, largest, code=0 if "--limit" in command else EXIT_COULD_NOT_RUN)
