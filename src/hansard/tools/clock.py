"""`current_time`: the system prompt of a session is frozen, so a model that wants the time asks for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hansard.domain.requests import ToolSpec

if TYPE_CHECKING:
    from hansard.ports import Clock

PARAMETERS = (
    '{"type":"object","properties":{"time_zone":{"type":"string",'
    '"description":"An IANA name such as Europe/Berlin; the machine\'s own when left out."}},'
    '"additionalProperties":false}'
)


class CurrentTime:
    """Tells date and time."""

    repeatable = True
    spec = ToolSpec(
        name="current_time", description="The present date, time and day of the week.", parameters=PARAMETERS
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def run(self, arguments: dict[str, object]) -> str:
        """Return the time in a zone. The tables are loaded when a model asks: most never do."""
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        now = datetime.fromtimestamp(self._clock.now_microseconds() / 1_000_000, UTC)
        name = arguments.get("time_zone")
        try:
            local = now.astimezone(ZoneInfo(name) if isinstance(name, str) and name else None)
        except (ZoneInfoNotFoundError, ValueError):
            return f"There is no time zone {name!r}. UTC: {now:%Y-%m-%d %H:%M:%S, %A}."
        return f"{local:%Y-%m-%d %H:%M:%S %Z (UTC%z), %A}"
