"""S18: streams, lines, arguments and reasoning without end are cut, and take little memory."""

from __future__ import annotations

from tests.security.endless import SENT_BYTES_MAX, endless
from tests.security.reading import read_in_process

KIB_MAX = 400_000


def test_endless_answers_are_cut() -> None:
    """Whatever has no end is refused in words, the server is hung up on, and the process stays small."""
    kinds = ("line", "lines", "arguments", "reasoning", "text", "packed", "error")
    with endless() as server:
        told, grown = read_in_process(server.server_port, *(f"model:{kind}" for kind in kinds))
        sent = server.sent_bytes
    for kind in kinds:
        assert "not taken" in told[f"model:{kind}"], kind
    assert sent < SENT_BYTES_MAX // 8
    assert grown < KIB_MAX
