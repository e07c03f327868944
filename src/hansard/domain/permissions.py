"""Which tools may be run for whom: a table of rules, of which the first that fits decides.

A rule fits a tool, a person, a room and a channel, each by a pattern with `*`. What no rule speaks of: Hansard's own
tools may run, but people are asked before anything is remembered; tools of other servers may not. A call needs the
permission of each who asked for the turn: the strictest answer counts, and for nobody nothing is run.

Text is untrusted that none of those who asked wrote: words of other people, imports, results of tools of other
servers. While a request holds such text, a tool may be asked about although a rule allows it (`must_ask`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

FOREIGN_PREFIX: Final = "mcp__"
"""How the name of a tool begins that is not Hansard's own: `mcp__SERVER__TOOL`."""

TERMINAL: Final = "cli"
"""The channel of what is said at the terminal, or by a program."""


class CallVerdict(StrEnum):
    """What becomes of a call."""

    ALLOW = "allow"
    """It is run."""
    ASK = "ask"
    """It is shown in the chat, and run after a yes."""
    DENY = "deny"
    """It is not run."""


STRICTNESS: Final = (CallVerdict.ALLOW, CallVerdict.ASK, CallVerdict.DENY)

Pattern = Annotated[str, Meta(min_length=1, max_length=300)]


class ToolRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the table. What is left out fits everything."""

    do: CallVerdict
    tool: Pattern = "*"
    person: Pattern = "*"
    """Without a colon, a name of `[people]`; with one an account, CHANNEL:IDENTITY. `@ann:x.org` is Matrix's."""
    room: Pattern = "*"
    """The id of a room. In a conversation of one person it is empty, which only `*` fits."""
    channel: Pattern = "*"
    """`cli`, `matrix`."""
    untrusted: Literal["", "ask"] = ""
    """`ask`: while the request holds untrusted text, people are asked although this rule allows the tool."""
    reads_only: bool = False
    """The tool changes nothing: in rooms, too, it is run without asking while the request holds untrusted text."""

    def __str__(self) -> str:
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        shown = [f'{name} = "{value}"' for name, value in given.items() if isinstance(value, str)]
        told = [text for text in shown if not text.endswith(('= "*"', '= ""'))]
        return ", ".join([*told, *(["reads_only = true"] if self.reads_only else [])])


DEFAULT_RULES: Final = (
    ToolRule(do=CallVerdict.DENY, tool=f"{FOREIGN_PREFIX}*"),
    ToolRule(do=CallVerdict.ASK, tool="memory"),
    ToolRule(do=CallVerdict.ALLOW),
)
"""What holds where no rule of the settings fits. What is remembered is told to the model in every later session, so
nothing that somebody else put into its mouth may get there unseen.
"""


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who asked for a turn, and where. An asker without names is nobody, and may use no tool.

    `names`: that of the settings, which has no colon, and the account, CHANNEL:IDENTITY, which has one. So neither can
    be taken for the other, whatever people call themselves on a platform.
    """

    names: tuple[str, ...]
    room: str = ""
    channel: str = TERMINAL
    person: str = ""
    """As the turn's `by` has it."""
    chat: str = ""


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a call is allowed, asked about or denied as far as one asker goes."""

    verdict: CallVerdict
    rule: str
    """The rule that decided, in words."""
    person: str = ""
    chat: str = ""
    source: str = ""
    """The untrusted text because of which a call that the rule allows is asked about."""

    def __str__(self) -> str:
        who = f"{self.person} in {self.chat}" if self.chat else self.person or "nobody"
        because = f"; asked because the request holds {self.source}" if self.source else ""
        return f"{self.verdict} for {who}: {self.rule}{because}"


class Decision(NamedTuple):
    """What becomes of a call, with a reason for each asker."""

    verdict: CallVerdict
    reasons: tuple[Reason, ...]

    @property
    def source(self) -> str:
        """The untrusted text because of which people are asked; empty when a rule alone asks."""
        return next((each.source for each in self.reasons if each.source), "")


NOBODY: Final = Reason(verdict=CallVerdict.DENY, rule="nobody is recorded as having asked for this turn")


def fits(rule: ToolRule, tool: str, asker: Asker) -> bool:
    return (
        fits_place(rule, tool, asker)
        and (rule.person == "*" or any(fits_person(rule.person, name) for name in asker.names))
    )  # fmt: skip


def fits_person(pattern: str, name: str) -> bool:
    """Return whether a pattern fits a name of the settings, or an account: each only patterns of its own kind."""
    full = f"matrix:{pattern}" if pattern.startswith("@") else pattern
    return (":" in full) == (":" in name) and fnmatchcase(name, full)


def fits_place(rule: ToolRule, tool: str, asker: Asker) -> bool:
    return (
        fnmatchcase(tool, rule.tool)
        and (rule.room == "*" or (bool(asker.room) and fnmatchcase(asker.room, rule.room)))
        and fnmatchcase(asker.channel, rule.channel)
    )


def digest_of(rules: Iterable[ToolRule]) -> str:
    """Return a hash that is the same for the same rules in the same order; empty for none."""
    table = tuple(rules)
    return hashlib.sha256(msgspec.json.encode(table)).hexdigest() if table else ""


def must_ask(rule: ToolRule, tool: str, asker: Asker) -> bool:
    """Return whether people are asked about a tool that a rule allows, while the request holds untrusted text."""
    if rule.untrusted == "ask":
        return True
    return bool(asker.room) and tool.startswith(FOREIGN_PREFIX) and not rule.reads_only


GUARDED: Final = frozenset({"memory"})
"""Tools whose effect reaches other sessions: no permission lets them run unseen while there is untrusted text."""

NOTHING_GRANTED: Final[Mapping[tuple[str, str], str]] = {}


def judge_asker(
    rules: tuple[ToolRule, ...], tool: str, asker: Asker, source: str, granted: Mapping[tuple[str, str], str]
) -> Reason:
    """Return what the rules say of a call, as far as one asker goes. A permission is a rule that allows what asks."""
    if not asker.names:
        return msgspec.structs.replace(NOBODY, person=asker.person, chat=asker.chat)
    table = (*rules, *DEFAULT_RULES)
    number, rule = next((number, rule) for number, rule in enumerate(table, 1) if fits(rule, tool, asker))
    words = f"rule {number} of [[tools.rules]] ({rule})" if number <= len(rules) else f"the default ({rule})"
    permission = granted.get((asker.person, asker.chat), "") if rule.do is CallVerdict.ASK else ""
    verdict = CallVerdict.ALLOW if permission else rule.do
    words = f"permission {permission}, where {words} asks" if permission else words
    guards = must_ask(rule, tool, asker) or (bool(permission) and tool in GUARDED)
    asks = verdict is CallVerdict.ALLOW and bool(source) and guards
    return Reason(
        verdict=CallVerdict.ASK if asks else verdict,
        rule=words,
        person=asker.person or asker.names[0],
        chat=asker.chat,
        source=source if asks else "",
    )


def decide(
    rules: Iterable[ToolRule],
    tool: str,
    askers: Iterable[Asker],
    source: str = "",
    granted: Mapping[tuple[str, str], str] = NOTHING_GRANTED,
) -> Decision:
    """Return what becomes of a call of a turn that these people asked for, and why. For nobody, nothing is run.

    `source` names untrusted text in the request; empty when there is none. `granted`: the permissions for this tool,
    by person and chat.
    """
    table = tuple(rules)
    reasons = tuple(judge_asker(table, tool, asker, source, granted) for asker in askers) or (NOBODY,)
    return Decision(max((each.verdict for each in reasons), key=STRICTNESS.index), reasons)


def may_be_offered(rules: Iterable[ToolRule], tool: str, asker: Asker) -> bool:
    """Return whether a model is told of a tool: whether anybody could be allowed it in this place.

    What is told is fixed when a session begins; whether a call is run is decided anew for each.
    """
    for rule in (*rules, *DEFAULT_RULES):
        if not fits_place(rule, tool, asker):
            continue
        if rule.do is not CallVerdict.DENY:
            return True
        if rule.person == "*":
            return False
    return False
