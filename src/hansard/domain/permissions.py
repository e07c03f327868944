"""Which tools may be run for whom: a table of rules, of which the first that fits decides.

A rule fits a tool, a person, a room and a channel, each by a pattern with `*`. What no rule speaks of: Hansard's own
tools may run, but people are asked before anything is remembered; tools of other servers may not. Where several
people are answered at once, the strictest answer counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

FOREIGN_PREFIX: Final = "mcp__"
"""How the name of a tool begins that is not Hansard's own: `mcp__SERVER__TOOL`."""

TERMINAL: Final = "cli"
"""The channel of what is said at the terminal, or by a program."""


class Verdict(StrEnum):
    """What becomes of a call."""

    ALLOW = "allow"
    """It is run."""
    ASK = "ask"
    """It is shown in the chat, and run after a yes."""
    DENY = "deny"
    """It is not run."""


STRICTNESS: Final = (Verdict.ALLOW, Verdict.ASK, Verdict.DENY)

Pattern = Annotated[str, Meta(min_length=1, max_length=300)]


class ToolRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the table. What is left out fits everything."""

    do: Verdict
    tool: Pattern = "*"
    person: Pattern = "*"
    """A name of `[people]`, or what the platform calls somebody."""
    room: Pattern = "*"
    """The id of a room. In a conversation of one person it is empty, which only `*` fits."""
    channel: Pattern = "*"
    """`cli`, `matrix`."""


DEFAULT_RULES: Final = (
    ToolRule(do=Verdict.DENY, tool=f"{FOREIGN_PREFIX}*"),
    ToolRule(do=Verdict.ASK, tool="memory"),
    ToolRule(do=Verdict.ALLOW),
)
"""What holds where no rule of the settings fits. What is remembered is told to the model in every later session, so
nothing that somebody else put into its mouth may get there unseen.
"""


class Asker(NamedTuple):
    """Somebody whom a turn answers, and where. `names`: whatever that person is called."""

    names: tuple[str, ...]
    room: str = ""
    channel: str = TERMINAL


def fits(rule: ToolRule, tool: str, asker: Asker) -> bool:
    """Return whether a rule speaks of this tool and this person."""
    return (
        fits_place(rule, tool, asker)
        and (rule.person == "*" or any(fnmatchcase(name, rule.person) for name in asker.names))
    )  # fmt: skip


def fits_place(rule: ToolRule, tool: str, asker: Asker) -> bool:
    """Return whether a rule speaks of this tool here, for whomever."""
    return (
        fnmatchcase(tool, rule.tool)
        and (rule.room == "*" or (bool(asker.room) and fnmatchcase(asker.room, rule.room)))
        and fnmatchcase(asker.channel, rule.channel)
    )


def decide(rules: Iterable[ToolRule], tool: str, askers: Iterable[Asker]) -> Verdict:
    """Return what becomes of a call that a turn makes for these people. For nobody, nothing is run."""
    table = (*rules, *DEFAULT_RULES)
    verdicts = [next(rule.do for rule in table if fits(rule, tool, asker)) for asker in askers]
    return max(verdicts, key=STRICTNESS.index, default=Verdict.DENY)


def may_be_offered(rules: Iterable[ToolRule], tool: str, asker: Asker) -> bool:
    """Return whether a model is told of a tool: whether anybody could be allowed it in this place.

    What is told is fixed when a session begins; whether a call is run is decided anew for each.
    """
    for rule in (*rules, *DEFAULT_RULES):
        if not fits_place(rule, tool, asker):
            continue
        if rule.do is not Verdict.DENY:
            return True
        if rule.person == "*":
            return False
    return False
