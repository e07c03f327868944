"""A turn, from its claim to its end.

Reads: the conversation, and requests to stop. Writes: replies, results, notices, what was used, the turn's end.
Invariants: every step is recorded before its effect is visible; the turn ends in one commit with whatever it left open,
under a shield (L6). Nothing of a session is kept between turns but its fold, which cannot be stale.
On crash: recovery ends the turn as lost; a turn that waits in the record is claimed by whoever runs next.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress

import msgspec

from hansard.domain.budgets import Usage
from hansard.domain.messages import Message, Part, ToolCall, clean_part
from hansard.domain.permissions import may_be_offered
from hansard.domain.policy import Policy, is_model_allowed
from hansard.domain.requests import Called, Delta, Failure, FailureKind, Finished, FinishReason, ModelEvent, Request
from hansard.domain.sessions import RESUMED_SUFFIX
from hansard.domain.settings import TurnLimits
from hansard.domain.settings.agent import CompactionSettings
from hansard.engine.asking import Permits
from hansard.engine.calls import Calls
from hansard.engine.context import harmless_spec, system_prompt
from hansard.engine.files import Key, await_files, write_down
from hansard.engine.recovery import take_up
from hansard.engine.requests import Requests
from hansard.errors import HansardError, ModelMissing, OutcomeUnknown, RecordRefused, RecordUnavailable, StaleLease
from hansard.ports.model import Model, Transcriber
from hansard.ports.tool import Tool
from hansard.record.api import Record
from hansard.record.conversation import Conversation, is_unattributed
from hansard.record.messages.entries import Entry
from hansard.record.sessions import SessionFrozen
from hansard.record.turns.entries import TurnStopping
from hansard.record.turns.holding import Reply, Turn
from hansard.tasks import backoff_seconds, cancel_all

DEFAULT_MODEL = "default"
"""What the setting `model` of a session is when the configured one is meant again."""

RECORD_ERRORS = (RecordUnavailable, OutcomeUnknown, StaleLease, RecordRefused)
"""What a turn cannot end by itself: its runner hears of it."""

ASKS_AGAIN = "/retry asks again"
"""What a person is told who may want to ask again, where there are commands."""

UNATTRIBUTED = "This was asked before Hansard recorded who asked. Send it again to use tools."
"""Told once in a session."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn needs. The models are asked for when the first turn runs: they may take a while to be found."""

    record: Record
    models: Callable[[], Awaitable[Sequence[Model]]]
    tools: Mapping[str, Tool]
    limits: TurnLimits
    instructions: str = ""
    choose: Callable[[str], Awaitable[Model]] | None = None
    """Finds the model of a name, where a session has one of its own."""
    is_named: Callable[[], bool] | None = None
    """Whether the configured model was named for this run: then it comes before a session's own."""
    compaction: CompactionSettings = CompactionSettings()
    policy: Policy = Policy()
    transcriber: Transcriber | None = None
    """Writes voice notes down."""
    prepare: Callable[[], Awaitable[Sequence[str]]] | None = None
    """Gets tools of other servers ready; returns what went wrong."""
    asks_again: str = ASKS_AGAIN
    """What a person is told who may want to ask again."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a turn, as far as its runner has to know."""

    turn_id: str
    stopped: str = ""
    failed: str = ""
    """The class of the reason for which it failed, such as `unauthorised` or `limit`; empty when it did not."""
    model: str = ""
    """The model that was asked last; empty when none was."""


async def converse(agent: Agent, turn: Turn) -> None:
    """Ask; run the tools that are called; ask again; until the model calls no more."""
    record, limits = agent.record, agent.limits
    if turn.id.endswith(RESUMED_SUFFIX) and not await take_up(agent, turn):
        return
    conversation = await record.conversation(turn.session_id)
    if not conversation.wants_reply:
        return
    frozen = await frozen_of(agent, turn, conversation)
    models = await models_of(agent, conversation)
    await tell_model_denied(agent, turn, conversation)
    if frozen.tools and is_unattributed(conversation, turn.id):
        await turn.append(Message.notice(UNATTRIBUTED, id=f"{turn.session_id}-unattributed"))
    tokens, continued, step = 0, 0, 0
    missing: set[Key] = set()
    while True:
        step += 1
        await get_files(agent, turn, missing)
        answer = await ask(agent, turn, frozen, models)
        tokens += answer.usage.input_tokens + answer.usage.output_tokens
        if answer.failure is not None and answer.message_id and continued < limits.continuations_max:
            continued += 1
            turn.go_on(answer.message_id)
            await turn.append(
                Message.notice(f"{answer.failure.text.rstrip('.')}. The answer goes on in a new message.")
            )
        elif answer.failure is not None:
            fail(turn, answer.failure, agent.asks_again, said=bool(answer.message_id))
            return
        elif not answer.calls:
            await close(turn, answer, agent.asks_again)
            return
        elif reached := await limit_reached(agent, turn, step, tokens):
            # The calls that it would have run are not started.
            turn.tell(f"This turn reached its limit ({reached}) and was ended. Say “go on” to let it continue.")
            turn.fail(f"limit: {reached}")
            return
        else:
            permits = Permits(turn, record, agent.policy, await record.conversation(turn.session_id))
            await Calls(answer.message_id, answer.calls).run(turn, record, agent.tools, limits, permits)


async def get_files(agent: Agent, turn: Turn, told: set[Key]) -> None:
    """Wait for files that are on their way, and have voice notes written down, where there are any."""
    if (await agent.record.conversation(turn.session_id)).awaited:
        await await_files(agent, turn, told)
    if agent.transcriber is not None:
        await write_down(agent, turn, agent.transcriber)


async def limit_reached(agent: Agent, turn: Turn, step: int, tokens: int) -> str:
    """Return which limit a turn has reached before its next step; empty when none."""
    if step >= agent.limits.steps_max:
        return f"{step} steps"
    if tokens >= agent.limits.turn_tokens_max:
        return f"{tokens} tokens"
    if agent.policy.budget is None:
        return ""
    reached = await agent.record.budgets.reached(turn.session_id, turn.id, agent.policy.budget)
    return f"{reached} today" if reached else ""


async def frozen_of(agent: Agent, turn: Turn, conversation: Conversation) -> SessionFrozen:
    """Return what the model is told in this session; fixed by its first turn."""
    troubles = await agent.prepare() if agent.prepare is not None else ()
    if conversation.frozen is not None:
        return conversation.frozen
    if troubles:
        await turn.append(Message.notice("\n".join(troubles)))
    notes = await agent.record.memory.list(conversation.owner)
    system = system_prompt(agent.instructions, agent.policy.choice(conversation.owner).persona, notes)
    places = {each.place for each in conversation.by.get(turn.id, ())} or {("", "")}
    askers = [agent.policy.asker(conversation.owner, person, chat) for person, chat in sorted(places)]
    offered = [
        harmless_spec(tool.spec)
        for name, tool in sorted(agent.tools.items())
        if any(may_be_offered(agent.policy.rules, name, asker) for asker in askers)
    ]
    return await agent.record.sessions.freeze(turn.session_id, SessionFrozen(system=system, tools=tuple(offered)))


def chosen_model(agent: Agent, conversation: Conversation) -> str:
    """Return the model that people chose for a session; empty when they chose none, or may not choose it any more."""
    name = conversation.settings.get("model", "")
    return name if name == DEFAULT_MODEL or is_model_allowed(name, agent.policy.models_allowed) else ""


async def tell_model_denied(agent: Agent, turn: Turn, conversation: Conversation) -> None:
    """Tell people, once for each model, that the one which they chose is not allowed any more."""
    name = conversation.settings.get("model", "")
    if name and not chosen_model(agent, conversation):
        text = f"The model {name} may not be chosen any more, so the configured one answers. /model chooses another."
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        await turn.append(Message.notice(text, id=f"{turn.session_id}-model-{digest}"))


async def models_of(agent: Agent, conversation: Conversation) -> list[Model]:
    """Return the models to ask, in their order: the one that was chosen for this session, or the configured ones."""
    if agent.is_named is not None and agent.is_named():
        return list(await agent.models())
    name = chosen_model(agent, conversation) or agent.policy.choice(conversation.owner).model or ""
    if name in {"", DEFAULT_MODEL} or agent.choose is None:
        return list(await agent.models())
    return [await agent.choose(name)]


def fail(turn: Turn, failure: Failure, asks_again: str, *, said: bool) -> None:
    kept = "What was said is recorded" if said else "Your message is recorded"
    turn.tell(f"The model could not answer: {failure.text.rstrip('.')}. {kept}; {asks_again}.")
    turn.fail(f"{failure.kind}: {failure.text}")


async def close(turn: Turn, answer: Answer, asks_again: str) -> None:
    """Say what the person has to know about how the answer ended."""
    if not answer.has_words:
        turn.tell(f"The model gave an empty answer. {asks_again[:1].upper()}{asks_again[1:]}.")
        turn.fail("empty answer")
    elif answer.reason is FinishReason.LENGTH:
        await turn.append(Message.notice("The answer ended at its length limit. Say “go on” for more."))
    elif answer.reason is FinishReason.FILTER:
        await turn.append(Message.notice("The provider's content filter ended the answer."))


async def run_turn(agent: Agent, session_id: str, waiting: str = "") -> Ran:
    """Run the turn that waits in a session. NotFound when it does not, LeaseHeld when another one runs."""
    async with agent.record.turn(session_id, waiting=waiting, budget=agent.policy.budget) as turn:
        work = asyncio.create_task(converse(agent, turn))
        stop = asyncio.create_task(stop_asked(agent.record, turn, {}))
        try:
            await asyncio.wait({work, stop}, timeout=agent.limits.turn_seconds_max, return_when=asyncio.FIRST_COMPLETED)
            finished = work.done()
        except asyncio.CancelledError:
            turn.interrupt("the program was left")
            raise
        finally:
            await cancel_all(work, stop)
        if finished:
            tell_failure(turn, work)
            return ran_of(turn)
        if stop.cancelled():
            seconds = f"{agent.limits.turn_seconds_max:g} s"
            turn.tell(f"This turn took longer than {seconds} and was ended.")
            turn.fail(f"limit: {seconds}")
            return ran_of(turn)
        reason = stop.result()
        turn.interrupt(reason)
        return Ran(turn_id=turn.id, stopped=reason, model=turn.model)


def ran_of(turn: Turn) -> Ran:
    """Return what became of a turn that nobody stopped.

    A reason begins with its class. What follows the colon may quote the provider, and so the conversation.
    """
    return Ran(turn_id=turn.id, failed=turn.failed.partition(":")[0], model=turn.model)


def tell_failure(turn: Turn, work: asyncio.Task[None]) -> None:
    """End the turn as failed when its work raised, and tell the person what is safe; the record's own errors go on."""
    error = work.exception()
    if error is None:
        return
    known = isinstance(error, HansardError)
    text = f"{error}. {error.hint}" if isinstance(error, HansardError) else f"{type(error).__name__}: {error}"
    what = "The model could not answer" if isinstance(error, ModelMissing) else "The turn failed"
    turn.tell(f"{what}: {text}\nWhat was said is recorded.")
    if not known or isinstance(error, RECORD_ERRORS):
        raise error
    turn.fail(f"{type(error).__name__}: {error}")


async def stop_asked(record: Record, turn: Turn, also: Mapping[type, str]) -> str:
    """Wait until somebody asks this turn to stop, in whichever process, and return why.

    `also` are other entries after which it stops, each with its reason.
    """
    async with aclosing(record.follow(turn.session_id, turn.fence, chunks=False)) as items:
        async for item in items:
            body = item.body if isinstance(item, Entry) else None
            if isinstance(body, TurnStopping) and body.turn_id == turn.id:
                return body.reason
            if type(body) in also:
                return also[type(body)]
    return ""


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


async def ask(agent: Agent, turn: Turn, frozen: SessionFrozen, models: Sequence[Model]) -> Answer:
    """Return the first answer that says anything; without one, the failure of the last model."""
    answer = Answer(failure=Failure(kind=FailureKind.MISSING, text="no model is configured"))
    for index, model in enumerate(models):
        if index:
            failed = answer.failure.text.rstrip(".") if answer.failure else ""
            await turn.append(
                Message.notice(f"{models[index - 1].name} could not answer ({failed}). Asking {model.name}.")
            )
        answer = await ask_one(agent, turn, frozen, model)
        if answer.failure is None or answer.message_id:
            return answer
    return answer


async def ask_one(agent: Agent, turn: Turn, frozen: SessionFrozen, model: Model) -> Answer:
    """Ask one model, as often as it may help; one that cannot read the conversation, in a safer view."""
    attempt, limits = 0, agent.limits
    turn.model = model.name
    requests = Requests(agent.record, turn, frozen, model, limits.output_tokens_max)
    while True:
        attempt += 1
        answer = await stream_answer(turn, model, await requests.build())
        failure = answer.failure
        if failure is None or answer.usage != Usage():
            turn.add_usage(model.name, answer.usage)
        if failure is None or answer.message_id:
            await requests.accepted()
        elif await requests.remedied(failure):
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
    with suppress(AnswerCutError):
        async with aclosing(model.stream(request)) as events, AsyncExitStack() as stack:
            await writer.record_events(events, stack)
    return writer.answer


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
                calls = Calls(self.answer.message_id, self.answer.calls)
                self._turn.settle_calls(self.answer.message_id, calls.unfinished())
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
        cleaned = clean_part(ToolCall(id=call.id, name=call.name, arguments=call.arguments))
        assert isinstance(cleaned, ToolCall)
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
