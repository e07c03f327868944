"""Commands that ask for what is there: without a record they say so, and either leg of one is enough."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hansard import Record
from hansard.cli.main import cli
from hansard.errors import InvalidInput

COMMANDS = [
    ("sessions",),
    ("deliveries",),
    ("pair",),
    ("people",),
    ("verify",),
    ("search", "words"),
    ("export", "--all"),
    ("memory",),
]


def run(home: Path, *arguments: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(cli, ["--home", str(home), *arguments], env={"HANSARD_HOME": ""})


@pytest.mark.parametrize("arguments", [*COMMANDS, ("audit", "matrix:!a:example.org")], ids=" ".join)
def test_without_a_record(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Nothing is made; one sentence says what may be the matter."""
    found = run(tmp_path / "home", *arguments)
    assert isinstance(found.exception, InvalidInput)
    assert "there is no record at" in str(found.exception)
    assert not (tmp_path / "home").exists()


async def talked(home: Path) -> None:
    """Make a record."""
    async with Record.open(home) as record:
        await record.create_session(id="s", source="cli")


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_with_the_logs_alone(home: Path, arguments: tuple[str, ...]) -> None:
    """A lost database is rebuilt from the logs by whichever command comes first."""
    asyncio.run(talked(home))
    for side in ("", "-wal", "-shm"):
        (home / f"state.db{side}").unlink(missing_ok=True)
    found = run(home, *arguments)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert (home / "state.db").exists()
