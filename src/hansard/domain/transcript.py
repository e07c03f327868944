"""The fold of a session's entries into messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.entries import Body, MessageAdded, MessageOpened, MessageSealed, MessagesRestored, MessagesUndone
from hansard.domain.messages import Message, Part, Reasoning, Status, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PART_KINDS: dict[str, type[Text | Reasoning]] = {"text": Text, "reasoning": Reasoning}


def join_chunks(pieces: Iterable[tuple[str, str]]) -> tuple[Part, ...]:
    """Return the parts that (part kind, text) pieces add up to: one part for each run of a kind."""
    runs: list[tuple[str, list[str]]] = []
    for part, text in pieces:
        if runs and runs[-1][0] == part:
            runs[-1][1].append(text)
        else:
            runs.append((part, [text]))
    return tuple(PART_KINDS[part]("".join(texts)) for part, texts in runs)


def streamed_pieces(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Return the (part kind, text) pieces of a sealed message that were streamed as chunks, in order."""
    return [
        ("text" if isinstance(part, Text) else "reasoning", part.text)
        for part in parts
        if isinstance(part, Text | Reasoning)
    ]


def fold_transcript(entries: Iterable[tuple[str, int, Body]], open_parts: tuple[Part, ...] = ()) -> list[Message]:
    """Return the messages of (id, time, body) entries; `open_parts` is what an unsealed message has so far.

    Messages that were undone, and not restored since, are left out.
    """
    messages: list[Message] = []
    open_at: dict[str, int] = {}
    undone: set[str] = set()
    for entry_id, at, body in entries:
        if isinstance(body, MessageAdded):
            messages.append(
                Message(
                    id=entry_id,
                    role=body.role,
                    parts=body.parts,
                    status=body.status,
                    at_microseconds=body.said_at or at,
                    author=body.author,
                )
            )
        elif isinstance(body, MessageOpened):
            open_at[entry_id] = len(messages)
            messages.append(
                Message(id=entry_id, role=body.role, parts=open_parts, status=Status.OPEN, at_microseconds=at)
            )
        elif isinstance(body, MessageSealed):
            place = open_at.pop(body.message_id)
            opened = messages[place]
            messages[place] = Message(
                id=opened.id,
                role=opened.role,
                parts=body.parts,
                status=body.status,
                at_microseconds=opened.at_microseconds,
            )
        elif isinstance(body, MessagesUndone):
            undone.update(body.message_ids)
        elif isinstance(body, MessagesRestored):
            undone.difference_update(body.message_ids)
    return [message for message in messages if message.id not in undone] if undone else messages
