"""`hansard people`: the admin sees who is one person in several places, links and parts; scripts read the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hansard.cli.main import cli
from hansard.errors import InvalidInput
from hansard.record.api import Record

CONFIG = """\
[people.ann]
matrix = ["@ann:example.org"]
telegram = [12345, "67890"]

[people.bob]
terminal = true
"""


def run(home: Path, *arguments: str, command: str = "people") -> Result:
    """Run the command as a shell does, but for the process."""
    return CliRunner().invoke(cli, ["--home", str(home), command, *arguments], env={"HANSARD_HOME": ""})


def circles(result: Result) -> dict[str | None, list[str]]:
    """What a script reads: owners by name."""
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.output)["people"]
    return {each["name"]: each["owners"] for each in found}


@pytest.fixture
def lived_in(home: Path) -> Path:
    """A home with a record."""

    async def open_once() -> None:
        async with Record.open(home):
            pass

    asyncio.run(open_once())
    return home


def test_nobody_is_in_several_places(lived_in: Path) -> None:
    """An empty list says so, and a home without a record is not made."""
    assert run(lived_in).output == "Nobody is in several places.\n"
    assert circles(run(lived_in, "--json")) == {}
    other = lived_in / "other"
    assert isinstance(run(other).exception, InvalidInput)
    assert not other.exists()


def test_from_linking_to_parting(lived_in: Path) -> None:
    """Accounts are named as their platforms do; each step is told, repeated it changes nothing."""
    first = run(lived_in, "link", "@ann:example.org", "12345")
    assert first.output == "@ann:example.org on Matrix and 12345 on Telegram are one person from now on.\n"
    assert "already" in run(lived_in, "link", "telegram:12345", "matrix:@ann:example.org").output
    assert run(lived_in, "link", "terminal", "person:telegram:12345").exit_code == 0
    owners = ["person:admin", "person:matrix:@ann:example.org", "person:telegram:12345"]
    assert circles(run(lived_in, "list", "--json")) == {None: owners}
    assert run(lived_in).output == "linked       the terminal, @ann:example.org on Matrix, 12345 on Telegram\n"
    parted = run(lived_in, "unlink", "12345")
    assert parted.output == "12345 on Telegram is no longer one person with the terminal, @ann:example.org on Matrix.\n"
    assert circles(run(lived_in, "--json")) == {None: owners[:2]}
    assert "was not linked" in run(lived_in, "unlink", "12345").output


def test_config_toml_comes_first(lived_in: Path) -> None:
    """What [people] says is listed with its names, cannot be parted here, and two of them cannot be linked."""
    (lived_in / "config.toml").write_text(CONFIG)
    ann = ["person:ann", "person:matrix:@ann:example.org", "person:telegram:12345", "person:telegram:67890"]
    assert circles(run(lived_in, "--json")) == {"ann": ann, "bob": ["person:admin", "person:bob"]}
    listed = run(lived_in).output.splitlines()
    assert listed[0] == "ann          @ann:example.org on Matrix, 12345 on Telegram, 67890 on Telegram"
    assert "config.toml makes them one person with" in run(lived_in, "unlink", "67890").output
    assert isinstance(run(lived_in, "link", "terminal", "12345").exception, InvalidInput)
    assert isinstance(run(lived_in, "link", "ann", "@ann:example.org").exception, InvalidInput)
    assert run(lived_in, "link", "ann", "55").output == "ann and 55 on Telegram are one person from now on.\n"
    assert circles(run(lived_in, "--json"))[None] == ["person:ann", "person:telegram:55"]


@pytest.mark.parametrize("who", ["person:nobody", "telegram:-100500", "matrix:@ann"])
def test_what_is_linked_to_nobody(lived_in: Path, who: str) -> None:
    """A name that [people] lacks, a group and half an id are no person to link."""
    error = run(lived_in, "link", who, "5").exception
    assert isinstance(error, InvalidInput)
    assert "a name of [people]" in str(error)
    assert circles(run(lived_in, "--json")) == {}


@pytest.mark.parametrize("who", ["", "a b", "@ann", "=5", "ünique:x"])
def test_what_is_no_person(lived_in: Path, who: str) -> None:
    """A name that no platform gives is refused, with what one looks like; nothing is linked."""
    for arguments in (("link", who, "5"), ("unlink", who)):
        error = run(lived_in, *arguments).exception
        assert isinstance(error, InvalidInput)
    assert isinstance(run(lived_in, "allow", who, command="pair").exception, InvalidInput)
    assert circles(run(lived_in, "--json")) == {}


def test_pairing_by_a_number(lived_in: Path) -> None:
    """A person of Telegram is allowed and barred by number, as one of Matrix is by name."""
    allowed = json.loads(run(lived_in, "allow", "12345", "--json", command="pair").output)["people"]
    assert [(each["channel"], each["identity"], each["state"]) for each in allowed] == [
        ("telegram", "12345", "allowed")
    ]
    run(lived_in, "revoke", "12345", command="pair")
    (barred,) = json.loads(run(lived_in, "--json", command="pair").output)["people"]
    assert (barred["channel"], barred["state"]) == ("telegram", "revoked")
