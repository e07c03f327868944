"""What the tests of the engine share: a model that plays what it is given, and a stage that has everything on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from hansard.domain.budgets import Usage
from hansard.domain.limits import PATIENCE_SECONDS
from hansard.domain.messages import Message, Role, ToolCall, ToolOutcome, ToolResult
from hansard.domain.requests import (
    Called,
    Delta,
    Failed,
    Failure,
    FailureKind,
    Finished,
    FinishReason,
    ModelEvent,
    ModelRules,
    Request,
)
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy, TurnLimits
from hansard.domain.settings.agent import CompactionSettings
from hansard.engine.context import render
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent, Ran, run_turn
from hansard.intake.speak import Spoken, speak
from hansard.journal.concepts import Body
from hansard.journal.entries import log_name
from hansard.ports.model import Model
from hansard.ports.tool import Tool
from hansard.record.api import Record
from hansard.record.conversation import Conversation
from hansard.record.messages.entries import Chunk, Entry
from hansard.record.turns.entries import TurnEnded
from tests.engine.validator import assert_valid

WAIT_SECONDS_MAX = 120.0
"""Every wait in these tests ends by then."""

QUICK = TurnLimits(retry_seconds_max=0.01)
"""The usual limits, without waits between attempts."""


NO_RULES = ModelRules()

PERSON = "person:admin"
"""Who talks at the terminal."""

NOT_COMPACTED = CompactionSettings(automatic=False)


class Gate:
    """A place in an answer where the model waits until the test lets it go on."""

    def __init__(self) -> None:
        """Nobody is there yet."""
        self._reached = asyncio.Event()
        self._release = asyncio.Event()

    async def stand(self) -> None:
        """Be there, and wait."""
        self._reached.set()
        await self._release.wait()

    async def reached(self) -> None:
        """Wait until the model is there."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self._reached.wait()

    def open(self) -> None:
        """Let it go on."""
        self._release.set()


Cue = (
    str | Delta | ToolCall | Gate | Failure | FinishReason | Usage | BaseException | Callable[[Request], str | ToolCall]
)
Answer = Sequence[Cue]


class PlayedModel:
    """Plays answers in their order, the last one again and again, and keeps every request.

    An answer is a list of cues: text, calls, gates to wait at, a failure or an exception to end with. A function is
    asked for its cue with the request in its hand. Without an ending of its own an answer finishes as it should.
    """

    def __init__(
        self, *answers: Answer, name: str = "played", uses_tools: bool = True, rules: ModelRules = NO_RULES
    ) -> None:
        """Nothing was asked yet."""
        self.name = name
        self.uses_tools = uses_tools
        self.rules = rules
        self.requests: list[Request] = []
        self._answers = answers

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Play the next answer."""
        answer = self._answers[min(len(self.requests), len(self._answers) - 1)]
        self.requests.append(request)
        reason, usage = FinishReason.STOP, Usage()
        for given in answer:
            cue = given(request) if callable(given) and not isinstance(given, BaseException) else given
            if isinstance(cue, str) and not isinstance(cue, FinishReason):
                yield Delta(cue)
            elif isinstance(cue, Delta):
                yield cue
            elif isinstance(cue, ToolCall):
                reason = FinishReason.TOOLS
                yield Called(cue)
            elif isinstance(cue, Gate):
                await cue.stand()
            elif isinstance(cue, FinishReason):
                reason = cue
            elif isinstance(cue, Usage):
                usage = cue
            elif isinstance(cue, Failure):
                yield Failed(failure=cue, usage=usage)
                return
            else:
                raise cue
        yield Finished(reason=reason, usage=usage)

    async def close(self) -> None:
        """Nothing is held."""


def call(name: str = "echo", arguments: str = '{"text":"hello"}', *, id: str = "c1") -> ToolCall:
    """A call."""
    return ToolCall(id=id, name=name, arguments=arguments)


def failure(kind: FailureKind = FailureKind.UNAVAILABLE, retry_after_seconds: float | None = None) -> Failure:
    """A failure whose text names its kind."""
    return Failure(kind=kind, text=f"it is {kind}", retry_after_seconds=retry_after_seconds)


def answer_last(request: Request) -> str:
    """Answer with what was said last, so that an answer shows what it answers."""
    last = request.messages[-1]
    return f"<{getattr(last, 'text', last)}>"


class Stage:
    """A record, a session in it, and a runner with its agent."""

    def __init__(self, agent: Agent, session_id: str) -> None:
        """Everything is ready; nothing was said."""
        self.agent = agent
        self.record = agent.record
        self.session_id = session_id
        self.reports: list[BaseException] = []
        self.reported = asyncio.Event()
        self.runner = Runner(agent, self._report)

    def _report(self, _session_id: str, error: BaseException) -> None:
        self.reports.append(error)
        self.reported.set()

    async def speak(self, text: str, busy: Busy = Busy.QUEUE, *, id: str | None = None) -> Spoken:
        """Say something, and wake the runner as a person's program does."""
        spoken = await self.queue(text, busy, id=id)
        self.runner.wake(self.session_id, spoken.turn_id)
        return spoken

    async def queue(self, text: str, busy: Busy = Busy.QUEUE, *, id: str | None = None) -> Spoken:
        """Say something; nobody runs the turn yet."""
        return await speak(self.record, self.session_id, [Message.user(text, id=id, author=PERSON)], busy)

    async def settled(self) -> None:
        """Wait until nothing is left to run."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self.runner.settled(self.session_id)

    async def ask(self, text: str, busy: Busy = Busy.QUEUE) -> None:
        """Say something and wait until it is answered."""
        await self.speak(text, busy)
        await self.settled()

    async def run(self, text: str) -> Ran:
        """Say something and run its turn here, without a runner."""
        await self.queue(text)
        return await self.run_turn()

    async def run_turn(self) -> Ran:
        """Run the turn that waits."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return await run_turn(self.agent, self.session_id)

    async def stop(self, reason: str = "stopped by the test") -> None:
        """Ask the running turn to stop."""
        await self.record.turns.stop(self.session_id, reason)

    async def conversation(self) -> Conversation:
        """The fold."""
        return await self.record.conversation(self.session_id)

    async def transcript(self, *roles: Role) -> list[Message]:
        """The messages, notices left out unless they are asked for."""
        wanted = roles or (Role.USER, Role.ASSISTANT, Role.TOOL)
        return [message for message in await self.record.load_transcript(self.session_id) if message.role in wanted]

    async def texts(self, *roles: Role) -> list[str]:
        """Their words."""
        return [message.text for message in await self.transcript(*roles)]

    async def notices(self) -> list[str]:
        """What Hansard itself told the person."""
        return await self.texts(Role.NOTICE)

    async def results(self) -> list[ToolResult]:
        """The results of tools, in the order of the record."""
        parts = [part for message in await self.transcript(Role.TOOL) for part in message.parts]
        return [part for part in parts if isinstance(part, ToolResult)]

    async def outcomes(self) -> dict[str, ToolOutcome]:
        """What became of each call."""
        return {result.call_id: result.outcome for result in await self.results()}

    async def entries(self) -> list[Entry]:
        """The whole journal."""
        found: list[Entry] = []
        while more := await self.record.sessions.read_entries(self.session_id, found[-1].seq if found else 0):
            found += more
        return found

    async def together(self, kind: str) -> list[str]:
        """The kinds of the entries that one call committed together with the first of a kind, as the log tells."""
        lines = [json.loads(line) for line in (self.record.home / log_name(self.session_id)).read_text().splitlines()]
        first = next(line for line in lines if line["kind"] == kind)
        return [line["kind"] for line in lines if line["tx"] == first["tx"] and line.get("unit") == first.get("unit")]

    async def ends(self) -> list[tuple[TurnState, str]]:
        """How each turn ended, and why."""
        bodies = [entry.body for entry in await self.entries()]
        return [(body.state, body.reason) for body in bodies if isinstance(body, TurnEnded)]

    async def states(self) -> list[TurnState]:
        """How each turn ended."""
        return [state for state, _ in await self.ends()]

    async def until(self, seen: Callable[[Entry | Chunk], bool], after: str | int = 0) -> Entry | Chunk:
        """Wait until something is in the record."""
        async with asyncio.timeout(WAIT_SECONDS_MAX), aclosing(self.record.follow(self.session_id, after)) as items:
            async for item in items:
                if seen(item):
                    return item
        raise AssertionError("a follower never ends")

    async def until_text(self, text: str) -> None:
        """Wait until a chunk with these words is durable: a person may have seen them."""
        await self.until(lambda item: isinstance(item, Chunk) and text in item.text)

    async def until_body(self, kind: type[Body], count: int = 1) -> Entry:
        """Wait until there are so many entries of a kind; return the last of them."""
        seen: list[Entry] = []

        def enough(item: Entry | Chunk) -> bool:
            if isinstance(item, Entry) and isinstance(item.body, kind):
                seen.append(item)
            return len(seen) == count

        await self.until(enough)
        return seen[-1]

    async def check(self) -> None:
        """Both legs agree, every turn has ended, and what the model would be told now is valid."""
        report = await self.record.verify()
        assert report.ok, report.findings
        assert {turn.state for turn in await self.record.turns.list(self.session_id)} <= set(TurnState) - {
            TurnState.RUNNING,
            TurnState.QUEUED,
        }
        conversation = await self.conversation()
        assert_valid(render(conversation.placed, conversation.ends))


def fixed(models: Sequence[Model]) -> Callable[[], Awaitable[Sequence[Model]]]:
    """Models as an agent asks for them."""

    async def found() -> Sequence[Model]:
        return models

    return found


@asynccontextmanager
async def stage(
    home: Path,
    *models: Model,
    tools: Mapping[str, Tool] | None = None,
    limits: TurnLimits = QUICK,
    session_id: str | None = None,
    found: Callable[[], Awaitable[Sequence[Model]]] | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
    compaction: CompactionSettings = NOT_COMPACTED,
) -> AsyncIterator[Stage]:
    """Everything on stage; `found` is a search for models in place of those that are given.

    At the end the runner is closed, and nobody must have reported what no test expects.
    """
    async with Record.open(home, patience_seconds=patience_seconds) as record:
        agent = Agent(
            record=record, models=found or fixed(models), tools=tools or {}, limits=limits, compaction=compaction
        )
        session = await record.create_session(id=session_id, source="test")
        ready = Stage(agent, session.id)
        try:
            yield ready
        finally:
            await ready.runner.close()
        assert ready.reports == []


async def finish(task: asyncio.Task[Ran]) -> Ran:
    """Wait for a turn that runs as a task of its own."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await task
