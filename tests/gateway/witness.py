"""A model that can say afterwards what it was asked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator

from hansard.domain.requests import Delta, Finished, ModelEvent, ModelRules, Request, UserSaid

TAG = re.compile(r"chat(\d+) session(\d+)")
SLOW = "slowly"


class Witness:
    """A model that keeps what it was asked, and answers slowly when it is asked to."""

    name = "witness"
    uses_tools = False
    rules = ModelRules()

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.requests: list[Request] = []
        self.slow = 0
        self.gate = asyncio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Answer."""
        self.requests.append(request)
        last = request.messages[-1]
        words = last.text if isinstance(last, UserSaid) else ""
        if SLOW in words:
            yield Delta("Well, ")
            self.slow += 1
            await self.gate.wait()
        yield Delta(f"heard {len(request.messages)}")
        yield Finished()

    async def close(self) -> None:
        """Nothing is held."""


def tags_of(request: Request) -> set[tuple[str, ...]]:
    """Return which chats and sessions the words of a request belong to."""
    said = (message.text for message in request.messages if isinstance(message, UserSaid))
    return {found.groups() for text in said for found in TAG.finditer(text)}
