"""An item in doubt is neither withdrawn nor called unwritten: only the writer can settle it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from hansard import Message, Record
from hansard.errors import OutcomeUnknown, RecordUnavailable
from hansard.journal.queue import Item
from hansard.journal.store import open_store
from hansard.record.schema import SCHEMA
from hansard.testing import Wiring, abandon_store
from tests.record.helpers_facts import SESSION, assert_clean, ids_of, log_lines, new_session


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


class FailsAfterCommit:
    """The system refuses something right after a COMMIT, once: there are too many open files, say."""

    def __init__(self) -> None:
        self.is_armed = False

    def __call__(self, step: str) -> None:
        """Refuse."""
        if step == "committed" and self.is_armed:
            self.is_armed = False
            raise OSError(errno.EMFILE, "Too many open files")


async def test_what_was_committed_is_never_cut_from_the_log(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An error after COMMIT leaves the log as it is: the entry is there once, in both legs, and its caller is told."""
    reach = FailsAfterCommit()
    async with Record.open(home, wiring=Wiring(reach=reach)) as record:
        await new_session(record)
        reach.is_armed = True
        await record.append(SESSION, Message.user("said", id="a"))
        assert not reach.is_armed
        assert await ids_of(record) == ["a"]
        assert [line["id"] for line in log_lines(home)][1:] == ["a"]
        assert "rewrote the log" not in caplog.text
        await assert_clean(record)
