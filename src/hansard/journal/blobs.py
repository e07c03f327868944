"""Blobs: attachments by their digest, durable before the entry that names them (rule 8).

Reads and writes: `blobs/`. Invariants: a blob is complete under its name or absent; the same bytes are stored once.
On crash: a temporary file stays behind, which nothing refers to.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from typing import TYPE_CHECKING

from hansard.domain.limits import BLOB_BYTES_MAX
from hansard.errors import InvalidInput, NotFound, RecordDamaged, TooLarge
from hansard.journal.causes import explain, framed
from hansard.journal.files import write_durably

if TYPE_CHECKING:
    from hansard.journal.files import HomeFolder

ONE_COPY = (
    "There is only this one copy of an attachment. Put the file back from a backup; everything else is as it was."
)

DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class FileBlobs:
    """The blobs of one home."""

    def __init__(self, home: HomeFolder) -> None:
        """Nothing is created before the first blob."""
        self._home = home
        self._folder = f"{home.path}/blobs"

    def path(self, digest: str) -> str:
        """Return where a blob lies."""
        if not DIGEST.match(digest):
            message = f"a blob's name is its SHA-256 in hexadecimal, not {digest[:80]!r}"
            raise InvalidInput(message)
        return f"{self._folder}/{digest[:2]}/{digest}"

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their digest."""
        if len(data) > BLOB_BYTES_MAX:
            message = f"a blob of {len(data)} bytes; the limit is {BLOB_BYTES_MAX}"
            raise TooLarge(message)
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        try:
            if not os.path.exists(path):
                self._home.check()
                write_durably(path, [data], temporary=f"{path}.{secrets.token_hex(4)}.new", below=self._home.path)
        except OSError as error:
            raise framed(explain(error), f"the attachment could not be stored in {self._folder}") from error
        return digest

    def require(self, digest: str) -> None:
        """Refuse a reference to a blob that is not there."""
        if not os.path.isfile(self.path(digest)):
            message = f"there is no blob {digest}; store it with put_blob first"
            raise NotFound(message)

    def get(self, digest: str) -> bytes:
        """Return a blob's bytes, and make sure that they are the ones that were stored."""
        try:
            with open(self.path(digest), "rb") as file:
                data = file.read(BLOB_BYTES_MAX + 1)
        except FileNotFoundError:
            missing = NotFound(f"an attachment is missing: {self.path(digest)}")
            missing.hint = ONE_COPY
            raise missing from None
        except OSError as error:
            raise framed(explain(error), f"the attachment {self.path(digest)} could not be read") from error
        if hashlib.sha256(data).hexdigest() != digest:
            damaged = RecordDamaged(f"an attachment is damaged: {self.path(digest)}")
            damaged.hint = ONE_COPY
            raise damaged
        return data
