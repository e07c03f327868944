"""What the tests of commands share: a person who types, in a session that a command may change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from hansard.domain.messages import Message
from hansard.domain.settings import Busy
from hansard.intake.commands.registry import run_command
from hansard.intake.commands.scene import CommandReply, CommandScene
from hansard.intake.speak import busy_of, parse
from hansard.ports.model import Model
from hansard.record.api import Record
from tests.engine.stage import Stage, stage


class Person:
    """Somebody at a terminal: what is typed is a command or is said, and the session is where the last one led."""

    def __init__(self, on: Stage, owner: str = "person:admin") -> None:
        """Begin in the stage's session."""
        self.on = on
        self.scene = CommandScene(
            record=on.record, session_id=on.session_id, owner=owner, source="test", model="played"
        )

    @property
    def record(self) -> Record:
        """The record."""
        return self.on.record

    @property
    def session_id(self) -> str:
        """Where this person is."""
        return self.scene.session_id

    async def type(self, text: str) -> str:
        """Type a line; return the reply to a command."""
        parsed = parse(text)
        if parsed is None:
            await self.on.speak(text, await busy_of(self.record, self.session_id, self.scene.busy))
            return ""
        outcome = await run_command(self.scene, text, parsed)
        self.follow(outcome)
        return outcome.text

    def follow(self, outcome: CommandReply) -> None:
        """Be where a command led, and run what it asks for."""
        self.scene = msgspec.structs.replace(
            self.scene, session_id=outcome.session_id, listed=outcome.listed or self.scene.listed
        )
        self.on.session_id = outcome.session_id
        if outcome.wake is not None:
            self.on.runner.wake(outcome.session_id, outcome.wake)

    async def ask(self, text: str) -> str:
        """Type a line and wait until nothing runs here."""
        reply = await self.type(text)
        await self.on.settled()
        return reply

    async def words(self, session_id: str | None = None) -> list[str]:
        """What was said in a session, by people and the model."""
        found = await self.record.load_transcript(session_id or self.session_id)
        return [message.text for message in found if message.role != "notice"]

    async def last_notices(self, count: int, session_id: str | None = None) -> list[Message]:
        """The last notices of a session."""
        found = await self.record.load_transcript(session_id or self.session_id)
        return [message for message in found if message.role == "notice"][-count:]

    def busy(self, mode: Busy) -> None:
        """Let the configuration say what messages do to a running turn."""
        self.scene = msgspec.structs.replace(self.scene, busy=mode)


@asynccontextmanager
async def person(home: Path, *models: Model, owner: str = "person:admin") -> AsyncIterator[Person]:
    """Somebody in a new session."""
    async with stage(home, *models) as on:
        yield Person(on, owner)
