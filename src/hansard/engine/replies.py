"""Asking a model: one streamed answer, again before its first word where that may help, then another model.

Reads: a request. Writes: the open message and its chunks, then its seal; notices about waits and changes of model.
Invariants: nothing of an answer is shown before it is recorded; after the first word there is no second try (A6, A7).
On crash: recovery seals what was recorded as interrupted.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

import msgspec

from hansard.domain.budgets import Usage
from hansard.domain.messages import Message, ToolCall, clean_part
from hansard.domain.requests import Called, Delta, Failure, FailureKind, Finished, FinishReason
from hansard.engine.calls import Calls
from hansard.tasks import backoff_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from hansard.domain.messages import Part
    from hansard.domain.requests import ModelEvent, Request
    from hansard.domain.settings import TurnLimits
    from hansard.engine.requests import Requests
    from hansard.ports.model import Model
    from hansard.record.turns.holding import Reply, Turn

RETRY_SECONDS = 0.625
"""The longest that the first pause is; each further one is twice as long."""

RETRY_SPREAD = 0.4
"""The part of a pause that may be left out by lot."""

TELL_SECONDS = 3.0
"""A pause longer than this is told to the person."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request. `message_id` is empty when nothing came, `has_words` false when nothing can be read."""

    message_id: str = ""
    has_words: bool = False
    calls: tuple[ToolCall, ...] = ()
    reason: FinishReason = FinishReason.STOP
    failure: Failure | None = None
    usage: Usage = Usage()


class AnswerCutError(Exception):
    """Leaves a reply that the provider cut, so that it is sealed as interrupted."""


async def ask(turn: Turn, models: Sequence[Model], requests: Requests, limits: TurnLimits) -> Answer:
    """Return the first answer that says anything; without one, the failure of the last model."""
    answer = Answer(failure=Failure(kind=FailureKind.MISSING, text="no model is configured"))
    for index, model in enumerate(models):
        if index:
            failed = answer.failure.text.rstrip(".") if answer.failure else ""
            await turn.append(
                Message.notice(f"{models[index - 1].name} could not answer ({failed}). Asking {model.name}.")
            )
        answer = await ask_one(turn, model, requests, limits)
        if answer.failure is None or answer.message_id:
            return answer
    return answer


async def ask_one(turn: Turn, model: Model, requests: Requests, limits: TurnLimits) -> Answer:
    """Ask one model, as often as it may help; one that cannot read the conversation, in a safer view."""
    attempt = 0
    turn.model = model.name
    requests.begin()
    while True:
        attempt += 1
        answer = await stream_answer(turn, model, await requests.build(model))
        failure = answer.failure
        if failure is None or answer.usage != Usage():
            turn.add_usage(model.name, answer.usage)
        if failure is None or answer.message_id:
            await requests.accepted(model)
        elif await requests.remedied(model, failure):
            attempt = 0
            continue
        if failure is None or answer.message_id or not failure.retryable or attempt == limits.attempts_max:
            return answer
        seconds = pause_seconds(attempt, failure, limits)
        if seconds > TELL_SECONDS:
            await turn.append(
                Message.notice(f"{model.name}: {failure.text.rstrip('.')}. Trying again in {seconds:.0f} s.")
            )
        await asyncio.sleep(seconds)


def pause_seconds(attempt: int, failure: Failure, limits: TurnLimits) -> float:
    """Return how long to wait: what the provider asks for, or twice as long each time, spread by lot."""
    if failure.retry_after_seconds is not None:
        return min(failure.retry_after_seconds, limits.retry_seconds_max)
    return backoff_seconds(attempt, RETRY_SECONDS, limits.retry_seconds_max, spread=RETRY_SPREAD)


async def stream_answer(turn: Turn, model: Model, request: Request) -> Answer:
    """Ask once. The message opens with the first word; it is sealed when the answer is whole."""
    writer = AnswerWriter(turn)
    try:
        async with aclosing(model.stream(request)) as events, AsyncExitStack() as stack:
            await writer.record_events(events, stack)
    except AnswerCutError:
        pass
    return writer.answer


def clean_call(call: ToolCall) -> ToolCall:
    """Return a call with every text as it can be recorded."""
    cleaned = clean_part(ToolCall(id=call.id, name=call.name, arguments=call.arguments))
    assert isinstance(cleaned, ToolCall)
    return cleaned


class AnswerWriter:
    """Writes one answer into the record."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._reply: Reply | None = None
        self.answer = Answer()

    async def record_events(self, events: AsyncIterator[ModelEvent], stack: AsyncExitStack) -> None:
        """Record every event; leave by AnswerCutError when the stream failed."""
        async for event in events:
            if isinstance(event, Delta):
                if event.text:
                    await (await self._open(stack)).write(event.text, part=event.part)
                    if not self.answer.has_words and event.part == "text" and event.text.strip():
                        self._change(has_words=True)
            elif isinstance(event, Called):
                call = self._own_call(event.call)
                (await self._open(stack)).add(call)
                self._change(calls=(*self.answer.calls, call))
                self._turn.settle_calls(
                    self.answer.message_id, Calls(self.answer.message_id, self.answer.calls).unfinished()
                )
            elif isinstance(event, Finished):
                self._change(reason=event.reason, usage=event.usage)
                self._arrange(event.parts)
            else:
                self._change(failure=event.failure, usage=event.usage, calls=())
                raise AnswerCutError

    def _arrange(self, parts: tuple[Part, ...]) -> None:
        """Record the answer in the parts that the provider gave it, its calls as they are recorded here."""
        called = [part for part in parts if isinstance(part, ToolCall)]
        if self._reply is None or not parts or len(called) != len(self.answer.calls):
            return
        calls = iter(
            msgspec.structs.replace(own, signature=part.signature, model=part.model)
            for own, part in zip(self.answer.calls, called, strict=True)
        )
        self._reply.arrange([next(calls) if isinstance(part, ToolCall) else part for part in parts])

    def _own_call(self, call: ToolCall) -> ToolCall:
        """Return a call as it is recorded, with an id of its own: results are found by it."""
        cleaned = clean_call(call)
        taken = {each.id for each in self.answer.calls}
        own, number = cleaned.id, len(taken) + 1
        while not own or own in taken:
            own, number = f"{cleaned.id or 'call'}-{number}", number + 1
        return msgspec.structs.replace(cleaned, id=own)

    async def _open(self, stack: AsyncExitStack) -> Reply:
        if self._reply is None:
            self._reply = await stack.enter_async_context(self._turn.reply())
            self._change(message_id=self._reply.id)
        return self._reply

    def _change(self, **changes: object) -> None:
        self.answer = msgspec.structs.replace(self.answer, **changes)
