"""The limits fit together: what one allows, the next one can carry."""

from __future__ import annotations

from pathlib import Path

from hansard.domain import limits
from hansard.domain.ids import new_session_id
from hansard.domain.messages import Role, Status, Text
from hansard.journal.concepts import ENCODER
from hansard.journal.entries import EntryRow, encode_line
from hansard.journal.follow import Position
from hansard.record.messages.entries import MessageAdded, MessageSealed

ENTRY_ROOM_BYTES = 64 * 1024


def constants() -> dict[str, float]:
    """Return every limit."""
    return {name: value for name, value in vars(limits).items() if name.isupper() and name not in {"KIB", "MIB"}}


def test_every_limit_is_positive_and_says_its_unit() -> None:
    """A limit is a positive number whose name tells what it counts."""
    units = (
        "BYTES",
        "SECONDS",
        "ITEMS",
        "CHARACTERS",
        "ROWS",
        "ENTRIES",
        "HANDLES",
        "SESSIONS",
        "JOURNALS",
        "CONVERSATION",
        "HITS",
        "MESSAGES",
        "NOTES",
    )
    for name, value in constants().items():
        assert value > 0, name
        assert any(unit in name for unit in units), f"{name} does not say its unit"


def test_every_limit_says_why() -> None:
    """A docstring follows each limit."""
    lines = Path(limits.__file__).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.split(":")[0] in constants():
            assert lines[number + 1].startswith('"""'), f"{line} gives no reason"


def test_the_longest_reply_can_be_sealed() -> None:
    """A reply of the greatest length whose every byte is escaped fits into the entry that seals it."""
    worst = max("\x01", '"', "\\", "\n", "\u2028", "é", "𝄞", key=lambda c: len(ENCODER.encode(c)) / len(c.encode()))
    text = worst * (limits.REPLY_BYTES_MAX // len(worst.encode()))
    body = MessageSealed(message_id="m" * limits.ID_CHARACTERS_MAX, status=Status.INTERRUPTED, parts=(Text(text),))
    assert len(ENCODER.encode(body)) + ENTRY_ROOM_BYTES <= limits.ENTRY_BYTES_MAX


def test_a_line_carries_the_longest_entry() -> None:
    """An entry of the greatest size, with the longest id and a unit of many sessions, is a line that is read again."""
    text = "x" * (limits.ENTRY_BYTES_MAX - len(ENCODER.encode(MessageAdded(role=Role.USER, parts=(Text(""),)))))
    data = ENCODER.encode(MessageAdded(role=Role.USER, parts=(Text(text),)))
    assert len(data) == limits.ENTRY_BYTES_MAX
    longest_id = "𝄞" * limits.ID_CHARACTERS_MAX
    row = EntryRow(2**32, longest_id, "message.added", 1, True, 2**53, 1, b"s" * 16, b"d" * 32, data)  # noqa: FBT003
    assert len(encode_line(row, 2**53)) <= limits.LINE_BYTES_MAX


def test_the_longest_unit_fits_into_a_line() -> None:
    """A call that touches as many sessions as it may, each named in every line, is still one line each."""
    unit = {f"{number:x}".rjust(64, "s"): f"{2**32}:{'f' * 16}" for number in range(limits.UNIT_ENTRIES_MAX + 1)}
    row = EntryRow(1, "m", "message.added", 1, False, 1, 1, b"s" * 16, b"d" * 32, b"{}")  # noqa: FBT003
    longest = len(encode_line(row, 2**53, unit)) + limits.ENTRY_BYTES_MAX
    assert longest <= limits.LINE_BYTES_MAX


def test_a_position_fits() -> None:
    """The longest position that can be given can be taken back."""
    position = Position(2**32, "x" * limits.ID_CHARACTERS_MAX, limits.REPLY_BYTES_MAX)
    assert Position.parse(str(position)) == position


def test_the_queue_holds_a_batch_and_a_batch_an_entry() -> None:
    """Larger limits hold what smaller ones allow: nothing that is accepted waits for ever."""
    assert limits.REPLY_BYTES_MAX <= limits.ENTRY_BYTES_MAX
    assert limits.ENTRY_BYTES_MAX <= limits.BATCH_BYTES_MAX <= limits.QUEUE_BYTES_MAX
    assert limits.BATCH_ITEMS_MAX <= limits.QUEUE_ITEMS_MAX
    assert limits.RETRY_SECONDS_MIN <= limits.RETRY_SECONDS_MAX <= limits.PATIENCE_SECONDS
    assert limits.FOLLOW_POLL_SECONDS < 0.05
    assert limits.CHECKPOINT_WAL_BYTES < limits.WAL_BYTES_MAX


def test_a_generated_session_id_is_short_enough_to_type() -> None:
    """Ids that people type stay short."""
    assert len(new_session_id(0)) == len("20261115-201233-k3v9qd")
