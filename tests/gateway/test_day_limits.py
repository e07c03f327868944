"""Limits of a day in chats: told politely where somebody spoke, recorded, and counted to the person under all names."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hansard.domain.messages import Message, Role
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy, Person, TurnLimits
from hansard.intake.speak import speak
from hansard.testing import Platform
from tests.gateway.stage import AGENT, ANN, BOB, make_settings, playing, write_script

ANN_ELSEWHERE = "@annie:example.org"


async def test_a_limit_is_told_in_the_chat(home: Path, tmp_path: Path) -> None:
    """Ann has two turns a day, in her room, in a shared one under her other name, and at the terminal; Bob has his."""
    settings = replace(
        make_settings(write_script(tmp_path / "script")),
        people={"ann": Person(matrix=(ANN, ANN_ELSEWHERE), terminal=True)},
        limits=TurnLimits(person_turns_day_max=2, day_time_zone="Asia/Tokyo"),
    )
    platform = Platform()
    async with playing(home, settings, platform) as play:
        own, shared = platform.create_room(ANN, AGENT), platform.create_room(ANN_ELSEWHERE, BOB, AGENT)
        await play.until(lambda: platform.calls["poll"] > 1)
        platform.say(own, ANN, "one")
        await play.until(lambda: "You said: one" in play.texts(own))
        platform.say(own, ANN, "/usage")
        await play.until(lambda: any("left today: 1 of 2 turns" in text for text in play.texts(own)))
        platform.say(shared, ANN_ELSEWHERE, "two", to=AGENT)
        await play.until(lambda: len(play.texts(shared)) == 1)
        platform.say(own, ANN, "three")
        await play.until(lambda: any("today's limit (2 turns)" in text for text in play.texts(own)))
        platform.say(shared, ANN_ELSEWHERE, "four", to=AGENT)
        await play.until(lambda: any("today's limit" in text for text in play.texts(shared)))
        platform.say(shared, BOB, "five", to=AGENT)
        await play.until(lambda: any("five" in text for text in play.texts(shared)))
        await play.settled()
        (refused,) = [text for text in play.texts(own) if "today's limit" in text]
        assert "Your message is recorded" in refused
        assert "00:00 JST" in refused
        for chat in (own, shared):
            audit = await play.audit(chat)
            assert audit.ok, audit.differences
        said = [
            message.text
            for session in await play.record.sessions(source="matrix")
            for message in await play.record.load_transcript(session.id)
            if message.role is Role.USER
        ]
        assert sorted(text.rpartition(" ")[2] for text in said) == ["five", "four", "one", "three", "two"]
        terminal = await play.record.create_session(source="cli", owner="person:ann")
        spoken = await speak(play.record, terminal.id, [Message.user("six")], Busy.QUEUE)
        play.app.runner.wake(terminal.id, spoken.turn_id)
        await play.app.runner.settled(terminal.id)
        assert [turn.state for turn in await play.record.turns.list(terminal.id)] == [TurnState.FAILED]
