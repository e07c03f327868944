"""S15: a server of tools that packs gigabytes into a little is refused, and takes no memory."""

from __future__ import annotations

from tests.security.endless import endless
from tests.security.reading import read_in_process

KIB_MAX = 250_000


def test_packed_answers_are_not_unpacked() -> None:
    """Neither a packed message nor a packed stream of events is read."""
    with endless() as server:
        told, grown = read_in_process(server.server_port, "mcp:packed", "mcp:packed-events")
    for each in told.values():
        assert "The tools of t are missing" in each
        assert "sent a packed answer" in each
    assert grown < KIB_MAX
