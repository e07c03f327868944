"""A room's past: what was said while nobody listened, and its timeline as any member sees it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

from hansard.channels import Json, number_of, object_of, objects_of, text_of
from hansard.channels.matrix.account import MatrixLogin
from hansard.channels.matrix.contents import FILES, MESSAGE, says
from hansard.channels.matrix.posting import key_of
from hansard.channels.matrix.reading import (
    ENCRYPTED,
    KEY_FIELD,
    MEMBER,
    REDACTION,
    MatrixPlace,
    Self,
    names_agent,
    redacted,
    relation,
    reply_of,
)
from hansard.channels.matrix.wire import MatrixWire, path
from hansard.errors import ChatGone, PostRefused
from hansard.ports.channel import TimelineEvent

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
        joins = [
            place
            for place, raw in enumerate(timeline)
            if is_membership(raw, self._user_id, {"join"})
            and text_of(raw, "unsigned", "prev_content", "membership") != "join"
        ]
        return joins[-1] if joins else None

    def _invited_at(self, timeline: list[Json]) -> int | None:
        places = [place for place, raw in enumerate(timeline) if is_membership(raw, self._user_id, {"invite"})]
        return places[-1] if places else None


def is_membership(raw: Json, user_id: str, kinds: set[str]) -> bool:
    return (
        text_of(raw, "type") == MEMBER
        and raw.get("state_key") == user_id
        and text_of(raw, "content", "membership") in kinds
    )


PAGE_EVENTS: Final = 100


async def history(
    wire: MatrixWire, session: MatrixLogin, me: Self, place: MatrixPlace, *, events_max: int
) -> AsyncGenerator[TimelineEvent, None]:
    """Give what was said and how it was changed in a room, with its threads, or in a thread, the latest first."""
    start, count = "", 0
    while True:
        query = {"dir": "b", "limit": str(PAGE_EVENTS)} | ({"from": start} if start else {})
        if place.thread_id:
            where = path("rooms", place.room_id, "relations", place.thread_id).replace("/v3/", "/v1/", 1)
            page = await wire.ask("GET", where, what="reading a thread", query=query | {"recurse": "true"})
        else:
            page = await wire.ask("GET", path("rooms", place.room_id, "messages"), what="reading a room", query=query)
        for raw in objects_of(page, "chunk"):
            if (shown := shown_of(raw, session, me, place.room_id)) is not None:
                yield shown
            count += 1
            if count >= events_max:
                return
        start = text_of(page, "next_batch") if place.thread_id else text_of(page, "end")
        if not start:
            return


def shown_of(raw: Json, session: MatrixLogin, me: Self, room_id: str) -> TimelineEvent | None:
    """One event as a member sees it; None for what nobody says: changes of the room, and deletions."""
    kind = text_of(raw, "type")
    if kind == REDACTION or "state_key" in raw:
        return None
    id, sender, sent_at_ms = text_of(raw, "event_id"), text_of(raw, "sender"), number_of(raw, "origin_server_ts")
    key = key_of(text_of(raw, "unsigned", "transaction_id")) if sender == me.user_id else ""
    if redacted(raw):
        return TimelineEvent(id=id, sender=sender, sent_at_ms=sent_at_ms, key=key, is_deleted=True)
    outer = object_of(raw, "content")
    edits = relation(outer)[1] if relation(outer)[0] == "m.replace" else ""
    plain = session.crypto.decrypt(room_id, raw) if kind == ENCRYPTED else raw
    if plain is None:
        return TimelineEvent(id=id, sender=sender, sent_at_ms=sent_at_ms, edits=edits, key=key, is_readable=False)
    kind, content = text_of(plain, "type"), object_of(plain, "content")
    if sender == me.user_id:
        key = text_of(content, KEY_FIELD) or key
    reply_to = reply_of(content)
    if kind == MESSAGE and relation(content)[0] == "m.replace":
        edits, content = relation(content)[1], object_of(content, "m.new_content")
    # The words as they came: what the record holds is compared with them, so nothing is read into them here.
    text, file = text_of(content, "body"), ""
    if text_of(content, "msgtype") in FILES and text_of(content, "filename") in {"", text}:
        text, file = "", text
    elif text_of(content, "msgtype") in FILES:
        file = text_of(content, "filename")
    elif text_of(content, "msgtype") == "m.emote" and sender != me.user_id:
        text = f"* {text}"
    return TimelineEvent(
        id=id,
        sender=sender,
        text=text,
        sent_at_ms=sent_at_ms,
        edits=edits,
        key=key,
        file=file,
        is_exact=kind == MESSAGE and bool(text_of(content, "body")),
        html=text_of(content, "formatted_body"),
        names_agent=names_agent(content, says(kind, content).words, me),
        reply_to=reply_to,
    )
