"""A room's past as any member sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hansard.channels.matrix.posting import key_of
from hansard.channels.matrix.reading import (
    ENCRYPTED,
    FILES,
    KEY_FIELD,
    MESSAGE,
    Place,
    caption_of,
    redacted,
    relation,
    words_of,
)
from hansard.channels.matrix.wire import path
from hansard.channels.values import Json, number_of, object_of, objects_of, text_of
from hansard.ports.channel import Shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hansard.channels.matrix.account import Session
    from hansard.channels.matrix.wire import Wire

PAGE_EVENTS: Final = 100


async def raw_events(wire: Wire, place: Place) -> AsyncGenerator[Json, None]:
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
    wire: Wire, session: Session, user_id: str, place: Place, *, events_max: int
) -> AsyncGenerator[Shown, None]:
    """Give what was said and how it was changed, the latest first."""
    count = 0
    async for raw in raw_events(wire, place):
        shown = shown_of(raw, session, user_id, place.room_id)
        if shown is not None:
            yield shown
        count += 1
        if count >= events_max:
            return


def shown_of(raw: Json, session: Session, user_id: str, room_id: str) -> Shown | None:
    """One event as a member sees it; None for what is not said."""
    kind = text_of(raw, "type")
    if kind not in {MESSAGE, ENCRYPTED} or "state_key" in raw:
        return None
    id, sender, sent_at_ms = text_of(raw, "event_id"), text_of(raw, "sender"), number_of(raw, "origin_server_ts")
    key = key_of(text_of(raw, "unsigned", "transaction_id")) if sender == user_id else ""
    if redacted(raw):
        return Shown(id=id, sender=sender, sent_at_ms=sent_at_ms, key=key, is_deleted=True)
    outer = object_of(raw, "content")
    edits = relation(outer)[1] if relation(outer)[0] == "m.replace" else ""
    plain = session.crypto.decrypt(room_id, raw) if kind == ENCRYPTED else raw
    if plain is None:
        return Shown(id=id, sender=sender, sent_at_ms=sent_at_ms, edits=edits, key=key, is_readable=False)
    if text_of(plain, "type") != MESSAGE:
        return None
    content = object_of(plain, "content")
    if sender == user_id:
        key = text_of(content, KEY_FIELD) or key
    if relation(content)[0] == "m.replace":
        edits, content = relation(content)[1], object_of(content, "m.new_content")
    file = ""
    if text_of(content, "msgtype") in FILES:
        text, file = caption_of(content), text_of(content, "filename") or text_of(content, "body")
    else:
        # Own words are compared byte for byte with the record, so nothing is added to them.
        text = text_of(content, "body") if sender == user_id else words_of(content)
    return Shown(id=id, sender=sender, text=text, sent_at_ms=sent_at_ms, edits=edits, key=key, file=file)
