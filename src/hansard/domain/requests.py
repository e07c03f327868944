"""What a model is asked, and what it answers: values that engine and model adapters share. What a picture is."""

from __future__ import annotations

import re
import struct
from enum import StrEnum
from typing import NamedTuple

import msgspec

from hansard.domain.budgets import Usage
from hansard.domain.messages import Part, Reasoning, Text, ToolCall, ToolResult


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as a model sees it. `parameters` is its JSON schema, kept as text: what is frozen stays the same bytes."""

    name: str
    description: str
    parameters: str = '{"type":"object","properties":{}}'


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A picture that a model is shown. Its bytes are read just before it is asked."""

    blob: str
    media_type: str
    size_bytes: int = 0
    name: str = ""
    data: bytes = b""


class UserSaid(msgspec.Struct, frozen=True):
    """What people said, and what they and the model have to know about what happened."""

    text: str
    images: tuple[Image, ...] = ()


class AssistantSaid(msgspec.Struct, frozen=True):
    """What the model said and the tools that it called. Each call has its result in the message that follows.

    `thought` is the same in the parts and the order in which the provider gave it, its own reasoning included; empty
    when the model that is asked is not to be given any back.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    thought: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is sent: reasoning where it stood, words, calls. Without blank words."""
        if self.thought:
            return self.thought
        return (*([Text(self.text)] if self.text.strip() else []), *self.calls)

    @property
    def reasoning(self) -> tuple[Reasoning, ...]:
        return tuple(part for part in self.thought if isinstance(part, Reasoning))


class ToolsSaid(msgspec.Struct, frozen=True):
    """The results of the calls of the message before, all of them, in their order."""

    results: tuple[ToolResult, ...]


Said = UserSaid | AssistantSaid | ToolsSaid


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a model. Messages alternate: people or results, then the model."""

    system: str
    tools: tuple[ToolSpec, ...] = ()
    messages: tuple[Said, ...] = ()
    output_tokens_max: int | None = None


class ModelRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes, as far as a request depends on it. By default: words, of any length."""

    family: str = ""
    """Which models may be given its reasoning back, as `family_of` says. Empty: none is."""
    window_tokens: int = 0
    """Tokens of a request and its answer together. 0: not known, so that nothing is left out for it."""
    request_bytes_max: int = 0
    """The size of a request. 0: not known."""
    images_max: int = 0
    """Pictures in one request. 0: it sees none."""
    image_bytes_max: int = 0
    image_side_max: int = 0
    """Pixels of a picture's longer side. 0: any."""
    image_types: tuple[str, ...] = ("image/jpeg", "image/png", "image/gif", "image/webp")


DATED = re.compile(r"(?:[-@](?:\d{8}|\d{4}-\d\d-\d\d|\d{3}|latest|preview|exp))+\Z")
"""Ends of names by which providers tell builds of one model apart."""


def family_of(name: str) -> str:
    """Return what a model and its other builds have in common: the provider, and the name without its date."""
    return DATED.sub("", name)


class FailureKind(StrEnum):
    """Why a model did not answer, or not to the end."""

    BUSY = "busy"
    """429 or 529: too many requests; waiting helps."""
    UNAVAILABLE = "unavailable"
    """5xx, or no connection; waiting may help."""
    CUT = "cut"
    """The stream broke, or ended without its end."""
    STALLED = "stalled"
    """Nothing came for too long."""
    GARBLED = "garbled"
    """What came could not be understood."""
    UNAUTHORISED = "unauthorised"
    """401: the key is wrong. 403: it may not do what was asked."""
    REFUSED = "refused"
    """Any other 4xx: the request."""
    MISSING = "missing"
    """The model, or what it needs on this machine, is not there."""


RETRYABLE = frozenset(
    {FailureKind.BUSY, FailureKind.UNAVAILABLE, FailureKind.CUT, FailureKind.STALLED, FailureKind.GARBLED}
)
"""Failures after which the same request may succeed, as long as nothing of an answer has been seen."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A model's failure, as a value. The text is for people and holds no key."""

    kind: FailureKind
    text: str
    retry_after_seconds: float | None = None
    status: int = 0
    """The provider's HTTP status, where it answered with one."""

    @property
    def retryable(self) -> bool:
        return self.kind in RETRYABLE


class Delta(msgspec.Struct, frozen=True):
    """A piece of the answer."""

    text: str
    part: str = "text"
    """`text` or `reasoning`."""


class Called(msgspec.Struct, frozen=True):
    """A tool call, once it is whole. A call that was cut in its arguments is never given."""

    call: ToolCall


class FinishReason(StrEnum):
    """Why a model stopped."""

    STOP = "stop"
    TOOLS = "tools"
    LENGTH = "length"
    FILTER = "filter"


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The answer is whole. The last event of a stream that did not fail.

    `parts` is the answer once more, in the parts that the provider gave it, where those hold signatures.
    """

    reason: FinishReason = FinishReason.STOP
    usage: Usage = Usage()
    parts: tuple[Part, ...] = ()


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The stream failed. The last event of it; `usage` is what is known to have been used all the same."""

    failure: Failure
    usage: Usage = Usage()


ModelEvent = Delta | Called | Finished | Failed

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff"
GIFS = (b"GIF87a", b"GIF89a")

JPEG_SIZED = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The segments of a JPEG that tell its size."""

JPEG_SEGMENTS_MAX = 1000
"""Before its size comes a picture has a dozen; more is nonsense."""


class PictureFacts(NamedTuple):
    """What a picture is. 0 pixels: not known."""

    media_type: str
    width: int = 0
    height: int = 0


def look_at(data: bytes) -> PictureFacts | None:
    """Return what a picture is by its first bytes; None when they are of no kind known here. Nothing is decoded."""
    try:
        if data.startswith(PNG):
            return PictureFacts("image/png", *struct.unpack_from(">II", data, 16))
        if data.startswith(GIFS):
            return PictureFacts("image/gif", *struct.unpack_from("<HH", data, 6))
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return PictureFacts("image/webp", *webp_size(data))
        if data.startswith(JPEG):
            return PictureFacts("image/jpeg", *jpeg_size(data))
    except (struct.error, IndexError):
        # It is cut before its size; whoever decodes it will say so.
        return None
    return None


def webp_size(data: bytes) -> tuple[int, int]:
    form = data[12:16]
    if form == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if form == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Return width and height of a JPEG picture: they stand in one of its first segments."""
    place = 2
    for _ in range(JPEG_SEGMENTS_MAX):
        marker = data[place + 1]
        if marker in JPEG_SIZED:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        (length,) = struct.unpack_from(">H", data, place + 2)
        place += 1 if marker == data[place] else 2 + length
    return 0, 0
