"""Hansard's own lines: everything that was said in a session, to be carried to another home and read back there.

    {"type":"hansard","version":1}                       the first line of a file
    {"type":"session","id":…,"source":…,"owner":…,…}      a session begins
    {"type":"blob","digest":…,"data":…,"last":true}       an attachment in base64, before the first message that has it
    {"type":"message","session_id":…,"id":…,"role":…,…}   its messages in order, whatever became of them marked
    {"type":"end","session_id":…,"messages":…}            the session is complete
    {"type":"notice","id":…,"chat":…,"text":…,…}          after all sessions: what a chat was told that had none
    {"type":"fact","session_id":…,"seq":…,"kind":…,…}     with --facts: what happened, without the words; "" is the home

Every line stands alone. The same record gives the same bytes. What another Hansard wrote differently is not guessed at.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.domain.limits import LINE_BYTES_MAX, MIB
from hansard.domain.messages import Part, Role, Status
from hansard.domain.sessions import Link, SessionState
from hansard.errors import InvalidInput
from hansard.interop.transcripts import json_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSION = 1
"""Of the lines. A file of a higher one is refused: it may say what this Hansard cannot keep."""


class ExportLine(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """The base of every line. A field that is not known makes a line foreign."""


class FileLine(ExportLine, frozen=True, tag="hansard"):
    """What the file is."""

    version: int


class ParentLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a session came from. A fork says how many messages it shares, with a digest of them."""

    session_id: str
    link: Link
    messages: int = 0
    digest: str = ""


class SessionLine(ExportLine, frozen=True, tag="session"):
    """A session, as it stood."""

    id: str
    source: str
    owner: str
    title: str | None = None
    state: SessionState = SessionState.OPEN
    end_reason: str | None = None
    archived: bool = False
    parent: ParentLine | None = None
    created_at_microseconds: int = 0
    active_at_microseconds: int = 0


class BlobLine(ExportLine, frozen=True, tag="blob"):
    """A piece of an attachment, in base64; the last piece says so."""

    digest: str
    data: str
    last: bool = False


class ChangeLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a person did in a chat to a message: its words from then on, or, without any, that it was deleted."""

    parts: tuple[Part, ...] | None = None
    event_id: str = ""


class MessageLine(ExportLine, frozen=True, tag="message"):
    """A message, whole, as the transcript has it; one that was changed in its chat has its first words as well."""

    session_id: str
    id: str
    role: Role
    parts: tuple[Part, ...]
    status: Status = Status.COMPLETE
    at_microseconds: int = 0
    author: str = ""
    chat: str = ""
    event_id: str = ""
    observed: bool = False
    undone: bool = False
    edited: bool = False
    deleted: bool = False
    first: tuple[Part, ...] = ()
    changes: tuple[ChangeLine, ...] = ()
    unverified: bool = False


class EndLine(ExportLine, frozen=True, tag="end"):
    """A session is complete: so many messages were its own and its parents'."""

    session_id: str
    messages: int


class NoticeLine(ExportLine, frozen=True, tag="notice"):
    """What Hansard told in a chat that had no session. It belongs to the home where it was told."""

    id: str
    chat: str
    text: str
    at_microseconds: int = 0


class FactLine(ExportLine, frozen=True, tag="fact"):
    """One entry of a journal, for an auditor: who asked, what was decided, delivered and answered, and in which order.

    `body` is without words (the message lines have them) and without one-time codes.
    """

    session_id: str
    """Empty: the journal of the home."""
    seq: int
    id: str
    kind: str
    at_microseconds: int = 0
    body: dict[str, Any] = msgspec.field(default_factory=dict)


AnyLine = FileLine | SessionLine | BlobLine | MessageLine | EndLine | NoticeLine | FactLine

DECODER = msgspec.json.Decoder(AnyLine)


def encode(line: AnyLine) -> bytes:
    """Return a line with its end."""
    return json_line(line) + b"\n"


class Numbered(msgspec.Struct, frozen=True):
    """A line of a file: its number, how far into the file it reaches, and what it says or why it cannot be read."""

    number: int
    end_bytes: int
    line: AnyLine | None
    trouble: str = ""


def read_lines(path: Path) -> Iterator[Numbered]:
    """Yield the lines of a file. Whatever is in it, no more than one line is held."""
    try:
        with path.open("rb") as file:
            number = end = 0
            while data := file.readline(LINE_BYTES_MAX):
                number += 1
                end += len(data)
                if len(data) == LINE_BYTES_MAX and not data.endswith(b"\n"):
                    end += skip_line(file.readline)
                    yield Numbered(number, end, None, f"longer than {LINE_BYTES_MAX} bytes")
                elif data.strip():
                    yield decode(number, end, data)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None


def file_bytes(path: Path) -> int:
    return path.stat().st_size


def skip_line(readline: Callable[[int], bytes]) -> int:
    """Read on to the end of a line; return how much that was."""
    skipped = 0
    while data := readline(MIB):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped


def decode(number: int, end: int, data: bytes) -> Numbered:
    """Return what a line says, or why it cannot be read."""
    try:
        return Numbered(number, end, DECODER.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        torn = "" if data.endswith(b"\n") else "torn: "
        return Numbered(number, end, None, f"{torn}{error}")


def check_file(first: Numbered | None, path: Path) -> None:
    """Refuse a file that is something else: a thousand foreign lines help nobody."""
    line = first.line if first else None
    if not isinstance(line, FileLine):
        raise InvalidInput(f"{path} is not an export of Hansard: its first line does not say so")
    if line.version > VERSION:
        raise InvalidInput(f"{path} was written by a newer Hansard (version {line.version} of its lines)")
