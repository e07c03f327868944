"""What the engine itself tells a model: the base of every system prompt, and notes about what happened.

Notes are part of later requests too: a changed word here changes what running sessions send, and providers' prompt
caches miss once; nothing else.
"""

from __future__ import annotations

from hansard.domain.turns import TurnState

BASE_PROMPT = """\
You are Hansard, a helpful assistant. Answer in the language of the person who speaks, in Markdown where it helps.
Lines in brackets that begin with "Hansard:" are notes by the program, not words of the person."""

REASON_CHARACTERS = 200
"""How much of a reason a model is told."""

NO_REPLY = "(no reply)"
"""Stands where a turn ended without a word, so that roles alternate."""

CONTINUE = (
    "[Hansard: your reply above was cut off by a broken connection. Go on exactly where it stops; repeat nothing.]"
)
GO_ON = "[Hansard: go on.]"
BEGIN = "[Hansard: the conversation begins with your words.]"
NO_TEXT = "(no text)"

RESULT_UNKNOWN = "[Hansard: outcome unknown: the turn ended before this call's result was recorded. It may have run.]"
RESULT_NOT_STARTED = "[Hansard: not started: the turn ended before this call was run.]"


EDITED = "[Hansard: the person edited this message afterwards; these are the latest words.]"
RETRACTED = "[Hansard: a message that was deleted in the chat stood here.]"
OBSERVED = "[Hansard: said among people, not to you.]"

BEGAN = {
    "new": "the person asked for a new session",
    "idle": "nobody had said anything for a while",
    "daily": "a new day began",
}
"""Why a session follows another one, as a model is told."""


def session_began(reason: str) -> str:
    """Return the note on how a session began that follows another one in the same chat."""
    said = BEGAN.get(reason, "the one before was ended")
    return f"[Hansard: this is a new session, because {said}. What was said before it is kept, but you do not see it.]"


def why(reason: str) -> str:
    """Return a reason as part of a note, on one line."""
    text = " ".join(reason.split())[:REASON_CHARACTERS]
    return f" ({text})" if text else ""


def reply_interrupted(reason: str) -> str:
    """Return the note on a reply that was not finished."""
    return f"[Hansard: your reply above was interrupted{why(reason)}; the person saw it as far as it goes.]"


def turn_without_reply(state: TurnState | None, reason: str) -> str:
    """Return the note on a turn that ended without an answer."""
    words = {
        TurnState.INTERRUPTED: "was interrupted before you replied",
        TurnState.FAILED: "failed before you replied",
        TurnState.LOST: "was lost before you replied, because the program stopped",
    }
    return f"[Hansard: the turn above {words.get(state, 'got no reply') if state else 'got no reply'}{why(reason)}.]"


def orphan_result(text: str) -> str:
    """Return the note on a tool's result whose call is not in the conversation."""
    return f"[Hansard: a tool's result without its call:\n{text}\n]"
