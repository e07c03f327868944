"""S17: no request goes on to another host, and no key with it."""

from __future__ import annotations

import warnings

import pytest

from hansard.domain.http_answers import AnswerRefused, check_redirect
from hansard.models.pydantic import preload
from tests.security.endless import endless
from tests.security.reading import KEY, ask_model, ask_server


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """Google's package has escapes in its texts that Python warns of when it compiles them: no fault of a test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        preload("google")


@pytest.mark.parametrize("style", ["openai", "openai-responses", "anthropic", "google", "mcp"])
async def test_redirects_to_others_are_refused(style: str) -> None:
    """A provider or a server of tools that leads to another host is told as that, with both hosts; nobody is asked."""
    with endless() as server:
        port = server.server_port
        asked = ask_server(port, "redirect") if style == "mcp" else ask_model(port, "redirect", style)
        told = await asked
        assert f"127.0.0.1:{port} redirects to localhost:{port}" in told
        assert len(server.headers) == 1
        assert any(KEY in value for value in server.headers[0].values())


@pytest.mark.parametrize(
    ("url", "location", "is_followed"),
    [
        ("https://a.example/v1", "/v2", True),
        ("https://a.example/v1", "https://A.example:443/v2", True),
        ("http://a.example/v1", "https://a.example/v1", True),
        ("https://a.example/v1", "http://a.example/v1", False),
        ("https://a.example/v1", "https://a.example:8443/v1", False),
        ("https://a.example/v1", "//b.example/v1", False),
        ("https://a.example/v1", "https://a.example@b.example/", False),
        ("https://a.example/v1", "https://a.example.b.example/", False),
        ("https://a.example/v1", "file:///etc/passwd", False),
        ("https://a.example/v1", "https://[", False),
        ("http://a.example:80/v1", "https://a.example:444/v1", False),
    ],
)
def test_what_is_another_host(url: str, location: str, *, is_followed: bool) -> None:
    """Scheme, host and port count; from http to https of the same host is allowed."""
    if is_followed:
        check_redirect(url, location)
    else:
        with pytest.raises(AnswerRefused):
            check_redirect(url, location)
