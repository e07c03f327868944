"""From Telegram's updates to batches.

Reads: getUpdates. Writes: the file of groups that have another id than before.
Invariants: an offset above an update, which lets Telegram forget it, is only sent when the batch with that update was
taken. No update is skipped: what waited while nobody asked comes first.
On crash: the same updates come again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Final

from hansard.channels import Json, RetryTiming, number_of, object_of, remember, text_of
from hansard.channels.telegram.keeping import Places
from hansard.channels.telegram.reading import (
    CHOICE,
    KINDS,
    TelegramUpdateFacts,
    answers_agent,
    event_of,
    is_part,
    migrated_of,
    names_agent,
)
from hansard.channels.telegram.wire import Me, TelegramWire
from hansard.errors import ChannelBusy, ChannelError, HansardError
from hansard.ports.channel import Batch, Event

logger = logging.getLogger(__name__)

PART_SECONDS_MAX: Final = 3
"""Between the parts of one long text, by Telegram's clock."""
RELEASES_MAX: Final = 64
"""Buttons that are released at once; of more, each fades by itself."""
PARTS_MAX: Final = 1000
"""Texts and albums of which further parts are recognised."""


class TelegramTiming(RetryTiming, frozen=True, kw_only=True):
    """How long to wait for what."""

    poll_seconds: int = 30
    """For news, in one request."""


class Parts:
    """What was said to the agent in several messages: only one of them names it."""

    def __init__(self) -> None:
        self._albums: dict[str, None] = {}
        self._texts: dict[tuple[int, int], int] = {}

    def look_ahead(self, messages: Sequence[Json], me: Me) -> None:
        """Note the albums that are for the agent: the words may stand beside any of the pictures."""
        for message in messages:
            album = text_of(message, "media_group_id")
            if album and (names_agent(message, me) or answers_agent(message, me)):
                remember(self._albums, album, None, PARTS_MAX)

    def continues(self, message: Json, me: Me) -> bool:
        """Return whether a message goes on with what was said to the agent."""
        who = (number_of(message, "chat", "id"), number_of(message, "from", "id"))
        said_at = number_of(message, "date")
        follows = said_at - self._texts.pop(who, said_at - PART_SECONDS_MAX - 1) <= PART_SECONDS_MAX
        is_for_agent = names_agent(message, me) or answers_agent(message, me) or follows
        if is_for_agent and is_part(message) and not text_of(message, "media_group_id"):
            remember(self._texts, who, said_at, PARTS_MAX)
        return follows or text_of(message, "media_group_id") in self._albums


class TelegramReceiver:
    """One run of receiving."""

    def __init__(self, wire: TelegramWire, places: Places, pace: TelegramTiming, gone: set[int]) -> None:
        """`gone`: chats that refused the agent. A chat leaves the set when a person writes there."""
        self._wire, self._places, self._pace, self._gone = wire, places, pace, gone
        self._parts = Parts()
        self._pressed: tuple[str, ...] = ()
        self._releasing: set[asyncio.Task[None]] = set()
        self.waits_for = ""
        """Why nothing is received just now; empty when it is."""

    async def run(self, cursor: str) -> AsyncGenerator[Batch, None]:
        failures, polls = 0, False
        while True:
            try:
                batch = await self._next(cursor, poll=polls)
            except ChannelBusy as busy:
                self.waits_for, polls = str(busy), False
                await asyncio.sleep(busy.seconds)
                continue
            except (ChannelError, OSError) as error:
                # The first request after trouble does not wait for news: that all is well again is news enough.
                failures, polls = failures + 1, False
                self.waits_for = str(error) if isinstance(error, HansardError) else type(error).__name__
                if failures == 1:
                    logger.warning("nothing is received: %s", self.waits_for)
                await asyncio.sleep(self._pace.retry_seconds(failures))
                continue
            failures, polls, self.waits_for = 0, True, ""
            pressed = self._pressed
            yield batch
            cursor = batch.cursor
            self._release(pressed)

    async def _next(self, cursor: str, *, poll: bool) -> Batch:
        me = await self._wire.me()
        offset = int(cursor) if cursor else None
        updates = await self._wire.updates(offset, self._pace.poll_seconds if poll else 0, KINDS)
        self._parts.look_ahead([object_of(update, "message") for update in updates], me)
        events: list[Event] = []
        self._pressed = tuple(filter(None, (text_of(update, CHOICE, "id") for update in updates)))
        for update in updates:
            if (moved := migrated_of(update)) is not None:
                self._places.learn(*moved)
            event = self._event(update, me)
            events += [event] if event else []
        # The last one's number, also when it is below the offset: after a quiet week Telegram begins anew.
        last = max((number_of(update, "update_id") for update in updates), default=-1)
        return Batch(cursor=str(last + 1) if updates else cursor, events=tuple(events))

    def _release(self, pressed: tuple[str, ...]) -> None:
        """Let buttons look released again, beside the loop: the presses are recorded. A courtesy: it fails silently."""

        async def release(press: str) -> None:
            with suppress(HansardError):
                await self._wire.ask(lambda bot: bot.answer_callback_query(press), "releasing a button")

        for press in pressed[: RELEASES_MAX - len(self._releasing)]:
            task = asyncio.create_task(release(press))
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)

    def _event(self, update: Json, me: Me) -> Event | None:
        about = next((object_of(update, kind) for kind in KINDS if kind in update), {})
        chat_id = number_of(about, "chat", "id") or number_of(about, "message", "chat", "id")
        if not chat_id:
            return None
        # A person who had blocked the agent talks to it again, or a group has it back.
        status = text_of(update, "my_chat_member", "new_chat_member", "status")
        if "message" in update or status in {"member", "administrator"}:
            self._gone.discard(chat_id)
        continues = "message" in update and self._parts.continues(about, me)
        return event_of(update, TelegramUpdateFacts(chat_id=self._places.first(chat_id), continues=continues), me)
