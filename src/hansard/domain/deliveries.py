"""Deliveries: what goes out to a platform, and what is known of it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class DeliveryState(StrEnum):
    """What is known about one outbound post or edit."""

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    UNKNOWN = "unknown"


DELIVERY_MOVES: dict[DeliveryState, frozenset[DeliveryState]] = {
    DeliveryState.PENDING: frozenset({DeliveryState.SENDING, DeliveryState.FAILED}),
    DeliveryState.SENDING: frozenset(
        {DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.UNKNOWN, DeliveryState.PENDING}
    ),
    DeliveryState.UNKNOWN: frozenset({DeliveryState.SENDING, DeliveryState.SENT, DeliveryState.FAILED}),
    DeliveryState.FAILED: frozenset({DeliveryState.PENDING}),
    DeliveryState.SENT: frozenset(),
}
"""SENDING → PENDING is a refusal that surely had no effect (a rate limit); FAILED → PENDING is a person's retry."""


class Operation(StrEnum):
    """What a delivery does on the platform."""

    POST = "post"
    EDIT = "edit"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One post or edit on one channel: of a message's text [start_bytes, end_bytes), or of one of its files."""

    id: str
    session_id: str
    channel: str
    target: str
    message_id: str
    operation: Operation = Operation.POST
    start_bytes: int = 0
    end_bytes: int = 0
    file: int = 0
    """The number of the message's file that it shows, from 1; 0: its words."""
    state: DeliveryState = DeliveryState.PENDING
    attempts: int = 0
    owner: str = ""
    receipt: str = ""
    reason: str = ""
    mark: str = ""
    """What stands above the words, so that people know that they may have seen them before; empty: nothing."""


class OutboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is to be shown in a chat. Numbers grow; they are good for asking what came since."""

    number: int
    session_id: str
    """`~home` for what people without a session are told."""
    message_id: str
    chat: str
    seq: int
    is_open: bool
    follows: bool = False
    """Whether the chat only follows the session: it is shown there if it still does."""


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a channel waits to be shown."""

    messages: int = 0
    oldest_at_microseconds: int = 0
    deliveries: dict[str, int] = {}
    """By state, those that are not sent."""
