"""What people in chats are told by Hansard itself: every sentence, in one place.

None of them repeats what somebody said, and none tells a stranger anything about others.
"""

from __future__ import annotations

from typing import Final

from hansard.domain.arrivals import Moved, Words
from hansard.domain.resets import Began
from hansard.intake.speak import REOPENED

BEGAN: Final = {
    Began.NEW: "A new session: {new}.",
    Began.IDLE: "Nothing was said here for a while, so this is a new session: {new}.",
    Began.DAILY: "A new day, so this is a new session: {new}.",
    Began.OTHERS: "Other people are here than before, so this is a new session: {new}.",
}

LATE: Final = (
    "What was sent here while I was away is recorded, but too old to be answered now. "
    "Say something, and I answer with all of it in mind."
)
CUT: Final = (
    "More was sent here while I was away than I could fetch. What is missing is on the platform, and not in my record."
)
UNREADABLE: Final = (
    "An encrypted message came that I cannot read yet. It is kept, and answered when its keys arrive; "
    "sending it again helps, too."
)
WELCOME: Final = "You may talk to me now. /help lists what I can do."
INTERRUPTED: Final = (
    "This command was interrupted when Hansard was stopped: it may have been carried out, or not. "
    "/status shows how things are."
)


def moved(change: Moved) -> str:
    """Return what people are told when their chat is in another session from now on."""
    began = BEGAN[change.reason].format(new=change.new)
    return f"{began} The one before is kept: /resume {change.old} goes on with it." if change.old else began


def code(written: str, minutes: int) -> str:
    """Return what a stranger is told."""
    return (
        "I may not talk to you yet. Give this code to whoever runs me, who can approve it with:\n\n"
        f"    hansard pair approve {written}\n\n"
        f"It is yours alone, counts once, and for {minutes} minutes. What you wrote was not recorded."
    )


def declined(written: str, minutes: int) -> str:
    """Return what a stranger is told whose invitation is declined: a reason, which clients show in a line."""
    return (
        f"I may not talk to you yet. Give the code {written} to whoever runs me, who approves it with "
        f"`hansard pair approve {written}`; then invite me again. "
        f"It is yours alone, counts once, and for {minutes} minutes from when you first asked."
    )


def not_kept(name: str, why: str) -> str:
    """Return what people are told about a file that was not kept."""
    return f"The file {name or 'without a name'} was not kept: {why}. Its name is recorded."


def not_recorded(why: str) -> str:
    """Return what people are told about a message that cannot be recorded."""
    return f"Your message could not be recorded, so I did not take it: {why}."


WORDS: Final = Words(moved=moved, reopened=REOPENED, late=LATE, unreadable=UNREADABLE, code=code, declined=declined)
