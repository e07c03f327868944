"""Sessions as Markdown, for reading and for notes.

What people and models said is quoted, line by line: a heading that is not in a quotation is Hansard's own, so nobody's
words can pass for somebody else's. Code blocks are fenced with more backticks than they contain.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hansard.interop.transcripts import (
    NO_CHAT,
    TOLD_AT_HOME,
    Happened,
    TranscriptItem,
    Used,
    earlier_of,
    files_of,
    marks_of,
    read_transcript,
    reasoning_of,
    says_something,
    session_facts,
    tool_facts,
    utc,
    who,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hansard.domain.messages import File, Message
    from hansard.domain.sessions import Session
    from hansard.interop.transcripts import Item
    from hansard.record.api import Record

LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""Whatever any reader may take for the end of a line."""

MARKUP = re.compile(r"([\\`*_\[\]<>#!|~&])")
BACKTICKS = re.compile("`+")
FENCE_BACKTICKS = 3


class MarkdownExport:
    """Writes sessions as Markdown."""

    def __init__(self, *, full: bool = False) -> None:
        """`full`: with the model's reasoning, with what was undone, edited or deleted."""
        self._full = full
        self._told = False

    def begin(self, sessions: list[Session]) -> bytes:
        del sessions
        return b""

    async def session(self, record: Record, session: Session) -> AsyncIterator[bytes]:
        facts = "".join(f"- {name}: {plain(value)}\n" for name, value in session_facts(session))
        yield f"# {plain(session.title or session.id)}\n\n{facts}\n".encode()
        async for item in read_transcript(record, session, full=self._full):
            text = self._item(item)
            if text:
                yield f"{text}\n".encode()

    def notice(self, message: Message) -> bytes:
        """Return what a chat was told that had no session; the first one below a heading of its own."""
        heading, self._told = "" if self._told else f"# {TOLD_AT_HOME}\n\n", True
        facts = f"{plain(who(message))} · {utc(message.at_microseconds)} · {plain(message.chat or NO_CHAT)}"
        return f"{heading}## {facts}\n\n{quoted(words_of(message))}\n\n".encode()

    def end(self) -> bytes:
        return b""

    def _item(self, item: Item) -> str:
        if isinstance(item, Happened):
            return f"*{plain(item.text)}*\n"
        if isinstance(item, Used):
            return used_text(item)
        return self._said(item) if says_something(item.message, full=self._full) else ""

    def _said(self, item: TranscriptItem) -> str:
        message = item.message
        marks = "".join(f" · {mark}" for mark in marks_of(item))
        pieces = [f"## {plain(who(message))} · {utc(message.at_microseconds)}{marks}\n"]
        if self._full and (thought := reasoning_of(message)):
            pieces.append(f"Reasoning:\n\n{quoted(thought)}\n")
        if words := words_of(message):
            pieces.append(f"{quoted(words)}\n")
        pieces += [f"- attached: {file_text(file)}\n" for file in files_of(message)]
        if self._full:
            earlier = earlier_of(item)
            pieces += [f"{earlier.name.capitalize()}:\n\n{quoted(words)}\n" for words in earlier.words]
            pieces += [f"- was attached: {file_text(file)}\n" for file in earlier.files]
        return "\n".join(pieces)


def plain(text: str) -> str:
    """Return a text on one line in which nothing is markup."""
    return MARKUP.sub(r"\\\1", " ".join(text.split()))


def quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in LINE_ENDS.split(text))


def fenced(text: str) -> str:
    longest = max((len(run) for run in BACKTICKS.findall(text)), default=0)
    fence = "`" * max(FENCE_BACKTICKS, longest + 1)
    lines = "\n".join(LINE_ENDS.split(text))
    return f"{fence}\n{lines}\n{fence}"


def used_text(item: Used) -> str:
    name, outcome = tool_facts(item)
    marks = " · taken back" if item.undone else ""
    pieces = [f"### Tool {plain(name)}: {plain(outcome)}{marks}\n"]
    if item.call is not None:
        pieces.append(f"{fenced(item.call.arguments)}\n")
    if item.result is not None and item.result.text:
        pieces.append(f"{fenced(item.result.text)}\n")
    if item.result is not None and item.result.blob:
        pieces.append(f"- attached: `{plain(item.result.blob)}`\n")
    return "\n".join(pieces)


def file_text(file: File) -> str:
    return f"{plain(file.name or 'a file')}, {plain(file.media_type)}, {file.size_bytes} bytes, {plain(file.blob)}"
