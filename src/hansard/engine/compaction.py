"""Compaction: what was said long ago is summed up for the model, and stays in the record word for word.

Reads: the conversation. Writes: one entry with the summary and what it covers, what the requests used, a notice.
Invariants: it runs as a turn of its own kind, under the session's lease, so that two at once cannot happen; nothing
is removed; the end is kept whole, from the beginning of an exchange on; a summary that is none changes nothing, is
told, and is not tried again until much more was said. A person who speaks ends it, and loses nothing.
On crash: the turn is lost, and nothing has changed; or the summary is recorded, and counts.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from hansard.domain.budgets import Usage
from hansard.domain.messages import Message, Role
from hansard.domain.people import By, How
from hansard.domain.requests import Delta, Failed, Finished, FinishReason, Request
from hansard.domain.settings.agent import CompactionSettings
from hansard.domain.text import clean_text
from hansard.engine.requests import estimate_tokens, message_tokens
from hansard.engine.summaries import anchors_of, blocks_of, fault_of, summary_request
from hansard.engine.turns import Agent, limit_reached, models_of, stop_asked
from hansard.errors import HansardError
from hansard.ports.model import Model
from hansard.record.conversation import Conversation, SessionCompacted, exchange_starts
from hansard.record.messages.entries import Placed
from hansard.record.sessions import SessionEnd
from hansard.record.turns.entries import TurnQueued
from hansard.record.turns.holding import Turn
from hansard.tasks import cancel_all

WANTED = "compact"
"""The setting by which a person asks for it, in whichever process."""

EXCHANGE_MESSAGES = 2

FULL_PERCENT = 85
"""How full the window is when a turn waits for it: what is said next would not fit."""

FAILURES_MAX = 3
"""Failures in a row after which only a person asks for it again."""

GROWTH_MESSAGES = 10
"""How many more messages there are before it is tried again; twice as many after each further failure."""

COVERED_TOKENS_MIN = 100
"""Less than this is not worth a summary."""

SUMMARY_CHARACTERS_MAX = 200_000
"""What is listened to: a model that does not stop is left."""

NOTHING = "There is nothing to sum up yet."
INTERRUPTED = "Summing up was interrupted. Nothing changed; /compact asks again."


class CompactionRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person asked for, and where the answer is to be shown."""

    focus: str = ""
    chat: str = ""
    person: str = ""

    @property
    def by(self) -> tuple[By, ...]:
        return (By(person=self.person, chat=self.chat, how=How.COMPACT),) if self.person else ()


def read_request(text: str) -> CompactionRequest:
    try:
        return msgspec.json.decode(text, type=CompactionRequest)
    except msgspec.DecodeError:
        return CompactionRequest()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be summed up."""

    placed: tuple[Placed, ...]
    before: str
    from_seq: int
    read_seq: int
    tokens_before: int
    tokens_kept: int
    summary_tokens_max: int
    block_tokens_max: int
    """What one request for a summary reads: it must fit when nothing else does."""

    @property
    def source_tokens(self) -> int:
        return sum(message_tokens(each.message) for each in self.placed) + estimate_tokens(self.before)

    def tokens_after(self, summary: str) -> int:
        """Return about how many tokens are left: the provider's own count, by what becomes less of our estimate."""
        kept, source = self.tokens_kept, self.source_tokens
        return self.tokens_before * (kept + estimate_tokens(summary)) // (kept + source)


def context_tokens(conversation: Conversation) -> int:
    """Return about how many tokens the next request has: what the provider counted last, and what came since."""
    measure = conversation.measure
    if measure is not None and measure.placed >= conversation.covered:
        told, since = measure.tokens, conversation.placed[measure.placed :]
    else:
        frozen, compaction = conversation.frozen, conversation.compaction
        told = estimate_tokens(frozen.system) if frozen is not None else 0
        told += estimate_tokens(compaction.body.summary) if compaction is not None else 0
        since = conversation.placed[conversation.covered :]
    return told + sum(message_tokens(each.message) for each in (*since, *conversation.waiting))


def window_of(settings: CompactionSettings, model: Model) -> int:
    """Return how many tokens a model reads at once; 0 when nobody knows."""
    return settings.window_tokens or model.rules.window_tokens


def is_due(conversation: Conversation, settings: CompactionSettings, window_tokens: int, percent: int) -> bool:
    """Return whether it is time, and not too soon after it failed."""
    if not settings.automatic or not window_tokens:
        return False
    failures = conversation.failed_compactions
    if len(failures) >= FAILURES_MAX:
        return False
    if failures and len(conversation.placed) < failures[-1].placed + GROWTH_MESSAGES * 2 ** (len(failures) - 1):
        return False
    return context_tokens(conversation) * 100 >= window_tokens * percent


def plan(conversation: Conversation, settings: CompactionSettings, window_tokens: int, *, asked: bool) -> Plan | None:
    """Return what to compact: everything before the end that is kept. None when there is too little."""
    placed, covered = conversation.placed, conversation.covered
    total = context_tokens(conversation)
    tail_max = min(settings.tail_tokens, window_tokens // 2 if window_tokens else settings.tail_tokens)
    if asked:
        tail_max = min(tail_max, total // 4)
    starts = [start + covered for start in exchange_starts(placed[covered:])]
    if not starts:
        return None
    cut, kept = starts[-1], sum(message_tokens(each.message) for each in placed[starts[-1] :])
    for start in reversed(starts[:-1]):
        more = sum(message_tokens(each.message) for each in placed[start:cut])
        if kept + more > tail_max:
            break
        cut, kept = start, kept + more
    taken = tuple(placed[covered:cut])
    if sum(message_tokens(each.message) for each in taken) < COVERED_TOKENS_MIN:
        return None
    before = conversation.compaction.body.summary if conversation.compaction is not None else ""
    summary_max, block_max = settings.summary_tokens_max, total
    if window_tokens:
        summary_max = min(summary_max, window_tokens // 8)
        block_max = (window_tokens - 3 * summary_max) * 3 // 4
    return Plan(
        placed=taken,
        before=before,
        from_seq=placed[0].seq,
        read_seq=conversation.seq,
        tokens_before=total,
        tokens_kept=kept,
        summary_tokens_max=summary_max,
        block_tokens_max=block_max,
    )


async def compact_if_due(agent: Agent, session_id: str, percent: int, *, after: bool) -> None:
    """Compact if a person asked for it, or if the window is that full; before a turn only if it is too full."""
    conversation = await agent.record.conversation(session_id)
    if after and conversation.queued:
        # Somebody waits for an answer, maybe in another process: there is a time after that.
        return
    if after and conversation.wants_compaction:
        await compact(agent, session_id, read_request(conversation.settings.get(WANTED, "")))
        return
    if not agent.compaction.automatic or len(conversation.placed) - conversation.covered < EXCHANGE_MESSAGES:
        return
    try:
        model = (await models_of(agent, conversation))[0]
    except HansardError:
        # Whoever asks the model next is told why there is none.
        return
    if is_due(conversation, agent.compaction, window_of(agent.compaction, model), percent):
        await compact(agent, session_id, must=not after)


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it, for people; and whether it failed."""

    text: str
    failed: bool = False


async def compact(agent: Agent, session_id: str, asked: CompactionRequest | None = None, *, must: bool = False) -> None:
    """Compact a session, under the session's lease; LeaseHeld when a turn runs.

    With a request a person asked for it, and is told in that chat what became of it. Without one, what was
    said last was said where a failure is told. Unless a turn waits for it (`must`), whoever speaks meanwhile ends it.
    """
    request = asked or CompactionRequest()
    chat, interruption = request.chat, "" if asked is None else INTERRUPTED
    async with agent.record.turn(session_id, purpose="compaction", by=request.by) as turn:
        if (await agent.record.conversation(session_id)).queued and not must:
            interrupt(turn, "somebody waits for an answer", interruption, chat)
            return
        work = asyncio.create_task(summarise(agent, turn, asked))
        ends: dict[type, str] = {SessionEnd: "the session has ended"}
        if not must:
            ends[TurnQueued] = "a new message came"
        stop = asyncio.create_task(stop_asked(agent.record, turn, ends))
        try:
            seconds = agent.limits.turn_seconds_max
            await asyncio.wait({work, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            finished, stopped = work.done(), stop.done() and not work.done()
            if stopped:  # said here, because whoever speaks may also cancel what is awaited next
                interrupt(turn, stop.result(), interruption, chat)
        except asyncio.CancelledError:
            interrupt(turn, "the program was left, or a new message came", interruption, chat)
            raise
        finally:
            await cancel_all(work, stop)
        if stopped:
            return
        outcome = work.result() if finished else Compacted(text=f"it took longer than {seconds:g} s", failed=True)
        if outcome.failed:
            turn.fail(outcome.text)
            where = chat if asked is not None else last_chat(await agent.record.conversation(session_id))
            turn.tell(f"What was said could not be summed up: {outcome.text}. Nothing changed.", where)
        elif outcome.text:
            await turn.append(Message.notice(outcome.text, chat=chat))


def interrupt(turn: Turn, reason: str, told: str, chat: str) -> None:
    """End it before its time; whoever asked for it is told."""
    turn.interrupt(reason)
    if told:
        turn.tell(told, chat)


def last_chat(conversation: Conversation) -> str:
    """Return the chat in which people spoke last; empty when that was elsewhere."""
    said = (each.message for each in reversed(conversation.placed) if each.message.role == Role.USER)
    return next((message.chat for message in said if not message.is_imported), "")


async def summarise(agent: Agent, turn: Turn, asked: CompactionRequest | None) -> Compacted:
    """Ask for the summary, block by block, and note it if it is one."""
    settings = agent.compaction
    conversation = await agent.record.conversation(turn.session_id)
    try:
        model = (await models_of(agent, conversation))[0]
    except HansardError as error:
        return Compacted(text=str(error), failed=True)
    planned = plan(conversation, settings, window_of(settings, model), asked=asked is not None)
    if planned is None:
        return Compacted(text=NOTHING if asked is not None else "")
    count = len(planned.placed) + conversation.covered
    if reached := await limit_reached(agent, turn, step=0, tokens=0):
        return Compacted(text=f"a limit is reached ({reached})", failed=True)
    focus = asked.focus if asked is not None else ""
    answered = await ask_for_summary(turn, model, planned, focus)
    if answered.fault:
        return Compacted(text=answered.fault, failed=True)
    summary, through = answered.text, planned.placed[-1].message.id
    if (await agent.record.conversation(turn.session_id)).is_stale(through, planned.read_seq):
        return Compacted(text="what it sums up was changed meanwhile", failed=True)
    tokens_after = planned.tokens_after(summary)
    turn.compact(
        SessionCompacted(
            summary=clean_text(summary.strip()),
            through=through,
            from_seq=planned.from_seq,
            to_seq=max(each.seq for each in planned.placed),
            read_seq=planned.read_seq,
            tokens_before=planned.tokens_before,
            tokens_after=tokens_after,
            model=model.name,
            focus=focus,
        )
    )
    return Compacted(
        text=f"The first {count} messages were summed up for the model: about {planned.tokens_before} tokens are "
        f"{tokens_after} now. The record keeps every word."
    )


async def ask_for_summary(turn: Turn, model: Model, planned: Plan, focus: str) -> SummaryAnswer:
    """Ask for a summary, block by block, each taking in the one before. One that is none has a fault."""
    anchors, tokens_max = anchors_of(planned.placed), planned.summary_tokens_max
    heard = SummaryAnswer(planned.before)
    for block in blocks_of(planned.placed, planned.block_tokens_max):
        taken_in = estimate_tokens(block) + estimate_tokens(heard.text)
        heard = await listen(turn, model, summary_request(heard.text, block, focus, anchors, tokens_max))
        fault = heard.fault or fault_of(heard.text, heard.reason, [], taken_in, tokens_max)
        if fault:
            return SummaryAnswer(fault=fault)
    return heard._replace(fault=fault_of(heard.text, heard.reason, anchors, planned.source_tokens, tokens_max))


class SummaryAnswer(NamedTuple):
    """What a model said when it was asked once; or why it said nothing."""

    text: str = ""
    reason: FinishReason = FinishReason.STOP
    fault: str = ""


async def listen(turn: Turn, model: Model, request: Request) -> SummaryAnswer:
    """Ask once and take the whole answer. It is shown to nobody, so it is recorded only if it counts."""
    pieces: list[str] = []
    size = 0
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            if isinstance(event, Delta) and event.part == "text":
                pieces.append(event.text)
                size += len(event.text)
                if size > SUMMARY_CHARACTERS_MAX:
                    return SummaryAnswer(fault="the model did not stop")
            elif isinstance(event, Finished | Failed):
                if event.usage != Usage():
                    turn.add_usage(model.name, event.usage)
                if isinstance(event, Failed):
                    return SummaryAnswer(fault=event.failure.text.rstrip("."))
                return SummaryAnswer("".join(pieces), event.reason)
    return SummaryAnswer(fault="the answer was cut off")
