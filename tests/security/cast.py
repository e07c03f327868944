"""Who plays beside Hansard: a witness, a platform and tools that it sees, and a model that obeys anybody."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import AsyncGenerator
from typing import Any

from hansard.domain.messages import ToolCall
from hansard.domain.requests import (
    Called,
    Delta,
    Finished,
    FinishReason,
    ModelEvent,
    ModelRules,
    Request,
    ToolSpec,
    UserSaid,
)
from hansard.ports.channel import Batch, Post
from hansard.testing import Platform

TOOLS = {
    "pay": "mcp__bank__pay",
    "read": "mcp__web__read",
    "peek": "mcp__web__peek",
    "note": "note",
    "look": "look",
    "search": "session_search",
}
TOKEN = re.compile(r"\bword\d+x\b")
TAG = re.compile(r"#(\w+)")


class Witness:
    """What really happened, numbered in its order."""

    def __init__(self) -> None:
        """Nothing happened yet."""
        self.events: list[dict[str, Any]] = []

    def write(self, what: str, **fields: object) -> None:
        """Write down what happened."""
        self.events.append({"n": len(self.events), "at": now_microseconds(), "what": what, **fields})


class WatchedPlatform(Platform):
    """A platform of which the witness sees every post, and everything that people do."""

    def __init__(self, witness: Witness) -> None:
        """Begin without rooms."""
        super().__init__()
        self.witness = witness
        self.flows = asyncio.Event()
        """Whether posts get through; otherwise they wait."""
        self.flows.set()
        self.hears = asyncio.Event()
        """Whether the agent is told what people do; otherwise it is told later."""
        self.hears.set()
        self.blocked = 0
        """Posts that had to wait."""
        self.delayed: list[asyncio.Task[str]] = []

    async def poll(self, account: str, cursor: str) -> Batch:
        """Return what happened after a cursor."""
        batch = await super().poll(account, cursor)
        await self.hears.wait()
        return batch

    async def post(self, account: str, post: Post) -> str:
        """Show a post."""
        begun_at = now_microseconds()
        self.blocked += not self.flows.is_set()
        await self.flows.wait()
        event_id = await super().post(account, post)
        members = sorted(self.room(post.chat).members - {account})
        shown = {"chat": post.chat, "text": post.markdown, "key": post.key, "event_id": event_id, "edits": post.edits}
        self.witness.write("shown", members=members, begun_at=begun_at, **shown)
        return event_id


class Obedient:
    """A model that calls every tool which the last words name (`#pay`), and says every token that it was given."""

    name = "obedient"
    uses_tools = True
    rules = ModelRules()

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._numbers = itertools.count(1)
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Call, or tell."""
        self.requests.append(request)
        last = request.messages[-1]
        tags = TAG.findall(last.text) if isinstance(last, UserSaid) else []
        if tags:
            for tag in tags[:3]:
                number = next(self._numbers)
                arguments = {"query": "harbour"} if tag == "search" else {"text": f"nonce-{number}"}
                name = TOOLS.get(tag, tag)
                yield Called(ToolCall(id=f"call-{number}", name=name, arguments=json.dumps(arguments)))
            yield Finished(reason=FinishReason.TOOLS)
            return
        known = sorted(set(TOKEN.findall(f"{request.system} {request.messages}")))
        yield Delta(f"I know {' '.join(known) or 'nothing'}.")
        yield Finished()

    async def close(self) -> None:
        """Nothing is held."""


class WatchedTool:
    """A tool of which the witness sees every run."""

    repeatable = False

    def __init__(self, name: str, witness: Witness) -> None:
        """Nobody has called it yet."""
        self.spec = ToolSpec(
            name=name,
            description="A tool.",
            parameters='{"type":"object","properties":{"text":{"type":"string"}}}',
        )
        self._witness = witness

    async def run(self, arguments: dict[str, object]) -> str:
        """Be seen."""
        self._witness.write("ran", tool=self.spec.name, nonce=arguments.get("text", ""))
        return "done"


def now_microseconds() -> int:
    """Return the time, as the record's clock has it."""
    return time.time_ns() // 1000
