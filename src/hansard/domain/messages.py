"""Messages and their parts: what was said, by whom, and whether it was finished.

These values never change, so they are part of no cycle, and the garbage collector need not look for one (`gc=False`):
reading many messages takes a quarter less time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

import msgspec

from hansard.domain.ids import new_id
from hansard.domain.people import is_terminal_author
from hansard.domain.text import escape_text, join_escapes, restore_text, split_escapes
from hansard.errors import InvalidInput


class Role(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"
    NOTICE = "notice"


class Status(StrEnum):
    """How far a message got."""

    OPEN = "open"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"


class ToolOutcome(StrEnum):
    """What is known about a tool call."""

    OK = "ok"
    ERROR = "error"
    NOT_STARTED = "not_started"
    UNKNOWN = "unknown"


class TextForm(StrEnum):
    """What a text is, beside the other texts of its message."""

    WORDS = "words"
    QUOTED = "quoted"
    """The words of another message, which a client repeated above an answer to it. A model is not given them."""
    FORWARDED = "forwarded"
    """Words of somebody else, which a person passed on. A model is told so."""
    FORMATTED = "formatted"
    """What clients show in place of the words before it, where it says something else."""


class Text(msgspec.Struct, gc=False, frozen=True, tag="text", omit_defaults=True):
    """Words."""

    text: str
    form: TextForm = TextForm.WORDS
    escaped: str = ""
    """What stood where the texts of this part have U+FFFD: see `hansard.domain.text`. So in every kind of part."""


class ReasoningText(msgspec.Struct, gc=False, frozen=True):
    """The one field of `Reasoning` that may be given by place, as in `Text`."""

    text: str


class Reasoning(ReasoningText, frozen=True, kw_only=True, tag="reasoning", omit_defaults=True):
    """A model's own thinking, with the signature that its provider wants back and the model that made it.

    `id` is what the provider calls this stretch of it. A signature without a text is given back as well: some
    providers hide what was thought, or sign the words before it.
    """

    signature: str = ""
    model: str = ""
    id: str = ""
    escaped: str = ""


SIGNS_TEXT = "text"
"""The id of reasoning that has no words and signs the words before it."""


class ToolCall(msgspec.Struct, gc=False, frozen=True, kw_only=True, tag="tool_call", omit_defaults=True):
    """A request to run a tool. The arguments are kept as the text that the model wrote, valid JSON or not."""

    id: str
    name: str
    arguments: str = "{}"
    signature: str = ""
    """What the provider wants back with it, and `model`, which made it: nobody else is given the signature."""
    model: str = ""
    escaped: str = ""


class ToolResult(msgspec.Struct, gc=False, frozen=True, kw_only=True, tag="tool_result", omit_defaults=True):
    """What a tool call gave, or why nothing is known of it."""

    call_id: str
    text: str = ""
    outcome: ToolOutcome = ToolOutcome.OK
    blob: str = ""
    escaped: str = ""
    sources: tuple[str, ...] | None = None
    """Whose words a tool of Hansard's own quotes (see `hansard.domain.trust`). None: it did not say."""


class File(msgspec.Struct, gc=False, frozen=True, kw_only=True, tag="file", omit_defaults=True):
    """An attachment; its bytes are the blob of that digest. Without one it is only named: it was not kept."""

    blob: str
    name: str = ""
    media_type: str = "application/octet-stream"
    size_bytes: int = 0
    transcript: str = ""
    """What a voice note says. In the record that is an entry of its own; a conversation has it here."""
    escaped: str = ""
    fetch: str = ""
    """The name under which it is being fetched, within its message. That ends with an entry of its own, which gives
    the blob or says that there is none; transcripts, contexts and exports then have the file without this."""


Part = Text | Reasoning | ToolCall | ToolResult | File


def clean_part(part: Part) -> Part:
    if not isinstance(part, Part):
        raise InvalidInput(f"a message consists of parts, not of {type(part).__name__}")
    known = split_escapes(part.escaped) if part.escaped else {}
    changes: dict[str, str] = {}
    escapes: dict[str, str] = {}
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if not isinstance(value, str) or name == "escaped":
            continue
        cleaned, escapes[name] = escape_text(restore_text(value, known[name]) if name in known else value)
        if cleaned != value:
            changes[name] = cleaned
    escaped = join_escapes(escapes)
    if changes or escaped != part.escaped:
        return msgspec.structs.replace(part, **changes, escaped=escaped)
    return part


RETRACTED = "(deleted in the chat)"
"""Stands in transcripts where somebody deleted on the platform what was said. The words stay in the record."""


def join_text(parts: tuple[Part, ...]) -> str:
    """Return the words of the parts, without reasoning, calls and files."""
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return "".join(part.text for part in parts if isinstance(part, Text | ToolResult))


def join_own_text(parts: tuple[Part, ...]) -> str:
    """Return the words of the parts without those that a client repeated from another message."""
    return join_text(tuple(part for part in parts if not is_quoted(part)))


def is_quoted(part: Part) -> bool:
    return isinstance(part, Text) and part.form is TextForm.QUOTED


def is_forwarded(part: Part) -> bool:
    return isinstance(part, Text) and part.form is TextForm.FORWARDED


class Message(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One message of a transcript."""

    id: str
    role: Role
    parts: tuple[Part, ...]
    status: Status = Status.COMPLETE
    at_microseconds: int = 0
    author: str = ""
    chat: str = ""
    """Where it was said, or is to be shown: a chat of a channel. Empty: in a terminal or by a program."""
    event_id: str = ""
    """What the platform calls the event in which a person said it."""
    is_observed: bool = False
    """Whether it was said among people, not to the agent."""
    is_edited: bool = False
    """Whether these are later words of its author, in place of the first ones."""
    is_retracted: bool = False
    """Whether it was deleted in the chat. In transcripts, what stands here then is a fixed sentence."""
    is_imported: bool = False
    """Whether it was said elsewhere and came by an import: nobody is shown it, or answered, in the chat it names."""
    is_unverified: bool = False
    """Whether it is not proved that its author wrote it: it is kept, and no model is given it."""

    @property
    def text(self) -> str:
        return join_text(self.parts)

    @property
    def named_author(self) -> str:
        """Who said it, where readers have to be told; empty at the terminal, where nobody else speaks."""
        is_terminal = self.role == Role.USER and is_terminal_author(self.author)
        return "" if is_terminal and not self.is_imported else self.author

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.at_microseconds / 1_000_000, UTC)

    @classmethod
    def make(
        cls,
        role: Role,
        content: str | tuple[Part, ...] | list[Part],
        *,
        id: str | None = None,
        at: datetime | None = None,
        author: str = "",
        chat: str = "",
        event_id: str = "",
        status: Status = Status.COMPLETE,
    ) -> Self:
        """Return a message; without an id it gets a new one. It is checked and cleaned when it is appended."""
        if not isinstance(content, str | list | tuple):
            raise InvalidInput(f"a message says text or parts, not {type(content).__name__}")
        return cls(
            id=new_id() if id is None else id,
            role=role,
            parts=(Text(content),) if isinstance(content, str) else tuple(content),
            status=status,
            at_microseconds=0 if at is None else round(at.timestamp() * 1_000_000),
            author=author,
            chat=chat,
            event_id=event_id,
        )

    @classmethod
    def user(
        cls,
        content: str | list[Part],
        *,
        id: str | None = None,
        at: datetime | None = None,
        author: str = "",
        chat: str = "",
        event_id: str = "",
    ) -> Self:
        return cls.make(Role.USER, content, id=id, at=at, author=author, chat=chat, event_id=event_id)

    @classmethod
    def assistant(
        cls,
        content: str | list[Part],
        *,
        id: str | None = None,
        at: datetime | None = None,
        chat: str = "",
    ) -> Self:
        return cls.make(Role.ASSISTANT, content, id=id, at=at, chat=chat)

    @classmethod
    def tool(
        cls,
        call_id: str,
        text: str,
        *,
        id: str | None = None,
        outcome: ToolOutcome = ToolOutcome.OK,
    ) -> Self:
        return cls.make(Role.TOOL, [ToolResult(call_id=call_id, text=text, outcome=outcome)], id=id)

    @classmethod
    def system(cls, content: str, *, id: str | None = None) -> Self:
        """Return an instruction to the model."""
        return cls.make(Role.SYSTEM, content, id=id)

    @classmethod
    def notice(cls, content: str, *, id: str | None = None, chat: str = "") -> Self:
        """Return what Hansard itself tells a person."""
        return cls.make(Role.NOTICE, content, id=id, chat=chat)
