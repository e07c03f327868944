"""What a provider does with one request, as a value; and what it remembers of it."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call; its arguments are sent in pieces of a few characters."""

    id: str
    name: str
    arguments: str = "{}"
    piece_characters: int = 5

    def pieces(self) -> list[str]:
        """The arguments as they are sent."""
        step = self.piece_characters
        return [self.arguments[start : start + step] for start in range(0, len(self.arguments), step)]


class Figures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The usage that is reported. `input_tokens` counts cached ones too, in both protocols."""

    input_tokens: int = 20
    output_tokens: int = 7
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer and what befalls it. In a piece `{last}` stands for what the person said last."""

    pieces: tuple[str, ...] = ("Hello", ",", " world", ".")
    reasoning: tuple[str, ...] = ()
    refusal: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    finish: str | None = "auto"
    """The protocol's word for the reason; `auto` finds it, None leaves it out with all that follows but the marker."""
    done: bool = True
    """Whether the closing marker is sent: [DONE], message_stop."""
    figures: Figures | None = Figures()
    delay_seconds: float = 0.0
    """Before each event."""
    head_delay_seconds: float = 0.0
    """Before the headers."""
    escaped: bool = False
    """Whether JSON is sent as ASCII, with escapes; halves of characters can be sent no other way."""

    status: int = 200
    message: str = "as the test asked"
    code: str | None = None
    """OpenAI's `code`, Anthropic's `type` of an error; None finds the usual one."""
    headers: dict[str, str] = {}
    body: str | None = None
    """The whole body, in place of events or of an error."""

    hangs_up: bool = False
    """Whether the connection ends after the answer without a word, just as the next request comes on it."""
    framing: Literal["chunked", "close", "length"] = "chunked"
    cut: Literal["fin", "rst"] = "fin"
    cut_after_head_bytes: int | None = None
    cut_after_bytes: int | None = None
    """Bytes of the body as they are on the wire, framing included."""
    cut_after_events: int | None = None
    stall_after_events: int | None = None
    error_after_events: int | None = None
    garbage_after_events: int | None = None
    garbage: str = "data: {nonsense\n\n"
    """Bytes, as Latin-1."""


class Event(msgspec.Struct, frozen=True):
    """One event of a stream, and the words of the answer that it carries."""

    data: bytes
    text: str = ""


class Exchange:
    """One request and what became of it."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: dict[str, Any]) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.status = 0
        self.error = ""
        self.sent_text = ""
        """The words of every event that was sent whole."""
        self.sent_bytes = 0
        """Bytes of the body on the wire."""
        self.events_count = 0
        """Events that were sent whole."""
        self.first_byte_seconds = 0.0
        """When the first byte of the body was sent, by the loop's clock."""
        self.stalled = asyncio.Event()
        """The server has said all that it will say, and keeps the connection."""
        self.left = asyncio.Event()
        """The client went away before the end."""
        self.over = asyncio.Event()
        """The server has done what it wanted to."""

    @property
    def text_bytes(self) -> int:
        """How many bytes of the answer's words were sent."""
        return len(self.sent_text.encode("utf-8", "surrogatepass"))
