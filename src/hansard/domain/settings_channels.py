"""Settings of channels: what they have in common, and Telegram's section. Matrix's is in `hansard.domain.settings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hansard.domain.limits import MIB

DAY_SECONDS: Final = 86_400
PERSON_NAME: Final = r"[a-z0-9][a-z0-9_-]{0,63}"
OtherPlaces = dict[str, tuple[Annotated[str, Meta(min_length=1, max_length=250)], ...]]
"""Names on channels of `[channels.other]`, by channel."""

TELEGRAM_URL: Final = "https://api.telegram.org"


def places_of(
    matrix: Sequence[str], telegram: Sequence[int | str], other: Mapping[str, Sequence[str]]
) -> tuple[tuple[str, str], ...]:
    """Return where somebody, or a room, is and what they are called there: (channel, identity)."""
    known = {"matrix": matrix, "telegram": [str(each) for each in telegram], **other}
    return tuple((channel, identity) for channel, identities in known.items() for identity in identities)


class RoomSharing(StrEnum):
    """Whose conversation a room is."""

    SHARED = "shared"
    """One session for all who are in it."""
    PER_PERSON = "per_person"
    """One session for each person."""


class Answers(StrEnum):
    """What the agent answers in a room."""

    MENTIONS = "mentions"
    """What names it or replies to it."""
    EVERYTHING = "everything"
    """Whatever an allowed person says."""


TelegramAllowName = Annotated[
    str,
    Meta(
        pattern=rf"\A(?:{PERSON_NAME}|-[1-9][0-9]{{0,19}})\Z",
        extra={
            "allowed": 'a list of names of [people], numbers of people such as "12345", '
            'and numbers of groups such as "-10012345" for all in a group'
        },
    ),
]


class Telegram(msgspec.Struct, frozen=True, kw_only=True):
    """The bot on Telegram. Its token stands elsewhere."""

    enabled: Annotated[
        bool, Meta(description="Whether Hansard is on Telegram, with the bot whose token it is given.")
    ] = False
    base_url: Annotated[
        str,
        Meta(
            max_length=2000,
            description="Where the Bot API is reached: Telegram's own, or a Bot API server that you run.",
            extra={"allowed": "an https address without a password in it; http on this machine"},
        ),
    ] = TELEGRAM_URL
    allow: Annotated[
        tuple[TelegramAllowName, ...],
        Meta(
            max_length=1000,
            description="Who may talk to the agent on Telegram. Nobody else may, until a code of theirs is approved.",
        ),
    ] = ()
    observe: Annotated[
        bool, Meta(description="Whether what allowed people say in groups to each other is recorded, too.")
    ] = False
    rooms: Annotated[
        RoomSharing,
        Meta(description="`shared`: one session for all in a group. `per_person`: one for each person in it."),
    ] = RoomSharing.SHARED
    answer: Annotated[
        Answers,
        Meta(
            description="What is answered in a group. `mentions`: what names the agent or replies to it. "
            "`everything`: whatever allowed people say there."
        ),
    ] = Answers.MENTIONS
    answer_age_seconds_max: Annotated[
        int,
        Meta(
            ge=1,
            le=366 * DAY_SECONDS,
            description="How old a message may be that is answered. Older ones, sent while the gateway was down, "
            "are recorded, and the person is told.",
        ),
    ] = DAY_SECONDS
    attachment_bytes_max: Annotated[
        int,
        Meta(ge=0, le=256 * MIB, description="The largest file that is kept. Of larger ones the name is recorded."),
    ] = 20 * MIB
