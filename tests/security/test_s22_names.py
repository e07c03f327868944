"""S22: a name of [people] and an account of a platform are never taken for each other, nor one server for another."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.app.config import read_config
from hansard.domain.access import Standing
from hansard.domain.people import People
from hansard.domain.permissions import CallVerdict, ToolRule, decide
from hansard.domain.policy import policy_of
from hansard.domain.settings import Channels, Person, Settings
from hansard.domain.settings.agent import ServerTable, Tools
from hansard.domain.settings.channels import OtherChannel, Telegram
from hansard.tools.mcp import tool_name

ANN = Person(telegram=(7,), other={"irc": ("ann_the_owner",)})


def settings_with(*rules: ToolRule, allow: tuple[str, ...] = (), name: str = "ann") -> Settings:
    """Settings of one person, with rules, and a list for two platforms."""
    channels = Channels(telegram=Telegram(allow=allow), other={"irc": OtherChannel(allow=allow)})
    return Settings(people={name: ANN}, channels=channels, tools=Tools(rules=rules))


def verdict_for(settings: Settings, author: str, chat: str) -> CallVerdict:
    """What a tool gets that this person asks for."""
    policy = policy_of(settings)
    return decide(policy.rules, "mcp__bank__pay", [policy.asker(f"person:{chat}", author, chat)]).verdict


RULES = (
    # person, author, chat, whether the rule fits
    ("ann", "ann_the_owner", "irc:chat:x", True),
    ("ann", "7", "telegram:chat:7", True),
    ("ann", "ann", "irc:chat:ann", False),
    ("ann*", "ann_the_thief", "irc:chat:y", False),
    ("irc:ann", "ann", "irc:chat:ann", True),
    ("irc:ann", "ann_the_owner", "irc:chat:x", False),
    ("telegram:7", "7", "telegram:chat:7", True),
    ("telegram:7", "7", "irc:chat:7", False),
    ("irc:*", "7", "telegram:chat:7", False),
    ("admin", "admin", "irc:chat:admin", False),
    ("admin", "person:admin", "irc:chat:admin", False),
    ("admin", "person:admin", "", True),
    ("@ann:x.org", "@ann:x.org", "matrix:room:!r:x.org", True),
    ("matrix:@ann:x.org", "@ann:x.org", "matrix:room:!r:x.org", True),
    ("@ann:x.org", "@ann:x.org", "telegram:chat:1", False),
)


@pytest.mark.parametrize(("person", "author", "chat", "fits"), RULES)
def test_whom_a_rule_means(person: str, author: str, chat: str, fits: bool) -> None:  # noqa: FBT001
    """A person who calls themselves on a platform as somebody of the settings is called gets none of their rights."""
    settings = settings_with(ToolRule(do=CallVerdict.ALLOW, tool="mcp__bank__*", person=person))
    assert verdict_for(settings, author, chat) is (CallVerdict.ALLOW if fits else CallVerdict.DENY)


def test_whom_a_list_means() -> None:
    """[people.ann] on the list lets Ann's accounts in, and nobody who is called ann on the platform."""
    people = People(settings_with(allow=("ann",)), "irc")
    assert people.standing("ann_the_owner", "irc:chat:x") is Standing.LISTED
    assert people.standing("ann", "irc:chat:x") is Standing.UNLISTED
    assert people.standing("eve", "irc:chat:ann") is Standing.UNLISTED
    account = People(settings_with(allow=("irc:ann",)), "irc")
    assert account.standing("ann", "irc:chat:x") is Standing.LISTED
    assert account.standing("ann_the_owner", "irc:chat:x") is Standing.UNLISTED


def test_a_number_is_an_account() -> None:
    """On Telegram a number on the list is an account, although a person of the settings is called so."""
    people = People(settings_with(allow=("42",), name="42"), "telegram")
    assert people.standing("42", "telegram:chat:42") is Standing.LISTED
    assert people.standing("7", "telegram:chat:7") is Standing.UNLISTED


WRONG = (
    ('[[tools.rules]]\ndo = "deny"\nperson = "12345"\n', "tools.rules[1].person is no name of [people]"),
    ('[channels.telegram]\nallow = ["42"]\n[people.42]\ntelegram = [7]\n', "give that another name"),
    ('[mcp.files__x]\ncommand = "true"\n', "without __ and without _ at its end"),
    ('[mcp.files_]\ncommand = "true"\n', "without __ and without _ at its end"),
)


@pytest.mark.parametrize(("text", "finding"), WRONG)
def test_what_became_ambiguous_is_told(home: Path, text: str, finding: str) -> None:
    """The check says which old form means nobody now, or could mean two."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(text)
    findings = read_config(home, {}, {})[1]
    assert any(finding in each.what for each in findings), findings


SERVER = st.from_regex(r"\A[a-z0-9][a-z0-9_-]{0,6}\Z")
TOOL = st.text("abx_-", min_size=1, max_size=6)


def is_server(name: str) -> bool:
    """Whether the settings take a server of this name."""
    try:
        msgspec.convert({name: {"command": "true"}}, ServerTable)
    except msgspec.ValidationError:
        return False
    return True


@given(SERVER, TOOL, SERVER, TOOL)
def test_a_tools_name_names_one_server(one: str, tool: str, other: str, another: str) -> None:
    """No two servers that the settings take have a tool of the same name."""
    if one != other and is_server(one) and is_server(other):
        assert tool_name(one, tool) != tool_name(other, another)


def test_small_names_all() -> None:
    """The same, for every short name: `files` + `x__read` was once `files__x` + `read`."""
    servers = ["".join(each) for size in (1, 2, 3, 4) for each in itertools.product("a_", repeat=size)]
    taken = [each for each in servers if is_server(each)]
    assert set(taken) == {"a", "aa", "a_a", "aaa", "a_aa", "aa_a", "aaaa"}
    assert not is_server("files__x")
    tools = ["".join(each) for size in (1, 2, 3) for each in itertools.product("a_", repeat=size)]
    names = [tool_name(server, tool) for server, tool in itertools.product(taken, tools)]
    assert len(set(names)) == len(names)
