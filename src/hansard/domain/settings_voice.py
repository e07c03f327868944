"""Settings of voice notes. A part of the schema of `hansard.domain.settings`, which see."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hansard.domain.limits import MIB
from hansard.domain.settings_agent import VARIABLE


class Transcription(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes voice notes down, and what that may take."""

    model: (
        Annotated[
            str,
            Meta(
                pattern=r"\Aopenai:[^\x00-\x20\x7f]+\Z",
                max_length=500,
                description="The model that writes voice notes down. Not set: they are kept, and only named to the "
                "model that answers.",
                extra={"allowed": "openai:NAME, such as openai:gpt-4o-mini-transcribe"},
            ),
        ]
        | None
    ) = None
    base_url: (
        Annotated[
            str,
            Meta(
                max_length=2000,
                description="Where that model is reached. Not set: where `providers.openai` is.",
                extra={
                    "allowed": "an https address without a password in it; http on this machine, or with allow_http"
                },
            ),
        ]
        | None
    ) = None
    key_variable: (
        Annotated[
            str,
            Meta(
                pattern=VARIABLE,
                description="The variable that holds the key for `transcription.base_url`. The key of "
                "`providers.openai` is sent to that provider's own host only.",
                extra={"allowed": "the name of a variable"},
            ),
        ]
        | None
    ) = None
    allow_http: Annotated[
        bool, Meta(description="Whether http may leave this machine: others on the way can then hear what is said.")
    ] = False
    bytes_max: Annotated[
        int, Meta(ge=1, le=256 * MIB, description="The largest voice note that is written down; larger ones are named.")
    ] = 25 * MIB
    seconds_max: Annotated[
        float, Meta(gt=0, le=3600, description="How long writing one down may take: the answer waits for it.")
    ] = 120.0
    dollars_per_minute: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1000,
                description="What a minute costs, for models that count minutes and not tokens. Not set: their cost "
                "is not counted.",
            ),
        ]
        | None
    ) = None
