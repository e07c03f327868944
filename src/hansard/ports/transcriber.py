"""What somebody must offer who writes voice notes down."""

from __future__ import annotations

from typing import Protocol

import msgspec

from hansard.domain.requests import Usage


class Voice(msgspec.Struct, frozen=True, kw_only=True):
    """A voice note."""

    data: bytes
    name: str = ""
    media_type: str = "audio/ogg"


class TranscribedText(msgspec.Struct, frozen=True, kw_only=True):
    """What a voice note says; or, in `failure`, why nobody knows. The text is for people and holds no key."""

    text: str = ""
    failure: str = ""
    usage: Usage = Usage()


class Transcriber(Protocol):
    """Writes voice notes down. It raises nothing but CancelledError: failures are values."""

    @property
    def name(self) -> str:
        """The name that people gave it."""
        ...

    @property
    def bytes_max(self) -> int:
        """The largest note that it takes."""
        ...

    async def hear(self, voice: Voice) -> TranscribedText:
        """Write a note down, in one attempt."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
