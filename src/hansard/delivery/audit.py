"""The promise, checked: a room's own timeline beside the record, and what is in one and not in the other.

Reads: the platform's timeline; deliveries, messages, intake. Writes: nothing.
Invariants: what anybody sees of the agent is in the record, with its receipt and its words; what people said to the
agent is there once; both in the order of the room.
"""

from __future__ import annotations

import html
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing

import msgspec

from hansard.delivery.split import show_bytes, with_mark
from hansard.domain.deliveries import Delivery, DeliveryState, Operation
from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.messages import File, Part, Text, TextForm, join_text
from hansard.ports.channel import FILE_MARK, Timeline, TimelineEvent
from hansard.record.api import Record
from hansard.record.deliveries import DeliveryCreated, MessageDelivered
from hansard.record.messages.entries import Entry, MessageAdded, MessageSealed

EVENTS_MAX = 100_000
TAG = re.compile(r"<mx-reply>.*</mx-reply>|<[^<>]*>", re.DOTALL)
"""What is not a word of HTML: tags, and the words of an answered message that old clients repeat."""
WORD = re.compile(r"[^\W_]+")
UNSETTLED = frozenset({DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.UNKNOWN})


class AuditDifference(msgspec.Struct, frozen=True, kw_only=True):
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
    uncompared: int
    """Events that cannot be decrypted here: nobody can say whether the record holds their words."""
    is_unknown: bool
    """Whether the record knows no event of the room."""
    differences: tuple[AuditDifference, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the record holds everything that the room shows, as far as it could be compared."""
        return not self.differences

    @property
    def is_whole(self) -> bool:
        return not self.uncompared and not self.is_unknown


class Hearing(msgspec.Struct, frozen=True, kw_only=True):
    """Whose words the record must have in a room, and which."""

    may_talk: Callable[[str], Awaitable[bool]]
    """Whether somebody, by their account, may talk to the agent."""
    hears_all: bool = False
    """Whether everything is recorded, and not only what is said to the agent."""


class RecordedWords(msgspec.Struct, frozen=True, kw_only=True):
    """A person's message, as it was recorded."""

    session_id: str
    seq: int
    text: str
    """All of its words, those that a client repeated included."""
    formatted: str
    """What clients show in place of them."""


class RecordedChat(msgspec.Struct, frozen=True, kw_only=True):
    """What the record knows of a chat."""

    deliveries: dict[str, Delivery]
    """By receipt."""
    unsettled: dict[str, Delivery]
    """By key."""
    said: dict[str, list[RecordedWords]] = {}
    """By the platform's event."""
    posts: dict[str, tuple[str, int]] = {}
    """By delivery: session, and the seq of the entry that created it."""
    texts: dict[tuple[str, str], str] = {}
    """By session and message."""
    files: dict[tuple[str, str], tuple[str, ...]] = {}
    """By session and message: the names of its files."""
    shown: set[tuple[str, str]] = set()
    """Messages of which all is said to have been shown."""
    is_direct: bool = False
    expected: set[str] = set()
    """Events in a room which the record must have: said to the agent, or within its hearing, by who may talk."""


async def audit_chat(  # noqa: PLR0917
    record: Record, timeline: Timeline, channel: str, account: str, chat: str, hearing: Hearing | None = None
) -> Audit:
    """Compare a chat's timeline with the record. Without `hearing`, what is missing is found in direct chats only."""
    async with aclosing(timeline.history(chat, events_max=EVENTS_MAX)) as events:
        latest_first = [shown async for shown in events]
    shown = latest_first[::-1]
    recorded = await read_recorded(record, channel, account, chat, shown)
    if hearing is not None:
        recorded = msgspec.structs.replace(recorded, expected=await expected_of(hearing, account, shown))
    return compare(recorded, account, chat, shown)


async def expected_of(hearing: Hearing, account: str, shown: Sequence[TimelineEvent]) -> set[str]:
    own = {each.id for each in shown if each.sender == account}
    said = [each for each in shown if hearing.hears_all or each.names_agent or each.reply_to in own]
    senders = {each.sender for each in said} - {account}
    heard = {sender for sender in senders if await hearing.may_talk(sender)}
    return {each.id for each in said if each.sender in heard}


async def read_recorded(
    record: Record, channel: str, account: str, chat: str, shown: Sequence[TimelineEvent]
) -> RecordedChat:
    deliveries = await record.deliveries.list_of_chat(chat)
    by_people = [each.id for each in shown if each.sender != account]
    received = await record.intake.list_received(channel, account, by_people)
    sessions = {each.session_id for each in deliveries} | {pair[0] for pairs in received.values() for pair in pairs}
    ids = sorted(sessions - {HOME_JOURNAL})
    owners = [(await record.sessions.read(session_id)).owner for session_id in ids]
    recorded = RecordedChat(
        deliveries={each.receipt: each for each in deliveries if each.receipt},
        unsettled={each.id: each for each in deliveries if each.state in UNSETTLED},
        is_direct=bool(owners) and all(owner.startswith("person:") for owner in owners),
    )
    for session_id in ids:
        await read_session(record, session_id, chat, recorded)
    for each in deliveries:
        if (each.session_id, each.message_id) not in recorded.texts:
            message = await record.messages.read(each.session_id, each.message_id)
            note(recorded, each.session_id, each.message_id, message.parts)
    return recorded


async def read_session(record: Record, session_id: str, chat: str, recorded: RecordedChat) -> None:
    after = 0
    while entries := await record.sessions.read_entries(session_id, after=after):
        after = entries[-1].seq
        for entry in entries:
            take_entry(entry, chat, recorded)


def take_entry(entry: Entry, chat: str, recorded: RecordedChat) -> None:
    body = entry.body
    if isinstance(body, MessageAdded):
        note(recorded, entry.session_id, entry.id, body.parts)
        if body.event_id and is_in(body.chat, chat):
            formatted = tuple(part for part in body.parts if is_formatted(part))
            words = tuple(part for part in body.parts if not is_formatted(part))
            said = RecordedWords(
                session_id=entry.session_id, seq=entry.seq, text=join_text(words), formatted=join_text(formatted)
            )
            recorded.said.setdefault(body.event_id, []).append(said)
    elif isinstance(body, MessageSealed):
        note(recorded, entry.session_id, body.message_id, body.parts)
    elif isinstance(body, DeliveryCreated):
        recorded.posts[body.delivery_id] = (entry.session_id, entry.seq)
    elif isinstance(body, MessageDelivered) and body.outcome == "shown" and is_in(body.chat, chat):
        recorded.shown.add((entry.session_id, body.message_id))


def note(recorded: RecordedChat, session_id: str, message_id: str, parts: tuple[Part, ...]) -> None:
    recorded.texts[session_id, message_id] = join_text(parts)
    if any(isinstance(part, File) for part in parts):
        recorded.files[session_id, message_id] = tuple(part.name for part in parts if isinstance(part, File))


def is_formatted(part: Part) -> bool:
    """Return whether a part is what clients show in place of the words."""
    return isinstance(part, Text) and part.form is TextForm.FORMATTED


def is_in(place: str, chat: str) -> bool:
    return place == chat or place.startswith(f"{chat}:")


def compare(recorded: RecordedChat, account: str, chat: str, shown: Sequence[TimelineEvent]) -> Audit:
    """Return every difference between a timeline, in its order, and what is recorded."""
    first = next((place for place, each in enumerate(shown) if is_known(recorded, each)), len(shown))
    differences: list[AuditDifference] = []
    not_for_agent = before = 0
    heard: set[str] = set()
    """Who was heard already: what they said before may have been said before they were allowed to talk."""
    known = {each.sender for each in shown if each.id in recorded.said}
    for each in shown[first:]:
        if each.sender == account:
            differences += check_agent(recorded, each)
            continue
        if each.id in recorded.said:
            heard.add(each.sender)
        if each.edits or not each.is_readable:
            continue
        if is_missing(recorded, each) and not recorded.is_direct and each.sender in known - heard:
            before += 1
        elif is_missing(recorded, each):
            detail = "said to the agent, and not in the record"
            differences.append(AuditDifference(what="unread", event_id=each.id, sender=each.sender, detail=detail))
        elif each.id in recorded.said:
            differences += check_person(recorded.said[each.id], each)
        else:
            not_for_agent += 1
    own = [each for each in shown[first:] if each.sender == account]
    differences += check_ends(recorded, own)
    differences += check_order(posts_of(recorded, own), "the agent's posts")
    differences += check_order(words_of(recorded, shown[first:]), "what people said")
    return Audit(
        chat=chat,
        events=len(shown),
        by_agent=len(own),
        by_people=len(shown) - first - len(own),
        not_for_agent=not_for_agent,
        before=before + sum(each.sender != account for each in shown[:first]),
        uncompared=sum(not each.is_readable for each in shown[first:]),
        is_unknown=bool(shown) and first == len(shown),
        differences=tuple(differences),
    )


def is_known(recorded: RecordedChat, shown: TimelineEvent) -> bool:
    return shown.id in recorded.deliveries or shown.id in recorded.said or is_unsettled(recorded, shown)


def is_unsettled(recorded: RecordedChat, shown: TimelineEvent) -> bool:
    """Return whether an event is of a delivery whose receipt is not known yet. A file's key names its post."""
    return shown.key.partition(FILE_MARK)[0] in recorded.unsettled


def check_agent(recorded: RecordedChat, shown: TimelineEvent) -> list[AuditDifference]:
    delivery = recorded.deliveries.get(shown.id)
    if delivery is None:
        what = "unsettled" if is_unsettled(recorded, shown) else "unrecorded"
        detail = "on its way, and its receipt is not known yet" if what == "unsettled" else "no delivery has this id"
        return [AuditDifference(what=what, event_id=shown.id, sender=shown.sender, detail=detail)]
    if shown.is_deleted or not shown.is_readable:
        return []
    if delivery.file or shown.file:
        return check_file(recorded, shown, delivery)
    text = recorded.texts[delivery.session_id, delivery.message_id]
    raw = text.encode()[delivery.start_bytes : delivery.end_bytes].decode(errors="replace")
    stretch = show_bytes(text, delivery.start_bytes, delivery.end_bytes)
    if shown.text not in {with_mark(raw, delivery.mark), with_mark(stretch, delivery.mark)}:
        detail = f"not the words of message {delivery.message_id} in {delivery.session_id}"
        return [AuditDifference(what="words", event_id=shown.id, sender=shown.sender, detail=detail)]
    return []


def check_file(recorded: RecordedChat, shown: TimelineEvent, delivery: Delivery) -> list[AuditDifference]:
    """Check that a file has the name of the one that was to be shown; its bytes are not fetched."""
    names = recorded.files.get((delivery.session_id, delivery.message_id), ())
    name = names[delivery.file - 1] if 0 < delivery.file <= len(names) else None
    if name is not None and shown.file and name in {"", shown.file}:
        return []
    detail = f"not file {delivery.file} of message {delivery.message_id} in {delivery.session_id}"
    return [AuditDifference(what="words", event_id=shown.id, sender=shown.sender, detail=detail)]


def is_missing(recorded: RecordedChat, shown: TimelineEvent) -> bool:
    """Return whether the record must have what a person said, and has not."""
    return (
        shown.id not in recorded.said and not shown.is_deleted and (recorded.is_direct or shown.id in recorded.expected)
    )


def check_person(said: Sequence[RecordedWords], shown: TimelineEvent) -> list[AuditDifference]:
    """Check the words of a person, as they came, against those that are recorded."""
    if len(said) > 1:
        places = ", ".join(each.session_id for each in said)
        return [AuditDifference(what="doubled", event_id=shown.id, sender=shown.sender, detail=f"recorded in {places}")]
    if shown.is_deleted:
        return []
    text = said[0].text
    # Two slashes at the beginning stand for one that begins no command.
    is_same = text in {shown.text, shown.text.removeprefix("/")} or (not shown.is_exact and shown.text in text)
    if not is_same or not words_in(TAG.sub(" ", shown.html)) <= words_in(text + said[0].formatted):
        return [
            AuditDifference(what="words", event_id=shown.id, sender=shown.sender, detail="recorded with other words")
        ]
    return []


def words_in(text: str) -> set[str]:
    return set(WORD.findall(html.unescape(text)))


def check_ends(recorded: RecordedChat, own: Iterable[TimelineEvent]) -> list[AuditDifference]:
    """Check that each message that is said to be shown is shown to its last word."""
    ends: dict[tuple[str, str], dict[int, tuple[int, str]]] = {}
    files: set[tuple[tuple[str, str], int]] = set()
    for shown in own:
        delivery = recorded.deliveries.get(shown.id)
        if delivery is not None and delivery.file:
            files.add(((delivery.session_id, delivery.message_id), delivery.file))
            ends.setdefault((delivery.session_id, delivery.message_id), {}).setdefault(0, (0, shown.id))
        elif delivery is not None:
            name = (delivery.session_id, delivery.message_id)
            ends.setdefault(name, {})[delivery.start_bytes] = (delivery.end_bytes, shown.id)
    found = []
    for name in sorted(recorded.shown & ends.keys()):
        text = recorded.texts.get(name, "")
        end, event_id = ends[name][max(ends[name])]
        if text.encode()[end:].strip():
            detail = f"message {name[1]} in {name[0]} has {len(text.encode())} bytes; {end} of them are shown"
            found.append(AuditDifference(what="incomplete", event_id=event_id, detail=detail))
        for number in range(1, len(recorded.files.get(name, ())) + 1):
            if (name, number) not in files:
                detail = f"file {number} of message {name[1]} in {name[0]} is not shown"
                found.append(AuditDifference(what="incomplete", event_id=event_id, detail=detail))
    return found


def posts_of(recorded: RecordedChat, own: Iterable[TimelineEvent]) -> list[tuple[str, int, str]]:
    """Return where the record has the agent's posts, in the order of the room."""
    found = []
    for shown in own:
        delivery = recorded.deliveries.get(shown.id)
        if delivery is not None and delivery.operation is Operation.POST and delivery.id in recorded.posts:
            found.append((*recorded.posts[delivery.id], shown.id))
    return found


def words_of(recorded: RecordedChat, shown: Iterable[TimelineEvent]) -> list[tuple[str, int, str]]:
    """Return where the record has what people said, in the order of the room."""
    said = ((recorded.said[each.id][0], each.id) for each in shown if each.id in recorded.said)
    return [(each.session_id, each.seq, event_id) for each, event_id in said]


def check_order(places: Iterable[tuple[str, int, str]], what: str) -> list[AuditDifference]:
    """Check that within each session what comes later in the room comes later in the record."""
    last: dict[str, int] = {}
    found = []
    for session_id, seq, event_id in places:
        if seq < last.get(session_id, 0):
            detail = f"{what}: entry {seq} of {session_id} comes after entry {last[session_id]} in the room"
            found.append(AuditDifference(what="order", event_id=event_id, detail=detail))
        last[session_id] = max(seq, last.get(session_id, 0))
    return found
