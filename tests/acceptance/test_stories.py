"""Stories of lost words that people have published, told again with Hansard: each ends well."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from hansard import Chunk, Entry, Record
from hansard.app.wiring import open_app
from hansard.cli.talk import Talk
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Settings
from tests.acceptance.stories_homes import (
    LOSING_ALL,
    TITLE,
    Deed,
    answer,
    copy_home,
    exchange,
    history,
    make_home,
    restore_backup,
    restore_backup_only,
    rows_of,
    stranger,
)
from tests.acceptance.stories_interrupted import SHOWN, STALLING, assert_kept, assert_left_for, until_shown
from tests.acceptance.stories_program import (
    Hansard,
    assert_whole,
    followed,
    log_of,
    only_session,
    said,
    transcript,
    write_script,
)
from tests.acceptance.stories_terminal import READY, ChatTerminal
from tests.cli.terminal import tmux
from tests.counts import times
from tests.models.providers.behaviour import Behaviour
from tests.models.providers.server import Provider

ECHO = {"text": "I was told: {told}"}

HELD_SECONDS = times(test=0, long=10, prove=15)
"""How long a stranger holds the database at start-up."""

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture
def hansard(home: Path, tmp_path: Path) -> Hansard:
    """A model whose first answer stops half-way, and whose later ones repeat what they were told."""
    return Hansard(home, write_script(tmp_path / "script.toml", STALLING, ECHO))


@pytest.mark.loss("A1", "A2", "A7", "A13", "A14")
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
async def test_interrupted_delivery_by_a_signal(hansard: Hansard, number: signal.Signals) -> None:
    """A signal ends the program in the middle of an answer: what was shown is kept, and the next context says so."""
    async with hansard.asks("-p", "Tell me.") as program:
        await program.shows(SHOWN)
        program.strike(number)
        ended = await program.ended()
    assert (ended.code, ended.text) == (SIGNALS[number], SHOWN)
    session_id = await only_session(hansard.home)
    await assert_kept(hansard.home, session_id, SHOWN)
    after = await hansard.run("-c", "-p", "What happened?")
    assert after.code == 0
    assert "your reply above was interrupted" in after.out
    assert after.text.endswith("What happened?")
    await assert_kept(hansard.home, session_id, SHOWN)
    told = said(await transcript(hansard.home, session_id))
    assert told[2:] == [("user", "What happened?"), ("assistant", after.text)]


@pytest.mark.loss("A1", "A2", "A13", "A14", "B6")
async def test_interrupted_delivery_by_a_kill(hansard: Hansard) -> None:
    """SIGKILL in the middle of an answer: the next start closes the turn as lost, with every word that was shown."""
    async with hansard.asks("-p", "Tell me.") as program:
        await program.shows(SHOWN)
        program.strike(signal.SIGKILL)
        assert (await program.ended()).out == SHOWN
    after = await hansard.run("-c", "-p", "What happened?")
    assert "your reply above was interrupted" in after.out
    session_id = await only_session(hansard.home)
    await assert_kept(hansard.home, session_id, SHOWN)
    async with Record.open(hansard.home) as record:
        assert [turn.state for turn in await record.turns.list(session_id)] == ["lost", "completed"]


@pytest.mark.loss("A7", "A14", "F5", "I7")
async def test_interrupted_delivery_by_a_new_message(hansard: Hansard) -> None:
    """A second process speaks into a running answer: the words shown are kept, and the new message is answered.

    The first process ends by itself and says that its turn was interrupted: 1, not 0.
    """
    async with hansard.asks("-p", "Tell me.") as first:
        await first.shows(SHOWN)
        session_id = await only_session(hansard.home)
        second = await hansard.run("-r", session_id, "-p", "Never mind.")
        ended = await first.ended()
    assert (ended.code, ended.text) == (1, SHOWN)
    assert "hansard: this answer was interrupted: a new message came\n" in ended.err
    assert second.code == 0
    assert "your reply above was interrupted (a new message came)" in second.out
    await assert_kept(hansard.home, session_id, SHOWN)
    told = said(await transcript(hansard.home, session_id))
    assert told[2:] == [("user", "Never mind."), ("assistant", second.text)]


@pytest.mark.loss("A5")
async def test_interrupted_delivery_by_a_reader_that_leaves(hansard: Hansard, tmp_path: Path) -> None:
    """Who reads the pipe goes away in the middle of an answer: what was shown is kept, and the next turn runs."""
    long = write_script(tmp_path / "long.toml", {"text": "word " * 10_000, "delay_seconds": 0.002}, ECHO)
    talker = hansard._replace(model=long, is_forked=False)
    async with talker.asks("-p", "Tell me.") as program:
        await program.shows("word word")
        transport = program.process._transport.get_pipe_transport(1)  # type: ignore[union-attr] # noqa: SLF001
        transport.close()
        code = await asyncio.wait_for(program.process.wait(), 120)
        shown = program.out.decode()
    assert code == 141
    session_id = await only_session(hansard.home)
    _, reply = said(await transcript(hansard.home, session_id))
    assert reply[1].startswith(shown.removesuffix("\n"))
    after = await talker.run("-c", "-p", "What happened?")
    assert (after.code, after.text[-14:]) == (0, "What happened?")
    await assert_whole(hansard.home, session_id)


@pytest.mark.loss("A6", "A7", "D4", "I14")
async def test_interrupted_delivery_as_the_provider_hears_of_it(home: Path) -> None:
    """The request after an interruption holds the question, what was shown of the answer, and that it was cut."""
    pieces = ("All ", "of ", "this ", "was ", "shown")
    stalled = Behaviour(pieces=(*pieces, " but not this"), stall_after_events=1 + len(pieces))
    async with Provider("openai", [stalled, Behaviour(pieces=("Good.",))]) as provider:
        environment = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "none"}
        hansard = Hansard(home, "openai:test-model", environment)
        async with hansard.asks("-p", "Tell me.") as program:
            await program.shows("shown")
            program.strike(signal.SIGINT)
            ended = await program.ended()
        after = await hansard.run("-c", "-p", "Go on.")
        assert (ended.code, ended.text, after.code, after.out) == (130, "".join(pieces), 0, "Good.\n")
        _, *told = provider.answers[1].body["messages"]
    note = told.pop()["content"]
    assert told == [{"role": "user", "content": "Tell me."}, {"role": "assistant", "content": "".join(pieces)}]
    assert note.startswith("[Hansard: your reply above was interrupted")
    assert note.endswith("\n\nGo on.")


STRANGERS = {
    "immediate": ("BEGIN IMMEDIATE",),
    "exclusive": ("PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE"),
}
"""How another program holds the database: nobody else may write, or nobody else may even read."""


@pytest.mark.slow
@pytest.mark.loss("B2", "B5", "D4", "H3", "H5", "I1")
async def test_lock_at_start_up(tmp_path: Path) -> None:
    """The database is held before and during start: the person is told, then answered; nothing is missing.

    One home was left in order; one by a process that was killed in the middle of an answer; one is new.
    """
    model = write_script(tmp_path / "script.toml", STALLING, ECHO)
    homes = [Hansard(tmp_path / name, model) for name in ("orderly", "killed", "new")]
    for hansard in homes[:2]:
        async with hansard.asks("-p", "Tell me.") as program:
            await program.shows(SHOWN)
            program.strike(signal.SIGTERM if hansard is homes[0] else signal.SIGKILL)
            await program.ended()
    homes[2].home.mkdir()
    new = homes[2]._replace(model=write_script(tmp_path / "echo.toml", ECHO))
    async with (
        stranger(homes[0].home, *STRANGERS["immediate"]) as let_go_0,
        stranger(homes[1].home, *STRANGERS["exclusive"]) as let_go_1,
        stranger(homes[2].home, *STRANGERS["immediate"]) as let_go_2,
        homes[0].asks("-c", "-p", "Are you there?") as orderly,
        homes[1].start("-c") as killed,
        new.asks("-p", "Are you there?") as fresh,
    ):
        programs = (orderly, killed, fresh)
        await killed.type("Are you there?")
        for program in programs:
            await program.tells("waiting for the record")
        await asyncio.sleep(HELD_SECONDS)
        assert [program.out for program in programs] == [b"", b"", b""]
        for let_go in (let_go_0, let_go_1, let_go_2):
            let_go()
        for program in programs:
            await program.shows("Are you there?")
        ends = [await orderly.ended(), await killed.leave(), await fresh.ended()]
    assert [ended.code for ended in ends] == [0, 0, 0]
    for hansard, ended in zip(homes[:2], ends[:2], strict=True):
        session_id = await only_session(hansard.home)
        await assert_kept(hansard.home, session_id, SHOWN)
        asked, answered = said(await transcript(hansard.home, session_id))[2:]
        assert asked == ("user", "Are you there?")
        assert answered[1] in ended.out
        assert "your reply above was interrupted" in answered[1]
    told = said(await transcript(new.home, await only_session(new.home)))
    assert told == [("user", "Are you there?"), ("assistant", "I was told: Are you there?")]


@pytest.mark.loss("B2", "B15")
async def test_lock_after_start_up(home: Path, tmp_path: Path) -> None:
    """The database is held when somebody speaks, later than at start: the person is told, and answered afterwards."""
    hansard = Hansard(home, write_script(tmp_path / "echo.toml", ECHO))
    async with hansard.start() as program:
        await program.type("one")
        await program.shows("I was told: one\n")
        async with stranger(home, *STRANGERS["immediate"]) as let_go:
            await program.type("two")
            await program.tells("the record")
            let_go()
        await program.shows("I was told: two\n")
        assert (await program.leave()).code == 0
    session_id = await only_session(home)
    assert [text for role, text in said(await transcript(home, session_id)) if role == "user"] == ["one", "two"]
    await assert_whole(home, session_id)


async def test_a_second_signal_does_not_wait_for_the_record(hansard: Hansard) -> None:
    """The record cannot be written when an answer is interrupted: a second Ctrl-C leaves, and no word is lost."""
    async with hansard.asks("-p", "Tell me.") as program:
        await program.shows(SHOWN)
        session_id = await only_session(hansard.home)
        async with stranger(hansard.home, *STRANGERS["immediate"]):
            ending = asyncio.create_task(program.ended())
            while not ending.done():
                program.strike(signal.SIGINT)
                await asyncio.wait({ending}, timeout=0.5)
            ended = await ending
    assert (ended.code, ended.text) == (130, SHOWN)
    assert "left without waiting for the record" in ended.err
    await assert_kept(hansard.home, session_id, SHOWN)


@pytest.fixture(scope="session")
def two_hundred(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A closed home with 200 messages, and a backup of its database from before they were said."""
    home = tmp_path_factory.mktemp("two-hundred") / "home"
    return home, asyncio.run(make_home(home, 100, backup_after=0))


@pytest.fixture(scope="session")
def nine_hundred(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A closed home with 994 messages, and a backup of its database from when there were 2."""
    home = tmp_path_factory.mktemp("nine-hundred") / "home"
    return home, asyncio.run(make_home(home, 497, backup_after=1))


@pytest.mark.loss("A10", "B15", "B19", "D7", "D8", "D9", "H4")
@pytest.mark.parametrize("deed", LOSING_ALL, ids=lambda deed: deed.__name__)
async def test_200_messages_in_the_log_and_0_in_the_database(
    home: Path, tmp_path: Path, two_hundred: tuple[Path, str], deed: Deed
) -> None:
    """Whatever emptied the database, resuming gives back all 200 and speaking makes 202; the log only grew."""
    session_id = copy_home(two_hundred, home)
    before = log_of(home, session_id).read_bytes()
    deed(home)
    assert rows_of(home, session_id) == 0
    hansard = Hansard(home, write_script(tmp_path / "script.toml", ECHO))
    ended = await hansard.run("-r", session_id, said=("And after 100?",))
    assert (ended.code, ended.out) == (0, f"{answer(99)}\nI was told: And after 100?\n")
    assert ": 200 messages." in ended.err
    told = said(await transcript(home, session_id))
    assert len(told) == 202
    assert told == [*history(100), ("user", "And after 100?"), ("assistant", "I was told: And after 100?")]
    assert rows_of(home, session_id) >= 202
    assert log_of(home, session_id).read_bytes().startswith(before)
    await assert_whole(home, session_id)


@pytest.mark.loss("A10", "D4", "D7", "D9", "D16", "I9")
async def test_994_messages_in_the_log_and_the_first_2_in_the_database(
    home: Path, tmp_path: Path, nine_hundred: tuple[Path, str]
) -> None:
    """An old backup is restored: resuming gives back all 994 and speaking makes 996, in order; the log only grew."""
    session_id = copy_home(nine_hundred, home)
    before = log_of(home, session_id).read_bytes()
    restore_backup(home)
    assert rows_of(home, session_id) == 2
    hansard = Hansard(home, write_script(tmp_path / "script.toml", ECHO))
    ended = await hansard.run("-r", TITLE, said=("And after 497?",))
    assert (ended.code, ended.out) == (0, f"{answer(496)}\nI was told: And after 497?\n")
    assert ": 994 messages." in ended.err
    told = said(await transcript(home, session_id))
    assert len(told) == 996
    assert told == [*history(497), ("user", "And after 497?"), ("assistant", "I was told: And after 497?")]
    assert rows_of(home, session_id) >= 996
    assert log_of(home, session_id).read_bytes().startswith(before)
    await assert_whole(home, session_id)


@pytest.mark.loss("B13", "B14", "D7")
async def test_994_messages_and_a_backup_copied_over_a_live_wal(
    home: Path, tmp_path: Path, nine_hundred: tuple[Path, str]
) -> None:
    """A backup copied over the database, with the newer WAL left beside it: the logs give back all of it.

    The WAL that does not belong to the backup is kept, out of the way.
    """
    session_id = copy_home(nine_hundred, home)
    async with Record.open(home) as record:
        await exchange(record, session_id, 497)
    restore_backup_only(home)
    before = log_of(home, session_id).read_bytes()
    hansard = Hansard(home, write_script(tmp_path / "script.toml", ECHO))
    ended = await hansard.run("-r", session_id, "-p", "And after 498?")
    assert (ended.code, ended.text) == (0, "I was told: And after 498?")
    assert list(home.glob("state.db-wal.orphan-*"))
    assert said(await transcript(home, session_id))[:996] == history(498)
    assert log_of(home, session_id).read_bytes().startswith(before)
    await assert_whole(home, session_id)


@pytest.mark.loss("H1", "H8", "H10", "I9", "J1")
async def test_new_while_a_turn_runs(hansard: Hansard) -> None:
    """`/new` in the middle of an answer: its words stay in the old session, the next turn is in the new one only.

    Said in the process that runs the turn, as a terminal does.
    """
    shown: asyncio.Queue[Entry | Chunk] = asyncio.Queue()
    reports: list[BaseException] = []
    settings = Settings(model=hansard.model)
    async with open_app(hansard.home, settings, {}, lambda _, error: reports.append(error)) as app:
        talk = Talk(app, shown.put_nowait)
        await talk.take_line("Tell me.")
        old = talk.session_id
        await until_shown(shown)
        await talk.take_line("/new Another day")
        await talk.take_line("Good morning.")
        new = talk.session_id
        await until_shown(shown)
        async with asyncio.timeout(120):
            await app.runner.settled(old)
        await talk.close()
        await assert_left_for(hansard.home, old, new)
    assert reports == []
    async with Record.open(hansard.home) as record:
        assert (await record.sessions.read(new)).title == "Another day"
    assert said(await transcript(hansard.home, new)) == [("user", "Good morning."), ("assistant", SHOWN)]
    await assert_whole(hansard.home, old, new)


@pytest.mark.skipif(not tmux.is_there(), reason="tmux is not installed")
@pytest.mark.loss("H1", "H8", "H10", "J1")
async def test_new_while_a_turn_runs_in_a_terminal(hansard: Hansard, tmp_path: Path) -> None:
    """`/new` typed under an answer that is being shown: the screen shows both sessions, and the record has them."""
    with ChatTerminal(tmp_path, hansard) as terminal:
        await asyncio.to_thread(terminal.wait, READY)
        terminal.type("Tell me.")
        await asyncio.to_thread(terminal.wait, SHOWN)
        old = await only_session(hansard.home)
        terminal.type("/new Another day")
        await asyncio.to_thread(terminal.wait, "A new session: ")
        terminal.type("Good morning.")
        await asyncio.to_thread(terminal.wait, lambda screen: screen.count(SHOWN) == 2)
        async with Record.open(hansard.home) as record:
            new = await record.resolve("Another day")
        assert new.id in terminal.screen()
        await assert_left_for(hansard.home, old, new.id)
        terminal.leave()
    assert said(await transcript(hansard.home, new.id)) == [("user", "Good morning."), ("assistant", SHOWN)]
    await assert_whole(hansard.home, old, new.id)


@pytest.mark.loss("D13", "H1", "H2", "H8", "H10", "J1")
async def test_new_while_a_turn_runs_in_another_process(hansard: Hansard) -> None:
    """`/new` from a second terminal: the first one's answer ends where it is, and who stays is not moved along.

    Both go on: the second in the new session, the first in the old one, which is opened again and says so.
    """
    async with hansard.start() as first:
        await first.type("Tell me.")
        await first.shows(SHOWN)
        old = await only_session(hansard.home)
        async with hansard.start("-r", old, "--follow") as second:
            await second.shows(SHOWN)
            await second.type("/new", "Good morning.")
            await second.shows(SHOWN, times=2)
            async with Record.open(hansard.home) as record:
                (new,) = [session.id for session in await record.sessions() if session.id != old]
            await first.shows(f"{SHOWN}\n")
            await assert_left_for(hansard.home, old, new)
            await first.type("Still here.")
            await first.shows("Still here.")
            assert "it is open again" in first.err.decode()
        await assert_kept(hansard.home, old, SHOWN)
        told = said(await transcript(hansard.home, old))
        ended = await first.leave()
        assert told[2:] == [("user", "Still here."), ("assistant", ended.text.removeprefix(f"{SHOWN}\n"))]
        assert ended.code == 1  # its first turn was interrupted
    await assert_whole(hansard.home, old, new)


@pytest.mark.loss("D15", "D16", "F1", "I1", "I5", "I7")
async def test_two_processes_on_one_session(home: Path, tmp_path: Path) -> None:
    """Two terminals speak at once: every message is answered once, seqs have no gap, both show the same words live."""
    script = write_script(tmp_path / "script.toml", {"text": "I heard: {last}", "delay_seconds": 0.01})
    hansard = Hansard(home, script)
    both = [f"{who} says {number}." for number in range(6) for who in ("The first", "The second")]
    async with hansard.start("--busy", "queue") as first:
        await first.type("Who is there?")
        await first.shows("I heard: Who is there?\n")
        session_id = await only_session(home)
        options = ("-r", session_id, "--follow", "--busy", "queue")
        async with hansard.start(*options) as second, hansard.start(*options, "--json") as watcher:
            await second.shows("I heard: Who is there?\n")
            await watcher.shows("Who is there?")
            await first.type(*both[::2])
            await second.type(*both[1::2])
            for program in (first, second, watcher):
                for text in both:
                    await program.shows(text)
            await asyncio.gather(
                *(program.until(lambda program: program.out.endswith(b".\n")) for program in (first, second))
            )
            messages = await transcript(home, session_id)
            ends = [await first.leave(), await second.dismiss(), await watcher.dismiss()]
    assert ends[0].code == 0
    asked = [text for role, text in said(messages) if role == "user"]
    replies = [text for role, text in said(messages) if role == "assistant"]
    assert sorted(asked) == sorted(["Who is there?", *both])
    for who in (0, 1):
        assert [text for text in asked if text in both[who::2]] == both[who::2]
    for text in asked:
        assert "\n".join(replies).count(text) == 1, f"{text!r} was not answered exactly once"
    assert ends[0].out == ends[1].out == "".join(f"{text}\n" for text in replies)
    items = [json.loads(line) for line in ends[2].out.splitlines()]
    added = [item["body"] for item in items if item.get("kind") == "message.added"]
    assert [body["parts"][0]["text"] for body in added if body["role"] == "user"] == asked
    async with Record.open(home) as record:
        assert {turn.state for turn in await record.turns.list(session_id)} == {TurnState.COMPLETED}
    await assert_whole(home, session_id)


@pytest.mark.loss("A14", "D15", "F1", "F6")
async def test_two_processes_on_one_session_and_a_question_that_waits(home: Path, tmp_path: Path) -> None:
    """A second process queues its question behind an answer that runs in a first one: both are answered to the end.

    The first process leaves when its own answer is done; whoever runs the second turn, that does not end it.
    """
    slow = {"text": "one two three four", "stall": {"after_pieces": 2, "seconds": 10.0}}
    hansard = Hansard(home, write_script(tmp_path / "script.toml", slow, {**ECHO, "delay_seconds": 0.1}))
    async with hansard.asks("-p", "Count.") as first:
        await first.shows("one two")
        session_id = await only_session(home)
        async with hansard.asks("-r", session_id, "--busy", "queue", "-p", "And then?") as second:
            async with Record.open(home) as record:
                await followed(record, session_id, lambda entry: entry.text == "And then?")
            assert first.out == b"one two", "the question has to wait for something"
            ends = [await first.ended(), await second.ended()]
    assert [(ended.code, ended.text) for ended in ends] == [(0, "one two three four"), (0, "I was told: And then?")]
    told = said(await transcript(home, session_id))
    assert told[2:] == [("user", "And then?"), ("assistant", "I was told: And then?")]
    await assert_whole(home, session_id)
