"""Items as a follower gives them, made by hand."""

from __future__ import annotations

from hansard.domain.messages import Part, Role, Status, Text
from hansard.journal.concepts import Body
from hansard.record.messages.entries import Chunk, Entry, MessageAdded, MessageOpened, MessageSealed

SESSION = "20261115-201233-k3v9qd"


def entry(kind: str, body: Body, id: str = "e1") -> Entry:
    """Return an entry of any kind."""
    return Entry(id=id, session_id=SESSION, seq=1, kind=kind, body=body)


def added(role: Role, *parts: Part | str, author: str = "", status: Status = Status.COMPLETE) -> Entry:
    """Return a whole message."""
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return entry("message.added", MessageAdded(role=role, parts=made, author=author, status=status))


def opened(message_id: str = "m1") -> Entry:
    """Return the beginning of an assistant's message."""
    return entry("message.opened", MessageOpened(turn_id="t1"), message_id)


def sealed(*parts: Part | str, message_id: str = "m1", status: Status = Status.COMPLETE) -> Entry:
    """Return the end of an assistant's message."""
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return entry("message.sealed", MessageSealed(message_id=message_id, status=status, parts=made))


def chunk(text: str, offset: int = 0, *, part: str = "text", message_id: str = "m1") -> Chunk:
    """Return a piece of an open message."""
    return Chunk(message_id=message_id, offset=offset, text=text, position=f"1.{offset}", part=part)


def chunks(text: str, size: int, *, message_id: str = "m1") -> list[Chunk]:
    """Return a text in pieces of so many characters."""
    made: list[Chunk] = []
    offset = 0
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        made.append(chunk(piece, offset, message_id=message_id))
        offset += len(piece.encode(errors="surrogatepass"))
    return made
