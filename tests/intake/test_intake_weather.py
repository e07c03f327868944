"""Bad weather for intake: killed in the middle of a batch, a record that cannot be written, a gap too long."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import Message
from hansard.domain.notices import ENGLISH
from hansard.errors import LogUnwritable, RecordUnavailable
from hansard.intake.receive import UNWRITABLE, ChannelIntake
from hansard.journal.entries import log_name
from hansard.ports.channel import Batch
from hansard.record.api import Record
from tests.engine.stage import WAIT_SECONDS_MAX
from tests.intake.crash_worker import BATCH
from tests.intake.town import BOB, HOME_OF_ANN, ROOM, Doorman, settings_of, town
from tests.record.helpers_process import immutable, stranger

ROOT = Path(__file__).parents[2]
POINTS = ["applied", "logging", "logged", "committed", "acknowledged"]
HOME_OF_BOB = "matrix:room:!bob:example.org"
COMMITS = 12
"""How many commits the batch takes, about: kills are drawn among them."""


@pytest.mark.drawn(2)
@pytest.mark.loss("F11", "F15", "I2", "H8")
@pytest.mark.parametrize("point", POINTS)
async def test_killed_in_the_middle_of_a_batch(home: Path, seed: int, point: str) -> None:
    """The batch comes again: every message once, in the session in which its chat was, and the cursor after all."""
    number = random.Random(f"{seed} {point}").randint(1, COMMITS * (3 if point == "logging" else 1))
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.intake.crash_worker", str(home), point, str(number)],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL or killed.stdout == b"survived", killed.stderr
    async with Record.open(home) as record:
        for _ in range(2):
            await ChannelIntake(record, Doorman(), settings_of()).take_batch(BATCH)
        sessions = {session.id: session for session in await record.sessions()}
        said = {
            session_id: [message.text for message in await record.load_transcript(session_id) if message.role == "user"]
            for session_id in sessions
        }
        route = await record.routes.read(HOME_OF_ANN)
        assert route is not None
        last = sessions[route.session_id]
        told = [message.text for message in await record.load_transcript(last.id) if message.role == "notice"]
        made = [["second"], ["second", "third"], ["the first"]]
        # When the fork was cut, nobody knows whether it was made, and people were told so.
        assert sorted(said.values()) in ([made, made[1:]] if ENGLISH.interrupted in told else [made])
        assert said[last.id] == ["second", "third"]
        assert [session.title for session in sessions.values() if said[session.id] == ["the first"]] == ["Trip"]
        assert await record.intake.cursor("matrix", Doorman.account) == "c1"
        report = await record.verify()
        assert report.ok, report.findings


@pytest.mark.loss("H1", "H10")
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("point", POINTS)
async def test_killed_in_the_middle_of_new(home: Path, point: str, number: int) -> None:
    """At the terminal too, /new is there whole or not at all: never are two sessions open, or none."""
    async with Record.open(home) as record:
        old = (await record.create_session(source="cli")).id
        await record.accept([(old, Message.user("hello"))], queue_turn=True)
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.intake.crash_worker", str(home), point, str(number), old, "/new Trip"],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL or (number, killed.stdout) == (2, b"survived"), killed.stderr
    async with Record.open(home) as record:
        found = {session.id: session.state for session in await record.sessions()}
        (now,) = [session_id for session_id, state in found.items() if state == "open"]
        told = [message.text for message in await record.load_transcript(old) if message.role == "notice"]
        turns = [turn.state for turn in await record.turns.list(old)]
        assert (len(found), told, turns) == ((1, [], ["queued"]) if now == old else (2, ["/new Trip"], ["interrupted"]))
        if now != old:
            (reply,) = await record.load_transcript(now)
            assert reply.text == f"A new session: {now}. The one before stays as {old}."
        report = await record.verify()
        assert report.ok, report.findings


@pytest.mark.loss("F14", "B2")
async def test_a_record_that_cannot_be_written_loses_nothing(home: Path) -> None:
    """Another program holds the database longer than the patience: the batch waits, is reported, and is taken once."""
    async with Record.open(home, patience_seconds=0.2) as record:
        reported = asyncio.Event()
        errors: list[BaseException] = []

        def report(_event_id: str, error: BaseException) -> None:
            errors.append(error)
            reported.set()

        intake = ChannelIntake(record, Doorman(), settings_of(), report=report)
        with stranger(home / "state.db"):
            taking = asyncio.create_task(intake.take_batch(BATCH))
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await reported.wait()
            assert not taking.done()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await taking
        assert isinstance(errors[0], RecordUnavailable)
        words = [
            message.text for session in await record.sessions() for message in await record.load_transcript(session.id)
        ]
        assert words.count("third") == 1
        assert await record.intake.cursor("matrix", Doorman.account) == "c1"


@pytest.mark.loss("F14", "B15")
async def test_one_unwritable_log_holds_up_no_other_chat(home: Path) -> None:
    """The person is told that this message was not taken; other chats are served, and this one once it healed."""
    async with town(home) as here:
        await here.take(here.event("before"))
        route = await here.record.routes.read(HOME_OF_ANN)
        assert route is not None
        with immutable(home / log_name(route.session_id)):
            await here.take(here.event("refused"), here.event("hello", sender=BOB, chat=HOME_OF_BOB), cursor="c2")
        (told,) = here.told_at_home(HOME_OF_ANN)
        assert UNWRITABLE in told
        assert str(home) not in told
        assert [type(error) for _, error in here.reports] == [LogUnwritable]
        here.reports.clear()
        await here.take(here.event("after"), cursor="c3")
        words = [message.text for message in await here.record.load_transcript(route.session_id)]
        assert [word for word in words if word in {"before", "refused", "after"}] == ["before", "after"]
        other = await here.record.routes.read(HOME_OF_BOB)
        assert other is not None
        assert "hello" in [message.text for message in await here.record.load_transcript(other.session_id)]
        assert await here.record.intake.cursor("matrix", Doorman.account) == "c3"
        await here.check()


@pytest.mark.loss("F8")
async def test_a_gap_that_was_cut_is_told_once(home: Path) -> None:
    """What could not be fetched is not in the record: the people of those chats are told, once."""
    async with town(home) as here:
        batch = Batch(cursor="c1", events=(here.event("hello"),), cut=(HOME_OF_ANN, ROOM))
        await here.intake.take_batch(batch)
        await here.intake.take_batch(batch)
        assert [here.told_at_home(chat) for chat in (HOME_OF_ANN, ROOM)] == [[ENGLISH.cut], [ENGLISH.cut]]
        await here.intake.take_batch(msgspec.structs.replace(batch, cursor="c2", cut=(ROOM,)))
        assert here.told_at_home(ROOM) == [ENGLISH.cut, ENGLISH.cut]
        await here.check()
