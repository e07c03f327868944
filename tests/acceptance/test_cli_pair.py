"""`hansard pair`: the admin sees who asked, allows and bars; scripts read the same, and exit codes tell."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hansard.cli.main import cli
from hansard.domain.access import Standing
from hansard.domain.arrivals import Arrival, IntakeRules, Origin
from hansard.domain.chats import message_id_of
from hansard.domain.messages import Message
from hansard.errors import InvalidInput
from hansard.record.api import Record

EVE = "@eve:elsewhere.net"
CHAT = "matrix:room:!eve:elsewhere.net"


def run(home: Path, *arguments: str) -> Result:
    """Run the command as a shell does, but for the process."""
    return CliRunner().invoke(cli, ["--home", str(home), "pair", *arguments], env={"HANSARD_HOME": ""})


async def ask(home: Path) -> None:
    """Eve says something in a chat, and is shown a code."""
    origin = Origin(
        channel="matrix",
        account="@hansard:example.org",
        event_id="$1",
        key=CHAT,
        chat=CHAT,
        owner=f"person:matrix:{EVE}",
        identity=EVE,
        standing=Standing.UNLISTED,
    )
    message = Message.user("hello", id=message_id_of("matrix", "@hansard:example.org", "$1"), author=EVE)
    arrival = Arrival(origin=origin, said=(("", message),))
    async with Record.open(home) as record:
        await record.intake.receive(arrival, IntakeRules())


@pytest.fixture
def asked(home: Path) -> Path:
    """A home in which Eve asked to talk."""
    asyncio.run(ask(home))
    return home


def people(result: Result) -> list[dict[str, Any]]:
    """What a script reads."""
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.output)["people"]
    return found


def test_from_asking_to_barring(asked: Path) -> None:
    """Listed with the code, approved by it once, barred, allowed by name: each step is told, to people and scripts."""
    (eve,) = people(run(asked, "--json"))
    assert (eve["identity"], eve["state"], eve["chat"]) == (EVE, "asked", CHAT)
    listed = run(asked)
    assert listed.exit_code == 0
    assert EVE in listed.output
    assert eve["code"] in listed.output
    (approved,) = people(run(asked, "approve", eve["code"], "--json"))
    assert (approved["state"], approved["code"], approved["by"]) == ("allowed", None, "admin")
    again = run(asked, "approve", eve["code"])
    assert (again.exit_code, "no such code waits" in again.output) == (1, True)
    assert "revoked" in run(asked, "revoke", EVE).output
    assert people(run(asked, "list", "--json"))[0]["state"] == "revoked"
    assert people(run(asked, "allow", EVE, "--json"))[0]["state"] == "allowed"
    assert "hello" not in (asked / "home.jsonl").read_text()


def test_wrong_codes_are_refused_and_then_all(asked: Path) -> None:
    """Exit code 1 each time; after the tries of the settings, the right one is refused, too, and says why."""
    (asked / "config.toml").write_text("[pairing]\ntries_per_hour_max = 2\n")
    (eve,) = people(run(asked, "--json"))
    for code in ("zzzz-zzzz", "aaaa-aaaa"):
        assert run(asked, "approve", code).exit_code == 1
    refused = run(asked, "approve", eve["code"])
    assert (refused.exit_code, "too many wrong codes" in refused.output) == (1, True)


def test_revoking_what_is_no_account(asked: Path) -> None:
    """Nothing is called revoked that is no account; the refusal names what can be written, names of [people] too."""
    error = run(asked, "revoke", "person:admin").exception
    assert isinstance(error, InvalidInput)
    for form in ("matrix:@name:server", "telegram:NUMBER", "a name of [people]"):
        assert form in str(error)


def test_what_cannot_run(home: Path, asked: Path) -> None:
    """No record, a name that is none, a code without a letter: nothing happens, and the error says what is meant."""
    missing = run(home / "nowhere", "approve", "k3v9-qd7m")
    assert isinstance(missing.exception, InvalidInput)
    assert not (home / "nowhere").exists()
    for arguments in (
        ("revoke", "eve"),
        ("revoke", "person:admin"),
        ("allow", "telegram:-100500"),
        ("allow", "@eve elsewhere"),
        ("approve", "--", "--"),
    ):
        assert isinstance(run(asked, *arguments).exception, InvalidInput)


def test_help_has_examples(home: Path) -> None:
    """Every page of help shows how it is called, and what the exit codes mean."""
    for arguments in ((), ("approve",), ("allow",), ("revoke",)):
        page = run(home, *arguments, "--help")
        assert page.exit_code == 0
        assert "Examples:" in page.output
        assert "Exit code 0" in page.output


def test_names_cannot_draw_on_the_terminal(home: Path) -> None:
    """A name is as untrusted as its owner: control characters in it are refused, and never printed."""

    async def allow() -> None:
        async with Record.open(home) as record:
            with pytest.raises(InvalidInput):
                await record.access.allow("matrix", "@eve\x1b[2J:elsewhere.net")

    asyncio.run(allow())
    assert run(home).output == "Nobody has asked yet.\n"
