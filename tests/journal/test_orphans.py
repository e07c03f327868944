"""A WAL that vanishes takes its database with it: half a checkpoint is never trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard import Message, Record


@pytest.mark.loss("B8", "B26")
@pytest.mark.parametrize("side", ["-wal", "-shm"])
async def test_a_database_whose_side_file_vanished_is_set_aside_and_rebuilt(home: Path, side: str) -> None:
    """The database beside a vanished WAL may hold part of a checkpoint: it is kept aside, and the logs rebuild it."""
    async with Record.open(home) as record:
        session = await record.create_session(id="s", source="test", title="kept")
        await record.append(session.id, Message.user("one", id="one"))
        (home / f"state.db{side}").unlink()
        await record.append(session.id, Message.user("two", id="two"))
        await record.append(session.id, Message.user("three", id="three"))
        assert [message.text for message in await record.load_transcript("s")] == ["one", "two", "three"]
        assert (await record.sessions.read("s")).title == "kept"
        assert (await record.verify()).findings == []
    assert [path.name.startswith("state.db.orphan-") for path in home.glob("state.db.orphan-*")] == [True]


@pytest.mark.loss("B26")
async def test_a_database_that_was_replaced_is_not_set_aside(home: Path, tmp_path: Path) -> None:
    """A database that somebody put in place of ours is opened, caught up from the logs, and kept."""
    async with Record.open(home) as record:
        await record.create_session(id="s", source="test")
    copy = tmp_path / "copy.db"
    copy.write_bytes((home / "state.db").read_bytes())
    async with Record.open(home) as record:
        await record.append("s", Message.user("one", id="one"))
        copy.rename(home / "state.db")
        await record.append("s", Message.user("two", id="two"))
        assert [message.text for message in await record.load_transcript("s")] == ["one", "two"]
        assert (await record.verify()).findings == []
    assert list(home.glob("state.db.orphan-*")) == []
