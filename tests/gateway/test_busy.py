"""While an answer runs: "queued" is said only when it is true, /stop acts at once, and the sign of writing goes."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

import pytest

from hansard.domain.notices import ENGLISH
from hansard.domain.settings import Busy
from hansard.record.messages.entries import Entry
from hansard.record.turns.entries import TurnEnded, TurnStarted
from hansard.testing import Platform
from tests.gateway.care import write_config
from tests.gateway.socket_platform import served_platform
from tests.gateway.stage import AGENT, ANN, TIMING, Playing, entries_of, make_settings, playing, until, write_script
from tests.gateway.town import ROOT, Town

WORDS = ENGLISH


def writes(platform: Platform, chat: str) -> bool:
    """Return whether people see that the agent writes."""
    return AGENT in platform.room(chat).typing


async def begun(play: Playing, chat: str, text: str = "go") -> None:
    """Say something, and wait until its answer is being shown."""
    play.platform.say(chat, ANN, text)
    await play.until(lambda: bool(play.texts(chat)))


def running_at(entries: list[Entry], seq: int) -> bool:
    """Return whether a turn ran when an entry was recorded."""
    before = [entry.body for entry in entries if entry.seq < seq]
    started = {body.turn_id for body in before if isinstance(body, TurnStarted)}
    return bool(started - {body.turn_id for body in before if isinstance(body, TurnEnded)})


@pytest.mark.loss("F1", "F5")
async def test_queued_is_said_when_it_is_true(home: Path, tmp_path: Path, seed: int) -> None:
    """At whichever moment somebody queues something: they are told so if a turn ran at the commit, and only then."""
    draw = random.Random(seed)
    platform = Platform()
    script = write_script(tmp_path / "script", "a short answer to {last}", delay_seconds=0.005)
    async with playing(home, make_settings(script, Busy.QUEUE), platform) as play:
        chat = platform.create_room(ANN, AGENT)
        await play.until(lambda: platform.calls["poll"] > 1)
        for number in range(25):
            platform.say(chat, ANN, f"/queue number-{number}")
            await asyncio.sleep(draw.random() * 0.08)
        await play.settled()
        (session,) = await play.record.sessions(source="matrix")
        entries = await entries_of(play.record, session.id)
    said = {entry.text: entry.seq for entry in entries if entry.kind == "message.added" and "number-" in entry.text}
    waited = [number for number in range(25) if running_at(entries, said[f"number-{number}"])]
    told = [entry for entry in entries if entry.text == WORDS.queued]
    assert len(told) == len(waited)
    assert 0 < len(waited) < 25, "both cases must be there"


async def test_stop_acts_at_once(home: Path, tmp_path: Path) -> None:
    """A long answer ends where it is, what waited is not run, and the sign of writing goes; then nothing runs."""
    platform = Platform()
    script = write_script(tmp_path / "script", "word " * 5000, delay_seconds=0.02)
    async with playing(home, make_settings(script, Busy.QUEUE), platform) as play:
        chat = platform.create_room(ANN, AGENT)
        await play.until(lambda: platform.calls["poll"] > 1)
        await begun(play, chat)
        await until(lambda: writes(platform, chat))
        platform.say(chat, ANN, "and this, later")
        platform.say(chat, ANN, "/stop")
        await until(lambda: play.texts(chat)[-1] == WORDS.stopped)
        await until(lambda: not play.app.runner.busy)
        await until(lambda: not writes(platform, chat))
        platform.say(chat, ANN, "/stop")
        await until(lambda: play.texts(chat)[-1] == WORDS.nothing_runs)
        await play.settled()
        (session,) = await play.record.sessions(source="matrix")
        turns = [turn.state for turn in await play.record.turns.list(session.id)]
        assert turns == ["interrupted", "interrupted"]
        answers = [m for m in await play.record.load_transcript(session.id) if m.role == "assistant"]
        assert [answer.status for answer in answers] == ["interrupted"]
        assert (await play.audit(chat)).ok


async def test_stop_does_not_wait_for_other_chats(home: Path, tmp_path: Path) -> None:
    """With answers running in many chats, stopping one ends that one; the others go on."""
    platform = Platform()
    script = write_script(tmp_path / "script", "word " * 5000, delay_seconds=0.02)
    async with playing(home, make_settings(script), platform) as play:
        people = [f"@person{number}:example.org" for number in range(10)]
        chats = [platform.create_room(person, AGENT) for person in people]
        await play.until(lambda: platform.calls["poll"] > 1)
        for chat, person in zip(chats, people, strict=True):
            platform.say(chat, person, "go")
        await play.until(lambda: all(play.texts(chat) for chat in chats))
        platform.say(chats[3], people[3], "/stop")
        await until(lambda: play.texts(chats[3])[-1] == WORDS.stopped)
        await until(lambda: play.app.runner.running == 9)
        for chat, person in zip(chats, people, strict=True):
            platform.say(chat, person, "/stop")
        await until(lambda: not play.app.runner.busy)


@pytest.mark.parametrize("text", ["short", "{nothing", "word " * 60])
async def test_the_sign_of_writing_ends_with_the_turn(home: Path, tmp_path: Path, text: str) -> None:
    """However an answer ends, nobody is left waiting for more."""
    platform = Platform()
    async with playing(home, make_settings(write_script(tmp_path / "s", text, delay_seconds=0.01)), platform) as play:
        chat = platform.create_room(ANN, AGENT)
        await play.until(lambda: platform.calls["poll"] > 1)
        await begun(play, chat)
        await play.settled()
        await until(lambda: not writes(platform, chat))


async def test_the_sign_of_writing_goes_when_the_gateway_stops(home: Path, tmp_path: Path) -> None:
    """A drain that interrupts an answer takes the sign away before it leaves."""
    platform = Platform()
    script = write_script(tmp_path / "script", "word " * 5000, delay_seconds=0.02)
    timing = TIMING._replace(drain_seconds=0.2)
    async with playing(home, make_settings(script), platform, timing=timing) as play:
        chat = platform.create_room(ANN, AGENT)
        await play.until(lambda: platform.calls["poll"] > 1)
        await begun(play, chat)
        await until(lambda: writes(platform, chat))
    assert not writes(platform, chat)


@pytest.mark.slow
async def test_the_sign_of_writing_goes_after_a_kill(home: Path, tmp_path: Path, seed: int) -> None:
    """A process that is killed in the middle of an answer leaves its sign; the next one takes it away, and says why."""
    platform = Platform()
    script = write_script(tmp_path / "script", "word " * 5000, delay_seconds=0.02)
    write_config(home, script)
    (home / "notices.toml").write_text('recovered = "I was stopped."\n')
    async with served_platform(platform) as port:
        town = Town(home, platform, port, random.Random(seed))
        chat = town.chats[0]
        process = await town.start(ROOT / "src")
        try:
            platform.say(chat, ANN, "go")
            town.sent.append("go")
            await until(lambda: writes(platform, chat) and len(platform.seen(chat)) > 1)
            process.kill()
            process.wait()
            assert writes(platform, chat)
            process = await town.start(ROOT / "src")
            await until(lambda: not writes(platform, chat))
            await until(lambda: platform.seen(chat)[-1] == (AGENT, "I was stopped."))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
