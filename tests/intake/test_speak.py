"""Speaking: recorded on receipt with the turn that answers it, once, in ended sessions too (L2, L7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from hansard.domain.arrivals import Arrival, ArrivalKind, Origin
from hansard.domain.ids import new_id, new_session_id
from hansard.domain.messages import Message, Role
from hansard.domain.notices import ENGLISH
from hansard.domain.settings import Busy
from hansard.errors import NotFound, OutcomeUnknown
from hansard.intake.speak import ATTEMPTS_MAX, busy_of, speak
from hansard.record.api import Record
from tests.engine.stage import PlayedModel, answer_last, stage


class Doubtful:
    """A record whose first calls leave it open whether they were written; they were, as the worst case has it."""

    def __init__(self, record: Record, doubts: int) -> None:
        """Doubt so often."""
        self._record = record
        self._doubts = doubts
        self.calls = 0
        self.intake = self

    async def receive(self, *arguments: Any, **options: Any) -> object:  # noqa: ANN401 - passed on as they are
        """Write, and then say that nobody knows."""
        received = await self._record.intake.receive(*arguments, **options)
        self.calls += 1
        if self.calls <= self._doubts:
            raise OutcomeUnknown("nobody knows")
        return received


@pytest.mark.parametrize("doubts", range(ATTEMPTS_MAX))
@pytest.mark.loss("I2", "I1")
async def test_a_message_in_doubt_is_repeated_and_recorded_once(home: Path, doubts: int) -> None:
    """Whoever does not know whether a message was written says it again under its id: it is there once, with a turn."""
    async with stage(home, PlayedModel([answer_last])) as on:
        doubtful = Doubtful(on.record, doubts)
        spoken = await speak(cast("Record", doubtful), on.session_id, [Message.user("hi")], Busy.INTERRUPT)
        assert doubtful.calls == doubts + 1
        assert await on.texts() == ["hi"]
        assert [turn.id for turn in await on.record.turns.list_queued()] == [spoken.turn_id]
        await on.run_turn()
        assert await on.texts() == ["hi", "<hi>"]


async def test_a_doubt_that_stays_is_told(home: Path) -> None:
    """After some tries the person is told; the message may be said again under its id."""
    async with stage(home) as on:
        doubtful = Doubtful(on.record, ATTEMPTS_MAX)
        with pytest.raises(OutcomeUnknown):
            await speak(cast("Record", doubtful), on.session_id, [Message.user("hi", id="m1")], Busy.QUEUE)
        assert doubtful.calls == ATTEMPTS_MAX
        assert await on.texts() == ["hi"]
        await on.record.turns.stop(on.session_id, "the test is over", queued=True)


@pytest.mark.loss("H2")
async def test_an_ended_session_is_open_again_and_says_so(home: Path) -> None:
    """What is said in a session that has ended is neither refused nor put elsewhere."""
    async with stage(home, PlayedModel([answer_last])) as on:
        await on.ask("before")
        await on.record.end_session(on.session_id, "over")
        spoken = await on.speak("after")
        await on.settled()
        assert await on.texts() == ["before", "<before>", "after", "<after>"]
        assert ENGLISH.reopened in await on.notices()
        said = [entry for entry in await on.entries() if entry.seq > int(spoken.after)]
        assert [entry.text for entry in said[:2]] == [ENGLISH.reopened, "after"]


async def test_speaking_in_a_session_that_is_not_there_is_an_error(home: Path) -> None:
    """No session is made up for it."""
    async with stage(home) as on:
        with pytest.raises(NotFound):
            await speak(on.record, "nowhere", [Message.user("hi")], Busy.QUEUE)
        assert [session.id for session in await on.record.sessions()] == [on.session_id]


async def test_several_messages_are_taken_together(home: Path) -> None:
    """Messages handed in together are one commit with one turn, in their order."""
    async with stage(home, PlayedModel([answer_last])) as on:
        await speak(on.record, on.session_id, [Message.user("a"), Message.user("b")], Busy.QUEUE)
        assert await on.together("turn.queued") == ["message.added", "message.added", "turn.queued"]
        await on.run_turn()
        assert (await on.texts(Role.ASSISTANT)) == ["<a\n\nb>"]


async def test_the_mode_is_that_of_the_session_where_it_has_one(home: Path) -> None:
    """A setting that is no mode, from a newer Hansard perhaps, counts as none."""
    async with stage(home) as on:
        assert await busy_of(on.record, on.session_id, Busy.STEER) is Busy.STEER
        await on.record.sessions.set_setting(on.session_id, "busy", "queue")
        assert await busy_of(on.record, on.session_id, Busy.STEER) is Busy.QUEUE
        await on.record.sessions.set_setting(on.session_id, "busy", "telepathy")
        assert await busy_of(on.record, on.session_id, Busy.STEER) is Busy.STEER


async def test_a_new_session_in_doubt_is_begun_once(home: Path) -> None:
    """The same `/new`, received again, leads to the session that the first one began."""
    async with stage(home, PlayedModel()) as on:
        arrival = Arrival(
            origin=Origin(channel="cli", owner="person:admin"),
            said=((on.session_id, Message.notice("/new")),),
            kind=ArrivalKind.NEW,
            new_ids=(new_session_id(on.record.clock.now_microseconds()), new_id()),
            told="A new session: {new}. The one before stays as {old}.",
            reopens=True,
        )
        first = await on.record.intake.receive(arrival)
        again = await on.record.intake.receive(arrival)
        assert again.session_id == first.session_id
        assert [each.text for each in again.told] == [each.text for each in first.told]
        found = {session.id: session.state for session in await on.record.sessions()}
        assert found == {on.session_id: "ended", first.session_id: "open"}
