"""An item in doubt is neither withdrawn nor called unwritten: only the writer can settle it."""

from __future__ import annotations

from pathlib import Path

from hansard.errors import OutcomeUnknown, RecordUnavailable
from hansard.journal.queue import Item
from hansard.journal.store import open_store
from hansard.record.schema import SCHEMA
from hansard.testing import Wiring, abandon_store


def test_only_what_was_never_tried_can_be_taken_back(home: Path) -> None:
    """What may be in a log stays queued when its caller leaves; closing answers it as unknown, not as refused."""
    store = open_store(home, SCHEMA, Wiring(threads=False), 5)
    try:
        answered: list[Item] = []
        fresh, doubtful = (Item(lambda _tx: None, answered.append) for _ in range(2))
        doubtful.doubt = True
        store.writer.queue.submit(fresh)
        store.writer.queue.submit(doubtful)
        assert not store.writer.queue.withdraw(doubtful)
        store.writer.abandon()
        assert [type(item.error) for item in answered] == [RecordUnavailable, OutcomeUnknown]
        again = Item(lambda _tx: None, answered.append)
        store.writer.queue.submit(again)
        assert store.writer.queue.withdraw(again)
    finally:
        abandon_store(store)
