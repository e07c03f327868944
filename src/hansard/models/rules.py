"""What each provider takes, from its public documentation: how long, how large, which pictures, whose reasoning.

Where a limit is not known for certain, the smaller one stands here: less is shown, and nothing is refused.
"""

from __future__ import annotations

import re
from typing import Final

from hansard.domain.limits import MIB
from hansard.domain.requests import ModelRules, family_of

WINDOWS: Final = (
    (r"claude-(?:[23]|v|instant)|claude-(?:opus|sonnet)-4-[0-5]|claude-haiku-4", 200_000),
    (r"claude-", 1_000_000),
    (r"gemini-(?:1\.0|pro\Z)", 32_768),
    (r"gemini-", 1_000_000),
    (r"gpt-3\.5", 16_385),
    (r"gpt-4-32k", 32_000),
    (r"gpt-4(?:-0\d\d\d)?\Z", 8_192),
    (r"gpt-4\.1", 1_000_000),
    (r"gpt-4|chatgpt-4o|o1-(?:mini|preview)|gpt-oss|gpt-audio", 128_000),
    (r"o[134]\b|codex-mini", 200_000),
    (r"gpt-5\.3\Z", 128_000),
    (r"gpt-5(?:\.[0-3])?(?:-|\Z)|gpt-5\.4-(?:mini|nano)", 400_000),
    (r"gpt-(?:5\.[4-9]|[6-9])", 1_000_000),
)
"""Windows in tokens by the beginning of a model's name, the first that matches. One that a person sets comes before."""

WINDOW_TOKENS_ELSEWHERE: Final = 32_000
"""A model of which nothing is known: most servers of one's own give no more to one conversation."""

SEEING: Final = re.compile(
    r"vision|llava|pixtral|gemma-?[34]|minicpm-v|moondream|\d(?:\.\d)?-?vl\b|-vl-|gpt-4o|gpt-[5-9]"
)
"""Names of models that see, on servers that serve any."""


def rules_of(style: str, model: str, *, is_own: bool, sees: bool | None = None) -> ModelRules:
    """Return the rules of a model behind a protocol; `is_own`: at the provider whose protocol it is.

    `sees`: whether the model takes pictures, as a person says; None: where not all do, it is judged by its name.
    """
    window = window_of(model)
    if style == "anthropic":
        # Of more than 20 pictures in a request none may have a side of more than 2000 pixels. 5 MB are counted as sent,
        # which is a third more than a picture has.
        return ModelRules(
            family=family_of(f"anthropic:{model}"),
            window_tokens=window,
            request_bytes_max=30 * MIB,
            images_max=0 if sees is False else 20,
            image_bytes_max=3_900_000,
            image_side_max=8000,
        )
    if style == "google":
        return ModelRules(
            family=family_of(f"google:{model}"),
            window_tokens=window,
            request_bytes_max=18 * MIB,
            images_max=0 if sees is False else 100,
            image_bytes_max=7_000_000,
            image_types=("image/jpeg", "image/png", "image/webp", "image/heic", "image/heif"),
        )
    if sees is None:
        sees = is_own or SEEING.search(model.lower()) is not None
    return ModelRules(
        family=family_of(f"openai-responses:{model}") if style == "openai-responses" else "",
        window_tokens=window,
        request_bytes_max=45 * MIB,
        images_max=50 if sees else 0,
        image_bytes_max=10 * MIB,
    )


def window_of(model: str) -> int:
    name = model.rpartition("/")[2].lower()
    return next((tokens for pattern, tokens in WINDOWS if re.match(pattern, name)), WINDOW_TOKENS_ELSEWHERE)
