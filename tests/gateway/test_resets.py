"""All resets in many chats at once: no message lands in the wrong session, and the model sees the right history."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from hansard.domain.sessions import Link
from hansard.domain.settings import Busy, Channels, Resets, Settings, TurnLimits
from hansard.domain.settings.channels import Matrix
from hansard.journal.store import Wiring
from hansard.record.api import Record
from hansard.testing import RECORDING_CAPABILITIES, FakeClock, Platform
from tests.counts import times
from tests.gateway.stage import AGENT, ANN, Playing, app_with, gateway_on
from tests.gateway.witness import SLOW, TAG, Witness, tags_of

CHATS = times(test=80, long=1000, prove=1000)
RESET_EACH = CHATS // 10
"""Chats that are reset in each of the ways."""

DURING = RESET_EACH // 2
"""Chats that are reset while an answer runs."""


async def everybody_says(play: Playing, chats: Iterable[tuple[int, str]], words: str) -> None:
    """Let people talk in many chats at once, and wait until all is answered and shown."""
    for number, chat in chats:
        play.platform.say(chat, ANN, words.format(number=number))
    await play.settled()


@pytest.mark.slow
@pytest.mark.loss("H1", "H2", "H7", "H8", "H10")
async def test_many_chats_are_reset(home: Path) -> None:
    """By `/new`, after a pause, at an hour of the day; between turns and during one: a request is of one session."""
    clock, platform, witness = FakeClock(), Platform(), Witness()
    settings = Settings(
        busy=Busy.QUEUE,
        channels=Channels(matrix=Matrix(allow=("*:example.org",))),
        resets=Resets(idle_minutes=30, daily_hour=4),
        limits=TurnLimits(turns_running_max=CHATS, person_turns_running_max=CHATS, person_sessions_hour_max=10_000),
    )
    async with (
        Record.open(home, wiring=Wiring(clock=clock)) as record,
        app_with(record, settings, witness) as app,
        gateway_on(app, platform, RECORDING_CAPABILITIES) as play,
    ):
        chats = list(enumerate(platform.create_room(ANN, AGENT) for _ in range(CHATS)))
        await everybody_says(play, chats, "chat{number} session1")
        by_word, by_pause, by_hour, during = (chats[first::4][:RESET_EACH] for first in range(4))
        await everybody_says(play, by_word, "/new")
        await everybody_says(play, by_word, "chat{number} session2")
        for number, chat in during[:DURING]:
            platform.say(chat, ANN, f"chat{number} session1 {SLOW}")
        await play.until(lambda: witness.slow == DURING)
        for number, chat in during[:DURING]:
            platform.say(chat, ANN, "/new")
            platform.say(chat, ANN, f"chat{number} session2")
        await play.until(lambda: len(platform.room(during[DURING - 1][1]).timeline) >= 6)
        witness.gate.set()
        await play.settled()
        clock.advance(31 * 60)
        await everybody_says(play, by_pause, "chat{number} session2")
        clock.advance(26 * 3600)
        await everybody_says(play, by_hour, "chat{number} session2")
        assert all(len(tags_of(request)) == 1 for request in witness.requests)
        await check_sessions(record, chats, RESET_EACH * 3 + DURING)
        for _, chat in (by_word[0], by_pause[0], by_hour[0], during[0]):
            audit = await play.audit(chat)
            assert audit.ok, audit.differences
        for _, chat in during[:DURING]:
            assert sum(text.startswith("Well, ") for text in play.texts(chat)) == 1, "begun before, shown where asked"
        report = await record.verify()
        assert report.ok, report.findings


async def check_sessions(record: Record, chats: list[tuple[int, str]], expected: int) -> None:
    """Every session holds the words of one chat and one session, and a successor is linked to the one before."""
    sessions = await record.sessions()
    resets = 0
    for session in sessions:
        texts = [message.text for message in await record.load_transcript(session.id) if message.role == "user"]
        tags = {found.groups() for text in texts for found in TAG.finditer(text)}
        assert len(tags) <= 1, texts
        if session.parent is not None:
            assert session.parent.link is Link.RESET
            resets += 1
    assert resets == expected
    assert len(sessions) == len(chats) + resets
