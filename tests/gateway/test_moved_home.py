"""A gateway whose home or locks are taken away: it ends, says why, and answers nobody a second time."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from hansard.app.wiring import open_app
from hansard.errors import GatewayRuns
from hansard.gateway.process import Gateway
from hansard.journal.locks import TryLock
from hansard.testing import Platform, RecordingChannel
from tests.gateway.care import write_config
from tests.gateway.program import running
from tests.gateway.stage import AGENT, ANN, TIMING, make_settings, until, write_script


async def test_a_gateway_whose_home_is_renamed_ends(home: Path, tmp_path: Path) -> None:
    """An idle gateway notices it, says which home is gone, and makes nothing at the old path."""
    write_config(home, write_script(tmp_path / "script"))
    async with running(home) as process:
        home.rename(tmp_path / "moved")
        await until(lambda: process.poll() is not None)
        assert process.stderr is not None
        said = process.stderr.read()
    assert f"hansard: the home {home} was moved" in said, "by a commit, or by a lock: either may come first"
    assert "Traceback" not in said
    assert process.returncode == 2
    assert not home.exists()


@pytest.mark.parametrize("replaced", ["locks", "state.db"])
async def test_who_lost_the_account_to_another_gateway_answers_no_more(
    home: Path, tmp_path: Path, replaced: str
) -> None:
    """Its lock file is removed and another gateway takes the account: the first one ends and shows nothing."""
    platform = Platform()
    chat = platform.create_room(ANN, AGENT)
    settings = make_settings(write_script(tmp_path / "script"))
    async with open_app(home, settings, {}, lambda _, __: None) as app:
        gateway = Gateway(app, [RecordingChannel(platform, AGENT)], TIMING)
        task = asyncio.create_task(gateway.run(asyncio.Event()))
        await until(lambda: platform.calls["poll"] > 1)
        platform.say(chat, ANN, "first")
        await until(lambda: ("@agent:example.org", "You said: first") in platform.seen(chat))
        (lock_path,) = (home / "locks").glob("gateway-*")
        if replaced == "locks":
            shutil.rmtree(home / "locks")
            (home / "locks" / "owners").mkdir(parents=True)
        else:
            lock_path.unlink()
            (home / "state.db").unlink()
        other = TryLock(lock_path)
        assert other.take_lock()
        platform.say(chat, ANN, "second")
        await asyncio.wait({task})
        with pytest.raises(GatewayRuns, match=AGENT):
            task.result()
        assert not any("second" in text for sender, text in platform.seen(chat) if sender == AGENT)
        other.close()
