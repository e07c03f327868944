"""What Hermes wrote, as values; and its messages and sessions in Hansard's words: parts, ids, owners, titles."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from hansard.domain.limits import ENTRY_BYTES_MAX, NAME_CHARACTERS_MAX, TITLE_CHARACTERS_MAX
from hansard.domain.messages import File, Message, Part, Reasoning, Role, Status, Text, ToolCall, ToolResult
from hansard.domain.text import clean_text

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


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it is recorded, the bytes that its files need, and what else Hermes said of it."""

    message: Message
    blobs: tuple[bytes, ...]
    platform_id: str
    undone: bool


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
    return clean_line(facts.source, NAME_CHARACTERS_MAX) or "hermes"


def title_of(facts: Facts) -> str | None:
    return clean_line(facts.title, TITLE_CHARACTERS_MAX) or None


def clean_line(text: str, characters_max: int) -> str:
    printable = "".join(each if each.isprintable() else " " for each in clean_text(text))
    return " ".join(printable.split())[:characters_max].strip()


def settings_of(facts: Facts) -> dict[str, str]:
    """Return what else Hermes knows of the session, by name; it is kept with the session."""
    same = ("source", "session_key", "user_id", "chat_id", "chat_type", "thread_id", "display_name", "model")
    known = {"session_id": facts.id, "parent_session_id": facts.parent_id}
    known |= {name: getattr(facts, name) for name in same}
    cleaned = {name: clean_line(value, NAME_CHARACTERS_MAX) for name, value in known.items()}
    return {f"hermes.{name}": value for name, value in cleaned.items() if value}


def carry(facts: Facts, copies: Iterable[Copy]) -> list[Carried]:
    """Return the messages of a session. Each id follows from what is said and how often it was said before."""
    seen: dict[str, int] = {}
    carried = []
    for copy in copies:
        digest = hashlib.sha256(json.dumps([facts.id, *key_of(copy)]).encode()).hexdigest()[:24]
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
        carried.append(Carried(message=message, blobs=tuple(blobs), platform_id=platform_id, undone=bool(copy.undone)))
    return carried


def _parts(copy: Copy, model: str, blobs: list[bytes]) -> list[Part]:
    parts: list[Part] = []
    for thought in copy.thoughts:
        signature = thought.signature if len(thought.signature) <= PART_BYTES_MAX else ""
        parts += _bounded(msgspec.structs.replace(thought, signature=signature, model=model), blobs)
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
            parts.append(call)
    return parts or [Text("")]


def _result(copy: Copy, blobs: list[bytes]) -> list[Part]:
    text = content_text(copy.content)
    listed = copy.content if isinstance(copy.content, list) else []
    files = [file for part in listed for file in _file(part, blobs)]
    data = text.encode(errors="replace")
    if len(data) > PART_BYTES_MAX:
        beginning = data[: PART_BYTES_MAX // 8].decode(errors="ignore")
        return [ToolResult(call_id=copy.tool_call_id, text=beginning, blob=_stored(data, blobs).blob), *files]
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
    except ValueError:
        return []
    return [_stored(data, blobs, found[1] or "application/octet-stream", "image")]


CONTENT_JSON_PREFIX = "\0json:"
"""Hermes' mark of structured content in a text column."""

MICROSECONDS = 1_000_000
AT_MAX = 253_402_300_799 * MICROSECONDS
"""The end of the year 9999: a larger number is no time."""


class HermesSource(StrEnum):
    """Where Hermes keeps the messages of a session."""

    DATABASE = "state.db"
    LOG = "log"
    SNAPSHOT = "snapshot"


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of a message, as one source has it."""

    role: str
    content: Any = None
    tool_call_id: str = ""
    tool_name: str = ""
    calls: tuple[ToolCall, ...] = ()
    thoughts: tuple[Reasoning, ...] = ()
    at_microseconds: int = 0
    finish_reason: str = ""
    platform_id: str = ""
    undone: bool | None = None

    @property
    def words(self) -> str:
        """What is said, white space and the two spellings of a scratchpad made one: copies differ in these."""
        text = content_text(self.content)
        if "REASONING_SCRATCHPAD" in text:
            text = text.replace("<REASONING_SCRATCHPAD>", "<think>").replace("</REASONING_SCRATCHPAD>", "</think>")
        return " ".join(text.split())

    @property
    def tool_ids(self) -> tuple[str, ...]:
        return tuple(call.id for call in self.calls) or ((self.tool_call_id,) if self.tool_call_id else ())


def key_of(copy: Copy) -> tuple[str, str, tuple[str, ...]]:
    """Return what copies of one message have in common: role, content and tool ids."""
    return copy.role, copy.words, copy.tool_ids


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What Hermes knows about a session besides its messages."""

    id: str
    source: str = ""
    user_id: str = ""
    chat_id: str = ""
    chat_type: str = ""
    thread_id: str = ""
    session_key: str = ""
    display_name: str = ""
    title: str = ""
    parent_id: str = ""
    model: str = ""
    started_at: float = 0.0
    ended: bool = False
    end_reason: str = ""
    claimed: int = 0
    archived: bool = False
    in_database: bool = False
    log: Path | None = None
    snapshot: Path | None = None

    @property
    def sources(self) -> tuple[HermesSource, ...]:
        found = (
            (self.in_database, HermesSource.DATABASE),
            (self.log, HermesSource.LOG),
            (self.snapshot, HermesSource.SNAPSHOT),
        )
        return tuple(source for present, source in found if present)


class HermesFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a person should know of: what it is, in which of Hermes' sessions, where, and how it looks."""

    kind: str
    session: str = ""
    where: str = ""
    detail: str = ""


WORDS_SHOWN_MAX: Final = 60


def short_words(words: str) -> str:
    return words if len(words) <= WORDS_SHOWN_MAX else f"{words[:WORDS_SHOWN_MAX]}…"


def content_text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text for part in content if (text := part_text(part)))
    return json.dumps(content, ensure_ascii=False, default=str)


def part_text(part: object) -> str:
    """Return the words of one part; of a picture, where it is."""
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        if isinstance(part.get("text"), str):
            return str(part["text"])
        if (address := picture_address(part)) is not None:
            shown = address if not address.startswith("data:") else hashlib.sha256(address.encode()).hexdigest()
            return f"[image: {shown}]"
    return json.dumps(part, ensure_ascii=False, default=str)


def picture_address(part: dict[str, Any]) -> str | None:
    found = part.get("image_url")
    address = found.get("url") if isinstance(found, dict) else found
    return address if isinstance(address, str) else None


def read_copy(fields: dict[str, Any]) -> Copy:
    """Return the copy that a row or a line holds. What has the wrong form is kept as text."""
    role = text_of(fields.get("role"))
    return Copy(
        role=role,
        content=_read_content(fields.get("content")),
        tool_call_id=text_of(fields.get("tool_call_id")),
        tool_name=text_of(fields.get("tool_name") or fields.get("name")),
        calls=_read_calls(fields.get("tool_calls")),
        thoughts=_read_thoughts(fields) if role == "assistant" else (),
        at_microseconds=read_time(fields.get("timestamp")),
        finish_reason=text_of(fields.get("finish_reason")),
        platform_id=text_of(fields.get("platform_message_id") or fields.get("message_id")),
    )


def _read_content(content: object) -> object:
    if isinstance(content, bytes):
        return content.decode(errors="replace")
    if isinstance(content, str) and content.startswith(CONTENT_JSON_PREFIX):
        decoded = parse_json(content[len(CONTENT_JSON_PREFIX) :])
        return content if decoded is None else decoded
    if content is None or isinstance(content, str | list | dict):
        return content
    return str(content)


def _read_calls(value: object) -> tuple[ToolCall, ...]:
    listed = parse_json(value) if isinstance(value, str) else value
    if isinstance(listed, dict):
        listed = [listed]
    if not isinstance(listed, list):
        # A text that is no JSON is kept as the arguments of a call without a name.
        return (ToolCall(id="", name="", arguments=value),) if isinstance(value, str) and value else ()
    calls = []
    for each in listed:
        fields = each if isinstance(each, dict) else {}
        function = fields.get("function")
        named = function if isinstance(function, dict) else fields
        arguments = named.get("arguments", {} if fields else each)
        calls.append(
            ToolCall(
                id=text_of(fields.get("id") or fields.get("call_id")),
                name=text_of(named.get("name")),
                arguments=arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
            )
        )
    return tuple(calls)


def _read_thoughts(fields: dict[str, Any]) -> tuple[Reasoning, ...]:
    """Return the reasoning: the detailed form with its signatures where there is one, the plain text otherwise."""
    details = fields.get("reasoning_details")
    listed = parse_json(details) if isinstance(details, str) else details
    detailed = []
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict):
            text = text_of(each.get("text") or each.get("thinking") or each.get("summary"))
            signature = text_of(each.get("signature") or each.get("data"))
            if text or signature:
                detailed.append(Reasoning(text, signature=signature))
    plain = text_of(fields.get("reasoning")) or text_of(fields.get("reasoning_content"))
    if plain and not any(each.text for each in detailed):
        detailed.insert(0, Reasoning(plain))
    return tuple(detailed)


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def text_of(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


NUMBER = re.compile(r"\d+(\.\d+)?\Z")


def read_time(value: object) -> int:
    """Return microseconds since 1970, or 0. Hermes writes seconds, or a local time without its zone."""
    if isinstance(value, bool) or value is None:
        return 0
    if isinstance(value, str):
        if NUMBER.match(value):
            value = float(value)
        else:
            try:
                value = datetime.fromisoformat(value).timestamp()
            except (ValueError, OverflowError, OSError):
                return 0
    if not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    microseconds = round(value * MICROSECONDS)
    return microseconds if 0 < microseconds <= AT_MAX else 0
