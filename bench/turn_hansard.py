"""Hansard as a reader: what is said goes through the record, and a token is seen when a follower has read it back.

It is put together as the terminal does it (`hansard.app.wiring`, `hansard.cli.talk`): speak, wake the runner, follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Self

from turn_readers import Heard, Past, provider_model
from turn_tokens import Tokens, Wanted, now_us

from hansard import Busy, Chunk, Message, Record
from hansard.domain.requests import ModelEvent, Request
from hansard.domain.settings import TurnLimits
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.intake.speak import speak
from hansard.models.pydantic import ProviderModel

ANSWER_SECONDS_MAX = 120.0
"""No answer is waited for longer."""

APPENDS_AT_ONCE = 500
"""How many messages of a past are on their way at a time; they are queued, and recorded, in order."""

SPOKEN, MODEL_ASKED, FIRST_DELTA = "spoken", "model asked", "first delta"
"""How far a turn has got: the words are recorded; the engine asks the model; the model gives its first piece."""


class Following:
    """A follower of one session."""

    def __init__(self) -> None:
        self.tokens = Tokens()
        self.ended = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def run(self, record: Record, session_id: str, after: int) -> None:
        """See tokens and ends of turns, until cancelled."""
        async with aclosing(record.follow(session_id, after)) as items:
            async for item in items:
                if isinstance(item, Chunk):
                    self.tokens.take(item.text)
                elif item.kind == "turn.ended":
                    self.ended.set()


class WatchedModel:
    """The same model; it notes when it was asked and when it began to answer."""

    def __init__(self, model: ProviderModel, stages: dict[str, int]) -> None:
        self._model = model
        self._stages = stages
        self.name = model.name
        self.uses_tools = model.uses_tools
        self.rules = model.rules

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Pass everything on."""
        self._stages[MODEL_ASKED] = now_us()
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                self._stages.setdefault(FIRST_DELTA, now_us())
                yield event

    async def close(self) -> None:
        """Close it."""
        await self._model.close()


class HansardReader:
    """A record, a runner and a follower for each conversation."""

    name = "hansard"

    def __init__(self, home: Path, base_url: str, *, watched: bool = False) -> None:
        """`watched` notes how far a turn got; for one turn at a time."""
        self._home = home
        self._model = provider_model(base_url)
        self._stages: dict[str, int] = {}
        self._used = WatchedModel(self._model, self._stages) if watched else self._model
        self._stack = AsyncExitStack()
        self._following: dict[str, Following] = {}
        self.errors: list[str] = []

    async def __aenter__(self) -> Self:
        """Open the record and get ready to run turns."""
        self._stack.push_async_callback(self._model.close)
        self.record = await self._stack.enter_async_context(Record.open(self._home))
        agent = Agent(record=self.record, models=self._models, tools={}, limits=TurnLimits())
        self._runner = Runner(agent, lambda session_id, error: self.errors.append(f"{session_id}: {error!r}"))
        self._stack.push_async_callback(self._runner.close)
        self._stack.push_async_callback(self._stop_following)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close, in order."""
        await self._stack.aclose()

    async def begin(self, place: str, past: Past) -> None:
        """Create a session with a past, and follow it from there on."""
        await self.record.create_session(id=place, source="bench")
        messages = [message for said, answered in past for message in (Message.user(said), Message.assistant(answered))]
        for at in range(0, len(messages), APPENDS_AT_ONCE):
            some = messages[at : at + APPENDS_AT_ONCE]
            await asyncio.gather(*(self.record.append(place, message) for message in some))
        following = Following()
        seq = (await self.record.conversation(place)).seq
        following.task = asyncio.create_task(following.run(self.record, place, seq))
        self._following[place] = following

    async def ask(self, place: str, past: Past, wanted: Wanted) -> Heard:
        """Speak, and see the answer in the record. The past is there already."""
        del past
        following = self._following[place]
        following.tokens, following.ended = Tokens(), asyncio.Event()
        self._stages.clear()
        asked_us = now_us()
        await speak(self.record, place, [Message.user(wanted.words)], Busy.QUEUE)
        self._stages[SPOKEN] = now_us()
        self._runner.wake(place)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await following.ended.wait()
        over_us = now_us()
        if not following.tokens.seen:
            found = (await self.record.load_transcript(place))[-1].text
            message = f"no answer in {place}: {found} {self.errors}"
            raise RuntimeError(message)
        # The turn ended in the record; its runner is let finish, so that the next turn finds it idle.
        await self._runner.settled(place)
        return Heard(asked_us, following.tokens.seen, over_us, dict(self._stages))

    async def leave(self, place: str) -> None:
        """Stop following a conversation."""
        task = self._following.pop(place).task
        assert task is not None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _stop_following(self) -> None:
        for place in list(self._following):
            await self.leave(place)

    async def _models(self) -> list[WatchedModel | ProviderModel]:
        return [self._used]
