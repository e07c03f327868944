"""A model that does not answer is the admin's business, too: in the log, in the numbers, in the status."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from hansard.cli.gateway import show
from hansard.domain.settings import Channels, Settings, TurnLimits
from hansard.domain.settings.channels import Matrix
from hansard.gateway.health import TurnsHealth, ask_health
from hansard.gateway.logs import JsonFormatter
from hansard.gateway.process import count_turn
from hansard.testing import Platform
from tests.gateway.exposition import ask, one, parse
from tests.gateway.stage import AGENT, ANN, Playing, make_settings, playing

SECRET = "sk-4711pangolin4711"  # noqa: S105 - of no account
WORDS = "quiet pangolin"


def failing_script(path: Path, kind: str) -> Path:
    """A model that fails for two turns, and quotes what it should not."""
    failing = f'[[answers]]\nfailures = [{{ kind = "{kind}", text = "{WORDS}: {SECRET}" }}]\n'
    path.write_text(f'{failing}{failing}[[answers]]\ntext = "Here I am."\n')
    return path


async def say(play: Playing, chat: str) -> None:
    """Let Ann say something, and wait for what comes of it."""
    await play.until(lambda: play.platform.calls["poll"] > 1)
    play.platform.say(chat, ANN, f"a {WORDS}?")
    await play.settled()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines about failed turns as they are logged."""
    return [JsonFormatter().format(each) for each in caplog.records if each.getMessage() == "a turn failed"]


@pytest.mark.parametrize("kind", ["unauthorised", "busy", "unavailable", "missing"])
async def test_the_admin_sees_failing_turns(
    home: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    """A failed turn is a line in the log and a number, without words; the status is bad until a model answers."""
    caplog.set_level(logging.INFO, logger="hansard")
    platform = Platform()
    settings = make_settings(failing_script(tmp_path / "script", kind))
    limits = TurnLimits(attempts_max=2, retry_seconds_max=0.01)
    settings = msgspec.structs.replace(settings, limits=limits)
    chat = platform.create_room(ANN, AGENT)
    async with playing(home, settings, platform) as play:
        await say(play, chat)
        await say(play, chat)
        health = await ask_health(home)
        assert health is not None
        assert (health.status, health.turns.failing, health.turns.reason) == ("degraded", 2, kind)
        assert health.turns.model == settings.model
        show(health)
        assert (
            f"  model: the last 2 turns failed, since {health.turns.failing_since}: {kind} (" in capsys.readouterr().out
        )
        head, body = await ask(home, "/metrics")
        assert head.startswith("HTTP/1.1 200")
        assert one(parse(body), "hansard_turns_failed_total", reason=kind) == 2
        assert one(parse(body), "hansard_turns_failing") == 2
        assert (await ask(home, "/healthz"))[0].startswith("HTTP/1.1 503")
        await say(play, chat)
        health = await ask_health(home)
        assert health is not None
        assert (health.status, health.turns) == ("ok", TurnsHealth(completed=1, failed={kind: 2}))
    lines = logged(caplog)
    assert len(lines) == 2
    assert all(
        f'"reason":"{kind}"' in line and '"session":"' in line and '"model":"scripted:' in line for line in lines
    )
    assert not [line for line in (*lines, body) if SECRET in line or "pangolin" in line]


async def test_without_a_model_the_admin_hears_of_it(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is configured and nothing is found: each turn fails, and says so."""
    platform = Platform()
    chat = platform.create_room(ANN, AGENT)
    settings = Settings(channels=Channels(matrix=Matrix(allow=("*:example.org",))))
    async with playing(home, settings, platform) as play:
        await say(play, chat)
        health = await ask_health(home)
        assert health is not None
        assert (health.status, health.turns.reason) == ("degraded", "ModelMissing")
    assert len(logged(caplog)) == 1


def test_a_limit_says_nothing_of_the_model() -> None:
    """A turn that reached a limit is counted; it makes the status neither bad nor good again."""
    turns = count_turn(TurnsHealth(), "limit", "m", "now")
    assert (turns.failed, turns.failing) == ({"limit": 1}, 0)
    turns = count_turn(turns, "busy", "m", "then")
    assert count_turn(turns, "limit", "m", "now").failing == 1
