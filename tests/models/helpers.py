"""What the tests of models share: a conversation, a model in front of a server, and an answer taken apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hansard.domain.messages import ToolCall, ToolOutcome, ToolResult
from hansard.domain.requests import (
    AssistantSaid,
    Called,
    Delta,
    Failed,
    Failure,
    Finished,
    ModelEvent,
    Request,
    ToolSpec,
    ToolsSaid,
    UserSaid,
)
from hansard.models.pydantic import ProviderModel, open_provider
from hansard.ports.model import Model
from tests.models.providers import google_style, responses_style
from tests.models.providers.behaviour import Behaviour, Call
from tests.models.providers.server import Provider

STYLES = ("openai", "anthropic")
KEY = "sk-proj-Zm9yYmlkZGVu-never-shown"
WAIT_SECONDS_MAX = 120.0
"""Every wait in these tests ends by then."""

STALL_SECONDS = 60.0
"""Longer than any machine stalls by itself. Tests do not wait so long: they set the clock forward (tests/clock.py)."""

HELLO = Request(system="Be brief.", messages=(UserSaid("hello"),))

CLOCK = ToolSpec(
    name="clock",
    description="Tells the time.",
    parameters='{"type":"object","properties":{"zone":{"type":"string","default":"UTC"}},"required":["zone"]}',
)


def conversation(turns: int) -> Request:
    """Return a conversation of so many turns that holds everything that can be said."""
    messages: list[UserSaid | AssistantSaid | ToolsSaid] = []
    for turn in range(turns):
        messages.append(UserSaid(f"question {turn} \N{GRINNING FACE}\n"))
        first = ToolCall(id=f"call-{turn}-a", name="clock", arguments='{ "zone": "UTC" }')
        second = ToolCall(id=f"call-{turn}-b", name="clock", arguments='{"zone": "U' if turn % 2 else "")
        messages.append(AssistantSaid("Let me look." if turn % 2 else " ", (first, second)))
        good = ToolResult(call_id=first.id, text=f"{turn} o'clock")
        bad = ToolResult(call_id=second.id, text="", outcome=list(ToolOutcome)[turn % 4])
        messages += [ToolsSaid((good, bad)), AssistantSaid(f"It is {turn}.")]
    return Request(system="Be brief.", tools=(CLOCK,), messages=(*messages, UserSaid("and now?")))


@asynccontextmanager
async def asking(
    provider: Provider, *, stall_seconds: float = STALL_SECONDS, key: str | None = KEY
) -> AsyncIterator[ProviderModel]:
    """A model in front of a server, closed at the end."""
    model = open_provider(
        f"{provider.style}:test-model", key=key, base_url=provider.base_url, stall_seconds=stall_seconds
    )
    try:
        yield model
    finally:
        await model.close()


class Answer:
    """All events of a stream, taken apart. It checks the port's promise: exactly one ending, and that comes last."""

    def __init__(self, events: list[ModelEvent]) -> None:
        self.events = events
        endings = [event for event in events if isinstance(event, Finished | Failed)]
        assert endings == events[-1:], events
        self.ending = endings[0]
        deltas = [event for event in events if isinstance(event, Delta)]
        assert all(delta.text for delta in deltas)
        self.text = "".join(delta.text for delta in deltas if delta.part == "text")
        self.reasoning = "".join(delta.text for delta in deltas if delta.part == "reasoning")
        self.calls = [event.call for event in events if isinstance(event, Called)]

    @property
    def finished(self) -> Finished:
        """The ending of an answer that is whole."""
        assert isinstance(self.ending, Finished), self.ending
        return self.ending

    @property
    def failure(self) -> Failure:
        """Why it is not."""
        assert isinstance(self.ending, Failed), self.ending
        return self.ending.failure


async def ask(model: Model, request: Request = HELLO) -> Answer:
    """Ask and take the whole answer."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return Answer([event async for event in model.stream(request)])


THINKS = Behaviour(
    reasoning=("I ", "think."),
    pieces=("Let me ", "see."),
    calls=(Call(id="call_a", name="echo", arguments='{"text":"hello"}'),),
)


def sent_signature(style: str, body: str) -> bool:
    """Whether a request holds what the provider signed."""
    signature = {"anthropic": "c2lnbmVk", "openai-responses": responses_style.SECRET}.get(style, google_style.SIGNATURE)
    return signature in body
