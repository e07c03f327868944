"""The chain: each entry's digest covers its header, its body and the digest before it (rule 14)."""

from __future__ import annotations

import hashlib

import msgspec

DIGEST_FORMAT = 1
"""1: SHA-256 for chain and body. Kept with each entry, so that another can follow one day."""


class Header(msgspec.Struct, frozen=True):
    """What an entry's digest covers besides its body."""

    journal_id: str
    seq: int
    id: str
    kind: str
    version: int
    ignorable: bool
    at: int


def chain_start(journal_id: str) -> bytes:
    """Return the digest that a journal's first entry continues."""
    return hashlib.sha256(f"hansard {DIGEST_FORMAT} {journal_id}".encode()).digest()


def chain_digest(previous: bytes, header: Header, salt: bytes, body: bytes) -> bytes:
    """Return an entry's digest."""
    head = (
        f"{header.journal_id}\n{header.seq}\n{header.id}\n{header.kind}\n{header.version}\n"
        f"{int(header.ignorable)}\n{header.at}\n"
    )
    body_hash = hashlib.sha256(salt + body).digest()
    return hashlib.sha256(previous + head.encode() + body_hash).digest()
