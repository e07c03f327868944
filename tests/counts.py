"""How often a test repeats itself: `make test`, `make test-long` (HANSARD_LONG), `make prove` (HANSARD_PROVE)."""

from __future__ import annotations

import os

import pytest

PROVE = bool(os.environ.get("HANSARD_PROVE"))
LONG = bool(os.environ.get("HANSARD_LONG"))
only_long = pytest.mark.skipif(not (LONG or PROVE), reason="takes long: make test-long")
"""For a test that adds little to a shorter one."""


def times(test: int, long: int, prove: int) -> int:
    """Return the count of this run. Every kind of case comes up in each of them, with the smallest count too."""
    if PROVE:
        return prove
    return long if LONG else test
