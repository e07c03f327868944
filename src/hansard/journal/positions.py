"""A follower's position: the last entry it was given, and how much of the open message."""

from __future__ import annotations

import msgspec

from hansard.domain.limits import POSITION_CHARACTERS_MAX
from hansard.domain.text import INTEGER_MAX
from hansard.errors import InvalidInput


class Position(msgspec.Struct, frozen=True):
    """Everything up to `seq`, and `offset_bytes` of the message that was open there."""

    seq: int = 0
    message_id: str = ""
    offset_bytes: int = 0

    def __str__(self) -> str:
        """Return the opaque text that callers keep."""
        return f"{self.seq}.{self.offset_bytes}.{self.message_id}" if self.message_id else str(self.seq)

    @classmethod
    def parse(cls, text: str | int) -> Position:
        """Return the position that a caller kept; 0 is the start."""
        whole = str(text)
        head, _, rest = whole.partition(".")
        offset, _, message_id = rest.partition(".")
        numbers = [head, offset] if rest else [head]
        if len(whole) > POSITION_CHARACTERS_MAX or not all(n.isascii() and n.isdigit() for n in numbers):
            message = f"not a position of this record: {whole[:80]!r}"
            raise InvalidInput(message)
        position = cls(int(head), message_id, int(offset or 0))
        if max(position.seq, position.offset_bytes) > INTEGER_MAX:
            message = f"not a position of this record: {whole[:80]!r}"
            raise InvalidInput(message)
        return position
