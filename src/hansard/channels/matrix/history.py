"""A room's past as any member sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hansard.channels import Json, number_of, object_of, objects_of, text_of
from hansard.channels.matrix.contents import FILES, MESSAGE, says
from hansard.channels.matrix.posting import key_of
from hansard.channels.matrix.reading import (
    ENCRYPTED,
    KEY_FIELD,
    REDACTION,
    MatrixPlace,
    Self,
    names_agent,
    redacted,
    relation,
    reply_of,
)
from hansard.channels.matrix.wire import path
from hansard.ports.channel import TimelineEvent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hansard.channels.matrix.account import MatrixLogin
    from hansard.channels.matrix.wire import MatrixWire

PAGE_EVENTS: Final = 100


async def raw_events(wire: MatrixWire, place: MatrixPlace) -> AsyncGenerator[Json, None]:
    """A room's events, or a thread's, the latest first. A room's are all of them, those of its threads too."""
    start = ""
    while True:
        query = {"dir": "b", "limit": str(PAGE_EVENTS)} | ({"from": start} if start else {})
        if place.thread_id:
            where = path("rooms", place.room_id, "relations", place.thread_id).replace("/v3/", "/v1/", 1)
            page = await wire.ask("GET", where, what="reading a thread", query=query | {"recurse": "true"})
        else:
            page = await wire.ask("GET", path("rooms", place.room_id, "messages"), what="reading a room", query=query)
        for raw in objects_of(page, "chunk"):
            yield raw
        start = text_of(page, "next_batch") if place.thread_id else text_of(page, "end")
        if not start:
            return


async def history(
    wire: MatrixWire, session: MatrixLogin, me: Self, place: MatrixPlace, *, events_max: int
) -> AsyncGenerator[TimelineEvent, None]:
    """Give what was said and how it was changed, the latest first."""
    count = 0
    async for raw in raw_events(wire, place):
        shown = shown_of(raw, session, me, place.room_id)
        if shown is not None:
            yield shown
        count += 1
        if count >= events_max:
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
