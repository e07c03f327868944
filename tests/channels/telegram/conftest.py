"""A Bot API for a test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from tests.channels.telegram.bot_api import BotApi, bot_api

os.environ.setdefault("PTB_TIMEDELTA", "true")  # the library warns of what changes in its next version


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    """A server of its own: its chats and faults are nobody else's."""
    async with bot_api() as served:
        yield served
