"""The pause before another try: it grows, has a limit, and is spread where many wait."""

from __future__ import annotations

import pytest

from hansard.tasks import HALF, backoff_seconds


def test_pauses_double_up_to_the_limit() -> None:
    """Without a spread the pauses are known exactly, however often it failed."""
    assert [backoff_seconds(failures, 0.5, 3.0) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff_seconds(1_000_000, 1.0, 60.0) == 60.0
    assert backoff_seconds(1, 5.0, 2.0) == 2.0


@pytest.mark.parametrize(("failures", "longest"), [(1, 1.0), (3, 4.0), (20, 60.0)])
def test_a_spread_leaves_out_a_part_by_lot(failures: int, longest: float) -> None:
    """No pause is longer than without the spread, none is shorter than the rest, and they differ, also at the limit."""
    pauses = [backoff_seconds(failures, 1.0, 60.0, spread=HALF) for _ in range(200)]
    assert longest / 2 <= min(pauses) < longest * 0.75 < max(pauses) <= longest
