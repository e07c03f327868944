"""A session id is also a path: what is no id never reaches the file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard import Message, NotFound, Record

STRANGE = ["../../../outside", "../../outside", "..", "", "a/b", "nul\0byte", "~home", "UPPER", "x" * 65, "home.jsonl"]


@pytest.mark.parametrize("session_id", STRANGE)
async def test_a_strange_session_id_is_not_found_and_touches_no_file(home: Path, session_id: str) -> None:
    """Speaking, reading, claiming or forking under such an id raises NotFound; a file that it would name stays."""
    outside = home.parent / "outside.jsonl"
    home.mkdir()
    outside.write_bytes(b"somebody else's\n")
    async with Record.open(home) as record:
        await record.create_session(id="plain", source="test")  # so that sessions/other/ exists
        with pytest.raises(NotFound):
            await record.append(session_id, Message.user("hello"))
        with pytest.raises(NotFound):
            await record.load_transcript(session_id)
        with pytest.raises(NotFound):
            await record.fork(session_id)
        with pytest.raises(NotFound):
            async with record.turn(session_id):
                pass
        assert (await record.verify()).ok
    assert outside.read_bytes() == b"somebody else's\n"
