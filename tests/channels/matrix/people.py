"""Who takes part: peers, each with a client of their own, and the agent's channel under test."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import nio
import nio.store
from peewee import SqliteDatabase

from hansard.channels.matrix import MatrixChannel, MatrixTiming, open_matrix
from hansard.channels.matrix.history import Pages
from hansard.ports.channel import Batch, Event, EventKind
from tests.channels.matrix.synapse import Synapse, user_id

WAIT_SECONDS = 120.0
HEAR_SECONDS = 120.0
PACE = MatrixTiming(
    pages=Pages(events=10), poll_seconds=10.0, retry_seconds_min=0.05, retry_seconds_max=0.5, beat_seconds=0.0
)
ENCRYPTION = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
NUMBERS = itertools.count()


class Agent:
    """The agent's side: a channel that receives in the background, as a gateway would."""

    def __init__(self, channel: MatrixChannel, cursor: str = "", held: Sequence[str] = ()) -> None:
        self.channel = channel
        self.cursor, self._held = cursor, held
        self.batches: list[Batch] = []
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.started = asyncio.Event()
        self.keep: Callable[[str], object] = lambda _event_id: None
        """Told of each event before the next batch is asked for."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._receive())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self.channel.close()

    async def _receive(self) -> None:
        async with contextlib.aclosing(self.channel.receive(self.cursor, self._held)) as batches:
            async for batch in batches:
                self.batches.append(batch)
                self.cursor = batch.cursor
                self.started.set()
                for event in batch.events:
                    self.keep(event.id)
                    self.events.put_nowait(event)

    async def next(self, *, within_seconds: float = WAIT_SECONDS) -> Event:
        """The next event, of any kind."""
        return await asyncio.wait_for(self.events.get(), within_seconds)

    async def ready(self) -> None:
        """Wait for the first batch: from here on everything is received."""
        await asyncio.wait_for(self.started.wait(), WAIT_SECONDS)

    async def come(self) -> str:
        """Accept the next invitation; return the chat."""
        event = await self.next()
        assert event.kind is EventKind.INVITATION, event
        await self.channel.answer(event.chat, accept=True)
        return event.chat


class Heard(NamedTuple):
    """A message, as somebody's client was told of it."""

    room_id: str
    sender: str
    body: str


class Account(NamedTuple):
    """A user of the homeserver."""

    user_id: str
    password: str


def new_account(synapse: Synapse, name: str) -> Account:
    """Register a user that no other test has."""
    localpart = f"{name}{next(NUMBERS)}-{secrets.token_hex(3)}"
    return Account(user_id(localpart), synapse.register(localpart))


def channel_of(
    account: Account, url: str, home: Path, environment: Mapping[str, str] | None = None, *, pages: Pages | None = None
) -> MatrixChannel:
    """The channel under test, for an account; it logs in by password unless something else is given."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)  # a channel never makes its home
    given = environment if environment is not None else {"HANSARD_MATRIX_PASSWORD": account.password}
    pace = msgspec.structs.replace(PACE, pages=pages) if pages else PACE
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open_matrix(home, given, homeserver=url, user_id=account.user_id, pace=pace)


class QuickStore(nio.store.DefaultStore):  # type: ignore[misc]
    """A client's store that does not wait for the disk: peers come and go with their test."""

    def _create_database(self) -> SqliteDatabase:
        return SqliteDatabase(
            self.database_path, pragmas={"foreign_keys": 1, "synchronous": 0, "journal_mode": "memory"}
        )


class Peer:
    """A person with a client of their own: matrix-nio's whole client, which shares nothing with the channel."""

    def __init__(self, synapse: Synapse, account: Account, folder: Path, device_id: str = "PEER") -> None:
        self.account, self.user_id = account, account.user_id
        folder.mkdir(parents=True, exist_ok=True)
        config = nio.AsyncClientConfig(store=QuickStore, max_limit_exceeded=0, max_timeouts=0, store_sync_tokens=True)
        self.client: Any = nio.AsyncClient(
            synapse.url, account.user_id, device_id=device_id, store_path=str(folder), config=config
        )
        self.heard: list[Heard] = []
        """All messages that any sync brought, in its order."""
        self.client.add_event_callback(self._hear, nio.RoomMessage)

    def _hear(self, room: Any, event: Any) -> None:  # noqa: ANN401
        self.heard.append(Heard(room.room_id, event.sender, event.source["content"].get("body", "")))

    async def hears(self, room_id: str, sender: str, text: str = "", *, after: int = 0) -> None:
        """Wait until somebody has said something in a room; what was heard before the number `after` does not count.

        A homeserver that is away is asked again.
        """
        async with asyncio.timeout(HEAR_SECONDS):
            while True:
                fresh, after = self.heard[after:], len(self.heard)
                if any((each.room_id, each.sender) == (room_id, sender) and text in each.body for each in fresh):
                    return
                answer = await self.client.sync(timeout=2000)
                if not isinstance(answer, nio.SyncResponse):
                    await asyncio.sleep(0.1)

    async def start(self) -> None:
        """Log in and publish keys."""
        answer = await self.client.login(self.account.password)
        assert isinstance(answer, nio.LoginResponse), answer
        await self.sync()
        await self.client.keys_upload()

    async def sync(self) -> Any:  # noqa: ANN401
        """Take what is new."""
        answer = await self.client.sync()
        assert isinstance(answer, nio.SyncResponse), answer
        if self.client.should_query_keys:
            await self.client.keys_query()
        return answer

    async def open_room(self, *invited: str, encrypted: bool = False, direct: bool = True, name: str = "") -> str:
        """Make a room and invite people to it."""
        answer = await self.client.room_create(
            invite=invited, is_direct=direct, name=name or None, initial_state=[ENCRYPTION] if encrypted else []
        )
        assert isinstance(answer, nio.RoomCreateResponse), answer
        return str(answer.room_id)

    async def say(self, room_id: str, text: str, **content: Any) -> str:  # noqa: ANN401
        """Say something; return the event's id."""
        return await self.send(room_id, {"msgtype": "m.text", "body": text, **content})

    async def say_at_once(self, room_id: str, text: str) -> str:
        """Say something where nobody has come since the last time, as fast as people type."""
        return await self.send(room_id, {"msgtype": "m.text", "body": text}, at_once=True)

    async def send(
        self, room_id: str, content: dict[str, Any], kind: str = "m.room.message", *, at_once: bool = False
    ) -> str:
        """Send an event; encrypted in encrypted rooms, to every device."""
        room = self.client.rooms.get(room_id)
        if not at_once and (room is None or room.encrypted):
            # Who came since has to have the keys.
            await self.sync()
        answer = await self.client.room_send(room_id, kind, content, ignore_unverified_devices=True)
        assert isinstance(answer, nio.RoomSendResponse), answer
        return str(answer.event_id)

    async def raw(self, method: str, path: str, body: Any = None) -> Any:  # noqa: ANN401
        """Ask the homeserver anything."""
        async with self.client.client_session.request(
            method,
            self.client.homeserver + path,
            json=body,
            headers={"Authorization": f"Bearer {self.client.access_token}"},
        ) as answer:
            return await answer.json()

    async def sees(self, room_id: str) -> list[Any]:
        """The room's messages as this person sees them, the oldest first."""
        await self.sync()
        answer = await self.client.room_messages(room_id, start="", limit=500)
        assert isinstance(answer, nio.RoomMessagesResponse), answer
        kinds = nio.RoomMessage | nio.MegolmEvent
        return [event for event in reversed(answer.chunk) if isinstance(event, kinds)]


@asynccontextmanager
async def peer(synapse: Synapse, folder: Path, name: str = "ann") -> AsyncGenerator[Peer, None]:
    """A person who is there for a while."""
    account = new_account(synapse, name)
    person = Peer(synapse, account, folder / account.user_id.replace(":", "_"))
    await person.start()
    try:
        yield person
    finally:
        await person.client.close()
        if person.client.store is not None:
            person.client.store.database.close()


def room_of(chat: str) -> str:
    """The room of a chat."""
    return chat.removeprefix("matrix:room:").partition(":thread:")[0]
