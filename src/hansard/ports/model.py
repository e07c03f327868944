"""What a model must offer: one that answers, and one that writes voice notes down."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

import msgspec

from hansard.domain.budgets import Usage
from hansard.domain.requests import ModelEvent, ModelRules, Request


class Model(Protocol):
    """A model behind one name, such as `openai:gpt-5` or `demo`.

    A stream ends with exactly one `Finished` or `Failed`, and raises nothing but CancelledError: failures are values.
    It makes one attempt; whether to try again is the engine's to decide. Leaving the generator ends the request.
    """

    @property
    def name(self) -> str:
        """The name that people gave it."""

    @property
    def uses_tools(self) -> bool:
        """Whether it can be offered tools."""

    @property
    def rules(self) -> ModelRules:
        """What it takes: whose reasoning, how much, which pictures."""

    def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Ask once, and give the answer as it comes."""

    async def close(self) -> None:
        """Let go of connections and processes."""


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

    @property
    def bytes_max(self) -> int:
        """The largest note that it takes."""

    async def hear(self, voice: Voice) -> TranscribedText:
        """Write a note down, in one attempt."""

    async def close(self) -> None:
        """Let go of connections."""
