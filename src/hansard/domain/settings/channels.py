"""Settings of channels: what they have in common, Telegram, Matrix, and channels of installed packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hansard.domain.chats import GRAMMARS, OTHER_NAME, OWN_NAMES
from hansard.domain.limits import MIB

DAY_SECONDS: Final = 86_400
PERSON_NAME: Final = r"[a-z0-9][a-z0-9_-]{0,63}"
OtherPlaces = dict[str, tuple[Annotated[str, Meta(min_length=1, max_length=250)], ...]]
"""Names on channels of `[channels.other]`, by channel."""

TELEGRAM_URL: Final = "https://api.telegram.org"

WebAddress = Annotated[
    str,
    Meta(
        max_length=2000,
        extra={"allowed": "an https address without a password in it; http on this machine, or with allow_http"},
    ),
]


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


AnswerAge = Annotated[
    int,
    Meta(
        ge=1,
        le=366 * DAY_SECONDS,
        description="How old a message may be that is answered. Older ones, sent while the gateway was down, "
        "are recorded, and the person is told.",
    ),
]
AttachmentSize = Annotated[
    int, Meta(ge=0, le=256 * MIB, description="The largest file that is kept. Of larger ones the name is recorded.")
]
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
    answer_age_seconds_max: AnswerAge = DAY_SECONDS
    attachment_bytes_max: AttachmentSize = 20 * MIB


MATRIX_PERSON: Final = r"@[^\s:]{1,200}:[^\s]{1,200}"

AllowName = Annotated[
    str,
    Meta(
        pattern=rf"\A(?:{PERSON_NAME}|{MATRIX_PERSON}|\*:[^\s*]{{1,200}}|![^\s]{{1,250}})\Z",
        extra={
            "allowed": "a list of names of [people], @person:server, *:server for all of a server, "
            "and !room:server for all in a room"
        },
    ),
]


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The account on Matrix. Its password and its keys stand elsewhere."""

    homeserver: (
        Annotated[WebAddress, Meta(description="Where the homeserver is reached. Not set: Hansard is not on Matrix.")]
        | None
    ) = None
    allow_http: Annotated[
        bool,
        Meta(description="Whether http may leave this machine: others on the way can then read tokens and words."),
    ] = False
    user_id: (
        Annotated[
            str,
            Meta(
                pattern=rf"\A{MATRIX_PERSON}\Z",
                description="The agent's own name on Matrix.",
                extra={"allowed": "a name such as @hansard:example.org"},
            ),
        ]
        | None
    ) = None
    allow: Annotated[
        tuple[AllowName, ...],
        Meta(
            max_length=1000,
            description="Who may talk to the agent. Nobody else may, until a code of theirs is approved.",
        ),
    ] = ()
    observe: Annotated[
        bool, Meta(description="Whether what allowed people say in rooms to each other is recorded, too.")
    ] = False
    rooms: Annotated[
        RoomSharing,
        Meta(description="`shared`: one session for all in a room. `per_person`: one for each person in it."),
    ] = RoomSharing.SHARED
    answer: Annotated[
        Answers,
        Meta(
            description="What is answered in a room. `mentions`: what names the agent or replies to it. "
            "`everything`: whatever allowed people say there."
        ),
    ] = Answers.MENTIONS
    answer_age_seconds_max: AnswerAge = DAY_SECONDS
    attachment_bytes_max: AttachmentSize = 20 * MIB


OTHER_ALLOWED: Final = (
    "a section [channels.other.NAME] for each channel of an installed package, with any of allow, observe, rooms, "
    "answer, answer_age_seconds_max and attachment_bytes_max, and what the channel itself wants to know, "
    "but no secret, in [channels.other.NAME.options]"
)

TAKEN: Final = "|".join(sorted({*GRAMMARS, *OWN_NAMES}))
OtherName = Annotated[str, Meta(pattern=rf"\A(?!(?:{TAKEN})\Z){OTHER_NAME}\Z")]
"""Of a channel of a package: none that is taken."""

OptionName = Annotated[str, Meta(pattern=r"\A(?!.*(?:key|token|secret|password)s?\Z)[a-z][a-z0-9_]{0,63}\Z")]
"""Of an option: none that sounds like a secret, which does not belong in the file."""


class OtherChannel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A channel of an installed package. What all channels have means the same here."""

    allow: Annotated[tuple[Annotated[str, Meta(pattern=r"\A\S{1,250}\Z")], ...], Meta(max_length=1000)] = ()
    """Names of [people], the platform's names of people, and ids of chats for all who are in one."""
    observe: bool = False
    rooms: RoomSharing = RoomSharing.SHARED
    answer: Answers = Answers.MENTIONS
    answer_age_seconds_max: AnswerAge = DAY_SECONDS
    attachment_bytes_max: AttachmentSize = 20 * MIB
    options: dict[OptionName, str | int | float | bool] = {}
    """What the channel itself is told. Secrets are not among them: they stand in the environment or in files."""
