"""A chat platform in memory: rooms, members, one timeline each, and the faults that real ones have.

It promises what real ones promise: event ids are unique, a key that was used shows nothing twice for a while, an
edit replaces what everybody sees, and whoever asks with a cursor is given everything after it. What any member can
see is in `timeline`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from enum import StrEnum
from typing import NamedTuple

import msgspec

from hansard.errors import ChannelBusy, ChannelDown, ChatGone, NotFound, PostRefused, PostUnknown, TooLarge
from hansard.ports.channel import Batch, Choice, Event, EventKind, LocalFile, Post, RemoteFile, TimelineEvent, file_key

BATCH_EVENTS_MAX = 100
THREAD = ":thread:"
DIRECT_MEMBERS = 2
"""The person and the agent."""


class FaultKind(StrEnum):
    """What goes wrong with a post."""

    BUSY = "busy"
    """Nothing is shown, and the platform says how long to wait."""
    DOWN = "down"
    """Nothing is shown, and that is certain."""
    REFUSED = "refused"
    """Nothing is shown, and never will be."""
    CUT_BEFORE = "cut_before"
    """The connection broke, and nothing was shown."""
    CUT_AFTER = "cut_after"
    """The connection broke, and it was shown."""


class Fault(NamedTuple):
    """A fault for one post."""

    kind: FaultKind
    seconds: float = 0.0


class PlatformRoom:
    """A room: who is in it, and what they see."""

    def __init__(self, room_id: str, members: tuple[str, ...]) -> None:
        self.id = room_id
        self.members = set(members)
        self.timeline: list[TimelineEvent] = []
        self.is_gone = False
        self.typing: set[str] = set()


class Platform:
    """The server's side. One loop uses it."""

    def __init__(self, domain: str = "example.org") -> None:
        self.domain = domain
        self.rooms: dict[str, PlatformRoom] = {}
        self.faults: deque[Fault] = deque()
        """Taken by the next posts, one each."""
        self.is_down = False
        self.latency_seconds = 0.0
        self.calls: Counter[str] = Counter()
        self.files: dict[str, bytes] = {}
        self.shown_files: dict[str, LocalFile] = {}
        """By the event in which anybody sees them."""
        self.choices: dict[str, tuple[Choice, ...]] = {}
        """By the event beside which anybody sees them."""
        self.reasons: list[tuple[str, str]] = []
        """Why invitations were declined: (chat, reason)."""
        self._keys: dict[tuple[str, str], str] = {}
        self._stream: list[tuple[str, Event]] = []
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()

    # What people do.

    def create_room(self, *members: str) -> str:
        room_id = f"!room{next(self._numbers)}:{self.domain}"
        self.rooms[room_id] = PlatformRoom(room_id, members)
        return f"matrix:room:{room_id}"

    def room(self, chat: str) -> PlatformRoom:
        room_id = chat.partition(":room:")[2].partition(THREAD)[0]
        if room_id not in self.rooms:
            raise ChatGone(f"there is no room {room_id}")
        return self.rooms[room_id]

    def say(self, chat: str, sender: str, text: str, *, to: str = "", files: tuple[RemoteFile, ...] = ()) -> str:
        """Let a person say something, `to` the account that it names; return the event's id."""
        room = self.room(chat)
        shown = self._add(room, sender=sender, text=text)
        is_direct = len(room.members) <= DIRECT_MEMBERS
        event = Event(
            id=shown.id,
            kind=EventKind.MESSAGE,
            chat=chat,
            sender=sender,
            text=text,
            sent_at_ms=shown.sent_at_ms,
            is_direct=is_direct,
            is_for_agent=is_direct or bool(to),
            files=files,
        )
        return self._tell(event)

    def edit(self, chat: str, sender: str, about: str, text: str) -> str:
        shown = self._add(self.room(chat), sender=sender, text=text, edits=about)
        return self._tell(Event(id=shown.id, kind=EventKind.EDIT, chat=chat, sender=sender, text=text, about=about))

    def delete(self, chat: str, sender: str, about: str) -> str:
        room = self.room(chat)
        for place, shown in enumerate(room.timeline):
            if shown.id == about:
                room.timeline[place] = msgspec.structs.replace(shown, text="", is_deleted=True)
        return self._tell(Event(id=self._event_id(), kind=EventKind.DELETION, chat=chat, sender=sender, about=about))

    def choose(self, chat: str, sender: str, about: str, choice: str) -> str:
        event = Event(
            id=self._event_id(),
            kind=EventKind.ANSWER,
            chat=chat,
            sender=sender,
            about=about,
            choice=choice,
            sent_at_ms=now_ms(),
            is_direct=len(self.room(chat).members) <= DIRECT_MEMBERS,
        )
        return self._tell(event)

    def invite(self, chat: str, sender: str) -> str:
        is_direct = len(self.room(chat).members) <= 1
        event = Event(id=self._event_id(), kind=EventKind.INVITATION, chat=chat, sender=sender, is_direct=is_direct)
        return self._tell(event)

    def tell_again(self, count: int) -> None:
        """Give the last events once more, as platforms do that promise no more than at least once."""
        self._stream += self._stream[-count:]
        self._changed.set()

    def _add(
        self, room: PlatformRoom, *, sender: str, text: str = "", edits: str = "", key: str = "", file: str = ""
    ) -> TimelineEvent:
        """Show something in a room, now."""
        shown = TimelineEvent(
            id=self._event_id(), sender=sender, text=text, sent_at_ms=now_ms(), edits=edits, key=key, file=file
        )
        room.timeline.append(shown)
        return shown

    def _event_id(self) -> str:
        return f"$event{next(self._numbers)}"

    def _tell(self, event: Event) -> str:
        """Give an event to every member; return its id."""
        self._stream.append((self.room(event.chat).id, event))
        self._changed.set()
        return event.id

    # What a channel asks for.

    async def post(self, account: str, post: Post) -> str:
        self.calls["post"] += 1
        await asyncio.sleep(self.latency_seconds)
        fault = self.faults.popleft() if self.faults else None
        if self.is_down or (fault is not None and fault.kind is FaultKind.DOWN):
            raise ChannelDown("the platform is down")
        if fault is not None and fault.kind is FaultKind.BUSY:
            raise ChannelBusy("too many posts", fault.seconds)
        if fault is not None and fault.kind is FaultKind.REFUSED:
            raise PostRefused("not this one")
        if fault is not None and fault.kind is FaultKind.CUT_BEFORE:
            raise PostUnknown("cut before the effect")
        event_id = self._show(account, post)
        if fault is not None and fault.kind is FaultKind.CUT_AFTER:
            raise PostUnknown("cut after the effect")
        return event_id

    def _require_up(self) -> None:
        if self.is_down:
            raise ChannelDown("the platform is down")

    def _show(self, account: str, post: Post) -> str:
        room = self.room(post.chat)
        if room.is_gone or account not in room.members:
            raise ChatGone(f"{account} is not in {room.id}")
        before = self._keys.get((account, post.key))
        if before is not None:
            self.calls["repeated"] += 1
            return before
        if post.edits and not any(shown.id == post.edits for shown in room.timeline):
            raise PostRefused(f"there is no event {post.edits} to edit")
        first = len(room.timeline)
        if post.markdown or not post.files:
            self._add(room, sender=account, text=post.markdown, edits=post.edits, key=post.key)
        for number, file in enumerate(post.files, 1):
            shown = self._add(room, sender=account, key=file_key(post.key, number), file=file.name or "file")
            self.shown_files[shown.id] = file
        event_id = self._keys[account, post.key] = room.timeline[first].id
        if post.choices:
            self.choices[event_id] = post.choices
        return event_id

    async def poll(self, account: str, cursor: str) -> Batch:
        """Return what happened after a cursor, once anything has; an empty cursor is the present."""
        self.calls["poll"] += 1
        start = int(cursor) if cursor else len(self._stream)
        while self.is_down or start >= len(self._stream):
            self._require_up()
            if not cursor:
                return Batch(cursor=str(start))
            self._changed.clear()
            await self._changed.wait()
        events, place = list[Event](), start
        while place < len(self._stream) and len(events) < BATCH_EVENTS_MAX:
            room_id, event = self._stream[place]
            place += 1
            if event.kind is EventKind.INVITATION or account in self.rooms[room_id].members:
                events.append(event)
        return Batch(cursor=str(place), events=tuple(events))

    async def history(self, chat: str) -> list[TimelineEvent]:
        """Return a room's timeline, the latest first."""
        self._require_up()
        room = self.room(chat)
        if room.is_gone:
            raise ChatGone(f"{room.id} is gone")
        return room.timeline[::-1]

    async def is_direct(self, chat: str) -> bool:
        self._require_up()
        return len(self.room(chat).members) <= DIRECT_MEMBERS

    async def typing(self, account: str, chat: str, *, on: bool) -> None:
        self.calls["typing"] += 1
        typing = self.room(chat).typing
        (typing.add if on else typing.discard)(account)

    async def answer(self, account: str, chat: str, *, accept: bool, reason: str = "") -> None:
        if accept:
            self.room(chat).members.add(account)
        elif reason:
            self.reasons.append((chat, reason))

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        data = self.files.get(file.reference)
        if data is None:
            raise NotFound(f"there is no file {file.reference}")
        if len(data) > bytes_max:
            raise TooLarge(f"a file of {len(data)} bytes; the limit is {bytes_max}")
        return data

    # What anybody sees.

    @property
    def cursor(self) -> str:
        return str(len(self._stream))

    def timeline(self, chat: str) -> list[TimelineEvent]:
        """Return every event of a room that any member can see, in order."""
        return list(self.room(chat).timeline)

    def seen(self, chat: str) -> list[tuple[str, str]]:
        """Return what a member reads now: (sender, text), each message with its latest edit."""
        latest = {shown.edits: shown.text for shown in self.room(chat).timeline if shown.edits}
        return [
            (shown.sender, latest.get(shown.id, shown.text))
            for shown in self.room(chat).timeline
            if not shown.edits and not shown.is_deleted
        ]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
