"""What a message says now: 31 situations, and the answers of the seven readers, in `message_fold.txt`.

A cell has the words, the minute of the message's time, and its marks. `×` is the fixed sentence for what was
retracted, `-` no message. A file is kept (`+file`), only named (`+name`) or still being fetched (`+fetching`); the
words of a voice note stand in brackets. After `<` an export lists every version, a retraction as `×`. After `?` stand
the words by which search finds the message.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from hansard.journal.sqlite.migrations import create_schema
from hansard.record.messages.entries import MESSAGES
from hansard.record.schema import SCHEMA
from tests.record.helpers_fold import READERS, read_situations

TABLE = Path(__file__).with_name("message_fold.txt")


def cells_of(line: str) -> list[str]:
    """The cells of a line of the table."""
    return [cell.strip() for cell in line.split("|")]


async def test_every_reader_answers_as_the_table_says(home: Path) -> None:
    """Each situation, read by each reader, gives what was written down for it."""
    head, *lines = map(cells_of, TABLE.read_text().splitlines())
    assert head == ["situation", *READERS]
    assert await read_situations(home) == {name: cells for name, *cells in lines}


def test_changes_are_found_by_their_index() -> None:
    """Only the entries that change messages are read, however many others lie between them."""
    database = apsw.Connection(":memory:")
    create_schema(database, SCHEMA)
    plan = database.execute(f"EXPLAIN QUERY PLAN {MESSAGES.queries.changing_entries}", (0, 1)).fetchall()
    assert [row[3] for row in plan] == ["SEARCH entry USING INDEX entry_changing (key>? AND key<?)"]
    database.close()
