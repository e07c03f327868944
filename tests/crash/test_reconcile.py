"""Rule 1, seen from outside: what a writer logged and did not commit is adopted or set aside whole, never half."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from hansard import LogForked, Message, Record, SessionState
from hansard.testing.conformance_kit import begin_new
from tests.crash.processes import Program
from tests.crash.rounds import copy_home, remove_database
from tests.crash.scene import ACCOUNT, CHANNEL, KEY, LEFT, RIGHT, event
from tests.crash.stage import HOME_LOG, LEFT_LOG, LEFT_TOLD, check_healthy, check_home, check_right, told

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.stage import Play

legs = pytest.mark.parametrize("database", [True, False], ids=["with_database", "logs_alone"])


@pytest.mark.loss("A1", "B20", "I2")
@legs
async def test_what_was_logged_and_not_committed_is_adopted(home: Path, play: Play, *, database: bool) -> None:
    """A writer died between log and COMMIT: its entry is adopted, a retry of the id finds it, and the chain goes on."""
    assert "last" not in await play(home, last="append", point="logged")
    if not database:
        remove_database(home)
    async with Record.open(home) as record:
        assert await told(record, LEFT) == [*LEFT_TOLD, ("last", "the last word")]
        retried = await record.append(LEFT, Message.user("the last word", id="last"))
        assert retried.seq == (await record.sessions.read(LEFT)).head_seq
        await check_right(record)
        await check_home(record)
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.loss("A1", "B20", "I2")
async def test_a_survivor_adopts_what_a_dead_writer_logged(home: Path) -> None:
    """A second writer, open all the time, meets the dead one's log at its next append and continues that chain."""
    async with Record.open(home) as survivor:
        scene = ("--last", "append", "--point", "logged")
        dead = await Program.start("tests.crash.scene", home, *scene, errors=home.parent / "errors")
        await dead.ended()
        entry = await survivor.append(LEFT, Message.user("after it", id="after"))
        assert await told(survivor, LEFT) == [*LEFT_TOLD, ("last", "the last word"), ("after", "after it")]
        assert entry.seq == (await survivor.sessions.read(LEFT)).head_seq
        async with survivor.turn(RIGHT):
            pass
        assert (await survivor.verify()).findings == []
    remove_database(home)
    async with Record.open(home) as record:
        assert await told(record, LEFT) == [*LEFT_TOLD, ("last", "the last word"), ("after", "after it")]
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.loss("A1", "I2")
@legs
async def test_what_was_committed_and_not_acknowledged_is_there(home: Path, play: Play, *, database: bool) -> None:
    """A writer died after COMMIT and before anybody knew: the entry is there, once."""
    assert "last" not in await play(home, last="append", point="committed")
    if not database:
        remove_database(home)
    async with Record.open(home) as record:
        assert await told(record, LEFT) == [*LEFT_TOLD, ("last", "the last word")]
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.drawn(2)
@pytest.mark.loss("A1", "I2")
@legs
@pytest.mark.parametrize("point", ["begun", "applied"])
async def test_what_was_never_logged_is_gone_for_good(home: Path, play: Play, point: str, *, database: bool) -> None:
    """A writer died before it logged anything: nothing of the entry is anywhere, and its id is free."""
    assert "last" not in await play(home, last="append", point=point)
    if not database:
        remove_database(home)
    async with Record.open(home) as record:
        assert await told(record, LEFT) == LEFT_TOLD
        await record.append(LEFT, Message.user("other words", id="last"))
        await check_healthy(record, LEFT, RIGHT)


async def expect_event_absent(home: Path) -> None:
    """The half event is nowhere: not its words, not its cursor, not its intake; it comes in again as new."""
    async with Record.open(home) as record:
        assert await told(record, LEFT) == LEFT_TOLD
        await check_home(record)
        await check_right(record)
        message, intake, cursor = event(2)
        accepted = await record.accept([(LEFT, message)], intake, cursor)
        assert not accepted.duplicate
        assert await record.intake.cursor(CHANNEL, ACCOUNT) == "2"
        assert (await told(record, LEFT))[-1] == ("e2", "event 2")
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.drawn(2)
@pytest.mark.loss("A1", "I2", "I12")
@legs
@pytest.mark.parametrize("kept", [LEFT_LOG, HOME_LOG], ids=["session_only", "home_only"])
async def test_half_an_event_is_set_aside_whole(home: Path, play: Play, kept: str, *, database: bool) -> None:
    """accept() logged one journal's lines and not the other's: the event is set aside, and nothing before it."""
    await play(home.parent / "twin")
    assert "last" not in await play(home, last="accept", point="logged")
    lost = {LEFT_LOG: HOME_LOG, HOME_LOG: LEFT_LOG}[kept]
    lines = (home / lost).read_bytes().splitlines(keepends=True)
    before = len((home.parent / "twin" / lost).read_bytes().splitlines())
    assert len(lines) > before, "the crash must have logged something"
    os.truncate(home / lost, sum(map(len, lines[:before])))
    half = (home / kept).read_bytes().splitlines()[-1]
    if not database:
        remove_database(home)
    await expect_event_absent(home)
    assert half in (home / kept).with_suffix(".tail").read_bytes()


@pytest.mark.loss("A1", "I2", "I12")
@legs
async def test_an_event_cut_by_a_crash_is_set_aside_whole(home: Path, play: Play, *, database: bool) -> None:
    """The process dies by itself after the first of an event's two logs: the event is set aside."""
    assert "last" not in await play(home, last="accept", point="logging")
    if not database:
        remove_database(home)
    await expect_event_absent(home)


@pytest.mark.loss("A1", "I2", "I12")
@legs
async def test_a_whole_event_is_adopted_whole(home: Path, play: Play, *, database: bool) -> None:
    """The process dies after both of an event's logs and before COMMIT: words, cursor and intake are all there."""
    assert "last" not in await play(home, last="accept", point="logged")
    if not database:
        remove_database(home)
    async with Record.open(home) as record:
        assert await told(record, LEFT) == [*LEFT_TOLD, ("e2", "event 2")]
        assert await record.intake.cursor(CHANNEL, ACCOUNT) == "2"
        message, intake, cursor = event(2)
        assert (await record.accept([(LEFT, message)], intake, cursor)).duplicate
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.drawn(3)
@pytest.mark.loss("H1", "H8", "H10")
@legs
@pytest.mark.parametrize("point", ["applied", "logging", "logged", "ringing", "committed"])
async def test_a_reset_happens_whole_or_not_at_all(home: Path, play: Play, point: str, *, database: bool) -> None:
    """A crash in a reset leaves the old session open and routed, or ended with a linked successor that is routed."""
    assert "last" not in await play(home, last="reset", point=point)
    if not database:
        remove_database(home)
    async with Record.open(home) as record:
        route = await record.routes.read(KEY)
        assert route is not None
        old = await record.sessions.read(LEFT)
        if route.generation == 1:
            assert point in {"applied", "logging"}
            assert (route.session_id, old.state) == (LEFT, SessionState.OPEN)
            assert len(await record.sessions()) == 2
        else:
            assert point in {"logged", "ringing", "committed"}
            assert old.state == SessionState.ENDED
            new = await record.sessions.read(route.session_id)
            assert new.parent is not None
            assert new.parent.session_id == LEFT
        left = await told(record, LEFT)
        assert left[: len(LEFT_TOLD)] == LEFT_TOLD
        assert [text for _, text in left[len(LEFT_TOLD) :]] == ["/new"] * (route.generation - 1)
        await check_right(record)
        await begin_new(record, KEY)
        assert (await record.verify()).findings == []


async def fork_log(home: Path, words: str, other_words: str) -> None:
    """Give the left session a log that goes another way than its database after the last common entry."""
    async with Record.open(home) as record:
        await record.create_session(id=LEFT, source="crash")
        await record.create_session(id=RIGHT, source="crash")
        await record.append(LEFT, Message.user("common", id="common"))
    other = copy_home(home, "other")
    async with Record.open(home) as record:
        await record.append(LEFT, Message.user(words, id="one"))
    async with Record.open(other) as record:
        await record.append(LEFT, Message.user(other_words, id="two"))
        await record.append(LEFT, Message.user("and more", id="more"))
    shutil.copy(other / LEFT_LOG, home / LEFT_LOG)


@pytest.mark.loss("B26", "I7")
@pytest.mark.parametrize("other_words", ["same length", "a text of another length", "short"])
async def test_a_log_that_does_not_continue_stops_its_session_only(home: Path, other_words: str) -> None:
    """A log of another history: LogForked for that session, shown by verify, nothing overwritten, neighbours go on."""
    await fork_log(home, "SAME LENGTH", other_words)
    foreign = (home / LEFT_LOG).read_bytes()
    async with Record.open(home) as record:
        assert await told(record, LEFT) == [("common", "common"), ("one", "SAME LENGTH")]
        with pytest.raises(LogForked):
            await record.append(LEFT, Message.user("refused", id="refused"))
        await record.append(RIGHT, Message.user("fine", id="fine"))
        findings = (await record.verify()).findings
        assert {finding.session_id for finding in findings} == {LEFT}
        with pytest.raises(LogForked):
            await record.append(LEFT, Message.user("still refused", id="refused"))
        assert (home / LEFT_LOG).read_bytes() == foreign
    (home / LEFT_LOG).rename(home / "aside")
    async with Record.open(home) as record:
        assert await told(record, LEFT) == [("common", "common"), ("one", "SAME LENGTH")]
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.loss("B26", "D8")
async def test_a_log_ahead_of_a_restored_database_is_adopted(home: Path) -> None:
    """An older copy of the database is put back: what the logs hold beyond it comes back, in every session."""
    async with Record.open(home) as record:
        for session in (LEFT, RIGHT):
            await record.create_session(id=session, source="crash")
            await record.append(session, Message.user("early", id="early"))
    older = copy_home(home, "older")
    async with Record.open(home) as record:
        for number in range(1, 6):
            message, intake, cursor = event(number)
            await record.accept([(LEFT if number % 2 else RIGHT, message)], intake, cursor)
        async with record.turn(LEFT) as turn, turn.reply(id="said") as reply:
            await reply.write("words")
        before = [await told(record, session) for session in (LEFT, RIGHT)]
    remove_database(home)
    for path in older.glob("state.db*"):
        shutil.copy(path, home / path.name)
    async with Record.open(home) as record:
        assert [await told(record, session) for session in (LEFT, RIGHT)] == before
        assert await record.intake.cursor(CHANNEL, ACCOUNT) == "5"
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.loss("D9", "D13")
async def test_the_order_of_sessions_survives_a_rebuild(home: Path) -> None:
    """Sessions are listed by their latest commit; a database rebuilt from the logs lists them in the same order."""
    async with Record.open(home) as record:
        for name in ("c", "a", "d", "b"):
            await record.create_session(id=name, source="crash")
        for name in ("b", "d", "a", "c", "d"):
            await record.append(name, Message.user("more"))
        before = [session.id for session in await record.sessions()]
        assert before == ["d", "c", "a", "b"]
    remove_database(home)
    async with Record.open(home) as record:
        assert [session.id for session in await record.sessions()] == before
        await record.append("a", Message.user("more"))
        assert [session.id for session in await record.sessions()] == ["a", "d", "c", "b"]
