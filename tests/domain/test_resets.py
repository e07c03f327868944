"""When a reset is due: idle minutes and a daily hour on a clock that people live by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.chats import Began, Resting, due, latest_hour
from hansard.domain.settings import Resets

BERLIN = "Europe/Berlin"
MINUTE = 60_000_000


def at(text: str, zone: str = "UTC") -> int:
    """A moment, in microseconds."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1_000_000)


def resting(active_at: int, led_since: int | None = None, *, messages: int = 3, has_turn: bool = False) -> Resting:
    """A session that rests since a moment."""
    return Resting(
        messages=messages,
        active_at=active_at,
        led_since=active_at if led_since is None else led_since,
        has_turn=has_turn,
    )


@pytest.mark.parametrize(("minutes", "reason"), [(0, None), (59, None), (60, Began.IDLE), (61, Began.IDLE)])
def test_idle_minutes(minutes: int, reason: Began | None) -> None:
    """From the minute on that was set."""
    assert due(resting(1000), Resets(idle_minutes=60), 1000 + minutes * MINUTE) == reason


def test_off_by_default() -> None:
    """A hundred years change nothing."""
    assert due(resting(0), Resets(), 100 * 366 * 24 * 60 * MINUTE) is None


@pytest.mark.parametrize("resets", [Resets(idle_minutes=1), Resets(daily_hour=4)])
def test_who_is_owed_an_answer_is_not_reset(resets: Resets) -> None:
    """A running or waiting turn, or a session in which nothing was said, makes nothing due."""
    now = 10 * 24 * 60 * MINUTE
    assert due(resting(0), resets, now) is not None
    assert due(resting(0, has_turn=True), resets, now) is None
    assert due(resting(0, messages=0), resets, now) is None


@pytest.mark.parametrize(
    ("since", "now", "is_due"),
    [
        ("2026-11-15T03:59", "2026-11-15T04:00", True),
        ("2026-11-15T03:00", "2026-11-15T03:59", False),
        ("2026-11-15T04:00", "2026-11-16T03:59", False),
        ("2026-11-15T04:01", "2026-11-16T04:00", True),
        ("2026-11-10T12:00", "2026-11-15T12:00", True),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", BERLIN, "America/New_York", "Asia/Kolkata"])
def test_the_daily_hour(since: str, now: str, zone: str, *, is_due: bool) -> None:
    """The first moment of that hour, on the clock of that zone, lies between then and now; or it does not."""
    found = due(resting(at(since, zone)), Resets(daily_hour=4, time_zone=zone), at(now, zone))
    assert (found is Began.DAILY) == is_due


def test_an_hour_that_the_clock_skips() -> None:
    """Berlin, 29 March 2026: 02:00 is 03:00. The day begins at the jump, once."""
    jump = at("2026-03-29T01:00")
    assert latest_hour(jump, 2, BERLIN) == jump
    assert latest_hour(jump - 1, 2, BERLIN) == at("2026-03-28T01:00")
    assert latest_hour(jump + 20 * 60 * MINUTE, 2, BERLIN) == jump


def test_an_hour_that_the_clock_shows_twice() -> None:
    """Berlin, 25 October 2026: 02:30 comes twice. The day begins with the first, and not again an hour later."""
    first = at("2026-10-25T00:00")
    for minutes in (0, 30, 60, 90, 300):
        assert latest_hour(first + minutes * MINUTE, 2, BERLIN) == first
    resets = Resets(daily_hour=2, time_zone=BERLIN)
    assert due(resting(first + 10 * MINUTE), resets, first + 70 * MINUTE) is None


def test_idle_comes_before_daily() -> None:
    """When both are due, the person is told the one that they would notice."""
    both = Resets(idle_minutes=60, daily_hour=4)
    assert due(resting(at("2026-11-14T12:00")), both, at("2026-11-15T12:00")) is Began.IDLE


ZONES = st.sampled_from(["UTC", BERLIN, "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"])


@given(st.datetimes(datetime(2011, 1, 1), datetime(2035, 1, 1)), st.integers(0, 23), ZONES)  # noqa: DTZ001
def test_the_latest_hour_is_never_ahead_and_never_long_ago(naive: datetime, hour: int, zone: str) -> None:
    """For every moment, hour and zone, days that a zone skipped included: it was within the last two days."""
    now = round(naive.replace(tzinfo=UTC).timestamp() * 1_000_000)
    latest = latest_hour(now, hour, zone)
    assert now - timedelta(days=2, hours=2) / timedelta(microseconds=1) < latest <= now
    assert latest_hour(latest, hour, zone) == latest
