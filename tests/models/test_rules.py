"""The table of windows, against the figures of another project; and what each protocol's rules promise."""

from __future__ import annotations

import pytest
from genai_prices.data_snapshot import get_snapshot

from hansard.models.rules import WINDOW_TOKENS_ELSEWHERE, rules_of, window_of

OWN = {"openai": "openai", "anthropic": "anthropic", "google": "google"}
NOT_CHAT = (
    "embedding",
    "tts",
    "realtime",
    "transcribe",
    "image",
    "audio",
    "live",
    "computer-use",
    "instruct",
    "claude-",
)
"""Models that nobody chats with, and those of one provider that another one sells."""


def known_windows() -> list[tuple[str, int]]:
    """Chat models and their windows, as the list of prices has them."""
    return [
        (model.id, model.context_window)
        for provider in get_snapshot().providers
        if provider.id in OWN
        for model in provider.models
        if model.context_window and (provider.id == "anthropic" or not any(part in model.id for part in NOT_CHAT))
    ]


def test_no_window_is_thought_larger_than_it_is() -> None:
    """Too small a window costs a summary; too large a one costs a refusal. None is much too large."""
    known = known_windows()
    assert len(known) > 40
    wrong = [(name, window, window_of(name)) for name, window in known if window_of(name) > window * 1.03]
    assert wrong == []


def test_most_windows_are_known() -> None:
    """A model that the table does not know is treated as a small one; there are few of those."""
    known = known_windows()
    small = [name for name, window in known if window_of(name) * 2 < window]
    assert len(small) * 10 < len(known), small


@pytest.mark.parametrize("name", ["llama-4", "some/finetune", "", "qwen3:8b"])
def test_a_model_that_nobody_knows(name: str) -> None:
    """It is small, sees nothing on a server of one's own, and is given no reasoning in Chat Completions."""
    rules = rules_of("openai", name, is_own=False)
    assert (rules.window_tokens, rules.images_max, rules.family) == (WINDOW_TOKENS_ELSEWHERE, 0, "")


@pytest.mark.parametrize("style", ["openai", "openai-responses", "anthropic", "google"])
def test_a_person_says_what_sees(style: str) -> None:
    """What the settings say of a model comes before what its name suggests."""
    assert rules_of(style, "some/finetune", is_own=False, sees=True).images_max > 0
    assert rules_of(style, "some-vision", is_own=True, sees=False).images_max == 0


def test_pictures_stay_within_what_is_documented() -> None:
    """Bytes of a picture and of a request as sent, how many pictures, and their sides: none is beyond the documents."""
    documented = {
        "openai": (50_000_000, 500, 20_000_000),
        "openai-responses": (50_000_000, 500, 20_000_000),
        "anthropic": (32_000_000, 100, 5 * 1024 * 1024),
        "google": (20_000_000, 900, 7_000_000 * 4 // 3),
    }
    for style, (request_bytes, images, image_bytes) in documented.items():
        rules = rules_of(style, "m", is_own=True)
        assert rules.request_bytes_max <= request_bytes
        assert rules.images_max <= images
        assert rules.image_bytes_max * 4 // 3 <= image_bytes
    anthropic = rules_of("anthropic", "claude-sonnet-5", is_own=True)
    assert (anthropic.images_max, anthropic.image_side_max) == (20, 8000)


def test_models_that_see() -> None:
    """By name on servers that serve any, always at the providers."""
    assert rules_of("openai", "qwen2.5-vl-7b", is_own=False).images_max
    assert rules_of("openai", "llava:13b", is_own=False).images_max
    assert all(rules_of(style, "m", is_own=True).images_max for style in (*OWN, "openai-responses"))
    assert "image/gif" not in rules_of("google", "gemini-3.5-flash", is_own=True).image_types
