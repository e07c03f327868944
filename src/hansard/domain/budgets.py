"""What a request took; what people may use in a day, and bring in an hour, by the settings and the record's counts.

A day begins at midnight on the clock that the settings name. Turns are counted exactly. Tokens and cost of a request
are known when it is over; so, when what still runs could reach a limit, a further turn waits until it has ended.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from hansard.domain.settings import TurnLimits
from hansard.domain.settings.agent import HourLimits

EVERYBODY: Final = ""
"""The name under which all that is used is counted, once."""

MICROS: Final = 1_000_000


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What was used since a day began. `largest`: what the dearest turn took, of those that are over."""

    turns: int = 0
    tokens: int = 0
    cost_micros: int = 0
    running: int = 0
    largest_tokens: int = 0
    largest_cost_micros: int = 0

    def plus(self, other: Spent) -> Spent:
        return Spent(
            turns=self.turns + other.turns,
            tokens=self.tokens + other.tokens,
            cost_micros=self.cost_micros + other.cost_micros,
            running=self.running + other.running,
            largest_tokens=max(self.largest_tokens, other.largest_tokens),
            largest_cost_micros=max(self.largest_cost_micros, other.largest_cost_micros),
        )


class Allowance(NamedTuple):
    """What somebody, or everybody together, may use in a day; None is no limit."""

    turns: int | None = None
    tokens: int | None = None
    cost_micros: int | None = None


class Budget(NamedTuple):
    """What a claim is checked against."""

    person: Allowance = Allowance()
    together: Allowance = Allowance()
    time_zone: str = "UTC"


class BudgetState(StrEnum):
    """Whether another turn may begin."""

    FREE = "free"
    NEAR = "near"
    """What runs could reach the limit: wait for it."""
    REACHED = "reached"


def budget_of(limits: TurnLimits) -> Budget | None:
    """Return what the settings allow; None where they limit nothing."""
    person = Allowance(limits.person_turns_day_max, limits.person_tokens_day_max, micros(limits.person_dollars_day_max))
    together = Allowance(limits.turns_day_max, limits.tokens_day_max, micros(limits.dollars_day_max))
    if person == together == Allowance():
        return None
    return Budget(person, together, limits.day_time_zone)


def micros(dollars: float | None) -> int | None:
    return None if dollars is None else round(dollars * MICROS)


def reached(allowance: Allowance, spent: Spent) -> str:
    """Return which limit is reached, in words; empty when none is."""
    if allowance.turns is not None and spent.turns >= allowance.turns:
        return f"{allowance.turns} {'turn' if allowance.turns == 1 else 'turns'}"
    if allowance.tokens is not None and spent.tokens >= allowance.tokens:
        return f"{allowance.tokens:,} tokens"
    if allowance.cost_micros is not None and spent.cost_micros >= allowance.cost_micros:
        return f"${allowance.cost_micros / MICROS:.2f}"
    return ""


def standing(allowance: Allowance, spent: Spent) -> BudgetState:
    if reached(allowance, spent):
        return BudgetState.REACHED
    if not spent.running:
        return BudgetState.FREE
    unknown_dear = allowance.tokens is not None and not spent.largest_tokens
    unknown_dear = unknown_dear or (allowance.cost_micros is not None and not spent.largest_cost_micros)
    foreseen = Spent(
        turns=spent.turns,
        tokens=spent.tokens + spent.running * spent.largest_tokens,
        cost_micros=spent.cost_micros + spent.running * spent.largest_cost_micros,
    )
    return BudgetState.NEAR if unknown_dear or reached(allowance._replace(turns=None), foreseen) else BudgetState.FREE


def day_start(now_microseconds: int, time_zone: str) -> int:
    midnight = local_midnight(now_microseconds, time_zone)
    return round(midnight.astimezone(UTC).timestamp() * MICROS)


def day_end(now_microseconds: int, time_zone: str) -> datetime:
    midnight = local_midnight(now_microseconds, time_zone)
    return (midnight + timedelta(days=1)).replace(hour=0)


def local_midnight(now_microseconds: int, time_zone: str) -> datetime:
    local = datetime.fromtimestamp(now_microseconds / MICROS, UTC).astimezone(ZoneInfo(time_zone))
    return local.replace(hour=0, minute=0, second=0, microsecond=0)


def refusal(what: str, end: datetime, *, together: bool) -> str:
    whose = "Everybody together has" if together else "You have"
    return (
        f"{whose} reached today's limit ({what}), so I do not answer now. Your message is recorded; "
        f"the next day begins at {end:%Y-%m-%d %H:%M %Z}, and /retry asks again then."
    )


def left_text(allowance: Allowance, spent: Spent) -> str:
    left = []
    if allowance.turns is not None:
        left.append(f"{max(0, allowance.turns - spent.turns)} of {allowance.turns} turns")
    if allowance.tokens is not None:
        left.append(f"{max(0, allowance.tokens - spent.tokens):,} of {allowance.tokens:,} tokens")
    if allowance.cost_micros is not None:
        rest = max(0, allowance.cost_micros - spent.cost_micros) / MICROS
        left.append(f"${rest:.2f} of ${allowance.cost_micros / MICROS:.2f}")
    return ", ".join(left)


class Brought(StrEnum):
    """What is counted."""

    FILES = "files"
    BYTES = "bytes"
    SESSIONS = "sessions"


class Quota(NamedTuple):
    """How much of each one person may bring in an hour; None: as much as comes."""

    files: int | None = None
    bytes: int | None = None
    sessions: int | None = None

    def left(self, brought: Brought, spent: int) -> int | None:
        """Return how much is left of the hour; None: there is no limit."""
        limit = {Brought.FILES: self.files, Brought.BYTES: self.bytes, Brought.SESSIONS: self.sessions}[brought]
        return None if limit is None else max(0, limit - spent)

    def allows(self, brought: Brought, spent: int, more: int = 1) -> bool:
        left = self.left(brought, spent)
        return left is None or more <= left


def quota_of(limits: HourLimits) -> Quota:
    return Quota(limits.person_files_hour_max, limits.person_bytes_hour_max, limits.person_sessions_hour_max)


def pace_name(brought: Brought, person: str) -> str:
    return f"{brought} {person}"


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one request took. The cost is in millionths of a US dollar; None when no price is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_micros: int | None = None
