"""Journals and entries as they are stored: rows of the database, lines of the log, and the chain that entries form.

Each entry's digest covers its header, its body and the digest before it (rule 14).

A line carries everything that its row in the database does, and the number of the transaction that wrote it: what is
followed by another transaction's line was committed. Lines that one call committed together form a unit: each
of them then names, for every journal that shares it, the last entry there, so that a unit that was cut by a crash is
told from a whole one by what the journals hold, however their files were rewritten since.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

from hansard.domain.ids import log_stem
from hansard.domain.limits import KIB, LINE_BYTES_MAX
from hansard.journal.files import FileStat, LogFiles

SEQ_BITS = 32
"""An entry's key is its journal's key, shifted by so many bits, and its seq."""

SEQ_MASK = (1 << SEQ_BITS) - 1

DIGEST_FORMAT = 1
"""1: SHA-256 for chain and body. Kept with each entry, so that another can follow one day."""


def chain_start(journal_id: str) -> bytes:
    """Return the digest that a journal's first entry continues."""
    return hashlib.sha256(f"hansard {DIGEST_FORMAT} {journal_id}".encode()).digest()


class Journal:
    """A journal as it stands under the lock. The writer keeps it for as long as nobody else commits."""

    __slots__ = (
        "active_at",
        "base_digest",
        "base_id",
        "base_seq",
        "head_digest",
        "head_seq",
        "id",
        "key",
        "log",
        "log_end",
        "log_look",
        "log_seen",
        "log_synced",
        "memo",
        "messages",
        "open_end",
        "part",
        "part_end",
        "part_look",
        "part_reset",
        "part_seen",
        "past",
    )

    def __init__(self, row: tuple[Any, ...]) -> None:
        (
            self.key,
            self.id,
            self.base_id,
            self.base_seq,
            self.base_digest,
            self.head_seq,
            self.head_digest,
            self.log_end,
            self.log_synced,
            self.part_end,
            self.messages,
            self.active_at,
        ) = row
        self.past: list[Stretch] | None = None
        self.forget()
        self.reset_changes()

    def forget(self) -> None:
        """Read again what entries of this transaction may have changed."""
        self.memo: Any = None
        self.open_end = -1

    def reset_changes(self) -> None:
        """Begin a transaction: nothing is to be written, and no file was looked at."""
        self.log: list[bytes] = []
        self.part: list[bytes] = []
        self.part_reset = False
        self.log_seen = False
        self.part_seen = False
        self.log_look: FileStat | None = None
        self.part_look: FileStat | None = None

    def head_row(self, commits: int) -> tuple[Any, ...]:
        return (
            self.head_seq,
            self.head_digest,
            self.log_end,
            self.part_end,
            self.messages,
            self.active_at,
            commits,
            self.key,
        )

    def entry_key(self, seq: int) -> int:
        key: int = (self.key << SEQ_BITS) + seq
        return key


class Stretch(NamedTuple):
    """Entries of one journal that belong to a session: after one key, up to another."""

    after: int
    last: int


class KnownEntry(NamedTuple):
    """An entry that was recorded before."""

    seq: int
    kind: str
    version: int
    at: int
    body: bytes


BOUNDARY_BYTES = 64 * KIB
"""How much of a log is read, at first, to find the last line before an offset."""

MARK_BYTES = 8
"""How much of a digest a mark carries: enough to tell two entries of one seq apart."""


class EntryRow(NamedTuple):
    """An entry as it is stored."""

    seq: int
    id: str
    kind: str
    version: int
    ignorable: bool
    at: int
    digest_format: int
    salt: bytes
    digest: bytes
    body: bytes


def row_digest(journal_id: str, previous: bytes, row: EntryRow) -> bytes:
    """Return the digest of a row that stands after an entry with the digest `previous`."""
    header = f"{journal_id}\n{row.seq}\n{row.id}\n{row.kind}\n{row.version}\n{int(row.ignorable)}\n{row.at}\n"
    body_hash = hashlib.sha256(row.salt + row.body).digest()
    return hashlib.sha256(previous + header.encode() + body_hash).digest()


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry as it is logged."""

    seq: int
    id: str
    kind: str
    version: int
    at: int
    salt: str
    digest: str
    body: msgspec.Raw
    tx: int = 0
    ignorable: bool = False
    digest_format: int = DIGEST_FORMAT
    unit: dict[str, str] = msgspec.field(default_factory=dict)

    def row(self) -> EntryRow:
        """Return the entry as it is stored; ValueError when the line is not whole."""
        return EntryRow(
            seq=self.seq,
            id=self.id,
            kind=self.kind,
            version=self.version,
            ignorable=self.ignorable,
            at=self.at,
            digest_format=self.digest_format,
            salt=bytes.fromhex(self.salt),
            digest=bytes.fromhex(self.digest),
            body=bytes(self.body),
        )


StreamPart = Literal["text", "reasoning"]


class PartLine(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of the open message as it is logged."""

    message: str
    start: int
    part: StreamPart
    text: str


LINE_BEGINNING: Final = re.compile(rb'(?<=.)(?=\{"seq":\d)', re.DOTALL)
"""Where another line begins in bytes that are no line. In a body, the quotation marks would be escaped."""

BLANK: Final = b"\0\r\n\t "
"""Bytes that say nothing: what a power cut leaves in a file that had grown."""

LINE_DECODER = msgspec.json.Decoder(LogLine)
PART_DECODER = msgspec.json.Decoder(PartLine)
ENCODER = msgspec.json.Encoder()


def place_mark(seq: int, digest: bytes) -> str:
    """Return what names one entry of a journal in a unit."""
    return f"{seq}:{digest[:MARK_BYTES].hex()}"


def read_mark(mark: str) -> tuple[int, bytes]:
    """Return the seq and the digest's beginning of a mark; ValueError when it is none."""
    seq, _, digest = mark.partition(":")
    return int(seq), bytes.fromhex(digest)


def encode_line(row: EntryRow, tx: int, unit: dict[str, str] | None = None) -> bytes:
    line = LogLine(
        seq=row.seq,
        id=row.id,
        kind=row.kind,
        version=row.version,
        at=row.at,
        salt=row.salt.hex(),
        digest=row.digest.hex(),
        body=msgspec.Raw(row.body),
        tx=tx,
        ignorable=bool(row.ignorable),
        digest_format=row.digest_format,
        unit=unit or {},
    )
    return ENCODER.encode(line) + b"\n"


def encode_part(message_id: str, start: int, part: str, text: str) -> bytes:
    line = PartLine(message=message_id, start=start, part=cast("StreamPart", part), text=text)
    return ENCODER.encode(line) + b"\n"


def decode_line(data: bytes) -> LogLine | None:
    """Return a whole, well-formed line, or None for anything else: torn, NUL-filled, garbage."""
    if not data.endswith(b"\n"):
        return None
    try:
        line = LINE_DECODER.decode(data)
        line.row()
        for mark in line.unit.values():
            read_mark(mark)
    except (msgspec.MsgspecError, ValueError, UnicodeDecodeError):
        return None
    return line


def read_log(files: LogFiles, journal_id: str, start: int, end: int) -> Iterator[tuple[int, bytes, LogLine | None]]:
    """Yield what a stretch of a log holds: the offset after it, its bytes, and the entry, or None for damage.

    A damaged stretch can hold whole lines whose ends are gone. It is announced by an empty piece of damage, so that the
    log is written anew. Then each line in it is given, and the bytes after it.
    """
    for place, data in files.read_lines(log_name(journal_id), start, end):
        if (line := decode_line(data)) is not None:
            yield place, data, line
            continue
        at = place - len(data)
        yield at, b"", None
        for piece in LINE_BEGINNING.split(data):
            length = piece.rfind(b"}") + 1
            line = decode_line(end_line(piece))
            at += length
            yield at, piece[:length], line
            at += len(piece) - length
            yield at, piece[length:], None


def end_line(data: bytes) -> bytes:
    """Return a line without what damage left at its end."""
    return data[: data.rfind(b"}") + 1] + b"\n"


def decode_part(data: bytes) -> PartLine | None:
    """Return a whole, well-formed chunk, or None."""
    if not data.endswith(b"\n"):
        return None
    try:
        return PART_DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


@lru_cache(maxsize=4096)
def log_name(journal_id: str) -> str:
    return f"{log_stem(journal_id)}.jsonl"


@lru_cache(maxsize=4096)
def part_name(journal_id: str) -> str:
    return f"{log_stem(journal_id)}.part"


def tail_name(journal_id: str) -> str:
    """Return the name of the file that keeps what could not be read as part of the log."""
    return f"{log_stem(journal_id)}.tail"


def log_size(files: LogFiles, journal_id: str) -> int:
    look = files.stat_file(log_name(journal_id))
    return look.size if look is not None else 0


def log_continues(files: LogFiles, journal: Journal) -> bool:
    """Return whether a log, as far as the database accounts for it, is empty or ends with the line of its head."""
    if journal.log_end == 0:
        return True
    line = last_line(files, journal.id, journal.log_end)
    return line is not None and (line.seq, line.digest) == (journal.head_seq, journal.head_digest.hex())


def last_line(files: LogFiles, journal_id: str, end: int) -> LogLine | None:
    """Return the line of a log that ends at an offset; None when what ends there is no whole line."""
    for length in (BOUNDARY_BYTES, LINE_BYTES_MAX):
        last = b""
        for _, data in files.read_lines(log_name(journal_id), max(0, end - length), end):
            last = data
        if (line := decode_line(last)) is not None:
            return line
    return None
