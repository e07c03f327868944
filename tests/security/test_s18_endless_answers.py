"""S18: streams, lines, arguments and reasoning without end are cut, and take little memory."""

from __future__ import annotations

from tests.security.endless import SENT_BYTES_MAX, endless
from tests.security.reading import read_in_process

KIB_MAX = 400_000

AT_ONCE, IN_ALL, PACKED = "16 MiB at once", "8 million characters", "a packed answer"
REASONS = {
    "line": AT_ONCE,
    "lines": AT_ONCE,
    "arguments": IN_ALL,
    "reasoning": IN_ALL,
    "text": IN_ALL,
    "packed": PACKED,
    "error": AT_ONCE,
}
"""By which bound each is cut: another one, that comes later, would not do."""


def test_endless_answers_are_cut() -> None:
    """Whatever has no end is refused in words, the server is hung up on, and the process stays small."""
    with endless() as server:
        told, grown = read_in_process(server.server_port, *(f"model:{kind}" for kind in REASONS))
        sent = server.sent_bytes
    for kind, reason in REASONS.items():
        assert "not taken" in told[f"model:{kind}"], kind
        assert reason in told[f"model:{kind}"], kind
    assert sent < SENT_BYTES_MAX // 8
    assert grown < KIB_MAX
