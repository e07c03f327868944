"""Slash commands through the program: what they do, and that what they say is in the record before it is shown."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from hansard import Record
from hansard.intake.commands import registry as commands
from tests.acceptance.stories_homes import assert_only_grew, logs
from tests.acceptance.stories_program import (
    Ended,
    Hansard,
    assert_whole,
    entries_of,
    notices,
    only_session,
    said,
    transcript,
    write_script,
)

ECHO = {"text": "I was told: {told}"}
COUNTING = ({"text": "First answer."}, {"text": "Second answer."}, {"text": "Third answer."}, {"text": "Later answer."})
"""Answers that tell how many came before them in the request."""


@pytest.fixture
def hansard(home: Path, tmp_path: Path) -> Hansard:
    """A model that repeats what it is told."""
    return Hansard(home, write_script(tmp_path / "script.toml", ECHO))


@pytest.fixture
def counting(home: Path, tmp_path: Path) -> Hansard:
    """A model that counts its answers."""
    return Hansard(home, write_script(tmp_path / "script.toml", *COUNTING))


async def talk(hansard: Hansard, *lines: str) -> Ended:
    """Say lines in a new session; it must end well."""
    ended = await hansard.run(said=lines)
    assert ended.code == 0
    return ended


async def assert_recorded(hansard: Hansard, ended: Ended) -> None:
    """Every word on standard error is a notice of some session: nothing was shown that is not recorded (L1)."""
    async with Record.open(hansard.home) as record:
        recorded = [
            text for session in await record.sessions() for text in notices(await record.load_transcript(session.id))
        ]
    left = ended.err
    for text in sorted(recorded, key=len, reverse=True):
        left = left.replace(text, "", 1)
    assert left.strip() == ""


async def test_help(hansard: Hansard) -> None:
    """/help lists every command with what it does, as one notice of the session."""
    ended = await talk(hansard, "/help")
    assert ended.out == ""
    for name in commands.names():
        assert re.search(rf"^/{name}\b.*\w", ended.err, re.MULTILINE)
    messages = await transcript(hansard.home, await only_session(hansard.home))
    assert notices(messages) == ["/help", commands.help_text()]
    await assert_recorded(hansard, ended)


async def test_a_command_is_never_said_to_the_model(hansard: Hansard) -> None:
    """Commands and their replies are notices: the model hears none of them. Two slashes stand for one that it hears."""
    ended = await talk(hansard, "/status", "/hlep", "//hlep", "/usr/bin is a path", "/ 1 2")
    assert ended.out == "I was told: /hlep\nI was told: /usr/bin is a path\nI was told: / 1 2\n"
    assert "There is no command /hlep. Did you mean /help?" in ended.err
    told = said(await transcript(hansard.home, await only_session(hansard.home)))
    assert [text for role, text in told if role == "user"] == ["/hlep", "/usr/bin is a path", "/ 1 2"]
    await assert_recorded(hansard, ended)


@pytest.mark.loss("D11", "H9")
async def test_title(hansard: Hansard) -> None:
    """/title names the session for every later start, changes nothing else, and is found with the database gone."""
    ended = await talk(hansard, "One.", "/title Trip to Rome", "/title", "Two.")
    assert ended.out == "I was told: One.\nI was told: Two.\n"
    assert ended.err.count("Title: Trip to Rome") == 2
    await assert_recorded(hansard, ended)
    session_id = await only_session(hansard.home)
    for path in hansard.home.glob("state.db*"):
        path.unlink()
    again = await hansard.run("-r", "Trip to Rome", "-p", "Three.")
    assert (again.code, again.out) == (0, "I was told: Three.\n")
    assert await only_session(hansard.home) == session_id


@pytest.mark.loss("H1", "H8", "H10")
async def test_new(hansard: Hansard) -> None:
    """/new ends the session and begins one that knows nothing of it; both are listed, and the reply names both."""
    ended = await talk(hansard, "One.", "/new Second try", "Two.", "/sessions")
    assert ended.out == "I was told: One.\nI was told: Two.\n"
    async with Record.open(hansard.home) as record:
        new, old = await record.sessions()
        assert (new.title, new.state, old.end_reason) == ("Second try", "open", "new")
        assert new.parent is not None
        assert new.parent.session_id == old.id
    assert f"A new session: {new.id}. The one before stays as {old.id}." in ended.err
    listed = ended.err[ended.err.index("/sessions") :]
    assert f" 1. {new.id}  Second try" in listed
    assert f" 2. {old.id}  One." in listed
    assert said(await transcript(hansard.home, new.id)) == [("user", "Two."), ("assistant", "I was told: Two.")]
    await assert_recorded(hansard, ended)
    await assert_whole(hansard.home, old.id, new.id)


@pytest.mark.loss("D3", "D19")
async def test_undo(counting: Hansard) -> None:
    """/undo takes exchanges back, from context and transcript, over a restart too; the record keeps every word."""
    ended = await talk(counting, "One.", "Two.", "Three.", "/undo 2", "Four.")
    assert ended.out == "First answer.\nSecond answer.\nThird answer.\nSecond answer.\n"
    assert "Undone: 4 messages, from “Two.” on." in ended.err
    session_id = await only_session(counting.home)
    before = logs(counting.home)
    again = await counting.run("-c", said=("Five.",))
    assert ": 4 messages." in again.err
    assert again.out.endswith("Third answer.\n")
    told = said(await transcript(counting.home, session_id))
    assert [text for role, text in told if role == "user"] == ["One.", "Four.", "Five."]
    async with Record.open(counting.home) as record:
        kept = [entry.text for entry in await entries_of(record, session_id)]
    assert {"Two.", "Three."} <= set(kept)
    assert_only_grew(counting.home, before)
    await assert_recorded(counting, ended)
    await assert_whole(counting.home, session_id)


async def test_nothing_to_undo(hansard: Hansard) -> None:
    """/undo and /retry before anything was said are answered, and do nothing."""
    ended = await talk(hansard, "/undo", "/retry")
    assert ended.out == ""
    assert "There is nothing to undo." in ended.err
    assert "There is nothing to ask again." in ended.err
    await assert_recorded(hansard, ended)


@pytest.mark.loss("D19", "I1")
async def test_retry(counting: Hansard) -> None:
    """/retry asks the same again: the message is there once, and the transcript holds the new answer in its place."""
    ended = await talk(counting, "One.", "Two.", "/retry", "Three.")
    assert ended.out == "First answer.\nSecond answer.\nSecond answer.\nThird answer.\n"
    session_id = await only_session(counting.home)
    told = said(await transcript(counting.home, session_id))
    assert told == [
        ("user", "One."),
        ("assistant", "First answer."),
        ("user", "Two."),
        ("assistant", "Second answer."),
        ("user", "Three."),
        ("assistant", "Third answer."),
    ]
    async with Record.open(counting.home) as record:
        turns = await record.turns.list(session_id)
    assert [turn.state for turn in turns] == ["completed"] * 4
    await assert_recorded(counting, ended)
    await assert_whole(counting.home, session_id)


@pytest.mark.loss("I4", "J1")
async def test_fork(counting: Hansard) -> None:
    """/fork goes on in a copy that knows what was said; the session itself stays as it was, and can be resumed."""
    ended = await talk(counting, "One.", "/fork Side", "Two.")
    assert ended.out.splitlines()[0] == "First answer."
    assert ended.out.splitlines()[-1] == "Second answer."
    async with Record.open(counting.home) as record:
        side = await record.resolve("Side")
        (main,) = [session for session in await record.sessions() if session.id != side.id]
        assert side.parent is not None
        assert side.parent.session_id == main.id
    exchange = [("user", "One."), ("assistant", "First answer.")]
    assert said(await transcript(counting.home, main.id)) == exchange
    assert said(await transcript(counting.home, side.id)) == [
        *exchange,
        ("user", "Two."),
        ("assistant", "Second answer."),
    ]
    again = await counting.run("-r", main.id, "-p", "Other two.")
    assert again.out == "Second answer.\n"
    await assert_recorded(counting, ended)
    await assert_whole(counting.home, main.id, side.id)


@pytest.mark.loss("A14", "F1", "F6")
async def test_queue_and_stop(home: Path, tmp_path: Path) -> None:
    """While an answer runs elsewhere: /queue records, says so and lists; /stop ends what runs and what waits.

    What waited has a turn that ended as interrupted, and is told to the model with what comes next.
    """
    stalling = {"text": "This much and no more", "stall": {"after_pieces": 2}}
    hansard = Hansard(home, write_script(tmp_path / "script.toml", stalling, ECHO))
    async with hansard.start() as first:
        await first.type("One.")
        await first.shows("This much")
        session_id = await only_session(home)
        async with hansard.start("-r", session_id, "--follow") as second:
            await second.type("/queue Two.")
            await first.tells("Queued.")
            async with hansard.start("-r", session_id, "--follow") as third:
                await third.type("/queue", "/stop")
                await third.tells("Waiting to be answered:\n- Two.")
                await third.tells("was asked to stop.")
                await first.shows("This much\n")
                await third.dismiss()
            await second.dismiss()
        await first.type("Three.")
        await first.shows("Three.")
        ended = await first.leave()
    messages = await transcript(home, session_id)
    assert [text for role, text in said(messages) if role == "user"] == ["One.", "Two.", "Three."]
    async with Record.open(home) as record:
        assert [turn.state for turn in await record.turns.list(session_id)] == [
            "interrupted",
            "interrupted",
            "completed",
        ]
    assert "Two." in said(messages)[-1][1]
    assert ended.code == 1, "a turn of its own did not complete"
    await assert_recorded(hansard, ended)
    await assert_whole(home, session_id)


async def test_busy(hansard: Hansard) -> None:
    """/busy changes the mode of this session for every later start, and of no other session."""
    ended = await talk(hansard, "/busy", "/busy queue", "/busy loud", "/new", "/busy")
    modes = re.findall(r"while an answer runs: (\w+)\.", ended.err)
    assert modes == ["interrupt", "queue", "interrupt"]
    assert "'loud' is none of interrupt, queue, steer." in ended.err
    async with Record.open(hansard.home) as record:
        _, old = await record.sessions()
    again = await hansard.run("-r", old.id, said=("/busy",))
    assert "while an answer runs: queue." in again.err
    await assert_recorded(hansard, ended)


async def test_status_and_usage(home: Path, tmp_path: Path) -> None:
    """/status names session, model and home; /usage sums what every request took, over restarts."""
    used = {"input_tokens": 30, "output_tokens": 7, "cost_micros": 1500}
    hansard = Hansard(home, write_script(tmp_path / "script.toml", {**ECHO, "usage": used}))
    first = await talk(hansard, "/usage", "One.", "Two.")
    assert "Nothing was used yet." in first.err
    session_id = await only_session(home)
    second = await hansard.run("-c", said=("Three.", "/usage", "/status"))
    assert f"{hansard.model}: 90 tokens in, 21 out, $0.0045" in second.err
    for shown in (session_id, hansard.model, str(home), "in order"):
        assert shown in second.err[second.err.index("/status") :]
    await assert_recorded(hansard, first)
    await assert_recorded(hansard, second)


async def test_one_count(hansard: Hansard) -> None:
    """Wherever the messages of a session are counted, the same are counted: what was said, not what Hansard told."""
    await talk(hansard, "One.", "/help", "/status", "Two.")
    ended = await hansard.run("-c", said=("/status", "/sessions"))
    counts = re.findall(r"(?:Messages|:|\() ?(\d+)(?: messages)?[,.]", ended.err)
    assert counts == ["4", "4", "4"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_a_signal_while_nobody_speaks(hansard: Hansard, number: signal.Signals, code: int) -> None:
    """A signal between two lines ends the program in order: the exit code names it, and nothing is wrong afterwards."""
    async with hansard.start() as program:
        await program.type("One.")
        await program.shows("I was told: One.\n")
        program.strike(number)
        assert await program.ended() == (code, "I was told: One.\n", "")
    await assert_whole(hansard.home, await only_session(hansard.home))
