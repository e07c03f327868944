"""Matrix behind the port: one account, end-to-end encrypted where the room is.

Reads, writes: the homeserver, and the folder `matrix` of the home. Knows nothing of the record.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from hansard.channels import Json, remember, text_of
from hansard.channels.matrix import media
from hansard.channels.matrix.account import Account, MatrixLogin
from hansard.channels.matrix.contents import MESSAGE
from hansard.channels.matrix.history import history
from hansard.channels.matrix.pins import Trust
from hansard.channels.matrix.posting import (
    EVENT_BYTES_MAX,
    TEXT_BYTES_MAX,
    event_bytes,
    file_content,
    text_content,
    transaction_of,
)
from hansard.channels.matrix.reading import ENCRYPTED, NAME, Self, place_of
from hansard.channels.matrix.receiving import MatrixReceiver, MatrixTiming
from hansard.channels.matrix.wire import error_of, path
from hansard.errors import ChannelBusy, ChannelDown, ChannelError, ChatGone, PostRefused, PostUnknown
from hansard.ports.channel import Batch, Capabilities, Post, RemoteFile, TimelineEvent, file_key

DAY_SECONDS: Final = 86_400.0
REPEAT_SECONDS: Final = DAY_SECONDS - 3_600.0
"""Homeservers keep a device's transaction ids for a day at least; an hour is kept back for clocks that differ."""
TYPING_SECONDS: Final = 30.0
FILE_BYTES_MAX: Final = 50 * 1024 * 1024
"""Of one file. Homeservers have limits of their own, mostly this one; what they refuse is refused."""
REASON_CHARACTERS_MAX: Final = 500
"""Of the reason for declining an invitation: clients show it in a line or two."""
OWN_EVENTS_MAX: Final = 10_000
PARTS_TRIES_MAX: Final = 5
"""Attempts at a file whose post is already partly shown, before its outcome is said to be unknown."""


class MatrixChannel:
    """One account on a homeserver. It implements `Channel`, `Timeline` and `Company`."""

    name = NAME

    def __init__(self, account: Account, pace: MatrixTiming | None = None) -> None:
        self.account = account.user_id
        self._account = account
        self._pace = pace or MatrixTiming()
        self._own_events: dict[str, None] = {}

    @property
    def trouble(self) -> str:
        """What a person has to do, or what is waited for, before the account works as it should; empty when it does."""
        return self._account.trouble or self._account.waits_for

    @property
    def note(self) -> str:
        """What the admin should know although the account works: identities that changed, people who have none."""
        return self._account.note

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            text_bytes_max=TEXT_BYTES_MAX,
            edits=True,
            edit_seconds_min=1.0,
            repeat_seconds=min(REPEAT_SECONDS, self._account.device_seconds),
            timeline=True,
            file_bytes_max=FILE_BYTES_MAX,
            company=True,
            choices=True,
        )

    def receive(self, cursor: str, held: Sequence[str]) -> AsyncGenerator[Batch, None]:
        return MatrixReceiver(self._account, self._pace, self._own_events).run(cursor, held)

    async def send(self, post: Post) -> str:
        """Show something; return the event's id. Files beside the words are events of their own."""
        place = place_of(post.chat)
        session = await self._account.ready()
        room = await session.rooms.get(place.room_id)
        wire = self._account.wire
        addresses = [await media.upload(wire, file, is_encrypted=room.is_encrypted) for file in post.files]
        parts: list[tuple[str, Json]] = []
        if post.markdown or not post.files:
            parts.append((post.key, text_content(post, place, is_encrypted=room.is_encrypted)))
        for number, (file, address) in enumerate(zip(post.files, addresses, strict=True), 1):
            parts.append((file_key(post.key, number), file_content(post, place, file, address, number)))
        receipts = [await self._put(session, place.room_id, *parts[0])]
        for key, content in parts[1:]:
            receipts.append(await self._put_rest(session, place.room_id, key, content))
        return receipts[0]

    async def typing(self, chat: str, *, on: bool) -> None:
        with contextlib.suppress(ChannelError):
            await self._account.ready()
            target = path("rooms", place_of(chat).room_id, "typing", self.account)
            body = {"typing": on} | ({"timeout": int(TYPING_SECONDS * 1000)} if on else {})
            await self._account.wire.ask("PUT", target, body, what="showing that the agent writes")

    async def answer(self, chat: str, *, accept: bool, reason: str = "") -> None:
        """Accept or decline an invitation; clients show the reason beside the agent's leaving."""
        session = await self._account.ready()
        room_id = place_of(chat).room_id
        session.rooms.forget(room_id)
        if accept:
            await self._account.wire.ask("POST", path("rooms", room_id, "join"), {}, what="joining a room")
            return
        body = {"reason": reason[:REASON_CHARACTERS_MAX]} if reason else {}
        await self._account.wire.ask("POST", path("rooms", room_id, "leave"), body, what="declining an invitation")

    async def is_direct(self, chat: str) -> bool:
        """Return whether, now, one person is in a room besides the agent, where nobody comes or reads uninvited.

        While a person's changed identity is not confirmed, nobody knows who that is.
        """
        session = await self._account.ready()
        room = await session.rooms.get(place_of(chat).room_id)
        return room.is_direct and not any(session.crypto.pins.trust(each) is Trust.CHANGED for each in room.members)

    async def close(self) -> None:
        await self._account.close()

    async def history(self, chat: str, *, events_max: int = 10_000) -> AsyncGenerator[TimelineEvent, None]:
        """Give a room's messages and edits, the latest first; those of its threads too, unless the chat is a thread."""
        session = await self._account.ready()
        me = Self(self.account, await self._account.display_name())
        shown = history(self._account.wire, session, me, place_of(chat), events_max=events_max)
        async with contextlib.aclosing(shown):
            async for one in shown:
                yield one

    async def fetch(self, file: RemoteFile, *, bytes_max: int) -> bytes:
        await self._account.ready()
        return await media.fetch(self._account.wire, file, bytes_max=bytes_max)

    async def _put(self, session: MatrixLogin, room_id: str, key: str, content: Json) -> str:
        """Send one event under a key, encrypted where the room is."""
        room = await session.rooms.get(room_id)
        if event_bytes(content, is_encrypted=room.is_encrypted) > EVENT_BYTES_MAX:
            raise PostRefused("The post is larger than an event may be.")
        kind = MESSAGE
        if room.is_encrypted:
            kind, content = ENCRYPTED, await session.crypto.encrypt(room_id, list(room.members), MESSAGE, content)
        target = path("rooms", room_id, "send", kind, transaction_of(key))
        answer = await self._account.wire.post("PUT", target, content, what="posting")
        if not answer.is_good:
            error = error_of(answer, "posting")
            if isinstance(error, ChatGone):
                session.rooms.forget(room_id)
            raise error
        event_id = text_of(answer.body, "event_id")
        if not event_id:
            raise PostUnknown("posting: the homeserver answered without an id")
        remember(self._own_events, event_id, None, OWN_EVENTS_MAX)
        return event_id

    async def _put_rest(self, session: MatrixLogin, room_id: str, key: str, content: Json) -> str:
        """Send what belongs to a post that is partly shown: it can no longer be said that nothing was."""
        for failures in range(1, PARTS_TRIES_MAX + 1):
            try:
                return await self._put(session, room_id, key, content)
            except ChannelBusy as busy:
                await asyncio.sleep(busy.seconds)
            except (ChannelDown, PostUnknown):
                await asyncio.sleep(self._pace.retry_seconds(failures))
        raise PostUnknown("posting: the words are shown, a file beside them is not")
