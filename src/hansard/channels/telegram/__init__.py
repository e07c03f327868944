"""Telegram: one bot, behind `hansard.ports.channel`.

    wire            requests by python-telegram-bot's `Bot`, and what each failure means; the token stays in here
    keeping         the files of the home's folder `telegram`
    receiving       updates to batches; `reading` turns one update into the port's event
    channel         the port; `html` makes Telegram's HTML of Markdown

DESIGN.md of the folder above says why it is so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from hansard.channels.telegram.channel import TelegramChannel
from hansard.channels.telegram.keeping import Leaving, Places, read_token
from hansard.channels.telegram.receiving import TelegramTiming
from hansard.channels.telegram.wire import TelegramWire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["TelegramChannel", "TelegramTiming", "open_telegram"]

TOKEN: Final = "HANSARD_TELEGRAM_TOKEN"  # noqa: S105  # the variable's name


class TelegramSettings(Protocol):
    """What the settings say about the bot."""

    @property
    def base_url(self) -> str:
        """Where the Bot API is reached."""
        ...


def open_telegram(
    home: Path, settings: TelegramSettings, environment: Mapping[str, str], *, pace: TelegramTiming | None = None
) -> TelegramChannel:
    """Make the channel of a bot. Nothing is asked of Telegram yet, which may be down."""
    token = read_token(home, environment.get(TOKEN, ""))
    return TelegramChannel(token, TelegramWire(token, settings.base_url), Places(home), Leaving(home), pace)
