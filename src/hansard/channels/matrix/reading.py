"""A Matrix event as the port knows it. Pure: everything that has to be asked for comes in as a value."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec

from hansard.channels import Json, list_of, number_of, object_of, text_of
from hansard.channels.matrix.contents import MESSAGE, REACTION, choice_of, says
from hansard.errors import InvalidInput
from hansard.ports.channel import Event, EventKind, ReplyKind

NAME: Final = "matrix"
ROOM: Final = f"{NAME}:room:"
THREAD: Final = ":thread:"

ENCRYPTED: Final = "m.room.encrypted"
REDACTION: Final = "m.room.redaction"
MEMBER: Final = "m.room.member"
ENCRYPTION: Final = "m.room.encryption"
RULES: Final = "m.room.join_rules"
VISIBILITY: Final = "m.room.history_visibility"
TOMBSTONE: Final = "m.room.tombstone"

KEY_FIELD: Final = "hansard.key"
"""In the content of what this account posts: the key of the post. Trusted only in events of this account."""

NAME_ENDS: Final = re.compile(r"[:,!?.\s]|\Z")


class MatrixPlace(NamedTuple):
    """A room, and the thread in it; empty for the room itself."""

    room_id: str
    thread_id: str = ""

    @property
    def chat(self) -> str:
        return f"{ROOM}{self.room_id}" + (f"{THREAD}{self.thread_id}" if self.thread_id else "")


def place_of(chat: str) -> MatrixPlace:
    """Read a chat's name; one that is not of this platform is a mistake of the caller."""
    if not chat.startswith(ROOM):
        raise InvalidInput(f"Not a chat of Matrix: {chat!r}")
    room_id, _, thread_id = chat.removeprefix(ROOM).partition(THREAD)
    return MatrixPlace(room_id, thread_id)


class Self(NamedTuple):
    """Who reads."""

    user_id: str
    display_name: str = ""

    @property
    def localpart(self) -> str:
        """`bot` of `@bot:example.org`."""
        return self.user_id[1:].partition(":")[0]


def relation(content: Json) -> tuple[str, str]:
    return text_of(content, "m.relates_to", "rel_type"), text_of(content, "m.relates_to", "event_id")


def thread_of(content: Json) -> str:
    kind, about = relation(content)
    return about if kind == "m.thread" else ""


def reply_of(content: Json) -> str:
    """The event that a message answers. In a thread, clients name the last one for those who know no threads."""
    related = object_of(content, "m.relates_to")
    if related.get("rel_type") == "m.thread" and related.get("is_falling_back") is True:
        return ""
    return text_of(related, "m.in_reply_to", "event_id")


def names_agent(content: Json, words: str, me: Self) -> bool:
    """Whether a message names the agent: by intent, by a link to it, or by its name at the beginning of its words."""
    if me.user_id in list_of(content, "m.mentions", "user_ids"):
        return True
    if me.user_id in words or f"matrix.to/#/{me.user_id}" in unquote(text_of(content, "formatted_body")):
        return True
    start = words.lstrip().removeprefix("@").casefold()
    return any(
        start.startswith(name) and NAME_ENDS.match(start, len(name)) is not None
        for name in (me.display_name.casefold(), me.localpart.casefold())
        if name
    )


def redacted(raw: Json) -> bool:
    return "redacted_because" in object_of(raw, "unsigned")


class MatrixEventFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about an event besides its own words."""

    room_id: str
    is_direct: bool
    answers_agent: bool = False
    is_left: bool = False
    """Whether the agent is no longer in the room, so that nothing can be answered there."""
    is_unverified: bool = False
    """Whether it came to an encrypted room in the clear, or from a device that is not known to be its sender's."""


def event_in(room_id: str, raw: Json, kind: EventKind, /, **more: object) -> Event:
    """Return what a raw event of a room is to the port; `more` says what its kind does not."""
    chat, sender = MatrixPlace(room_id).chat, text_of(raw, "sender")
    return msgspec.structs.replace(Event(id=text_of(raw, "event_id"), kind=kind, chat=chat, sender=sender), **more)


def event_of(raw: Json, seen: MatrixEventFacts, me: Self) -> Event | None:
    """Turn a readable event of another person into the port's; None for what was deleted since."""
    kind, content = text_of(raw, "type"), object_of(raw, "content")
    sent_at_ms, is_direct = number_of(raw, "origin_server_ts"), seen.is_direct
    common = event_in(
        seen.room_id, raw, EventKind.MESSAGE, sent_at_ms=sent_at_ms, is_direct=is_direct, is_for_agent=is_direct
    )
    if kind == REDACTION:
        about = text_of(raw, "redacts") or text_of(content, "redacts")
        return msgspec.structs.replace(common, kind=EventKind.DELETION, about=about) if about else None
    if redacted(raw):
        return None
    common = msgspec.structs.replace(common, is_unverified=seen.is_unverified)
    replaces, about = relation(content)
    if kind == MESSAGE and replaces == "m.replace":
        if not about:
            return None
        content = object_of(content, "m.new_content")
        said = says(kind, content)
        return msgspec.structs.replace(
            common,
            kind=EventKind.EDIT,
            about=about,
            text="\n\n".join(text for text in (said.text, said.formatted) if text),
            is_for_agent=seen.is_direct or names_agent(content, said.words, me),
            reply=said.reply,
        )
    said = says(kind, content)
    if kind == REACTION and (choice := choice_of(content)) and not seen.is_unverified:
        return msgspec.structs.replace(
            common, kind=EventKind.ANSWER, text=said.text, about=about, choice=choice, reply=said.reply
        )
    return msgspec.structs.replace(
        common,
        chat=MatrixPlace(seen.room_id, thread_of(content)).chat,
        text=said.text,
        formatted=said.formatted,
        quoted=said.quoted,
        is_for_agent=seen.is_direct or seen.answers_agent or names_agent(content, said.words, me),
        reply_to=reply_of(content),
        files=said.files,
        reply=ReplyKind.NONE if seen.is_left else said.reply,
    )


def unreadable(raw: Json, seen: MatrixEventFacts) -> Event:
    """An event whose keys are missing, as it came, with its room: so it can be tried again."""
    content = object_of(raw, "content")
    return event_in(
        seen.room_id,
        raw,
        EventKind.UNREADABLE,
        chat=MatrixPlace(seen.room_id, thread_of(content)).chat,
        sent_at_ms=number_of(raw, "origin_server_ts"),
        is_direct=seen.is_direct,
        is_for_agent=seen.is_direct,
        about=relation(content)[1] if relation(content)[0] == "m.replace" else "",
        raw=msgspec.json.encode(raw | {"room_id": seen.room_id}).decode(),
    )
