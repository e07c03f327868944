"""Numbers from numbers: medians, percentiles, paired ratios."""

import statistics
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def waits(values_us: Sequence[float]) -> dict[str, float]:
    """The middle, the tail and the worst, in milliseconds."""
    return {
        "p50_ms": percentile(values_us, 0.50) / 1000,
        "p99_ms": percentile(values_us, 0.99) / 1000,
        "worst_ms": max(values_us) / 1000,
    }


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The median of the ratios of each round.

    A round's subjects ran within a few seconds of one another, so a machine that slows for a while slows both.
    """
    ratios = round_ratios(ours, theirs)
    return statistics.median(ratios) if ratios else None


def round_ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """The ratio of each round."""
    return [one / other for one, other in zip(ours, theirs, strict=False) if other]
