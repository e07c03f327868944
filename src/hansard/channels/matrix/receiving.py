"""From the homeserver's syncs to batches.

Reads: /sync, /messages, /rooms/…/event; beside that, keys of devices. Writes: the crypto store.
Invariants: what came after the cursor is in the batch, however long ago that was: where a sync leaves a gap, the gap is
fetched. A batch's cursor is used for the next sync only after the batch was taken.
On crash: the same sync comes again, and with it the same to-device messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Final

import msgspec

from hansard.channels import Json, RetryTiming, canonical, list_of, object_of, objects_of, remember, text_of
from hansard.channels.matrix.account import Account, MatrixLogin
from hansard.channels.matrix.contents import says
from hansard.channels.matrix.history import Gaps, Pages, is_membership
from hansard.channels.matrix.reading import (
    ENCRYPTED,
    MEMBER,
    TOMBSTONE,
    MatrixEventFacts,
    MatrixPlace,
    Self,
    event_in,
    event_of,
    names_agent,
    reply_of,
    unreadable,
)
from hansard.channels.matrix.rooms import PRESENT, STATE_KINDS, MatrixRoom, is_opening
from hansard.channels.matrix.wire import path
from hansard.errors import ChannelBusy, ChannelError, ChatGone, PostRefused
from hansard.ports.channel import Batch, Event, EventKind, Keeps
from hansard.tasks import cancel_all

logger = logging.getLogger(__name__)

HELD_MAX: Final = 1000
"""Unreadable events kept in memory for the moment that their keys come: those that the record keeps."""
SENDERS_MAX: Final = 10_000
ANSWER_SECONDS: Final = 30.0
"""Granted to the homeserver beyond the time that it is asked to wait."""
DEVICES_SECONDS_MAX: Final = 5.0
"""For learning whose devices wrote what. What cannot be known by then counts as unverified."""
GATHERED_SECONDS: Final = 300.0

NOTHING: Final[Json] = {"not_types": ["*"]}
STATE: Final[Json] = {"types": list(STATE_KINDS)}


def sync_filter(timeline_events: int, state: Json) -> str:
    """What a sync is to tell: who comes and goes, what is encrypted, what is said."""
    room = {
        "account_data": NOTHING,
        "ephemeral": NOTHING,
        "state": state,
        "timeline": {"limit": timeline_events},
    }
    return canonical({"presence": NOTHING, "account_data": NOTHING, "room": room}).decode()


class MatrixTiming(RetryTiming, frozen=True, kw_only=True):
    """How long to wait for what."""

    poll_seconds: float = 30.0
    """For news, in one request."""
    pages: Pages = Pages()
    beat_seconds: float = 30.0
    """So often a batch is given although nothing happened: the cursor moves on, and all is seen to be well."""


class UnreadableEvents:
    """Unreadable events that wait for keys, by the id of the key. Those that just came wait once they are kept."""

    def __init__(self, raws: Sequence[str]) -> None:
        self._keeps = raws.keeps if isinstance(raws, Keeps) else lambda _event_id: True
        self._by_key: dict[str, dict[str, Json]] = {}
        self._fresh: list[Json] = []
        self.all_due = True
        for text in raws:
            try:
                self._add(msgspec.json.decode(text, type=dict))
            except msgspec.MsgspecError:
                logger.warning("an unreadable event of before is not JSON; it is left where it is")

    def _add(self, raw: Json) -> bool:
        event_id = text_of(raw, "event_id")
        waiting = self._by_key.get(text_of(raw, "content", "session_id"), {})
        if sum(map(len, self._by_key.values())) >= HELD_MAX or event_id in waiting:
            return False
        self._by_key.setdefault(text_of(raw, "content", "session_id"), waiting)[event_id] = raw
        return True

    def begin(self) -> None:
        """A sync begins; what came with one that failed comes again."""
        self._fresh = []

    def came(self, raw: Json) -> None:
        self._fresh.append(raw)

    def kept(self) -> list[Json]:
        """The batch was taken: wait for the keys of what is kept of it, and return that. The rest is forgotten."""
        fresh, self._fresh = self._fresh, []
        return [raw for raw in fresh if self._keeps(text_of(raw, "event_id")) and self._add(raw)]

    def due(self, came: set[str]) -> list[Json]:
        """The events to try again: those whose keys came, and all of them the first time."""
        due = (waiting for key, waiting in self._by_key.items() if self.all_due or key in came)
        return [raw for waiting in due for raw in waiting.values()]

    def done(self, raws: Iterable[Json]) -> None:
        """These could be read, and whatever was due was tried."""
        self.all_due = False
        for raw in raws:
            key = text_of(raw, "content", "session_id")
            waiting = self._by_key.get(key, {})
            waiting.pop(text_of(raw, "event_id"), None)
            if not waiting:
                self._by_key.pop(key, None)


class KeepingUp:
    """Publishes and asks for keys beside receiving: a homeserver may have to ask others for them."""

    def __init__(self, pace: MatrixTiming) -> None:
        self._pace = pace
        self._due = asyncio.Event()
        self._session: MatrixLogin | None = None

    def wake(self, session: MatrixLogin) -> None:
        """A sync was taken: something may be due."""
        self._session = session
        self._due.set()

    async def run(self) -> None:
        failures = 0
        while True:
            await self._due.wait()
            self._due.clear()
            assert self._session is not None
            try:
                await self._session.crypto.upkeep()
            except (PostRefused, ChatGone) as error:
                # Of a kind that repeating does not mend; the next sync asks again.
                logger.warning("the upkeep of keys failed: %s", error)
            except ChannelError as error:
                failures += 1
                logger.warning("the upkeep of keys waits: %s", error)
                busy = error.seconds if isinstance(error, ChannelBusy) else 0.0
                await asyncio.sleep(max(busy, self._pace.retry_seconds(failures)))
                self._due.set()
            else:
                failures = 0


class MatrixReceiver:
    """One run of receiving."""

    def __init__(self, account: Account, pace: MatrixTiming, own_events: dict[str, None]) -> None:
        self._account, self._pace, self._own_events = account, pace, own_events
        self._me = Self(account.user_id)
        self._gaps = Gaps(account.wire, account.user_id, pace.pages)
        self._settled: MatrixLogin | None = None
        self._taken: dict[bytes, None] = {}
        self._came: set[str] = set()
        self._senders: dict[str, str] = {}
        self._keeping_up = KeepingUp(pace)

    async def run(self, cursor: str, held: Sequence[str]) -> AsyncGenerator[Batch, None]:
        """Give batches for ever. Keys are published and asked for beside that."""
        upkeep = asyncio.create_task(self._keeping_up.run())
        try:
            async with contextlib.aclosing(self._batches(cursor, held)) as batches:
                async for batch in batches:
                    yield batch
        finally:
            await cancel_all(upkeep)

    async def _batches(self, cursor: str, held: Sequence[str]) -> AsyncGenerator[Batch, None]:
        waiting, failures, beat_at, is_first = UnreadableEvents(held), 0, 0.0, True
        while True:
            try:
                session = await self._account.ready()
                await self._prepare_login(session)
                batch = await self._next(session, cursor, waiting, poll=not is_first)
            except ChannelBusy as busy:
                await asyncio.sleep(busy.seconds)
                continue
            except ChannelError as error:
                failures += 1
                if str(error) != self._account.waits_for:
                    logger.warning("receiving waits: %s", error)
                self._account.waits_for = str(error)
                await asyncio.sleep(self._pace.retry_seconds(failures))
                continue
            failures, is_first, self._account.waits_for = 0, False, ""
            now = time.monotonic()
            if batch.events or batch.cut or not cursor or now - beat_at >= self._pace.beat_seconds:
                yield batch
                beat_at = time.monotonic()
            cursor = batch.cursor
            for raw in waiting.kept():
                session.crypto.request_key(text_of(raw, "room_id"), raw)
            self._keeping_up.wake(session)

    async def _prepare_login(self, session: MatrixLogin) -> None:
        if self._settled is session:
            return
        await self._account.ensure_identity(session)
        self._me = Self(self._me.user_id, await self._account.display_name())
        self._settled = session

    async def _next(self, session: MatrixLogin, cursor: str, waiting: UnreadableEvents, *, poll: bool) -> Batch:
        waiting.begin()
        seconds = self._pace.poll_seconds if poll and cursor else 0.0
        # Of the first sync of all, only the cursor and the invitations are taken.
        told = sync_filter(self._pace.pages.events, STATE) if cursor else sync_filter(1, NOTHING)
        query = {"timeout": str(int(seconds * 1000)), "filter": told}
        if cursor:
            query["since"] = cursor
        # What gathered while nobody asked may take the homeserver long.
        seconds += ANSWER_SECONDS if seconds else GATHERED_SECONDS
        body = await self._account.wire.ask("GET", path("sync"), what="syncing", seconds=seconds, query=query)
        # When a sync had to be repeated, this process has taken some of its to-device messages before.
        fresh = [raw for raw in list_of(body, "to_device", "events") if digest_of(raw) not in self._taken]
        self._came |= session.crypto.take_sync(body | {"to_device": {"events": fresh}})
        for raw in fresh:
            remember(self._taken, digest_of(raw), None, SENDERS_MAX)
        cut: list[str] = []
        for room_id, info in object_of(body, "rooms", "join").items():
            session.rooms.take_events(room_id, objects_of(info, "state", "events"))
            session.rooms.take_events(room_id, objects_of(info, "timeline", "events"))
        for room_id in object_of(body, "rooms", "leave"):
            session.rooms.forget(room_id)
        rooms = [info for section in ("join", "leave") for info in object_of(body, "rooms", section).values()]
        await self._learn_devices(session, [raw for info in rooms for raw in objects_of(info, "timeline", "events")])
        read, events = await self._readable_now(session, waiting)
        events += self._invitations(body, cursor)
        for section in ("join", "leave") if cursor else ():
            for room_id, info in object_of(body, "rooms", section).items():
                raws, is_cut = await self._gaps.since(room_id, info, cursor)
                cut += [MatrixPlace(room_id).chat] if is_cut else []
                events += await self._events(session, room_id, raws, waiting, is_left=section == "leave")
                if section == "leave":
                    session.rooms.forget(room_id)  # who is there when the agent comes back is asked then
        # Only now, when nothing can fail any more: a sync that has to be repeated finds everything as it was.
        waiting.done(read)
        self._came.clear()
        return Batch(cursor=text_of(body, "next_batch"), events=tuple(events), cut=tuple(cut))

    async def _readable_now(self, session: MatrixLogin, waiting: UnreadableEvents) -> tuple[list[Json], list[Event]]:
        """The events of before whose keys are here now: as they were, and as they read."""
        read, events = [], []
        due = waiting.due(self._came)
        await self._learn_devices(session, due)
        for raw in due:
            room_id = text_of(raw, "room_id")
            plain = session.crypto.decrypt(room_id, raw)
            if plain is None:
                continue
            read.append(raw)
            seen = await self._seen(session, room_id, raw, plain)
            event = event_of(plain, seen, self._me)
            events += [event] if event else []
        return read, events

    def _invitations(self, body: Json, cursor: str) -> list[Event]:
        events = []
        for room_id, info in object_of(body, "rooms", "invite").items():
            state = objects_of(info, "invite_state", "events")
            mine = [raw for raw in state if text_of(raw, "type") == MEMBER and raw.get("state_key") == self._me.user_id]
            for raw in mine[-1:]:
                # Most homeservers give no id. One made with the cursor is the same when the same sync comes again,
                # and another when the same person invites again.
                id = text_of(raw, "event_id") or hashlib.sha256(canonical([cursor, room_id, raw])).hexdigest()
                is_direct = object_of(raw, "content").get("is_direct") is True
                events.append(event_in(room_id, raw, EventKind.INVITATION, id=id, is_direct=is_direct))
        return events

    async def _events(
        self, session: MatrixLogin, room_id: str, raws: Sequence[Json], waiting: UnreadableEvents, *, is_left: bool
    ) -> list[Event]:
        """What others said in a room, and that the agent is no longer there."""
        events: list[Event] = []
        await self._learn_devices(session, raws)
        for raw in raws:
            if is_left and is_membership(raw, self._me.user_id, {"leave", "ban"}):
                was = text_of(raw, "unsigned", "prev_content", "membership")
                if text_of(raw, "sender") != self._me.user_id or was == "join":
                    reason = text_of(raw, "content", "reason")
                    events.append(event_in(room_id, raw, EventKind.LEFT, text=reason))
                continue
            if text_of(raw, "sender") == self._me.user_id or "state_key" in raw:
                continue
            plain = raw
            if text_of(raw, "type") == ENCRYPTED and object_of(raw, "content"):
                found = session.crypto.decrypt(room_id, raw)
                if found is None:
                    waiting.came(raw | {"room_id": room_id})
                    seen = await self._seen(session, room_id, raw, raw)
                    events.append(unreadable(raw, seen))
                    continue
                plain = found
            seen = await self._seen(session, room_id, raw, plain)
            event = event_of(plain, seen, self._me)
            events += [event] if event else []
        if not is_left:
            events += replacements(room_id, raws)
            events += await self._company(session, room_id, raws)
        return events

    async def _company(self, session: MatrixLogin, room_id: str, raws: Sequence[Json]) -> list[Event]:
        """Tell, once, that a direct chat has become a room: others came, are invited, or can come or read uninvited."""
        came = [raw for raw in raws if text_of(raw, "type") == MEMBER and is_arrival(raw)]
        names = {text_of(raw, "state_key") for raw in came}
        changes = came or [raw for raw in raws if "state_key" in raw and is_opening(raw)]
        if not changes or self._me.user_id in names:
            return []
        try:
            room = await session.rooms.get(room_id)
        except (ChatGone, PostRefused):
            return []
        others = room.members.keys() - {self._me.user_id}
        if room.is_direct or len(others - names) > 1:
            return []
        return [event_in(room_id, changes[0], EventKind.COMPANY, text=", ".join(sorted(names & others)))]

    async def _learn_devices(self, session: MatrixLogin, raws: Sequence[Json]) -> None:
        """Ask which devices those have who wrote these events: it tells whether they did. None is waited for long."""
        senders = {text_of(raw, "sender") for raw in raws if text_of(raw, "type") == ENCRYPTED}
        try:
            async with asyncio.timeout(DEVICES_SECONDS_MAX):
                await session.crypto.learn_devices(senders - {self._me.user_id})
        except (PostRefused, ChatGone, TimeoutError) as error:
            logger.warning("the devices of people could not be asked for: %s", error)

    async def _seen(self, session: MatrixLogin, room_id: str, raw: Json, plain: Json) -> MatrixEventFacts:
        """What has to be known besides the event itself, which came as `raw` and says `plain`."""
        try:
            room: MatrixRoom = await session.rooms.get(room_id)
        except (ChatGone, PostRefused):
            # One room that cannot be asked about must not hold up the others.
            is_unverified = session.crypto.is_unverified(room_id, raw)
            return MatrixEventFacts(room_id=room_id, is_direct=False, is_unverified=is_unverified)
        content = object_of(plain, "content")
        words = says(text_of(plain, "type"), content).words
        about = "" if room.is_direct or names_agent(content, words, self._me) else reply_of(content)
        answers = bool(about) and await self._sender_of(room_id, about) == self._me.user_id
        return MatrixEventFacts(
            room_id=room_id,
            is_direct=room.is_direct,
            answers_agent=answers,
            is_left=room.is_left,
            is_unverified=session.crypto.is_unverified(room_id, raw),
        )

    async def _sender_of(self, room_id: str, event_id: str) -> str:
        if event_id in self._own_events:
            return self._me.user_id
        if event_id not in self._senders:
            try:
                found = await self._account.wire.ask("GET", path("rooms", room_id, "event", event_id))
            except (ChatGone, PostRefused):
                found = {}
            remember(self._senders, event_id, text_of(found, "sender"), SENDERS_MAX)
        return self._senders[event_id]


def digest_of(raw: object) -> bytes:
    """By what a to-device message is recognised: it has no id."""
    return hashlib.sha256(canonical(raw)).digest()


def is_arrival(raw: Json) -> bool:
    before = text_of(raw, "unsigned", "prev_content", "membership")
    return text_of(raw, "content", "membership") in PRESENT and before not in PRESENT


def replacements(room_id: str, raws: Sequence[Json]) -> list[Event]:
    """That a room was given up for another one, as its upgrade leaves it."""
    given_up = [raw for raw in raws if text_of(raw, "type") == TOMBSTONE and raw.get("state_key") == ""]
    return [
        event_in(room_id, raw, EventKind.REPLACED, about=MatrixPlace(replacement).chat)
        for raw in given_up
        if (replacement := text_of(raw, "content", "replacement_room"))
    ]
