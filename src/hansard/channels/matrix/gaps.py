"""What was said in a room while nobody listened, fetched page by page."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from hansard.channels import Json, object_of, objects_of, text_of
from hansard.channels.matrix.reading import MEMBER
from hansard.channels.matrix.wire import path
from hansard.errors import ChatGone, PostRefused

if TYPE_CHECKING:
    from hansard.channels.matrix.wire import MatrixWire

logger = logging.getLogger(__name__)


class Pages(NamedTuple):
    """How much is fetched at once, and at most: of one room and one gap, 20,000 events."""

    events: int = 100
    count_max: int = 200


class Gaps:
    """Completes what a sync tells about a room."""

    def __init__(self, wire: MatrixWire, user_id: str, pages: Pages) -> None:
        self._wire, self._user_id, self._pages = wire, user_id, pages

    async def since(self, room_id: str, info: Json, cursor: str) -> tuple[list[Json], bool]:
        """A room's events since the cursor, the oldest first, and whether there were too many.

        For a room that was joined since, they begin with the invitation: what was said to an agent that had not come
        yet was said to it.
        """
        timeline = objects_of(info, "timeline", "events")
        start = text_of(info, "timeline", "prev_batch")
        has_gap, is_cut = object_of(info, "timeline").get("limited") is True and bool(start), False
        joined = self._joined_at(timeline)
        if has_gap and joined is None:
            earlier, is_cut = await self._back(room_id, start, until=cursor)
            timeline = earlier + timeline
            joined = self._joined_at(timeline)
        if joined is None:
            return timeline, is_cut
        if text_of(timeline[joined], "unsigned", "prev_content", "membership") != "invite":
            return timeline[joined:], False
        if has_gap and self._invited_at(timeline) is None:
            earlier, is_cut = await self._back(room_id, start, until="")
            known = {text_of(raw, "event_id") for raw in timeline}
            timeline = [raw for raw in earlier if text_of(raw, "event_id") not in known] + timeline
        return timeline[self._invited_at(timeline) or 0 :], is_cut

    async def _back(self, room_id: str, start: str, *, until: str) -> tuple[list[Json], bool]:
        """Walk back from a place in a room: to a cursor, or to the invitation. The oldest comes first."""
        found: list[Json] = []
        for _ in range(self._pages.count_max):
            query = {"dir": "b", "from": start, "limit": str(self._pages.events)} | ({"to": until} if until else {})
            try:
                page = await self._wire.ask(
                    "GET", path("rooms", room_id, "messages"), what="fetching what was missed", query=query
                )
            except (ChatGone, PostRefused):
                # One room that cannot be read must not hold up the others.
                return found[::-1], True
            for raw in objects_of(page, "chunk"):
                found.append(raw)
                if not until and is_membership(raw, self._user_id, {"invite"}):
                    return found[::-1], False
            start = text_of(page, "end")
            if not start:
                return found[::-1], False
        logger.error("more was said in a room than is fetched, and the oldest is left out: %s", room_id)
        return found[::-1], True

    def _joined_at(self, timeline: list[Json]) -> int | None:
        """Where the agent came into the room; None when it was there all the time."""
        joins = (
            place
            for place, raw in reversed(list(enumerate(timeline)))
            if is_membership(raw, self._user_id, {"join"})
            and text_of(raw, "unsigned", "prev_content", "membership") != "join"
        )
        return next(joins, None)

    def _invited_at(self, timeline: list[Json]) -> int | None:
        invited = (
            place for place, raw in reversed(list(enumerate(timeline))) if is_membership(raw, self._user_id, {"invite"})
        )
        return next(invited, None)


def is_membership(raw: Json, user_id: str, kinds: set[str]) -> bool:
    return (
        text_of(raw, "type") == MEMBER
        and raw.get("state_key") == user_id
        and text_of(raw, "content", "membership") in kinds
    )
