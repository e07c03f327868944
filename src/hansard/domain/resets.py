"""When a chat begins a new session by itself: pure rules over what is known of the present one.

Both resets are off until somebody sets them. They happen with the next message, never in between: nobody is told
something at night, and what was said last can be answered for as long as nobody says anything else. Time is the
record's own clock, which labels all that a reset is measured from.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from hansard.domain.settings import Resets

MINUTE_MICROSECONDS = 60_000_000


class Began(StrEnum):
    """Why a session follows another one in its chat."""

    NEW = "new"
    """Somebody asked for it."""
    IDLE = "idle"
    """Nothing had happened for a while."""
    DAILY = "daily"
    """A new day began, at the hour that was set."""
    OTHERS = "others"
    """Other people are in the chat now: what was said there to one person is not theirs to read."""
    PARTED = "parted"
    """The session is another person's: whoever it belongs to is no longer linked with whom the chat is with."""


class Resting(NamedTuple):
    """What is known of the session that a chat is in."""

    messages: int
    active_at: int
    """When anything was last recorded in it."""
    led_since: int
    """Since when the chat leads to it."""
    has_turn: bool
    """Whether a turn runs or waits in it: then somebody is owed an answer there."""


def due(resting: Resting, resets: Resets, now: int) -> Began | None:
    """Return why a new session is due, or None. Times are in microseconds since 1970."""
    if resting.has_turn or not resting.messages:
        return None
    idle = resets.idle_minutes
    if idle is not None and now - resting.active_at >= idle * MINUTE_MICROSECONDS:
        return Began.IDLE
    hour = resets.daily_hour
    if hour is not None and resting.led_since < latest_hour(now, hour, resets.time_zone) <= now:
        return Began.DAILY
    return None


@lru_cache(maxsize=8)
def zone_of(name: str) -> tzinfo:
    """Return a time zone. The tables are loaded when a zone is used: most never are, and every command would wait."""
    zone: tzinfo = import_module("zoneinfo").ZoneInfo(name)
    return zone


def latest_hour(now: int, hour: int, time_zone: str) -> int:
    """Return when it was last that hour, on a clock of that zone.

    An hour that the clock skips in spring begins where it jumps to; one that it shows twice in autumn begins once,
    the first time.
    """
    zone = zone_of(time_zone)
    moment = datetime.fromtimestamp(now / 1_000_000, UTC)
    today = moment.astimezone(zone).date()
    for days in (0, 1, 2):
        start = datetime.combine(today - timedelta(days=days), datetime.min.time(), zone).replace(hour=hour, fold=0)
        began = round(start.astimezone(UTC).timestamp() * 1_000_000)
        if began <= now:
            return began
    return 0
