"""Matrix's section of the settings. A part of the schema of `hansard.domain.settings`, which see."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hansard.domain.limits import MIB
from hansard.domain.settings_channels import DAY_SECONDS, PERSON_NAME, Answers, RoomSharing

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
        Annotated[
            str,
            Meta(
                max_length=2000,
                description="Where the homeserver is reached. Not set: Hansard is not on Matrix.",
                extra={
                    "allowed": "an https address without a password in it; http on this machine, or with allow_http"
                },
            ),
        ]
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
