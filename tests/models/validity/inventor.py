"""Journals out of chance: people, turns, crashes, imports, forks, undo, edits, summaries, and what nobody would write.

Each journal is told as a record would hold it, and then, at times, disturbed: entries lost, doubled, out of place. An
import or a damaged disk may leave such a one, and it can be gone on with all the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from hansard.domain.budgets import Usage
from hansard.domain.messages import (
    SIGNS_TEXT,
    File,
    Part,
    Reasoning,
    Role,
    Status,
    Text,
    ToolCall,
    ToolOutcome,
    ToolResult,
)
from hansard.domain.sessions import TURN_ENDS, Link, TurnState
from hansard.journal.concepts import Body
from hansard.record.conversation import SessionCompacted
from hansard.record.messages.entries import (
    Entry,
    MessageAdded,
    MessageEdited,
    MessageOpened,
    MessageRetracted,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
)
from hansard.record.schema import SCHEMA
from hansard.record.sessions import SessionCreated, SessionSet
from hansard.record.turns.entries import TurnContinued, TurnEnded, TurnQueued, TurnStarted, TurnSteered, TurnUsed
from tests.models.validity.signatures import sign

SESSION = "invented"

WORDS = ("", " ", "\n", "hello", "Ünïcode \N{GRINNING FACE}", "[Hansard: go on.]", "(no reply)", "a\u2028b", "x" * 400)
NAMES = ("echo", "slow", "", "not valid!", "9lives", "-dash", "é", "n" * 80, "a.b")
CALL_IDS = ("", " ", "c1", "c1", "c2", "call_0", "call_1", "not valid!", "é", "x" * 65, "y" * 41)
ARGUMENTS = ("", "{}", "{", "[]", "null", '{"a": 1}', '{"a": NaN}', "[" * 80)
MODELS = (
    "anthropic:claude-sonnet-5",
    "anthropic:claude-sonnet-5-20261001",
    "anthropic:claude-opus-5",
    "google:gemini-3.5-flash",
    "google:gemini-2.5-pro",
    "openai-responses:gpt-5",
    "openai:gpt-5",
)
TYPES = (
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/heic",
    "image/tiff",
    "image/jpg",
    "IMAGE/PNG; x=y",
    "text/plain",
    "",
)
SIZES = {0: 10, 1: 5, 500: 20, 3_000: 5, 5_000_000: 1, 50_000_000: 10}
"""In bytes, and how often. Megabytes that are shown take most of the time, so there are few."""


class Inventor:
    """One journal on its way."""

    def __init__(self, chance: random.Random) -> None:
        """Nothing happened yet."""
        self.chance = chance
        self.bodies: list[tuple[str, Body]] = []
        self.messages: list[str] = []
        self._count = 0

    def id(self, kind: str = "m") -> str:
        """A new id; sometimes one that is taken."""
        self._count += 1
        if kind == "m" and self.messages and self.chance.random() < 0.02:
            return self.chance.choice(self.messages)
        return f"{kind}{self._count}"

    def add(self, body: Body, id: str | None = None) -> str:
        """Append an entry."""
        own = id or self.id("~")
        self.bodies.append((own, body))
        return own

    def said(
        self, role: Role, parts: Iterable[Part], status: Status = Status.COMPLETE, *, imported: bool = False
    ) -> str:
        """Append a whole message."""
        own = self.id()
        self.messages.append(own)
        author, event_id = ("", "") if role != Role.USER else self.chance.choice([("", ""), ("@a:b", "$e"), ("", "$f")])
        body = MessageAdded(
            role=role,
            parts=tuple(parts),
            status=status,
            author=author,
            event_id=event_id,
            observed=bool(author) and self.chance.random() < 0.2,
            imported=imported,
        )
        return self.add(body, own)

    def words(self) -> str:
        """Something to say."""
        return self.chance.choice(WORDS)

    def file(self) -> File:
        """A file, maybe a picture, maybe not kept."""
        return File(
            blob=self.chance.choice(["b1", "b2", ""]),
            name=self.words(),
            media_type=self.chance.choice(TYPES),
            size_bytes=self.chance.choices(list(SIZES), list(SIZES.values()))[0],
        )

    def person(self) -> None:
        """Somebody speaks."""
        files = [self.file() for _ in range(self.chance.choice([0, 0, 0, 1, 3]))]
        self.said(Role.USER, [Text(self.words()), *files])

    def answer_parts(self) -> list[Part]:
        """An answer as a provider gives it: reasoning, words and calls, signed by its model."""
        model = self.chance.choice(MODELS)
        parts: list[Part] = []
        for _ in range(self.chance.randrange(1, 5)):
            kind = self.chance.randrange(6)
            if kind == 0:
                thought = self.chance.choice(["", "I think.", "é"])
                signature = sign(model, thought) if self.chance.random() < 0.8 else ""
                id = "rs_1" if "responses" in model else ""
                if not thought and "anthropic" in model:
                    id = "redacted_thinking"
                parts.append(Reasoning(text=thought, signature=signature, model=model if signature else "", id=id))
            elif kind <= 2:
                parts.append(Text(self.words()))
                if "google" in model and self.chance.random() < 0.3:
                    parts.append(Reasoning(text="", signature=sign(model, ""), model=model, id=SIGNS_TEXT))
            else:
                signs = "google" in model and self.chance.random() < 0.7
                parts.append(
                    ToolCall(
                        id=self.chance.choice(CALL_IDS),
                        name=self.chance.choice(NAMES),
                        arguments=self.chance.choice(ARGUMENTS),
                        signature=sign(model, "") if signs else "",
                        model=model if signs else "",
                    )
                )
        return parts

    def result(self, call: ToolCall, message_id: str, index: int) -> None:
        """A tool gives something."""
        result = ToolResult(call_id=call.id, text=self.words(), outcome=self.chance.choice(list(ToolOutcome)))
        files = [self.file()] if self.chance.random() < 0.2 else []
        own = f"{message_id}.{index}" if self.chance.random() < 0.8 else self.id()
        self.messages.append(own)
        self.add(MessageAdded(role=Role.TOOL, parts=(result, *files)), own)

    def turn(self) -> None:
        """A turn, from its trigger to its end, or to the kill that ended it."""
        if self.chance.random() < 0.9:
            self.person()
        turn_id = self.id("t")
        self.add(TurnQueued(turn_id=turn_id))
        self.add(TurnStarted(turn_id=turn_id, owner="o"))
        for _ in range(self.chance.randrange(1, 4)):
            if self.step(turn_id):
                break
            if self.chance.random() < 0.2:
                self.person()
                self.add(TurnSteered(turn_id=turn_id, message_id=self.messages[-1]))
        state = self.chance.choice(sorted(TURN_ENDS))
        if self.chance.random() < 0.9:
            self.add(TurnEnded(turn_id=turn_id, state=state, reason=self.words()), f"~ended:{turn_id}")

    def step(self, turn_id: str) -> bool:
        """Ask once; return whether the turn is over."""
        opened = self.add(MessageOpened(turn_id=turn_id), self.id())
        self.messages.append(opened)
        cut = self.chance.random()
        if cut < 0.1:
            return True
        parts = self.answer_parts()
        if cut < 0.25:
            words = tuple(part for part in parts if isinstance(part, Text | Reasoning))
            self.add(MessageSealed(message_id=opened, status=Status.INTERRUPTED, parts=words))
            self.add(TurnContinued(turn_id=turn_id, message_id=opened, note=self.chance.choice(["", "", "Go on."])))
            return self.chance.random() < 0.5
        self.add(MessageSealed(message_id=opened, status=Status.COMPLETE, parts=tuple(parts)))
        tokens = Usage(input_tokens=self.chance.randrange(5000), output_tokens=10)
        self.add(TurnUsed(turn_id=turn_id, model="m", usage=tokens))
        calls = [part for part in parts if isinstance(part, ToolCall)]
        order = list(enumerate(calls))
        self.chance.shuffle(order)
        for index, call in order:
            if self.chance.random() < 0.9:
                self.result(call, opened, index)
        return not calls or self.chance.random() < 0.3

    def bring_in(self) -> None:
        """Somebody else's session comes in, as it is."""
        for _ in range(self.chance.randrange(1, 5)):
            role = self.chance.choice(list(Role))
            parts: list[Part] = [*self.answer_parts(), self.file()]
            if role == Role.TOOL:
                parts.append(ToolResult(call_id=self.chance.choice(CALL_IDS), text=self.words()))
            self.chance.shuffle(parts)
            status = self.chance.choice(list(Status)[1:])
            self.said(role, parts[: self.chance.randrange(4)], status, imported=True)

    def change(self) -> None:
        """Something is undone, restored, edited, deleted, set or forked."""
        if not self.messages:
            return
        one = self.chance.choice(self.messages)
        some = self.chance.sample(self.messages, min(len(self.messages), self.chance.randrange(1, 4)))
        start = self.chance.randrange(len(self.messages))
        body = self.chance.choice(
            [
                MessagesUndone(message_ids=tuple(some)),
                MessagesUndone(message_ids=tuple(self.messages[start:])),
                MessagesRestored(message_ids=tuple(some)),
                MessagesRestored(message_ids=tuple(self.messages[start:])),
                MessageEdited(message_id=one, parts=(Text(self.words()),)),
                MessageRetracted(message_id=one),
                SessionCreated(source="s", owner="person:a", link=Link.FORK),
                SessionCreated(source="s", owner="room:b", reason="new"),
                SessionSet(name="view.unsigned", value=str(self.chance.randrange(len(self.bodies) + 1))),
                SessionSet(name="view.plain", value=str(self.chance.randrange(len(self.bodies) + 1))),
                SessionSet(name="view.hidden", value=str(self.chance.randrange(len(self.bodies) + 1))),
                SessionSet(name="view.plain", value=self.chance.choice(["no number", "²", "9" * 30])),
            ]
        )
        self.add(body)

    def compact(self) -> None:
        """What was said is summed up, to anywhere; or the attempt ends otherwise."""
        turn_id = self.id("t")
        self.add(TurnStarted(turn_id=turn_id, owner="o", purpose="compaction"))
        state = self.chance.choice([TurnState.COMPLETED, TurnState.FAILED, TurnState.INTERRUPTED, TurnState.LOST])
        if self.chance.random() < 0.3:
            self.person()
        if state == TurnState.COMPLETED and self.messages:
            self.add(
                SessionCompacted(
                    summary=self.chance.choice(["They talked.", "", " ", "long " * 50]),
                    through=self.chance.choice(self.messages),
                    from_seq=1,
                    to_seq=len(self.bodies),
                    read_seq=self.chance.randrange(len(self.bodies) + 1),
                )
            )
        self.add(TurnEnded(turn_id=turn_id, state=state))

    def disturb(self) -> None:
        """Let entries be lost, doubled or out of place."""
        for _ in range(self.chance.randrange(1, 4)):
            place = self.chance.randrange(len(self.bodies))
            kind = self.chance.randrange(3)
            if kind == 0 and len(self.bodies) > 1:
                del self.bodies[place]
            elif kind == 1:
                self.bodies.insert(place, self.chance.choice(self.bodies))
            else:
                other = self.chance.randrange(len(self.bodies))
                self.bodies[place], self.bodies[other] = self.bodies[other], self.bodies[place]


def invent(chance: random.Random) -> list[Entry]:
    """Return a journal."""
    inventor = Inventor(chance)
    for _ in range(chance.randrange(1, 7)):
        chance.choices(
            [inventor.turn, inventor.person, inventor.bring_in, inventor.change, inventor.compact], [6, 1, 2, 4, 2]
        )[0]()
    if inventor.bodies and chance.random() < 0.3:
        inventor.disturb()
    return [
        Entry(id=id, session_id=SESSION, seq=seq, kind=SCHEMA.by_body[type(body)].name, body=body)
        for seq, (id, body) in enumerate(inventor.bodies, 1)
    ]
