"""What a configuration, an export and a witness say: read by itself, with nothing of Hansard.

The configuration is config.toml. The export is lines of JSON with facts (docs/use/sessions.md). The witness lists
events in the order in which they really happened: what people said, what was shown to whom, which tools ran.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

Line = dict[str, Any]

TOKEN = re.compile(r"\bword\d+x\b")
"""A word that was said once."""

TERMINAL = "the terminal"
"""Who types at the terminal, in place of an account."""


class Who(NamedTuple):
    """Somebody who said something, and where."""

    account: str
    chat: str
    is_direct: bool
    n: int = -1
    """When, by the witness."""

    @property
    def room(self) -> str:
        """The id of the room; empty in a direct chat and at the terminal."""
        return "" if self.is_direct else place_of(self.chat)


def place_of(chat: str) -> str:
    """Return the id of the room that a chat, or a thread, is in."""
    return chat.partition(":room:")[2].partition(":thread:")[0]


class Config:
    """The configuration of a run, as an auditor reads it."""

    def __init__(self, text: str) -> None:
        """Read config.toml."""
        read = tomllib.loads(text)
        matrix = read["channels"]["matrix"]
        self.listed = frozenset(matrix["allow"])
        self.is_per_person = matrix.get("rooms") == "per_person"
        self.rules: list[Line] = read.get("tools", {}).get("rules", [])
        people = read.get("people", {})
        self.names = {account: name for name, person in people.items() for account in person.get("matrix", ())}
        self.terminal = next((name for name, person in people.items() if person.get("terminal")), "admin")

    def person(self, account: str) -> str:
        """Return who somebody is: a name of the configuration, or the account itself."""
        return self.terminal if account == TERMINAL else self.names.get(account, account)

    def rule_for(self, tool: str, who: Who) -> Line:
        """Return the first rule that fits somebody's call; where none does, what holds by default."""
        names = {self.person(who.account), who.account}
        channel = "cli" if who.account == TERMINAL else who.chat.partition(":")[0]
        for rule in self.rules:
            is_person = rule.get("person", "*") == "*" or any(fnmatchcase(name, rule["person"]) for name in names)
            is_room = rule.get("room", "*") == "*" or (who.room != "" and fnmatchcase(who.room, rule["room"]))
            is_channel = fnmatchcase(channel, rule.get("channel", "*"))
            if fnmatchcase(tool, rule.get("tool", "*")) and is_person and is_room and is_channel:
                return rule
        return {"do": "deny" if tool.startswith("mcp__") else "ask" if tool == "memory" else "allow"}


class Export:
    """An export with its facts."""

    def __init__(self, text: str) -> None:
        """Read every line."""
        self.sessions: dict[str, Line] = {}
        self.messages: dict[tuple[str, str], Line] = {}
        self.facts: dict[str, list[Line]] = defaultdict(list)
        for line in map(json.loads, text.splitlines()):
            if line["type"] == "session":
                self.sessions[line["id"]] = line
            elif line["type"] == "message":
                self.messages[line["session_id"], line["id"]] = line
            elif line["type"] == "fact":
                self.facts[line["session_id"]].append({"at_microseconds": 0, "body": {}, **line})
        for facts in self.facts.values():
            facts.sort(key=lambda fact: fact["seq"])

    @property
    def home(self) -> list[Line]:
        """The facts of the home."""
        return self.facts.get("", [])

    def of_session(self, session_id: str, *kinds: str) -> list[Line]:
        """Return the facts of a session, in order."""
        return [fact for fact in self.facts.get(session_id, []) if fact["kind"] in kinds]

    def text(self, session_id: str, message_id: str) -> str:
        """Return all words that a message has, or ever had."""
        line = self.messages.get((session_id, message_id), {})
        parts = [*line.get("parts", ()), *line.get("first", ())]
        parts += [part for change in line.get("changes", ()) for part in change.get("parts") or ()]
        return "\n".join(part["text"] for part in parts if part["type"] == "text")

    def first_text(self, session_id: str, message_id: str) -> str:
        """Return the words that a message was said with, whatever it was edited to later."""
        line = self.messages.get((session_id, message_id), {})
        return "\n".join(part["text"] for part in line.get("first") or line.get("parts", ()) if part["type"] == "text")

    def told(self, session_id: str, before: int) -> list[tuple[str, Line]]:
        """Return the messages that a model can be told in a session at a moment, each with the session it is from.

        A fork begins with what its parent had.
        """
        found: list[tuple[str, Line]] = []
        made = self.of_session(session_id, "session.created")
        body = made[0]["body"] if made else {}
        if body.get("link") == "fork":
            found = self.told(body["parent_id"], min(before, body.get("at", 0) + 1))
        undone: set[str] = set()
        for fact in self.of_session(session_id, "message.added", "messages.undone", "messages.restored"):
            if fact["seq"] >= before:
                break
            if fact["kind"] == "message.added":
                found.append((session_id, fact))
            elif fact["kind"] == "messages.undone":
                undone |= set(fact["body"]["message_ids"])
            else:
                undone -= set(fact["body"]["message_ids"])
        return [each for each in found if each[1]["id"] not in undone]

    def deliveries(self) -> dict[str, tuple[str, Line]]:
        """Return every delivery by its id, with the session that it was made in; an empty one is the home."""
        return {
            fact["body"]["delivery_id"]: (session_id, fact)
            for session_id, facts in self.facts.items()
            for fact in facts
            if fact["kind"] == "delivery.created"
        }


class Witnessed:
    """What the witness saw."""

    def __init__(self, events: list[Line]) -> None:
        """Sort it by what happened."""
        self.events = events
        self.said = [event for event in events if event["what"] == "said"]
        self.by_event = {event["event_id"]: event for event in self.said if event.get("event_id")}
        self.tokens: dict[str, Line] = {}
        for event in events:
            for token in TOKEN.findall(event.get("text", "")) if event["what"] in {"said", "typed"} else ():
                self.tokens.setdefault(token, event)
        self.forged = {event["token"]: event for event in events if event["what"] == "imported"}

    def who(self, event: Line | None) -> Who | None:
        """Return who did something; None when nobody was seen."""
        if event is None:
            return None
        if event["what"] == "typed":
            return Who(TERMINAL, "", is_direct=True, n=event["n"])
        return Who(event["sender"], event["chat"], event["is_direct"], event["n"])

    def of(self, *kinds: str) -> list[Line]:
        """Return the events of some kinds."""
        return [event for event in self.events if event["what"] in kinds]


class People:
    """Who is one person with whom, and who may talk, at any moment."""

    def __init__(self, config: Config, export: Export, witnessed: Witnessed) -> None:
        """Take links from the facts, and what the admin did from the witness."""
        self._config = config
        self._changes = [fact for fact in export.home if fact["kind"] in {"person.linked", "person.unlinked"}]
        self._access = witnessed.of("revoked", "allowed")

    def owner(self, owner: str) -> str:
        """Return which person an owner of sessions is."""
        rest = owner.removeprefix("person:")
        if rest == "admin":
            return self._config.terminal
        return self._config.person(rest.partition(":")[2]) if rest.startswith("matrix:") else rest

    def circle(self, person: str, at: int) -> set[str]:
        """Return everybody who is one person with somebody at a moment."""
        groups: dict[str, set[str]] = {}
        for fact in self._changes:
            if fact["at_microseconds"] > at:
                break
            owners = [self.owner(owner) for owner in fact["body"]["owners"]]
            if fact["kind"] == "person.linked":
                joined = set().union(*(groups.get(each, {each}) for each in owners))
                groups.update(dict.fromkeys(joined, joined))
            else:
                for each in owners:
                    groups.get(each, set()).discard(each)
                    groups[each] = {each}
        return groups.get(person, {person}) | {person}

    def rank(self, who: Who, at: int) -> str:
        """Return what somebody is, where they are, at a moment."""
        if who.account == TERMINAL:
            return "admin"
        person = self._config.person(who.account)
        state = ""
        for event in self._access:
            if event["at"] > at:
                break
            # Barring bars the person, on every account; allowing lets one account in.
            barred = self.circle(self._config.person(event["account"]), event["at"])
            is_meant = person in barred if event["what"] == "revoked" else event["account"] == who.account
            state = event["what"] if is_meant else state
        if state == "revoked":
            return "barred"
        server = f"*:{who.account.partition(':')[2]}"
        if self._config.listed & {who.account, person, server} or state == "allowed":
            return "admin" if person == self._config.terminal else "member"
        return "guest" if who.room in self._config.listed else "stranger"
