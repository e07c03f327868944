"""Telegram: one bot, behind `hansard.ports.channel`.

    wire            requests by python-telegram-bot's `Bot`, and what each failure means; the token stays in here
    keeping         the files of the home's folder `telegram`
    receiving       updates to batches; `reading` turns one update into the port's event
    channel         the port; `html` makes Telegram's HTML of Markdown

DESIGN.md of the folder above says why it is so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hansard.channels.telegram.channel import TelegramChannel
from hansard.channels.telegram.keeping import Leaving, Places, read_token
from hansard.channels.telegram.receiving import TelegramTiming
from hansard.channels.telegram.wire import TelegramWire

__all__ = ["TelegramChannel", "TelegramTiming", "open_telegram"]


def open_telegram(
    home: Path, environment: Mapping[str, str], *, base_url: str, pace: TelegramTiming | None = None
) -> TelegramChannel:
    """Make the channel of a bot. The Bot API at `base_url`, which may be down, is not asked yet."""
    token = read_token(home, environment.get("HANSARD_TELEGRAM_TOKEN", ""))
    return TelegramChannel(token, TelegramWire(token, base_url), Places(home), Leaving(home), pace)
