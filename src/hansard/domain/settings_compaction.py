"""The settings of compaction: when what was said is summed up to make room."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class CompactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When and how what was said is summed up. The record keeps every word."""

    automatic: Annotated[
        bool, Meta(description="Whether it is done before the model's window is full. `/compact` does it at any time.")
    ] = True
    start_percent: Annotated[
        int, Meta(ge=10, le=95, description="How full the model's window is when it is done, after an answer.")
    ] = 75
    window_tokens: (
        Annotated[
            int,
            Meta(
                ge=1000,
                le=100_000_000,
                description="What the model reads and writes at once. Not set: what is known of the model.",
            ),
        ]
        | None
    ) = None
    tail_tokens: Annotated[
        int,
        Meta(ge=100, le=10_000_000, description="How much of the end is kept word for word, at most half the window."),
    ] = 20_000
    summary_tokens_max: Annotated[
        int, Meta(ge=100, le=100_000, description="How long a summary may be, at most an eighth of the window.")
    ] = 4_000
