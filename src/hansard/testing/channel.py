"""The recording channel: the port of channels over a platform in memory, for tests and demonstrations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from hansard.errors import ChannelDown, PostRefused
from hansard.ports.channel import Batch, Capabilities, Post, RemoteFile, TimelineEvent

RECONNECT_SECONDS = 0.05

RECORDING_CAPABILITIES = Capabilities(
    text_bytes_max=4000,
    edits=True,
    edit_seconds_min=0.05,
    repeat_seconds=86_400,
    timeline=True,
    file_bytes_max=1_000_000,
    company=True,
    choices=True,
)


class Talks(Protocol):
    """What the channel asks of a platform for talking."""

    async def post(self, account: str, post: Post) -> str: ...

    async def poll(self, account: str, cursor: str) -> Batch: ...

    async def typing(self, account: str, chat: str, *, on: bool) -> None: ...

    async def answer(self, account: str, chat: str, *, accept: bool, reason: str = "") -> None: ...


class Remembers(Talks, Protocol):
    """What the channel asks of a platform about the past."""

    async def history(self, chat: str) -> list[TimelineEvent]: ...

    async def is_direct(self, chat: str) -> bool: ...

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes: ...


class RecordingChannel:
    """A channel for one account; it is a timeline as well."""

    def __init__(
        self,
        platform: Remembers,
        account: str = "@agent:example.org",
        *,
        name: str = "matrix",
        capabilities: Capabilities = RECORDING_CAPABILITIES,
    ) -> None:
        self._platform = platform
        self.account = account
        self.name = name
        self.capabilities = capabilities
        self.trouble = ""

    async def receive(self, cursor: str, held: Sequence[str]) -> AsyncGenerator[Batch, None]:
        """Give what happened since the cursor, for ever; a platform that is down is asked again."""
        del held
        while True:
            try:
                batch = await self._platform.poll(self.account, cursor)
            except ChannelDown as error:
                self.trouble = str(error)
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            self.trouble = ""
            cursor = batch.cursor
            yield batch

    async def send(self, post: Post) -> str:
        """Show something. As any platform it refuses what is too long, rather than show a part of it."""
        if self.capabilities.size(post.markdown) > self.capabilities.text_bytes_max:
            raise PostRefused(f"a text of more than {self.capabilities.text_bytes_max} {self.capabilities.text_unit}")
        return await self._platform.post(self.account, post)

    async def typing(self, chat: str, *, on: bool) -> None:
        await self._platform.typing(self.account, chat, on=on)

    async def answer(self, chat: str, *, accept: bool, reason: str = "") -> None:
        await self._platform.answer(self.account, chat, accept=accept, reason=reason)

    async def is_direct(self, chat: str) -> bool:
        return await self._platform.is_direct(chat)

    async def close(self) -> None:
        """There is nothing to let go of."""

    async def history(self, chat: str, *, events_max: int = 10_000) -> AsyncGenerator[TimelineEvent, None]:
        for shown in (await self._platform.history(chat))[:events_max]:
            yield shown

    async def fetch(self, file: RemoteFile, *, bytes_max: int) -> bytes:
        return await self._platform.fetch(file, bytes_max)
