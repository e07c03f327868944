"""What every test of models starts from."""

from __future__ import annotations

import warnings

import pytest

from hansard.models.pydantic import preload
from tests.models.helpers import STYLES


@pytest.fixture(scope="session", autouse=True)
def _loaded() -> None:
    """The libraries are imported once, before any test measures a wait."""
    preload()
    with warnings.catch_warnings():
        # Google's package has escapes in its texts that Python warns of when it compiles them.
        warnings.simplefilter("ignore")
        preload("google")


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key and no address of the machine that runs the tests reaches them."""
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "GOOGLE_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest) -> str:
    """Each protocol in turn."""
    return str(request.param)
