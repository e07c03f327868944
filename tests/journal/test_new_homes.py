"""A home that cannot be made: the message names it, and claims nothing of what was recorded before."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard import Record, RecordUnavailable
from tests.record.helpers_facts import new_session, say
from tests.record.helpers_process import fill_disk, small_disk


@pytest.mark.parametrize("leave_bytes", [0, 4096, 65536])
async def test_a_disk_that_is_full_from_the_beginning(tmp_path: Path, leave_bytes: int) -> None:
    """Whichever file is the first that cannot be written."""
    with small_disk(tmp_path / "disk", "8m") as disk:
        fill_disk(disk, leave_bytes)
        with pytest.raises(RecordUnavailable, match=rf"the disk is full \({disk / 'home'}") as caught:
            async with Record.open(disk / "home"):
                pass
        assert caught.value.hint.startswith("Nothing is recorded in this home yet. Free some space")


async def test_a_disk_that_fills_later(tmp_path: Path) -> None:
    """A home with something in it has it still, and the hint says so."""
    with small_disk(tmp_path / "disk", "8m") as disk:
        async with Record.open(disk / "home") as record:
            await new_session(record)
            await say(record, "a")
        (disk / "home" / "reserve").unlink()
        fill_disk(disk)
        with pytest.raises(RecordUnavailable, match="the disk is full") as caught:
            async with Record.open(disk / "home"):
                pass
        assert caught.value.hint.startswith("What was recorded is safe and can be read. Free some space")
