"""Going on with a turn that a crash ended.

Reads: what the lost turn left: a reply that was cut, calls without results. Writes: results of calls that may be run
again, a note for the model and one for people.
Invariants: what may not be repeated is not; a call that still waited for its yes was never begun, and asks again.
On crash: a turn that is lost while it goes on with another one is not taken up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.messages import Message, Role, ToolCall, ToolOutcome, ToolResult
from hansard.domain.sessions import RESUMED_SUFFIX, TurnInfo
from hansard.domain.settings.agent import AutoResume
from hansard.engine import prompts
from hansard.engine.asking import Permits
from hansard.engine.calls import Calls, result_id
from hansard.record.questions import QuestionAnswered, QuestionAsked

if TYPE_CHECKING:
    from hansard.engine.turns import Agent
    from hansard.record.conversation import Conversation
    from hansard.record.turns.holding import Turn

GOES_ON = "Hansard was stopped in the middle of this answer, and goes on with it now."
ASKS = "Hansard was stopped in the middle of this answer. Shall it go on?"


async def queue_lost(agent: Agent) -> list[TurnInfo]:
    """Queue turns that go on with those that were lost, where the settings want that; whoever serves a session runs it.

    They are shown where the lost ones were.
    """
    if agent.policy.auto_resume is AutoResume.OFF:
        return []
    queued = []
    for session_id, lost_id in await agent.record.turns.list_lost():
        conversation = await agent.record.conversation(session_id)
        chats = sorted({each.chat for each in conversation.by.get(lost_id, ()) if each.chat})
        turn = await agent.record.turns.queue_resumption(session_id, lost_id, chats)
        if turn is not None:
            queued.append(turn)
    return queued


async def take_up(agent: Agent, turn: Turn) -> bool:
    """Put what a lost turn left into order, so that the model can go on; return whether it shall."""
    conversation = await agent.record.conversation(turn.session_id)
    lost_id = turn.id.removesuffix(RESUMED_SUFFIX)
    permits = Permits(turn, agent.record, agent.policy, conversation)
    if agent.policy.auto_resume is AutoResume.ASK and not await permits.agree(ASKS, f"resume {lost_id}"):
        return False
    calling = last_calling(conversation, lost_id)
    if calling is not None:
        await settle_calls(agent, turn, calling, conversation, permits)
    turn.go_on(calling.id if calling is not None else lost_id, prompts.RESUMED)
    await turn.append(Message.notice(GOES_ON))
    return True


def last_calling(conversation: Conversation, turn_id: str) -> Message | None:
    own = [placed.message for placed in conversation.placed if placed.turn_id == turn_id]
    last = next((message for message in reversed(own) if message.role == Role.ASSISTANT), None)
    return last if last is not None and any(isinstance(part, ToolCall) for part in last.parts) else None


async def settle_calls(
    agent: Agent, turn: Turn, calling: Message, conversation: Conversation, permits: Permits
) -> None:
    """Give every call of a message its result: run again what may be, say of the rest that nobody knows."""
    calls = tuple(part for part in calling.parts if isinstance(part, ToolCall))
    there = {placed.message.id for placed in conversation.placed}
    unbegun = await never_begun(agent, turn)
    done = {index for index in range(len(calls)) if result_id(calling.id, index) in there}
    for index, call in enumerate(calls):
        tool = agent.tools.get(call.name)
        if index in done or call.id in unbegun or (tool is not None and tool.repeatable):
            continue
        result = ToolResult(call_id=call.id, text=prompts.RESULT_UNKNOWN, outcome=ToolOutcome.UNKNOWN)
        await turn.append(Message.make(Role.TOOL, [result], id=result_id(calling.id, index)))
        done.add(index)
    await Calls(calling.id, calls, done).run(turn, agent.record, agent.tools, agent.limits, permits)


async def never_begun(agent: Agent, turn: Turn) -> set[str]:
    """Return the calls of the lost turn that still waited for a yes: those were surely not run."""
    lost_id = turn.id.removesuffix(RESUMED_SUFFIX)
    lost = next((each for each in await agent.record.turns.list(turn.session_id) if each.id == lost_id), None)
    asked: set[str] = set()
    seq = lost.fence if lost is not None else turn.fence
    while entries := await agent.record.sessions.read_entries(turn.session_id, seq):
        for entry in entries:
            if isinstance(entry.body, QuestionAsked) and entry.body.turn_id == lost_id:
                asked.add(entry.body.call_id)
            elif isinstance(entry.body, QuestionAnswered) and entry.body.turn_id == lost_id and entry.body.yes:
                asked.discard(entry.body.call_id)
        seq = entries[-1].seq
    return asked
