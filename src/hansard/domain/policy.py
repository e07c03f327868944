"""What the settings say about people and rooms, ready for the engine: permissions, personas, models, a day's budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import msgspec

from hansard.domain.access import AT_THE_TERMINAL, Grant, Right, Standpoint, is_shared, right
from hansard.domain.budgets import Budget, budget_of
from hansard.domain.chats import PERSON_PREFIX, SessionKey, parse_owner
from hansard.domain.people import People, is_terminal_author
from hansard.domain.permissions import TERMINAL, Asker, CallVerdict, Decision, Reason, ToolRule, decide
from hansard.domain.settings import Settings
from hansard.domain.settings.agent import AgentChoice, AutoResume

BARRED: Final = "somebody who asked for this may talk no longer"
GUESTS_DENIED: Final = "guests of a room may not change what is remembered there"


class KnownAsker(NamedTuple):
    """Somebody whose permission a call needs, where they asked, and what the record says of their access."""

    person: str
    chat: str
    grant: Grant = Grant.NONE


class JudgedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is judged: in whose session, for whom, and what the request to the model holds."""

    tool: str
    owner: str
    """Whose the session is."""
    people: tuple[KnownAsker, ...]
    source: str = ""
    """Untrusted text of the request; empty when there is none."""
    changes_memory: bool = False


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that depends on who asks, and where."""

    rules: tuple[ToolRule, ...] = ()
    ask_seconds: float = 300.0
    names: dict[tuple[str, str], str] = {}
    """From a channel, and what somebody is called there, to their name."""
    people: dict[str, AgentChoice] = {}
    rooms: dict[str, AgentChoice] = {}
    """By the owner of a room's sessions."""
    budget: Budget | None = None
    """None: nothing is limited."""
    titles: bool | None = False
    auto_resume: AutoResume = AutoResume.OFF
    models_allowed: tuple[str, ...] = ()
    """Patterns of the models that people may choose; none: every one."""
    lists: dict[str, People] = {}
    """Who may talk, by channel."""

    def asker(self, owner: str, author: str, chat: str) -> Asker:
        """Return somebody who asked for a turn, by the names that rules know them by.

        An empty author has no names. Neither has an author in a chat who is called like the terminal's person.
        """
        channel = chat.partition(":")[0]
        names: tuple[str, ...] = ()
        if is_terminal_author(author):
            names = () if chat else (author.removeprefix(PERSON_PREFIX),)
        elif author and chat:
            names = (self.names.get((channel, author), ""), f"{channel}:{author}")
        return Asker(
            names=tuple(filter(None, names)), room=room_of(owner), channel=channel or TERMINAL, person=author, chat=chat
        )

    def standpoint(self, owner: str, author: str, chat: str, grant: Grant) -> Standpoint:
        """Return the rank of somebody who asked for a turn of an owner's session. On an unknown channel: a stranger."""
        if not chat:
            return AT_THE_TERMINAL if is_terminal_author(author) else Standpoint()
        people = self.lists.get(chat.partition(":")[0])
        is_direct = parse_owner(owner) is None
        return Standpoint() if people is None else people.standpoint(author, chat, grant, is_direct=is_direct)

    def judge_call(self, call: JudgedCall, granted: Mapping[tuple[str, str], str]) -> Decision:
        """Return what becomes of a call: by rules and permissions, and then by what neither can allow."""
        askers = [self.asker(call.owner, known.person, known.chat) for known in call.people]
        decision = decide(self.rules, call.tool, askers, call.source, granted)
        guests = self.denied_guests(call) if call.changes_memory else ()
        denied = (*guests, *denied_barred(call.people))
        return Decision(CallVerdict.DENY, (*decision.reasons, *denied)) if denied else decision

    def denied_guests(self, call: JudgedCall) -> tuple[Reason, ...]:
        """Return a denial for each asker who may not change what a room remembers. No rule or yes lifts that."""
        if not is_shared(call.owner):
            return ()
        return tuple(
            Reason(verdict=CallVerdict.DENY, rule=GUESTS_DENIED, person=person, chat=chat)
            for person, chat, grant in call.people
            if right(self.standpoint(call.owner, person, chat, grant), "memory CHANGE") is not Right.ALLOWED
        )

    def choice(self, owner: str) -> AgentChoice:
        room = parse_owner(owner)
        if room is not None:
            return self.rooms.get(room.room_owner, AgentChoice())
        channel, _, identity = owner.removeprefix(PERSON_PREFIX).partition(":")
        name = self.names.get((channel, identity), identity) if identity else channel
        return self.people.get(name, AgentChoice())


def denied_barred(people: Iterable[KnownAsker]) -> tuple[Reason, ...]:
    """Return a denial for each asker who was barred: nothing is run for them, although others asked as well."""
    return tuple(
        Reason(verdict=CallVerdict.DENY, rule=BARRED, person=person, chat=chat)
        for person, chat, grant in people
        if chat and grant is Grant.REVOKED
    )


def room_of(owner: str) -> str:
    """Return the id of the room that a session belongs to; empty when it is a person's."""
    room = parse_owner(owner)
    return "" if room is None else room.place


def policy_of(settings: Settings) -> Policy:
    names = {identity: name for name, person in settings.people.items() for identity in person.places()}
    rooms = {
        SessionKey(channel=channel, place=place).room_owner: room
        for room in settings.rooms.values()
        for channel, place in room.places()
    }
    return Policy(
        rules=settings.tools.rules,
        ask_seconds=settings.tools.ask_seconds,
        names=names,
        people=dict(settings.people),
        rooms=dict(rooms),
        budget=budget_of(settings.limits),
        titles=settings.titles,
        auto_resume=settings.auto_resume,
        models_allowed=settings.models_allowed,
        lists={channel: People(settings, channel) for channel in settings.channels.sections()},
    )


def is_model_allowed(name: str, patterns: Iterable[str]) -> bool:
    """Return whether people may choose a model. Without patterns they may choose every one."""
    allowed = tuple(patterns)
    return not allowed or any(fnmatchcase(name, pattern) for pattern in allowed)
