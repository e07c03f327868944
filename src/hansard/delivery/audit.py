"""The promise, checked: a room's own timeline beside the record, and what is in one and not in the other.

Reads: the platform's timeline; deliveries, messages, intake. Writes: nothing.
Invariants: what anybody sees of the agent is in the record, with its receipt and its words; what people said to the
agent is there once; both in the order of the room.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.delivery.settling import with_mark
from hansard.delivery.split import show_bytes
from hansard.domain import entries as e
from hansard.domain.deliveries import Delivery, DeliveryState, Operation
from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.messages import File, Part, join_text
from hansard.ports.channel import FILE_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hansard.ports.channel import Shown, Timeline
    from hansard.record.api import Record

EVENTS_MAX = 100_000
UNSETTLED = frozenset({DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.UNKNOWN})


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not the same on both sides."""

    what: str
    """`unrecorded`, `unsettled`, `words`, `unread`, `doubled`, `order` or `incomplete`."""
    event_id: str
    sender: str = ""
    detail: str = ""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit saw."""

    chat: str
    events: int
    by_agent: int
    by_people: int
    not_for_agent: int
    """Said in a room, and not to the agent, as far as the record can tell."""
    before: int
    """Said before the agent first heard anything here."""
    unreadable: int
    differences: tuple[Difference, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the record holds everything that the room shows."""
        return not self.differences


class Said(NamedTuple):
    """A person's message, as it was recorded."""

    session_id: str
    seq: int
    text: str
    has_files: bool


class Book(NamedTuple):
    """What the record knows of a chat."""

    deliveries: dict[str, Delivery]
    """By receipt."""
    unsettled: dict[str, Delivery]
    """By key."""
    said: dict[str, list[Said]]
    """By the platform's event."""
    changes: set[str]
    """Events in which people changed or deleted what they had said."""
    posts: dict[str, tuple[str, int]]
    """By delivery: session, and the seq of the entry that created it."""
    texts: dict[tuple[str, str], str]
    """By session and message."""
    files: dict[tuple[str, str], tuple[str, ...]]
    """By session and message: the names of its files."""
    shown: set[tuple[str, str]]
    """Messages of which all is said to have been shown."""
    is_direct: bool


async def audit_chat(record: Record, timeline: Timeline, channel: str, account: str, chat: str) -> Audit:
    """Compare a chat's timeline with the record."""
    async with aclosing(timeline.history(chat, events_max=EVENTS_MAX)) as events:
        latest_first = [shown async for shown in events]
    shown = latest_first[::-1]
    book = await read_book(record, channel, account, chat, shown)
    return compare(book, account, chat, shown)


async def read_book(record: Record, channel: str, account: str, chat: str, shown: Sequence[Shown]) -> Book:
    """Read what the record knows of a chat and of its timeline's events."""
    deliveries = await record.outbox.deliveries_to(chat)
    by_people = [each.id for each in shown if each.sender != account]
    received = await record.outbox.received(channel, account, by_people)
    sessions = {each.session_id for each in deliveries} | {pair[0] for pairs in received.values() for pair in pairs}
    book = Book(
        deliveries={each.receipt: each for each in deliveries if each.receipt},
        unsettled={each.id: each for each in deliveries if each.state in UNSETTLED},
        said={},
        changes=set(),
        posts={},
        texts={},
        files={},
        shown=set(),
        is_direct=False,
    )
    owners = []
    for session_id in sorted(sessions - {HOME_JOURNAL}):
        owners.append((await record.session(session_id)).owner)
        await read_session(record, session_id, chat, book)
    for each in deliveries:
        if (each.session_id, each.message_id) not in book.texts:
            message = await record.outbox.read_message(each.session_id, each.message_id)
            note(book, each.session_id, each.message_id, message.parts)
    return book._replace(is_direct=bool(owners) and all(owner.startswith("person:") for owner in owners))


async def read_session(record: Record, session_id: str, chat: str, book: Book) -> None:
    """Take the entries of a session into the book."""
    after = 0
    while entries := await record.read_entries(session_id, after=after):
        after = entries[-1].seq
        for entry in entries:
            take(entry, chat, book)


def take(entry: e.Entry, chat: str, book: Book) -> None:
    """Take one entry into the book."""
    body = entry.body
    if isinstance(body, e.MessageAdded):
        note(book, entry.session_id, entry.id, body.parts)
        if body.event_id and is_in(body.chat, chat):
            has_files = any(isinstance(part, File) for part in body.parts)
            said = Said(entry.session_id, entry.seq, join_text(body.parts), has_files)
            book.said.setdefault(body.event_id, []).append(said)
    elif isinstance(body, e.MessageSealed):
        note(book, entry.session_id, body.message_id, body.parts)
    elif isinstance(body, e.MessageEdited | e.MessageRetracted):
        book.changes.add(body.event_id)
    elif isinstance(body, e.DeliveryCreated):
        book.posts[body.delivery_id] = (entry.session_id, entry.seq)
    elif isinstance(body, e.MessageDelivered) and body.outcome == "shown" and is_in(body.chat, chat):
        book.shown.add((entry.session_id, body.message_id))


def note(book: Book, session_id: str, message_id: str, parts: tuple[Part, ...]) -> None:
    """Keep what a message says, and the names of its files."""
    book.texts[session_id, message_id] = join_text(parts)
    if any(isinstance(part, File) for part in parts):
        book.files[session_id, message_id] = tuple(part.name for part in parts if isinstance(part, File))


def is_in(place: str, chat: str) -> bool:
    """Return whether a place is a chat, or a thread of it."""
    return place == chat or place.startswith(f"{chat}:")


def compare(book: Book, account: str, chat: str, shown: Sequence[Shown]) -> Audit:
    """Return every difference between a timeline, in its order, and the book."""
    first = next((place for place, each in enumerate(shown) if is_known(book, each)), len(shown))
    differences: list[Difference] = []
    not_for_agent = 0
    for each in shown[first:]:
        if each.sender == account:
            differences += check_agent(book, each)
        elif not each.edits:
            found, passed = check_person(book, each)
            differences += found
            not_for_agent += passed
    own = [each for each in shown[first:] if each.sender == account]
    differences += check_ends(book, own)
    differences += check_order(posts_of(book, own), "the agent's posts")
    differences += check_order(words_of(book, shown[first:]), "what people said")
    return Audit(
        chat=chat,
        events=len(shown),
        by_agent=len(own),
        by_people=len(shown) - first - len(own),
        not_for_agent=not_for_agent,
        before=sum(each.sender != account for each in shown[:first]),
        unreadable=sum(not each.is_readable for each in shown),
        differences=tuple(differences),
    )


def is_known(book: Book, shown: Shown) -> bool:
    """Return whether the record knows an event, one way or the other."""
    return shown.id in book.deliveries or shown.id in book.said or is_unsettled(book, shown)


def is_unsettled(book: Book, shown: Shown) -> bool:
    """Return whether an event is of a delivery whose receipt is not known yet. A file's key names its post."""
    return shown.key.partition(FILE_MARK)[0] in book.unsettled


def check_agent(book: Book, shown: Shown) -> list[Difference]:
    """Check one post or edit of the agent."""
    delivery = book.deliveries.get(shown.id)
    if delivery is None:
        what = "unsettled" if is_unsettled(book, shown) else "unrecorded"
        detail = "on its way, and its receipt is not known yet" if what == "unsettled" else "no delivery has this id"
        return [Difference(what=what, event_id=shown.id, sender=shown.sender, detail=detail)]
    if shown.is_deleted or not shown.is_readable:
        return []
    if delivery.file or shown.file:
        return check_file(book, shown, delivery)
    text = book.texts[delivery.session_id, delivery.message_id]
    raw = text.encode()[delivery.start_bytes : delivery.end_bytes].decode(errors="replace")
    stretch = show_bytes(text, delivery.start_bytes, delivery.end_bytes)
    if shown.text not in {with_mark(raw, delivery.mark), with_mark(stretch, delivery.mark)}:
        detail = f"not the words of message {delivery.message_id} in {delivery.session_id}"
        return [Difference(what="words", event_id=shown.id, sender=shown.sender, detail=detail)]
    return []


def check_file(book: Book, shown: Shown, delivery: Delivery) -> list[Difference]:
    """Check that a file has the name of the one that was to be shown; its bytes are not fetched."""
    names = book.files.get((delivery.session_id, delivery.message_id), ())
    name = names[delivery.file - 1] if 0 < delivery.file <= len(names) else None
    if name is not None and shown.file and name in {"", shown.file}:
        return []
    detail = f"not file {delivery.file} of message {delivery.message_id} in {delivery.session_id}"
    return [Difference(what="words", event_id=shown.id, sender=shown.sender, detail=detail)]


def check_person(book: Book, shown: Shown) -> tuple[list[Difference], int]:
    """Check what a person said; return differences, and whether it was not for the agent."""
    said = book.said.get(shown.id, [])
    if not said:
        if book.is_direct and not shown.is_deleted and shown.is_readable:
            detail = "said to the agent, and not in the record"
            return [Difference(what="unread", event_id=shown.id, sender=shown.sender, detail=detail)], 0
        return [], 1
    if len(said) > 1:
        places = ", ".join(each.session_id for each in said)
        return [Difference(what="doubled", event_id=shown.id, sender=shown.sender, detail=f"recorded in {places}")], 0
    alike = {shown.text, shown.text.removeprefix("/")}
    if not (said[0].text in alike or said[0].has_files or shown.is_deleted or not shown.is_readable):
        return [Difference(what="words", event_id=shown.id, sender=shown.sender, detail="recorded with other words")], 0
    return [], 0


def check_ends(book: Book, own: Iterable[Shown]) -> list[Difference]:
    """Check that each message that is said to be shown is shown to its last word."""
    ends: dict[tuple[str, str], dict[int, tuple[int, str]]] = {}
    files: set[tuple[tuple[str, str], int]] = set()
    for shown in own:
        delivery = book.deliveries.get(shown.id)
        if delivery is not None and delivery.file:
            files.add(((delivery.session_id, delivery.message_id), delivery.file))
            ends.setdefault((delivery.session_id, delivery.message_id), {}).setdefault(0, (0, shown.id))
        elif delivery is not None:
            name = (delivery.session_id, delivery.message_id)
            ends.setdefault(name, {})[delivery.start_bytes] = (delivery.end_bytes, shown.id)
    found = []
    for name in sorted(book.shown & ends.keys()):
        text = book.texts.get(name, "")
        end, event_id = ends[name][max(ends[name])]
        if text.encode()[end:].strip():
            detail = f"message {name[1]} in {name[0]} has {len(text.encode())} bytes; {end} of them are shown"
            found.append(Difference(what="incomplete", event_id=event_id, detail=detail))
        for number in range(1, len(book.files.get(name, ())) + 1):
            if (name, number) not in files:
                detail = f"file {number} of message {name[1]} in {name[0]} is not shown"
                found.append(Difference(what="incomplete", event_id=event_id, detail=detail))
    return found


def posts_of(book: Book, own: Iterable[Shown]) -> list[tuple[str, int, str]]:
    """Return where the record has the agent's posts, in the order of the room."""
    found = []
    for shown in own:
        delivery = book.deliveries.get(shown.id)
        if delivery is not None and delivery.operation is Operation.POST and delivery.id in book.posts:
            found.append((*book.posts[delivery.id], shown.id))
    return found


def words_of(book: Book, shown: Iterable[Shown]) -> list[tuple[str, int, str]]:
    """Return where the record has what people said, in the order of the room."""
    said = ((book.said[each.id][0], each.id) for each in shown if each.id in book.said)
    return [(each.session_id, each.seq, event_id) for each, event_id in said]


def check_order(places: Iterable[tuple[str, int, str]], what: str) -> list[Difference]:
    """Check that within each session what comes later in the room comes later in the record."""
    last: dict[str, int] = {}
    found = []
    for session_id, seq, event_id in places:
        if seq < last.get(session_id, 0):
            detail = f"{what}: entry {seq} of {session_id} comes after entry {last[session_id]} in the room"
            found.append(Difference(what="order", event_id=event_id, detail=detail))
        last[session_id] = max(seq, last.get(session_id, 0))
    return found
