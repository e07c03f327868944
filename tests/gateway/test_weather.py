"""Foul weather around a gateway: the disk is full, the clock is set, and nothing is shown that is not recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hansard.journal.store import Wiring
from hansard.record.api import Record
from hansard.testing import FakeClock, Platform
from tests.gateway.stage import AGENT, ANN, make_settings, playing, write_script
from tests.record.helpers_process import fill_disk, small_disk

HOUR_SECONDS = 3600


@pytest.mark.loss("B2")
async def test_a_full_disk_for_a_while(tmp_path: Path) -> None:
    """While the disk is full nothing new is shown; when there is room again, everything is said, once."""
    platform = Platform()
    settings = make_settings(write_script(tmp_path / "script", "{last}, I hear.", delay_seconds=0.02))
    chat = platform.create_room(ANN, AGENT)
    with small_disk(tmp_path / "disk", "24m") as disk:
        home = disk / "home"
        async with playing(home, settings, platform) as play:
            await play.until(lambda: platform.calls["poll"] > 1)
            platform.say(chat, ANN, "before")
            await play.until(lambda: play.texts(chat) == ["before, I hear."])
            await play.settled()
            ballast = fill_disk(disk)
            platform.say(chat, ANN, "while it is full")
            await play.until(lambda: bool(play.record.trouble))
            await asyncio.sleep(0.3)
            shown = play.texts(chat)
            async with asyncio.timeout(120):
                stored = [m.text for s in await play.record.sessions() for m in await play.record.load_transcript(s.id)]
            assert all(any(text in words for words in stored) for text in shown)
            ballast.unlink()
            await play.until(lambda: play.texts(chat)[-1:] == ["while it is full, I hear."])
            await play.settled()
            audit = await play.audit(chat)
            assert audit.ok, audit.differences


@pytest.mark.loss("I4")
@pytest.mark.parametrize("hours", [-30, 30], ids=["back", "forth"])
async def test_a_clock_that_is_set_in_the_middle(home: Path, tmp_path: Path, hours: int) -> None:
    """A wall clock that jumps reorders, doubles and loses nothing."""
    platform = Platform()
    clock = FakeClock()
    settings = make_settings(write_script(tmp_path / "script", "{last} " + "and on " * 20, delay_seconds=0.01))
    chat = platform.create_room(ANN, AGENT)
    async with Record.open(home, wiring=Wiring(clock=clock)), playing(home, settings, platform) as play:
        await play.until(lambda: platform.calls["poll"] > 1)
        for number in range(4):
            platform.say(chat, ANN, f"message {number}")
            await play.until(lambda number=number: any(f"message {number}" in text for text in play.texts(chat)))  # type: ignore[misc]
            clock.jump(hours * HOUR_SECONDS if number == 1 else 1)
        await play.settled()
        audit = await play.audit(chat)
        assert audit.ok, audit.differences
        assert audit.by_people == 4
