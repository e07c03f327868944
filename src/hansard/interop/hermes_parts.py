"""Hermes' messages and sessions in Hansard's words: parts, ids, owners, titles."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from hansard.domain.limits import ENTRY_BYTES_MAX, NAME_CHARACTERS_MAX, TITLE_CHARACTERS_MAX
from hansard.domain.messages import File, Message, Part, Reasoning, Role, Status, Text, ToolCall, ToolResult
from hansard.domain.text import clean_text
from hansard.interop.hermes_values import content_text, digest_of, key_of, part_text, picture_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hansard.interop.hermes_values import Copy, Facts

ID_SUFFIX: Final = "-hermes"
"""Every imported session's id ends so: it never meets an id that Hansard made."""

SLUG_CHARACTERS_MAX: Final = 40
PART_BYTES_MAX: Final = ENTRY_BYTES_MAX // 8
"""Larger texts become files: with every byte escaped, a few of them still fit into one entry."""

ROLES: Final = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
}
UNFINISHED: Final = frozenset({"incomplete", "interrupted", "partial"})
"""Reasons for which Hermes says that a reply ended before its end."""

SHARED_CHATS: Final = frozenset({"group", "channel", "thread", "forum", "supergroup", "room"})
DATA_ADDRESS: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,(.*)\Z", re.DOTALL)


class Carried(NamedTuple):
    """A message as it is recorded, the bytes that its files need, and what else Hermes said of it."""

    message: Message
    blobs: tuple[bytes, ...]
    platform_id: str
    undone: bool
    known_role: bool


def session_id_of(hermes_id: str) -> str:
    """Return the id of the session that one of Hermes' becomes: its own id, typeable, and always the same."""
    slug = re.sub(r"[^a-z0-9]+", "-", hermes_id.lower()).strip("-")
    if slug and len(slug) <= SLUG_CHARACTERS_MAX and hermes_id == slug.replace("-", "_"):
        return f"{slug}{ID_SUFFIX}"
    # Several of Hermes' ids could be written so: a piece of the digest tells them apart.
    digest = hashlib.sha256(hermes_id.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{slug[:SLUG_CHARACTERS_MAX].strip('-') or 'session'}-{digest}{ID_SUFFIX}"


def owner_of(facts: Facts) -> str:
    """Return to whom a session belongs: a shared chat to the room, a chat to its person, all else to the admin."""
    source = facts.source or "hermes"
    if facts.chat_type in SHARED_CHATS and (place := facts.chat_id or facts.session_key):
        return clean_line(f"room:{source}:{place}", NAME_CHARACTERS_MAX)
    if facts.user_id:
        return clean_line(f"person:{source}:{facts.user_id}", NAME_CHARACTERS_MAX)
    return "person:admin"


def source_of(facts: Facts) -> str:
    """Return where the session took place."""
    return clean_line(facts.source, NAME_CHARACTERS_MAX) or "hermes"


def title_of(facts: Facts) -> str | None:
    """Return the title, on one line."""
    return clean_line(facts.title, TITLE_CHARACTERS_MAX) or None


def clean_line(text: str, characters_max: int) -> str:
    """Return printable text on one line."""
    printable = "".join(each if each.isprintable() else " " for each in clean_text(text))
    return " ".join(printable.split())[:characters_max].strip()


def settings_of(facts: Facts) -> dict[str, str]:
    """Return what else Hermes knows of the session, by name; it is kept with the session."""
    known = {
        "session_id": facts.id,
        "parent_session_id": facts.parent_id,
        "source": facts.source,
        "session_key": facts.session_key,
        "user_id": facts.user_id,
        "chat_id": facts.chat_id,
        "chat_type": facts.chat_type,
        "thread_id": facts.thread_id,
        "display_name": facts.display_name,
        "model": facts.model,
    }
    cleaned = {name: clean_line(value, NAME_CHARACTERS_MAX) for name, value in known.items()}
    return {f"hermes.{name}": value for name, value in cleaned.items() if value}


def carry(facts: Facts, copies: Iterable[Copy]) -> list[Carried]:
    """Return the messages of a session. Each id follows from what is said and how often it was said before."""
    seen: dict[str, int] = {}
    carried = []
    for copy in copies:
        digest = digest_of(facts.id, key_of(copy))
        seen[digest] = seen.get(digest, 0) + 1
        blobs: list[bytes] = []
        message = Message(
            id=f"hermes-{digest}-{seen[digest]}",
            role=ROLES.get(copy.role, Role.NOTICE),
            parts=tuple(_parts(copy, facts.model, blobs)),
            status=Status.INTERRUPTED if copy.finish_reason in UNFINISHED else Status.COMPLETE,
            at_microseconds=copy.at_microseconds,
        )
        platform_id = clean_line(copy.platform_id, NAME_CHARACTERS_MAX)
        carried.append(Carried(message, tuple(blobs), platform_id, bool(copy.undone), copy.role in ROLES))
    return carried


def _parts(copy: Copy, model: str, blobs: list[bytes]) -> list[Part]:
    parts: list[Part] = []
    for thought in copy.thoughts:
        signature = thought.signature if len(thought.signature) <= PART_BYTES_MAX else ""
        parts += _bounded(Reasoning(text=thought.text, signature=signature, model=model), blobs)
    if ROLES.get(copy.role) == Role.TOOL:
        parts += _result(copy, blobs)
    elif isinstance(copy.content, list):
        for part in copy.content:
            parts += _file(part, blobs) or _bounded(Text(part_text(part)), blobs)
    elif text := content_text(copy.content):
        parts += _bounded(Text(text), blobs)
    for call in copy.calls:
        if len(call.arguments.encode(errors="replace")) > PART_BYTES_MAX:
            parts += [ToolCall(id=call.id, name=call.name), _stored(call.arguments.encode(errors="replace"), blobs)]
        else:
            parts.append(ToolCall(id=call.id, name=call.name, arguments=call.arguments))
    return parts or [Text("")]


def _result(copy: Copy, blobs: list[bytes]) -> list[Part]:
    files: list[Part] = []
    text = content_text(copy.content)
    if isinstance(copy.content, list):
        for part in copy.content:
            files += _file(part, blobs)
    data = text.encode(errors="replace")
    if len(data) > PART_BYTES_MAX:
        blobs.append(data)
        beginning = data[: PART_BYTES_MAX // 8].decode(errors="ignore")
        whole = hashlib.sha256(data).hexdigest()
        return [ToolResult(call_id=copy.tool_call_id, text=beginning, blob=whole), *files]
    return [ToolResult(call_id=copy.tool_call_id, text=text), *files]


def _bounded(part: Text | Reasoning, blobs: list[bytes]) -> list[Part]:
    """Return a text as it is, or as a file when it is too large for an entry."""
    data = part.text.encode(errors="replace")
    return [part] if len(data) <= PART_BYTES_MAX else [_stored(data, blobs)]


def _stored(data: bytes, blobs: list[bytes], media_type: str = "text/plain", name: str = "message.txt") -> File:
    blobs.append(data)
    return File(blob=hashlib.sha256(data).hexdigest(), name=name, media_type=media_type, size_bytes=len(data))


def _file(part: object, blobs: list[bytes]) -> list[Part]:
    """Return the picture that a part holds itself; none when it only says where one is."""
    address = picture_address(part) if isinstance(part, dict) else None
    found = DATA_ADDRESS.match(address) if address is not None else None
    if found is None:
        return []
    try:
        data = base64.b64decode(found[2], validate=True)
    except (binascii.Error, ValueError):
        return []
    return [_stored(data, blobs, found[1] or "application/octet-stream", "image")]
