"""How the record's decisions are put into words, in the language of a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hansard.domain.arrivals import Moved, Words
from hansard.domain.resets import Began

if TYPE_CHECKING:
    from hansard.domain.notices import Notices

BEGAN: Final = {
    Began.NEW: "session_new",
    Began.IDLE: "session_idle",
    Began.DAILY: "session_daily",
    Began.OTHERS: "session_others",
    Began.PARTED: "session_parted",
}
"""Which notice tells why a session began."""


def words_of(notices: Notices) -> Words:
    """Return the words in which people are told what only the record can decide."""
    return Words(
        moved=lambda change: moved(notices, change),
        reopened=notices.reopened,
        late=notices.late,
        unreadable=notices.unreadable,
        unverified=notices.unverified,
        code=lambda code, minutes: notices.code.format(code=code, minutes=minutes),
        declined=lambda code, minutes: notices.declined.format(code=code, minutes=minutes),
        over=lambda brought: str(getattr(notices, f"over_{brought}")),
        too_many_files=lambda name: not_kept(notices, name, notices.file_too_many),
    )


def moved(notices: Notices, change: Moved) -> str:
    """Return what people are told when their chat is in another session from now on."""
    template: str = getattr(notices, BEGAN[change.reason])
    began = template.format(new=change.new)
    return f"{began} {notices.session_kept.format(old=change.old)}" if change.old else began


def not_kept(notices: Notices, name: str, why: str) -> str:
    """Return what people are told about a file that was not kept."""
    return notices.file_not_kept.format(name=name or notices.file_unnamed, why=why)
