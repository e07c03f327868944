"""The table of rules, cell by cell: which verdict a tool gets for a person, in a room, on a channel."""

from __future__ import annotations

import itertools

import pytest

from hansard.domain.permissions import STRICTNESS, Asker, CallVerdict, ToolRule, decide, may_be_offered
from hansard.domain.policy import Policy, policy_of
from hansard.domain.settings import Person, Settings
from hansard.domain.settings.agent import RoomSettings

ALLOW, ASK, DENY = CallVerdict.ALLOW, CallVerdict.ASK, CallVerdict.DENY

ANN = Asker(names=("ann", "matrix:@ann:x.org"), room="", channel="matrix")
ANN_IN_ROOM = Asker(names=("ann", "matrix:@ann:x.org"), room="!den:x.org", channel="matrix")
BEN_IN_ROOM = Asker(names=("matrix:@ben:x.org",), room="!den:x.org", channel="matrix")
BEN_ELSEWHERE = Asker(names=("matrix:@ben:x.org",), room="!hall:x.org", channel="matrix")
TERMINAL = Asker(names=("admin",))

RULES = (
    ToolRule(do=DENY, person="@eve:*"),
    ToolRule(do=ALLOW, tool="mcp__files__read*", person="ann"),
    ToolRule(do=ASK, tool="mcp__files__*", person="ann"),
    ToolRule(do=ASK, tool="mcp__files__read", room="!den:*"),
    ToolRule(do=ALLOW, tool="mcp__time__*", channel="matrix"),
    ToolRule(do=ALLOW, tool="mcp__shell__run", channel="cli", person="admin"),
    ToolRule(do=DENY, tool="current_time", room="!hall:x.org"),
)

CELLS = {
    ("mcp__files__read", ANN): ALLOW,
    ("mcp__files__read", ANN_IN_ROOM): ALLOW,
    ("mcp__files__read", BEN_IN_ROOM): ASK,
    ("mcp__files__read", BEN_ELSEWHERE): DENY,
    ("mcp__files__read", TERMINAL): DENY,
    ("mcp__files__delete", ANN): ASK,
    ("mcp__files__delete", ANN_IN_ROOM): ASK,
    ("mcp__files__delete", BEN_IN_ROOM): DENY,
    ("mcp__files__delete", BEN_ELSEWHERE): DENY,
    ("mcp__files__delete", TERMINAL): DENY,
    ("mcp__time__now", ANN): ALLOW,
    ("mcp__time__now", ANN_IN_ROOM): ALLOW,
    ("mcp__time__now", BEN_IN_ROOM): ALLOW,
    ("mcp__time__now", BEN_ELSEWHERE): ALLOW,
    ("mcp__time__now", TERMINAL): DENY,
    ("mcp__shell__run", ANN): DENY,
    ("mcp__shell__run", ANN_IN_ROOM): DENY,
    ("mcp__shell__run", BEN_IN_ROOM): DENY,
    ("mcp__shell__run", BEN_ELSEWHERE): DENY,
    ("mcp__shell__run", TERMINAL): ALLOW,
    ("current_time", ANN): ALLOW,
    ("current_time", ANN_IN_ROOM): ALLOW,
    ("current_time", BEN_IN_ROOM): ALLOW,
    ("current_time", BEN_ELSEWHERE): DENY,
    ("current_time", TERMINAL): ALLOW,
    ("memory", ANN): ASK,
    ("memory", ANN_IN_ROOM): ASK,
    ("memory", BEN_IN_ROOM): ASK,
    ("memory", BEN_ELSEWHERE): ASK,
    ("memory", TERMINAL): ASK,
}


@pytest.mark.parametrize(("cell", "verdict"), CELLS.items(), ids=str)
def test_each_cell_of_the_table(cell: tuple[str, Asker], verdict: CallVerdict) -> None:
    """The first rule that fits decides; where none does, own tools may run, memory asks, others' may not."""
    tool, asker = cell
    assert decide(RULES, tool, [asker]).verdict is verdict


PLACES = {
    "everywhere": (ToolRule(do=ALLOW), ANN_IN_ROOM, None),
    "a person by name": (ToolRule(do=ALLOW, person="ann"), ANN_IN_ROOM, BEN_IN_ROOM),
    "a person by identity": (ToolRule(do=ALLOW, person="@ben:x.org"), BEN_IN_ROOM, ANN_IN_ROOM),
    "a room": (ToolRule(do=ALLOW, room="!den:x.org"), BEN_IN_ROOM, BEN_ELSEWHERE),
    "rooms, not persons": (ToolRule(do=ALLOW, room="!*"), ANN_IN_ROOM, ANN),
    "a channel": (ToolRule(do=ALLOW, channel="matrix"), ANN, TERMINAL),
    "the terminal": (ToolRule(do=ALLOW, channel="cli"), TERMINAL, ANN),
    "a person in a room": (ToolRule(do=ALLOW, person="ann", room="!den:*"), ANN_IN_ROOM, ANN),
    "a person on a channel": (ToolRule(do=ALLOW, person="admin", channel="cli"), TERMINAL, ANN),
}
"""For whom a rule is: somebody whom it fits, and somebody whom it does not."""

DEFAULTS = {"current_time": ALLOW, "session_search": ALLOW, "memory": ASK, "mcp__files__read": DENY}
"""What holds where nothing is said: tools of Hansard's own, its memory, tools of a server."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("verdict", CallVerdict)
@pytest.mark.parametrize("tool", DEFAULTS)
def test_each_verdict_for_each_kind_of_rule(tool: str, verdict: CallVerdict, place: str) -> None:
    """Persons, rooms and channels, allow, ask and deny, own tools and servers': all decide, for whom they are alone."""
    rule, meant, other = PLACES[place]
    rules = (ToolRule(do=verdict, tool=tool, person=rule.person, room=rule.room, channel=rule.channel),)
    assert decide(rules, tool, [meant]).verdict is verdict
    if other is not None:
        assert decide(rules, tool, [other]).verdict is DEFAULTS[tool]
        assert decide(rules, tool, [meant, other]).verdict is max(verdict, DEFAULTS[tool], key=STRICTNESS.index)
    for unnamed in DEFAULTS.keys() - {tool}:
        assert decide(rules, unnamed, [meant]).verdict is DEFAULTS[unnamed]


def test_people_and_rooms_on_any_channel() -> None:
    """Who somebody is, is said by channel: the same number on another platform is somebody else."""
    policy = Policy(names={("telegram", "5"): "ann", ("matrix", "@ann:x.org"): "ann"})
    room = "room:telegram:-100"
    chat = "telegram:chat:-100"
    assert policy.asker(room, "5", chat) == Asker(
        names=("ann", "telegram:5"), room="-100", channel="telegram", person="5", chat=chat
    )
    assert policy.asker(room, "@ann:x.org", chat) == Asker(
        names=("telegram:@ann:x.org",), room="-100", channel="telegram", person="@ann:x.org", chat=chat
    )
    assert policy.asker(f"{room}:person:5", "5", chat).room == "-100"
    settings = Settings(
        people={"ann": Person(matrix=("@ann:x.org",))}, rooms={"den": RoomSettings(matrix=("!den:x.org",))}
    )
    assert policy_of(settings).names == {("matrix", "@ann:x.org"): "ann"}
    assert policy_of(settings).rooms == {"room:matrix:!den:x.org": RoomSettings(matrix=("!den:x.org",))}


def test_whoever_is_denied_everything_is_denied_everything() -> None:
    """A rule for a person alone holds for every tool, everywhere."""
    for tool, room, channel in itertools.product(("memory", "mcp__time__now"), ("", "!den:x.org"), "ab"):
        assert decide(RULES, tool, [Asker(names=("matrix:@eve:x.org",), room=room, channel=channel)]).verdict is DENY


def test_of_several_people_the_strictest_counts() -> None:
    """What one of those who ask may not have run is not run for the others with them; for nobody, nothing is."""
    assert decide(RULES, "mcp__files__read", [ANN_IN_ROOM, BEN_IN_ROOM]).verdict is ASK
    assert decide(RULES, "mcp__files__read", [ANN, TERMINAL]).verdict is DENY
    assert decide(RULES, "current_time", []).verdict is DENY


def test_a_model_is_told_of_a_tool_that_anybody_there_may_use() -> None:
    """Whoever begins a session in a room, the tools of the others there are known to it, and only those."""
    assert may_be_offered(RULES, "mcp__files__read", BEN_ELSEWHERE)  # ann may, anywhere
    assert may_be_offered(RULES, "mcp__time__now", BEN_ELSEWHERE)
    assert not may_be_offered(RULES, "mcp__time__now", TERMINAL)
    assert not may_be_offered(RULES, "current_time", BEN_ELSEWHERE)
    assert not may_be_offered((), "mcp__files__read", ANN)
    assert may_be_offered((), "memory", ANN)


def test_patterns_are_whole_names_with_their_case() -> None:
    """A pattern fits a whole name or nothing: no rule reaches further than it says."""
    rules = (ToolRule(do=ALLOW, tool="mcp__a__read"),)
    for tool in ("mcp__a__read_all", "mcp__A__read", "xmcp__a__read"):
        assert decide(rules, tool, [TERMINAL]).verdict is (ALLOW if tool.startswith("x") else DENY)
