"""A channel on the Bot API of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from hansard.channels.telegram import TelegramChannel, TelegramTiming, open_telegram
from hansard.ports.channel import Batch, Event
from tests.channels.telegram.bot_api import BotApi

PACE = TelegramTiming(poll_seconds=2, retry_seconds_min=0.02, retry_seconds_max=0.1)
WAIT_SECONDS_MAX = 120.0


@asynccontextmanager
async def channel_on(api: BotApi, home: Path, pace: TelegramTiming = PACE) -> AsyncIterator[TelegramChannel]:
    """A channel with the token of a server."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment = {"HANSARD_TELEGRAM_TOKEN": api.token}
    channel = open_telegram(home, environment, base_url=api.url, pace=pace)
    try:
        yield channel
    finally:
        await channel.close()


async def batches_until(channel: TelegramChannel, count: int, cursor: str = "") -> list[Batch]:
    """Receive until so many events have come."""
    found: list[Batch] = []
    async with asyncio.timeout(WAIT_SECONDS_MAX), aclosing(channel.receive(cursor, ())) as batches:
        async for batch in batches:
            found.append(batch)
            if sum(len(each.events) for each in found) >= count:
                break
    return found


async def received(channel: TelegramChannel, count: int, cursor: str = "") -> list[Event]:
    """Receive so many events."""
    return [event for batch in await batches_until(channel, count, cursor) for event in batch.events]


async def until(condition: Callable[[], bool], seconds: float = WAIT_SECONDS_MAX) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nobody rings for whoever looks on
            await asyncio.sleep(0.01)
