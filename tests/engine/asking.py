"""A stage whose agent has to ask before it calls a tool."""

from __future__ import annotations

import msgspec

from hansard.domain.messages import Message
from hansard.domain.permissions import CallVerdict, ToolRule
from hansard.domain.policy import Policy
from hansard.domain.settings import Busy
from hansard.intake.speak import speak
from hansard.record.questions import QuestionAsked
from tests.engine.stage import PERSON, Stage

ASKS = Policy(rules=(ToolRule(do=CallVerdict.ASK, tool="counting"), ToolRule(do=CallVerdict.DENY, tool="slow")))


def ask_of(on: Stage, policy: Policy = ASKS) -> None:
    """Let the stage's agent keep these rules."""
    on.agent = msgspec.structs.replace(on.agent, policy=policy)
    on.runner._agent = on.agent  # noqa: SLF001 - the stage's own runner


async def say(on: Stage, text: str, author: str = PERSON, chat: str = "", busy: Busy = Busy.INTERRUPT) -> None:
    """Say something as somebody, and wake the runner."""
    message = Message.user(text, author=author, chat=chat)
    spoken = await speak(on.record, on.session_id, [message], busy, answers=True)
    if spoken.turn_id:
        on.runner.wake(on.session_id, spoken.turn_id)


async def drawn(on: Stage, count: int = 1) -> QuestionAsked:
    """Wait for a question, and draw it as a terminal does."""
    body = (await on.until_body(QuestionAsked, count)).body
    assert isinstance(body, QuestionAsked)
    await on.record.questions.note_shown(on.session_id, body.message_id)
    return body
