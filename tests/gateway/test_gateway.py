"""A whole gateway on a platform in memory: what is said is received, answered and shown, once, in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hansard.app.wiring import open_app
from hansard.domain.settings import Busy
from hansard.errors import GatewayRuns
from hansard.gateway.health import ask_health
from hansard.gateway.process import Gateway
from hansard.testing import Platform, RecordingChannel
from tests.gateway.stage import AGENT, ANN, BOB, TIMING, make_settings, playing, write_script


async def test_a_message_is_answered(home: Path, tmp_path: Path) -> None:
    """What Ann says is recorded, answered and shown; the audit finds both sides equal."""
    platform = Platform()
    async with playing(home, make_settings(write_script(tmp_path / "script")), platform) as play:
        chat = platform.create_room(ANN, AGENT)
        await play.until(lambda: platform.calls["poll"] > 1)
        platform.say(chat, ANN, "good morning")
        await play.until(lambda: play.texts(chat) == ["You said: good morning"])
        await play.settled()
        audit = await play.audit(chat)
        assert audit.ok, audit.differences
        assert audit.by_people == 1
        assert audit.by_agent >= 1


@pytest.mark.loss("F1", "F5", "A14")
@pytest.mark.parametrize("busy", list(Busy))
async def test_three_rapid_messages_while_a_reply_streams(home: Path, tmp_path: Path, busy: Busy) -> None:
    """The report replayed: all that anybody sees is in the record, and every message is there once, in order."""
    platform = Platform()
    script = write_script(tmp_path / "script", "You said: {last} " + "and more " * 20, delay_seconds=0.01)
    async with playing(home, make_settings(script, busy), platform) as play:
        chat = platform.create_room(ANN, AGENT)
        await play.until(lambda: platform.calls["poll"] > 1)
        platform.say(chat, ANN, "tell me")
        await play.until(lambda: len(play.texts(chat)) == 1)
        for text in ("one", "two", "three"):
            platform.say(chat, ANN, text)
            await asyncio.sleep(0.02)
        await play.until(lambda: any("three" in text for text in play.texts(chat)))
        await play.settled()
        audit = await play.audit(chat)
        assert audit.ok, audit.differences
        (session,) = await play.record.sessions(source="matrix")
        said = [m.text for m in await play.record.load_transcript(session.id) if m.role == "user"]
        assert said == ["tell me", "one", "two", "three"]


async def test_the_audit_sees_what_is_wrong(home: Path, tmp_path: Path) -> None:
    """A post that the record does not know, other words, and a message that was not received are found."""
    platform = Platform()
    async with playing(home, make_settings(write_script(tmp_path / "script")), platform) as play:
        chat = platform.create_room(ANN, AGENT)
        await play.until(lambda: platform.calls["poll"] > 1)
        platform.say(chat, ANN, "good morning")
        await play.until(lambda: len(play.texts(chat)) == 1)
        await play.settled()
        timeline = platform.room(chat).timeline
        kept = list(timeline)
        timeline.append(type(kept[-1])(id="$forged", sender=AGENT, text="I never said this"))
        timeline.append(type(kept[-1])(id="$missed", sender=ANN, text="did you hear me?"))
        first = next(place for place, shown in enumerate(kept) if shown.sender == AGENT)
        timeline[first] = type(kept[-1])(id=kept[first].id, sender=AGENT, text="other words")
        audit = await play.audit(chat)
        found = {each.event_id: each.what for each in audit.differences}
        assert found == {"$forged": "unrecorded", "$missed": "unread", kept[first].id: "words"}


@pytest.mark.loss("F8", "F11", "F15")
async def test_what_was_sent_while_the_gateway_was_down_is_answered(home: Path, tmp_path: Path) -> None:
    """The next start receives it from its own cursor, and what comes twice is taken once."""
    platform = Platform()
    settings = make_settings(write_script(tmp_path / "script"))
    chat = platform.create_room(ANN, AGENT)
    async with playing(home, settings, platform) as play:
        await play.until(lambda: platform.calls["poll"] > 1)
        platform.say(chat, ANN, "before")
        await play.until(lambda: len(play.texts(chat)) == 1)
        await play.settled()
    for number in range(5):
        platform.say(chat, ANN, f"while down {number}")
    async with playing(home, settings, platform) as play:
        await play.until(lambda: any("while down 4" in text for text in play.texts(chat)))
        await play.settled()
        platform.tell_again(6)
        await play.settled()
        (session,) = await play.record.sessions(source="matrix")
        said = [m.text for m in await play.record.load_transcript(session.id) if m.role == "user"]
        assert said == ["before", *(f"while down {number}" for number in range(5))]
        assert (await play.audit(chat)).ok


async def test_a_platform_that_is_down_is_joined_later(home: Path, tmp_path: Path) -> None:
    """The gateway starts while the platform is down, says so, and goes on by itself when it is back."""
    platform = Platform()
    platform.is_down = True
    settings = make_settings(write_script(tmp_path / "script"))
    chat = platform.create_room(ANN, AGENT)
    async with playing(home, settings, platform) as play:
        await play.until(lambda: bool(play.channel.trouble))
        health = await ask_health(home)
        assert health is not None
        assert health.status == "degraded"
        platform.is_down = False
        await play.until(lambda: platform.calls["poll"] > 1 and not play.channel.trouble)
        platform.say(chat, ANN, "there you are")
        await play.until(lambda: play.texts(chat) == ["You said: there you are"])
        await play.settled()
        health = await ask_health(home)
        assert health is not None
        assert health.status == "ok"
        assert health.channels[0].waiting == 0
    assert await ask_health(home) is None


async def test_a_second_gateway_is_refused(home: Path, tmp_path: Path) -> None:
    """Another gateway for the same account and home says who is in its way; another account may run."""
    platform = Platform()
    settings = make_settings(write_script(tmp_path / "script"))
    async with (
        playing(home, settings, platform) as play,
        open_app(home, settings, {}, lambda _, __: None) as other,
    ):
        await play.until(lambda: platform.calls["poll"] > 1)
        with pytest.raises(GatewayRuns, match=AGENT):
            await Gateway(other, [RecordingChannel(platform, AGENT)], TIMING).run(asyncio.Event())
        stop = asyncio.Event()
        stop.set()
        await Gateway(other, [RecordingChannel(platform, "@other:example.org")], TIMING).run(stop)


@pytest.mark.loss("E5", "A6")
async def test_a_drain_lets_a_running_answer_finish(home: Path, tmp_path: Path) -> None:
    """Told to stop, the gateway receives no more, and what it was saying is said and shown to the end."""
    platform = Platform()
    script = write_script(tmp_path / "script", "a long answer with many words in it", delay_seconds=0.05)
    chat = platform.create_room(ANN, AGENT)
    timing = TIMING._replace(drain_seconds=60, flush_seconds=60)
    async with playing(home, make_settings(script), platform, timing=timing) as play:
        await play.until(lambda: platform.calls["poll"] > 1)
        platform.say(chat, ANN, "go")
        await play.until(lambda: len(play.texts(chat)) == 1)
    assert play.texts(chat) == ["a long answer with many words in it"]


async def test_a_drain_interrupts_what_takes_too_long(home: Path, tmp_path: Path) -> None:
    """After the time for it, the turn is interrupted in the record, and what was said of it is shown in full."""
    platform = Platform()
    script = write_script(tmp_path / "script", "word " * 2000, delay_seconds=0.02)
    chat = platform.create_room(ANN, AGENT)
    timing = TIMING._replace(drain_seconds=0.3, flush_seconds=60)
    async with playing(home, make_settings(script), platform, timing=timing) as play:
        await play.until(lambda: platform.calls["poll"] > 1)
        platform.say(chat, ANN, "go")
        await play.until(lambda: len(play.texts(chat)) == 1)
        play.stop.set()
        await play.until(lambda: not play.app.runner.busy)
        (session,) = await play.record.sessions(source="matrix")
        (answer,) = [m for m in await play.record.load_transcript(session.id) if m.role == "assistant"]
        assert answer.status == "interrupted"
        await play.until(lambda: play.texts(chat) == [answer.text])


async def test_a_room_of_many_and_a_direct_chat(home: Path, tmp_path: Path) -> None:
    """In a room only what is for the agent is answered and recorded; the audit counts the rest."""
    platform = Platform()
    async with playing(home, make_settings(write_script(tmp_path / "script")), platform) as play:
        room = platform.create_room(ANN, BOB, AGENT)
        await play.until(lambda: platform.calls["poll"] > 1)
        platform.say(room, ANN, "for the agent", to=AGENT)
        platform.say(room, BOB, "not for it")
        platform.say(room, BOB, "again for it", to=AGENT)
        await play.until(lambda: any("again" in text for text in play.texts(room)))
        await play.settled()
        audit = await play.audit(room)
        assert audit.ok, audit.differences
        assert audit.not_for_agent == 1
