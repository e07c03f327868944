"""A session on a terminal or in a pipe: for reading, or as JSON. It is written as it is read, page by page."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
import msgspec

from hansard.cli.printing import faint, heading, stdout_json, stdout_json_line
from hansard.cli.terminal.text import safe, safe_line
from hansard.domain.deliveries import Delivery, Operation
from hansard.domain.messages import File, Message
from hansard.domain.sessions import Link, Session
from hansard.domain.text import shorten
from hansard.interop.transcripts import (
    Happened,
    Item,
    TranscriptItem,
    Used,
    earlier_of,
    files_of,
    first_known,
    marks_of,
    missing_past,
    read_entries,
    read_items,
    read_transcript,
    reasoning_of,
    says_something,
    session_facts,
    survey_known,
    tool_facts,
    who,
    words_of,
)
from hansard.record.api import Record
from hansard.record.deliveries import MessageDelivered

FOLDED_CHARACTERS = 72
"""What is shown of a tool's arguments or result, unless all is asked for."""

MARGIN = "  "

OUTCOMES = {"empty": "nothing to show", "set_aside": "set aside", "retried": "to be tried again"}
"""What became of a message in a chat, for readers, where the record's own word is not theirs."""


class Delivered(NamedTuple):
    """Where messages went: posts and edits by message, and what became of each message in each chat."""

    posts: dict[str, list[Delivery]]
    outcomes: dict[str, dict[str, MessageDelivered]]


async def deliveries_of(record: Record, session: Session) -> Delivered:
    """Return where each message went, those of the sessions that a fork shares included."""
    found = Delivered({}, {})
    current: Session | None = session
    while current is not None:
        last: Delivery | None = None
        while page := await record.deliveries.list(session_id=current.id, after=last):
            last = page[-1]
            for delivery in page:
                found.posts.setdefault(delivery.message_id, []).append(delivery)
        after = await first_known(record, current)
        async for entry in read_entries(record, current.id, current.head_seq, after):
            if isinstance(entry.body, MessageDelivered):
                found.outcomes.setdefault(entry.body.message_id, {})[entry.body.chat] = entry.body
        shares = current.parent is not None and current.parent.link == Link.FORK and not after
        current = await record.sessions.read(current.parent.session_id) if current.parent and shares else None
    return found


async def show_for_people(record: Record, session: Session, *, full: bool) -> None:
    reader = Reader(await deliveries_of(record, session), full=full)
    click.echo(heading(safe_line(session.title or session.id)))
    for name, value in session_facts(session, local_time):
        click.echo(faint(f"{name:12}{safe_line(value)}"))
    async for item in read_transcript(record, session, full=full):
        for line in reader.lines(item):
            click.echo(line)


class Reader:
    """Turns what was said into lines of text that a terminal may have."""

    def __init__(self, delivered: Delivered, *, full: bool) -> None:
        """`full`: everything, with the numbers of entries."""
        self._delivered_to = delivered
        self._full = full

    def lines(self, item: Item) -> list[str]:
        if isinstance(item, Happened):
            return ["", faint(f"— {safe_line(item.text)}")]
        if isinstance(item, Used):
            return self._used(item)
        if not says_something(item.message, full=self._full):
            return [faint(f"{MARGIN}{text}") for text in self._delivered(item.message)]
        return self._said(item)

    def _said(self, item: TranscriptItem) -> list[str]:
        message = item.message
        found = ["", f"{heading(safe_line(who(message)))} {faint(' · '.join(self._marks(item)))}"]
        if self._full and (thought := reasoning_of(message)):
            found += [faint(f"{MARGIN}{line}") for line in ["reasoning:", *safe(thought).split("\n")]]
        words = safe(words_of(message)).rstrip("\n")
        found += [f"{MARGIN}{line}".rstrip() for line in words.split("\n") if words]
        found += [faint(f"{MARGIN}attached: {self._file(file)}") for file in files_of(message)]
        if self._full:
            earlier = earlier_of(item)
            for text in earlier.words:
                found += [faint(f"{MARGIN}{line}".rstrip()) for line in [f"{earlier.name}:", *safe(text).split("\n")]]
            found += [faint(f"{MARGIN}was attached: {self._file(file)}") for file in earlier.files]
        found += [faint(f"{MARGIN}{text}") for text in self._delivered(message)]
        return found

    def _file(self, file: File) -> str:
        name = safe_line(f"{file.name or 'a file'}, {file.media_type}, {file.size_bytes} bytes")
        return f"{name}, {file.blob}" if self._full else name

    def _marks(self, item: TranscriptItem) -> list[str]:
        """Return what stands beside a name: when, and whatever is unusual."""
        marks = [local_time(item.message.at_microseconds), *marks_of(item)]
        if self._full and item.message.chat:
            marks.append(f"in {safe_line(item.message.chat)}")
        if self._full:
            marks.append(f"entry {item.seq}" if item.seq == item.last_seq else f"entries {item.seq} to {item.last_seq}")
        return marks

    def _used(self, item: Used) -> list[str]:
        name, outcome = tool_facts(item)
        arguments = item.call.arguments if item.call else ""
        result = item.result.text if item.result else ""
        undone = " · taken back" if item.undone else ""
        if not self._full:
            head = f"{MARGIN}▸ {safe_line(name)}({folded(arguments)}) {outcome}"
            return [faint(f"{head}: {folded(result)}{undone}" if result else f"{head}{undone}")]
        lines = [f"{MARGIN}▸ {safe_line(name)} · {outcome} · entry {item.seq}{undone}"]
        for text in (arguments, result):
            lines += [f"{MARGIN}{MARGIN}{line}".rstrip() for line in safe(text).split("\n") if text]
        if item.result and item.result.blob:
            lines.append(f"{MARGIN}{MARGIN}attached: {safe_line(item.result.blob)}")
        return [faint(line) for line in lines]

    def _delivered(self, message: Message) -> list[str]:
        """Return where a message went: each chat with what became of it, and, when all is asked for, each post."""
        posts = self._delivered_to.posts.get(message.id, [])
        outcomes = self._delivered_to.outcomes.get(message.id, {})
        lines = []
        if self._full:
            lines = [
                f"{each.operation} to {place_of(each)}: {each.state}"
                f" {each.receipt}{': ' + each.reason if each.reason else ''}"
                for each in posts
            ]
        else:
            open_posts = Counter((place_of(each), str(each.state)) for each in posts if each.target not in outcomes)
            lines = [
                f"→ {place}: {state}{f' ×{count}' if count > 1 else ''}" for (place, state), count in open_posts.items()
            ]
        sent = Counter(each.target for each in posts if each.operation is Operation.POST)
        return [
            safe_line(line) for line in [*lines, *(outcome_text(each, sent[each.chat]) for each in outcomes.values())]
        ]


def place_of(delivery: Delivery) -> str:
    """Return where a delivery goes. A chat's name begins with its channel's."""
    is_chat = delivery.target.startswith(f"{delivery.channel}:")
    return delivery.target if is_chat else f"{delivery.channel} {delivery.target}"


def outcome_text(delivered: MessageDelivered, posts: int) -> str:
    became = OUTCOMES.get(delivered.outcome, delivered.outcome)
    count = f" in {posts} posts" if delivered.outcome == "shown" and posts > 1 else ""
    return f"→ {delivered.chat}: {became}{count}{': ' + delivered.reason if delivered.reason else ''}"


def folded(text: str) -> str:
    return shorten(safe_line(text[: FOLDED_CHARACTERS * 4]), FOLDED_CHARACTERS)


def local_time(at_microseconds: int) -> str:
    """Return a time as the reader's clock has it. A label beyond the calendar stays a number."""
    try:
        return f"{datetime.fromtimestamp(at_microseconds / 1_000_000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return str(at_microseconds)


async def show_raw(record: Record, session: Session) -> None:
    async for entry in read_entries(record, session.id, session.head_seq, await first_known(record, session)):
        stdout_json(entry)


async def is_whole(record: Record, session: Session) -> bool:
    """Return whether all of a session could be shown; say on standard error that the past of a fork is missing."""
    missing = await missing_past(record, session)
    if missing is not None:
        click.echo(f"{safe_line(str(missing))}.\n{safe_line(missing.hint)}", err=True)
    return missing is None


async def show_json(record: Record, session: Session, fields: dict[str, Any]) -> None:
    """Print the session and all its messages as one JSON object, written as it is read."""
    delivered = await deliveries_of(record, session)
    known = await survey_known(record, session)
    stdout_json_line(f'{{"session":{msgspec.json.encode(fields).decode()},"messages":[')
    first = True
    async for item in read_items(record, session, known):
        if isinstance(item, TranscriptItem):
            line = msgspec.json.encode(message_fields(item, delivered)).decode()
            stdout_json_line(line if first else f",{line}")
            first = False
    stdout_json_line("]}")


def message_fields(item: TranscriptItem, delivered: Delivered) -> dict[str, Any]:
    message = item.message
    return {
        "id": message.id,
        "seq": item.seq,
        "role": message.role,
        "status": message.status,
        "at_microseconds": message.at_microseconds,
        "author": message.author,
        "text": message.text,
        "parts": message.parts,
        "chat": message.chat,
        "event_id": message.event_id,
        "observed": message.is_observed,
        "unverified": message.is_unverified,
        "undone": item.undone,
        "edited": message.is_edited,
        "deleted": message.is_retracted,
        "before": item.before,
        "deliveries": delivered.posts.get(message.id, []),
        "outcomes": [
            {"chat": each.chat, "outcome": each.outcome, "reason": each.reason}
            for each in delivered.outcomes.get(message.id, {}).values()
        ],
    }
