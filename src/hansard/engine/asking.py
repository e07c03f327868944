"""Whether a call may be run: by the rules, or by a yes of those who asked, in the chat in which they asked.

Reads: the rules; who is answered by the turn. Writes: the question, as a notice and as a fact; a no when time is over.
Invariants: nothing is run before its yes is recorded; one question at a time, so that a yes means one call; only those
whom the turn answers can say it, where they asked.
On crash: the call was not begun. The turn is lost, and a yes that comes later answers nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from hansard.domain.conversation import last_exchange
from hansard.domain.entries import Entry
from hansard.domain.entries_agent import QuestionAnswered
from hansard.domain.messages import Message, Role
from hansard.domain.permissions import Verdict, decide
from hansard.domain.questions import Answered
from hansard.domain.tools import ToolScene

if TYPE_CHECKING:
    from hansard.domain.conversation import Conversation
    from hansard.domain.messages import ToolCall
    from hansard.domain.policy import Policy
    from hansard.record.api import Record
    from hansard.record.turn import Turn

ARGUMENTS_CHARACTERS_MAX = 3000
"""What people are shown of a call's arguments; how much is left out is said."""

Person = tuple[str, str]
"""Somebody, as the platform calls them, and the chat in which they asked; both empty at the terminal."""


def people_of(conversation: Conversation, turn_id: str) -> list[Person]:
    """Return whom a turn answers. One that nobody spoke for answers those who spoke last."""
    own = [placed.message for placed in conversation.placed if turn_id and placed.turn_id == turn_id]
    said = [message for message in own if message.role == Role.USER and not message.is_observed]
    if not said:
        earlier = [placed.message for placed in last_exchange(conversation)]
        said = [message for message in earlier if message.role == Role.USER and not message.is_observed]
    return sorted({(message.author, message.chat) for message in said})


class Permits:
    """What the calls of one step may do."""

    def __init__(self, turn: Turn, record: Record, policy: Policy, conversation: Conversation) -> None:
        """The conversation is as it stands when the model has called."""
        self._turn = turn
        self._record = record
        self._policy = policy
        self._owner = conversation.owner
        self._people = people_of(conversation, turn.id)
        self._lock = asyncio.Lock()

    @property
    def scene(self) -> ToolScene:
        """Where the calls are made."""
        people = tuple(author or self._policy.terminal for author, _ in self._people)
        return ToolScene(self._turn.session_id, self._owner, people, next((chat for _, chat in self._people), ""))

    async def refusal(self, call: ToolCall) -> str:
        """Return why a call is not run; empty when it may be."""
        askers = [self._policy.asker(self._owner, author, chat) for author, chat in self._people]
        verdict = decide(self._policy.rules, call.name, askers)
        if verdict is Verdict.ALLOW:
            return ""
        if verdict is Verdict.DENY:
            return f"The tool {call.name} is not allowed here, by the settings. It was not run."
        if self._policy.ask_seconds <= 0:
            return f"The tool {call.name} needs a yes of the person, and nobody can be asked here. It was not run."
        answered = await self._ask(question_text(call, self._policy.ask_seconds), call.id)
        if not answered.yes and not answered.by:
            await self._turn.append(Message.notice(f"Nobody answered in time, so {call.name} was not run."))
        if answered.yes:
            return ""
        why = f": {answered.reason}" if answered.reason else ""
        return f"The person did not allow this call{why}. It was not run."

    async def agree(self, text: str, what: str) -> bool:
        """Ask those whom the turn answers something, and return whether they say yes."""
        return self._policy.ask_seconds > 0 and (await self._ask(text, what)).yes

    async def _ask(self, text: str, what: str) -> Answered:
        """Ask, and wait for the answer, no longer than the settings say."""
        seconds = self._policy.ask_seconds
        async with self._lock:
            number = await self._turn.ask(Message.notice(text), what, self._people)
            try:
                async with asyncio.timeout(seconds):
                    return await self._answer(what)
            except TimeoutError:
                return await self._turn.settle_question(number, f"nobody answered within {seconds:g} s")

    async def _answer(self, call_id: str) -> Answered:
        session_id, fence = self._turn.session_id, self._turn.fence
        async with aclosing(self._record.follow(session_id, fence, chunks=False)) as items:
            async for item in items:
                body = item.body if isinstance(item, Entry) else None
                if isinstance(body, QuestionAnswered) and (body.turn_id, body.call_id) == (self._turn.id, call_id):
                    return Answered(yes=body.yes, by=body.by, reason=body.reason)
        raise AssertionError("a follower never ends")


def question_text(call: ToolCall, seconds: float) -> str:
    """Return what people are asked: the whole call, as far as it can be read, in lines that nothing can leave."""
    shown = call.arguments[:ARGUMENTS_CHARACTERS_MAX]
    lines = "\n".join(f"    {printable(line)}" for line in shown.splitlines() or [""])
    left_out = len(call.arguments) - len(shown)
    more = f"\n({left_out} more characters are not shown.)" if left_out else ""
    minutes = f"{seconds / 60:g} minutes" if seconds >= 120 else f"{seconds:g} seconds"  # noqa: PLR2004
    return (
        f"May I run the tool {printable(call.name)} with this?\n\n{lines}{more}\n\n"
        f"Say yes or no (/yes, /no). Without an answer within {minutes} it is a no."
    )


def printable(text: str) -> str:
    """Return a text without signs that change how others are shown."""
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text.replace("\t", "  "))
