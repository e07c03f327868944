"""Records to search in, and the comparison of what search finds with what the oracle finds by reading everything."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw

from hansard import Message, Record
from hansard.domain.access import Standing
from hansard.domain.arrivals import Intake, Origin
from hansard.domain.ids import new_id
from hansard.domain.messages import Part, Text, ToolCall, ToolResult
from hansard.domain.sessions import Link, Session
from hansard.journal.locks import TryLock
from hansard.record.messages.entries import (
    Entry,
    MessageAdded,
    MessageEdited,
    MessageOpened,
    MessageRetracted,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
)
from hansard.record.search.asking import Hit
from hansard.record.search.index import search_index
from tests.record.search.oracle import Asked, Marks, Said, Version, scan

LIMIT = 1000
SIDES = ("", "-wal", "-shm")
STEPS_MAX = 400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def all_entries(record: Record, session: Session) -> list[Entry]:
    """Every entry of a session: a fork's with what it shares."""
    found: list[Entry] = []
    while page := await record.sessions.read_entries(session.id, found[-1].seq if found else 0):
        found += page
    return found


def fields_of(parts: Iterable[Part], names: dict[str, str]) -> tuple[str, str, tuple[str, ...]]:
    """What a message says, what its tools say, and which tools those are; `names` are the calls so far."""
    said, tools, called = list[str](), list[str](), list[str]()
    for part in parts:
        if isinstance(part, Text):
            said.append(part.text)
        elif isinstance(part, ToolCall):
            names[part.id] = part.name
            tools += [part.name, part.arguments]
            called.append(part.name)
        elif isinstance(part, ToolResult):
            tools.append(part.text)
            called.append(names.get(part.call_id, ""))
    return "\n".join(said), "\n".join(tools), tuple(name for name in called if name)


async def everything_said(record: Record) -> list[Said]:
    """Every message of a record, read entry by entry, as the oracle takes it."""
    found: list[Said] = []
    for session in [*await record.sessions(archived=False), *await record.sessions(archived=True)]:
        names: dict[str, str] = {}
        undone: set[str] = set()
        own: list[Said] = []
        in_chats: dict[str, int] = {}
        opened_at: dict[str, int] = {}
        shared = session.parent.at if session.parent is not None and session.parent.link is Link.FORK else 0
        for entry in await all_entries(record, session):
            body = entry.body
            if isinstance(body, MessageOpened):
                opened_at[entry.id] = entry.at_microseconds
            if entry.seq <= shared:
                continue
            if isinstance(body, MessagesUndone):
                undone.update(body.message_ids)
            if isinstance(body, MessagesRestored):
                undone.difference_update(body.message_ids)
            if isinstance(body, MessageEdited | MessageRetracted) and body.message_id in in_chats:
                place = in_chats[body.message_id]
                own[place] = changed(own[place], body, names)
            if not isinstance(body, MessageAdded | MessageSealed):
                continue
            if isinstance(body, MessageAdded) and body.event_id:
                in_chats[entry.id] = len(own)
            said, tools, called = fields_of(body.parts, names)
            own.append(
                Said(
                    session.id,
                    body.message_id if isinstance(body, MessageSealed) else entry.id,
                    str(body.role) if isinstance(body, MessageAdded) else "assistant",
                    said,
                    tools,
                    called,
                    said_at(entry, opened_at),
                    owner=session.owner,
                    source=session.source,
                    title=session.title,
                )
            )
        found += [each._replace(undone=each.message_id in undone) for each in own]
    return found


def said_at(entry: Entry, opened_at: dict[str, int]) -> int:
    """When a message was said: a streamed one when it was opened."""
    if isinstance(entry.body, MessageSealed):
        return opened_at[entry.body.message_id]
    return (entry.body.said_at if isinstance(entry.body, MessageAdded) else 0) or entry.at_microseconds


def changed(said: Said, body: MessageEdited | MessageRetracted, names: dict[str, str]) -> Said:
    """A message after somebody edited or deleted it in its chat."""
    if isinstance(body, MessageRetracted):
        return said._replace(deleted=True)
    counted = said.edits_before_deletion + (not said.deleted)
    edits = (*said.edits, Version(*fields_of(body.parts, names)))
    return said._replace(edits=edits, edits_before_deletion=counted)


def filters_of(asked: Asked) -> dict[str, Any]:
    """What the oracle is asked, as `Record.search` takes it."""
    filters = {name: value for name, value in asked._asdict().items() if name != "query" and value not in {None, False}}
    for name in {"since", "until"} & set(filters):
        filters[name] = EPOCH + timedelta(microseconds=filters[name])
    return filters


async def look(record: Record, asked: Asked) -> dict[tuple[str, str], Marks]:
    """What search finds, and how it is shown; nothing is found twice."""
    hits: list[Hit] = await record.search(asked.query, limit=LIMIT, **filters_of(asked))
    found = {(hit.session_id, hit.message.id): marks_of(hit) for hit in hits}
    assert len(found) == len(hits)
    return found


def marks_of(hit: Hit) -> Marks:
    """How a hit is shown."""
    message = hit.message
    said = "\n".join(part.text for part in message.parts if isinstance(part, Text))
    return Marks(hit.undone, message.is_edited, message.is_retracted, said)


async def check(record: Record, askings: Iterable[Asked], said: list[Said] | None = None) -> int:
    """Search finds what the oracle finds; return how many messages that were."""
    expected = await everything_said(record) if said is None else said
    count = 0
    for asked in askings:
        found = await look(record, asked)
        assert found == scan(expected, asked), asked
        count += len(found)
    return count


def index_all(record: Record) -> int:
    """Bring the index up to date; return how many batches it took."""
    for step in range(STEPS_MAX):
        if not search_index(record.store).step().more:
            return step
    raise AssertionError(f"the index is not up to date after {STEPS_MAX} batches")


@contextmanager
def index_held(home: Path) -> Iterator[None]:
    """Nobody indexes for a while, as when another process does and takes its time."""
    lock = TryLock(home / "locks" / "search")
    while not lock.take_lock():
        time.sleep(0.001)
    try:
        yield
    finally:
        lock.release()
        lock.close()


def drop_index(home: Path) -> None:
    """Somebody deletes the index."""
    for side in SIDES:
        (home / f"search.db{side}").unlink(missing_ok=True)


def change_index(home: Path, *statements: str) -> None:
    """Somebody changes rows of the index by hand."""
    with closing(apsw.Connection(str(home / "search.db"))) as connection:
        connection.set_busy_timeout(60_000)
        for statement in statements:
            connection.execute(statement)


def indexed_count(home: Path) -> int:
    """How many messages the index has."""
    if not (home / "search.db").exists():
        return 0
    with closing(apsw.Connection(str(home / "search.db"), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return int(str(connection.execute("SELECT count(*) FROM words_docsize").get))


def message(role: str, text: str) -> Message:
    """A message of any role that says a text."""
    makers = {"user": Message.user, "assistant": Message.assistant, "system": Message.system, "notice": Message.notice}
    return makers[role](text)


AUTHOR, CHANNEL, ACCOUNT = "@ann:example.org", "matrix", "@hansard:example.org"


async def say_in_chat(record: Record, session_id: str, text: str, event_id: str) -> str:
    """Somebody says something in a chat; return the message's id, which is the event's without its sign."""
    chat = f"{CHANNEL}:room:!{session_id}:example.org"
    said = Message.user(text, id=event_id.lstrip("$"), author=AUTHOR, chat=chat, event_id=event_id)
    await record.accept([(session_id, said)], intake_of(event_id))
    return said.id


def intake_of(event_id: str) -> Intake:
    """That an event was received."""
    return Intake(channel=CHANNEL, account=ACCOUNT, event_id=event_id)


async def edit_in_chat(record: Record, event_id: str, text: str) -> None:
    """The same person edits it."""
    await record.intake.edit_message(change_of(event_id), event_id, text)


async def delete_in_chat(record: Record, event_id: str) -> None:
    """Somebody deletes it."""
    await record.intake.retract_message(change_of(event_id), event_id)


def change_of(event_id: str) -> Origin:
    """Where a platform's change of an event comes from."""
    return Origin(
        channel=CHANNEL,
        account=ACCOUNT,
        event_id=f"{event_id}/{new_id()}",
        identity=AUTHOR,
        standing=Standing.LISTED,
    )
