"""`hansard explain --person … --tool … --place …` decides in advance what a real turn of that account would meet."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hansard.cli.main import cli
from hansard.errors import InvalidInput
from hansard.intake.commands.turns import explain_turn, read_facts
from hansard.record.api import Record
from hansard.testing.fakes import Counting
from hansard.tools.builtin import MemoryTool
from tests.engine.stage import PlayedModel, call
from tests.intake.asking import ASKS, asked, equip, say, settled
from tests.intake.town import ANN, EVE, HOME_OF_ANN, ROOM, settings_of, town
from tests.security.tools import equip_memory

PAY = "mcp__bank__pay"
GROUP = "telegram:chat:-100500"
CONFIG = """
[people.ann]
matrix = ["@ann:example.org"]
telegram = [100001]
terminal = true

[people.bob]
matrix = ["@bob:example.org"]
telegram = [100002, 100003]

[channels.telegram]
allow = ["ann", "-100500"]

[channels.matrix]
allow = ["@ann:example.org", "!room:example.org"]

[[tools.rules]]
do = "allow"
tool = "mcp__bank__pay"
person = "ann"

[[tools.rules]]
do = "ask"
tool = "mcp__bank__pay"
person = "telegram:100003"

[[tools.rules]]
do = "allow"
tool = "memory"
"""


@pytest.fixture
def told(home: Path) -> Path:
    """A home with settings and no record."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(CONFIG)
    return home


def explain(home: Path, person: str, place: str, tool: str = PAY) -> str:
    """Return what is printed."""
    line = ["--home", str(home), "explain", "--person", person, "--tool", tool, "--place", place]
    result = CliRunner().invoke(cli, line, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refused(home: Path, person: str, place: str) -> str:
    """Return why it is not explained."""
    line = ["--home", str(home), "explain", "--person", person, "--tool", PAY, "--place", place]
    with pytest.raises(InvalidInput) as refusal:
        CliRunner().invoke(cli, line, catch_exceptions=False)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("person", "place"),
    [
        ("ann", GROUP),
        ("person:ann", GROUP),
        ("telegram:100001", GROUP),
        ("person:telegram:100001", GROUP),
        ("100001", GROUP),
        ("@ann:example.org", GROUP),
        ("matrix:@ann:example.org", GROUP),
        ("terminal", GROUP),
        ("matrix:@ann:example.org", ROOM),
        ("100001", ROOM),
        ("ann", "matrix:!room:example.org"),
        ("ann", "!room:example.org"),
        ("ann", "telegram:-100500"),
        ("ann", "telegram:100001"),
        ("ann", "terminal"),
        ("ann", "cli"),
        ("terminal", "terminal"),
        ("admin", "terminal"),
        ("telegram:100001", "terminal"),
    ],
)
def test_every_name_of_one_person(told: Path, person: str, place: str) -> None:
    """A name of [people] and each of its accounts are one person, as for a turn."""
    assert f"{PAY}: allow" in explain(told, person, place)


@pytest.mark.parametrize(("person", "verdict"), [("100002", "deny"), ("telegram:100003", "ask"), ("555", "deny")])
def test_rules_of_accounts(told: Path, person: str, verdict: str) -> None:
    """A rule for one account fits that account, and an account that the settings do not know has no name."""
    assert f"{PAY}: {verdict}" in explain(told, person, GROUP)


def test_several_accounts(told: Path) -> None:
    """Where somebody has two accounts on a channel, each is told of."""
    printed = explain(told, "bob", GROUP)
    assert "deny for 100002" in printed
    assert "ask for 100003" in printed


@pytest.mark.parametrize(
    ("person", "place", "rank"),
    [("ann", GROUP, "an admin"), ("555", GROUP, "a guest"), ("555", "telegram:chat:555", "a stranger")],
)
def test_the_rank_is_told(told: Path, person: str, place: str, rank: str) -> None:
    """What somebody is there decides whether a turn begins at all."""
    printed = explain(told, person, place)
    assert f"is {rank} there" in printed
    assert ("may not talk there" in printed) is (rank == "a stranger")


@pytest.mark.parametrize("person", ["nosuch", "person:nosuch", "telegram:ann", "matrix:ann", "nosuch:1", "@ann"])
def test_an_unknown_person(told: Path, person: str) -> None:
    """Who is no name of [people] and no account is refused, and the forms are named."""
    told_why = refused(told, person, GROUP)
    for form in ("[people]", "telegram:NUMBER", "@name:server"):
        assert form in told_why


@pytest.mark.parametrize(
    "place", ["nosuch", "shell", "telegram:chat:ann", "matrix:room:den", "nosuch:chat:1", f"{GROUP}:person:100001"]
)
def test_an_unknown_place(told: Path, place: str) -> None:
    """What is no chat is refused, and the forms are named."""
    told_why = refused(told, "ann", place)
    for form in ("matrix:!ROOM", "telegram:NUMBER", "terminal"):
        assert form in told_why


def test_somebody_without_an_account_there(told: Path) -> None:
    """Who is not on a channel has no turn there; who does not have the terminal has none at it."""
    assert "no account on telegram" in refused(told, "@zoe:example.org", GROUP)
    assert "terminal" in refused(told, "bob", "terminal")
    assert "telegram:100002" in refused(told, "ann", "telegram:chat:100002")


def test_an_unseen_private_chat_is_direct(told: Path) -> None:
    """Telegram's private chats have positive numbers: untrusted text changes nothing there, as in a direct chat."""
    printed = explain(told, "ann", "telegram:chat:100001")
    assert "telegram:chat:100001 is a direct chat." in printed
    assert "untrusted" not in printed
    printed = explain(told, "ann", GROUP)
    assert f"{GROUP} is a room." in printed
    assert "holds untrusted text: ask" in printed


async def link(home: Path) -> None:
    """Let the record say that two accounts are one person, and that an account was barred."""
    async with Record.open(home) as record:
        await record.people.link("person:matrix:@zoe:example.org", "person:telegram:777")
        await record.access.revoke("telegram", "888")


def test_links_of_the_record(told: Path) -> None:
    """A linked account is found by the other one's name; who is barred is denied, with the same reason as a turn."""
    asyncio.run(link(told))
    assert "deny for 777 in" in explain(told, "@zoe:example.org", GROUP)
    printed = explain(told, "telegram:888", GROUP, "memory")
    assert "is barred" in printed
    assert "may talk no longer" in printed
    assert "memory: deny" in printed


@pytest.mark.parametrize(("person", "verdict"), [(ANN, "allow"), (EVE, "deny")])
def test_memory_of_guests_as_for_a_turn(home: Path, person: str, verdict: str) -> None:
    """No rule lets a guest change what a room remembers: the reasons in advance are those of a turn."""
    decided = asyncio.run(remember(home, person))
    (home / "config.toml").write_text(CONFIG)
    printed = explain(home, person, ROOM, "memory")
    assert f"memory: {verdict}" in decided
    told = [line for line in decided.splitlines() if line.startswith(("memory:", f"  {verdict} for"))]
    assert told
    for line in told:
        assert line.replace("rule 1 of", "rule 3 of") in printed, printed
    assert ("memory, only to list: allow" in printed) is (verdict == "deny")


async def remember(home: Path, person: str) -> str:
    """Let somebody's turn call the tool; return why it was run or not."""
    asked = call("memory", '{"action": "add", "text": "Eve gets all the money"}')
    async with town(home, settings_of(ANN, "!room:example.org"), PlayedModel([asked], ["done"])) as here:
        equip_memory(here, MemoryTool(here.record.memory))
        await here.ask("Note it", person, ROOM, is_for_agent=True)
        room = await here.session(ROOM)
        return explain_turn(await read_facts(here.record, (await here.record.turns.list(room))[-1]))


async def allow_for_session(home: Path, *, ends: bool) -> None:
    """Ann allows a tool for the session, in a chat of her own; maybe the chat leads to a new session afterwards."""
    async with town(home, settings_of(ANN), PlayedModel([call("counting")], ["done"])) as here:
        equip(here, Counting(), msgspec.structs.replace(ASKS, ask_seconds=60))
        await say(here, "go", ANN, HOME_OF_ANN)
        session = await here.session()
        code = (await asked(here, session)).code
        await here.deliver()
        await here.say(f"/yes {code} session")
        await settled(here, session)
        if ends:
            await here.say("/new")


@pytest.mark.parametrize(("ends", "verdict"), [(False, "allow"), (True, "ask")])
def test_permissions_for_a_session(home: Path, *, ends: bool, verdict: str) -> None:
    """A yes for the session counts in advance as long as the chat leads to that session, however Ann is named."""
    asyncio.run(allow_for_session(home, ends=ends))
    (home / "config.toml").write_text(CONFIG + '[[tools.rules]]\ndo = "ask"\ntool = "counting"\n')
    for person in ("ann", ANN, f"matrix:{ANN}", "telegram:100001"):
        printed = explain(home, person, HOME_OF_ANN, "counting")
        assert f"{HOME_OF_ANN} is a direct chat." in printed
        assert f"counting: {verdict}" in printed
        assert ("permission p" in printed) is not ends
