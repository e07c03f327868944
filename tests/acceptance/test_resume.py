"""Resume: the right session comes back, whole, is told from, and only ever grows."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from hansard import Message, Record
from tests.acceptance.stories_homes import (
    answer,
    assert_only_grew,
    converse,
    delete_database,
    history,
    logs,
    make_home,
    question,
)
from tests.acceptance.stories_program import (
    Ended,
    Hansard,
    assert_whole,
    followed,
    notices,
    only_session,
    said,
    transcript,
    write_script,
)
from tests.acceptance.stories_terminal import READY, ChatTerminal
from tests.cli.terminal import tmux
from tests.models.providers.behaviour import Behaviour
from tests.models.providers.server import Provider

TRIP, BOOK = "20250101-080000-trip22", "20250102-080000-book22"
"""Two sessions; the second is the later one."""

ECHO = {"text": "I was told: {told}"}


class Place(NamedTuple):
    """A home with two sessions of three exchanges each, and the program on it."""

    hansard: Hansard
    before: dict[Path, bytes]

    @property
    def home(self) -> Path:
        """The home."""
        return self.hansard.home


@pytest.fixture
async def place(home: Path, tmp_path: Path) -> Place:
    """Two sessions with titles, both open."""
    async with Record.open(home) as record:
        for id, title in ((TRIP, "Trip to Rome"), (BOOK, "A good book")):
            await record.create_session(id=id, source="cli", title=title)
            await converse(record, id, 0, 3)
    return Place(Hansard(home, write_script(tmp_path / "script.toml", ECHO)), logs(home))


async def assert_went_on(place: Place, session_id: str, *spoken: str) -> None:
    """What was said stands after the three exchanges of that session; the other one is as it was; both are whole."""
    expected = [each for text in spoken for each in (("user", text), ("assistant", f"I was told: {text}"))]
    assert said(await transcript(place.home, session_id)) == [*history(3), *expected]
    other = TRIP if session_id == BOOK else BOOK
    assert said(await transcript(place.home, other)) == history(3)
    assert_only_grew(place.home, place.before)
    await assert_whole(place.home, TRIP, BOOK)


NAMES = {
    "id": (("-r", TRIP), TRIP),
    "prefix": (("-r", TRIP[:8]), TRIP),
    "title": (("-r", "Trip to Rome"), TRIP),
    "long option": (("--resume", BOOK), BOOK),
    "continue": (("-c",), BOOK),
}
names = pytest.mark.parametrize(("arguments", "session_id"), NAMES.values(), ids=NAMES)


@pytest.mark.drawn(2)
@pytest.mark.loss("D4", "D13", "D18", "L6")
@names
async def test_resume_and_speak(place: Place, arguments: tuple[str, ...], session_id: str) -> None:
    """Named by id, by its beginning, by title or as the latest: it shows the last exchange, counts, and goes on."""
    ended = await place.hansard.run(*arguments, said=("And now?", "And then?"))
    assert ended.code == 0
    assert ended.out == f"{answer(2)}\nI was told: And now?\nI was told: And then?\n"
    assert f"Resumed {session_id}" in ended.err
    assert ": 6 messages." in ended.err
    assert ended.err.strip() in "\n".join(notices(await transcript(place.home, session_id)))
    await assert_went_on(place, session_id, "And now?", "And then?")


@pytest.mark.drawn(2)
@pytest.mark.loss("D4", "D13")
@names
async def test_resume_for_one_question(place: Place, arguments: tuple[str, ...], session_id: str) -> None:
    """With -p only the answer is printed; the question and the answer are in the session that was named."""
    ended = await place.hansard.run(*arguments, "-p", "And now?")
    assert (ended.code, ended.out, ended.err) == (0, "I was told: And now?\n", "")
    await assert_went_on(place, session_id, "And now?")


@pytest.mark.loss("D4", "D18")
@pytest.mark.parametrize("options", [(), ("--follow",)], ids=["resume", "follow"])
async def test_the_last_exchange_is_shown(place: Place, options: tuple[str, ...]) -> None:
    """Both sides of the last exchange, and nothing before it; who only follows leaves no trace."""
    async with place.hansard.start("-r", TRIP, "--json", *options) as program:
        await program.shows("turn.ended")
        ended = await (program.dismiss() if options else program.leave())
    assert question(2) in ended.out.splitlines()[0]
    assert answer(2) in ended.out
    assert answer(1) not in ended.out
    if options:
        assert logs(place.home) == place.before
    await assert_went_on(place, TRIP)


@pytest.mark.loss("D13", "D18")
async def test_resume_without_a_word(place: Place) -> None:
    """Nothing on standard input: the last exchange and the count are shown all the same."""
    ended = await place.hansard.run("-r", TRIP)
    assert (ended.code, ended.out) == (0, f"{answer(2)}\n")
    assert f"Resumed {TRIP} “Trip to Rome”: 6 messages." in ended.err
    await assert_went_on(place, TRIP)


@pytest.mark.drawn(1)
@pytest.mark.loss("H2")
@pytest.mark.parametrize("way", ["resume", "question", "command"])
async def test_an_ended_session_is_opened_again(place: Place, way: str) -> None:
    """A session that had ended takes words again, whichever way it is resumed, and the person is told so."""
    async with Record.open(place.home) as record:
        await record.end_session(TRIP, "done")
    if way == "resume":
        ended = await place.hansard.run("-r", TRIP, said=("And now?",))
    elif way == "question":
        ended = await place.hansard.run("-r", TRIP, "-p", "And now?")
    else:
        ended = await place.hansard.run("-r", BOOK, said=("/resume Trip to Rome", "And now?"))
    assert ended.code == 0
    assert ended.out.endswith("I was told: And now?\n")
    assert "open again" in ended.err
    assert "open again" in "\n".join(notices(await transcript(place.home, TRIP)))
    async with Record.open(place.home) as record:
        assert (await record.sessions.read(TRIP)).state == "open"
    await assert_went_on(place, TRIP, "And now?")


async def refused(place: Place, *arguments: str) -> Ended:
    """Run what must be refused: exit 2, nothing on standard output, and not a byte of any log is changed."""
    ended = await place.hansard.run(*arguments, said=("And now?",))
    assert (ended.code, ended.out) == (2, "")
    assert logs(place.home) == place.before
    async with Record.open(place.home) as record:
        assert {session.id for session in await record.sessions()} == {TRIP, BOOK}
    return ended


WAYS = pytest.mark.parametrize("options", [(), ("-p", "x"), ("--follow",)], ids=["talk", "question", "follow"])


@pytest.mark.loss("D13", "D14")
@WAYS
async def test_a_session_that_is_not_there(place: Place, options: tuple[str, ...]) -> None:
    """A name that nothing has is an error that repeats the name; no other session is taken, none is made."""
    ended = await refused(place, "-r", "Trip to Mars", *options)
    assert "Trip to Mars" in ended.err


@pytest.mark.drawn(2)
@pytest.mark.loss("D13")
@WAYS
@pytest.mark.parametrize("name", ["2025", "Twins"])
async def test_a_name_that_several_sessions_have(place: Place, options: tuple[str, ...], name: str) -> None:
    """Nothing is chosen silently: the candidates are listed, and nothing else happens."""
    async with Record.open(place.home) as record:
        for id in (TRIP, BOOK):
            await record.set_title(id, "Twins")
    ended = await refused(place._replace(before=logs(place.home)), "-r", name, *options)
    assert TRIP in ended.err
    assert BOOK in ended.err


@pytest.mark.loss("D13")
async def test_nothing_to_continue(place: Place, tmp_path: Path) -> None:
    """-c in a home without a session, and -r without a name where nobody can choose: errors, and nothing is made."""
    empty = place.hansard._replace(home=tmp_path / "empty")
    for words in (("-c", "-p", "x"), ("-c",), ("-r",)):
        ended = await empty.run(*words)
        assert (ended.code, ended.out) == (2, "")
        assert f"there is no record at {tmp_path / 'empty'}" in ended.err
        assert "Nothing was created." in ended.err
        assert not (tmp_path / "empty").exists()
    async with Record.open(tmp_path / "empty"):
        pass
    ended = await empty.run("-c", "-p", "x")
    assert (ended.code, ended.out) == (2, "")
    assert "there is no session to continue" in ended.err
    async with Record.open(tmp_path / "empty") as record:
        assert await record.sessions() == []
    assert "name the session" in (await refused(place, "-r")).err


@pytest.mark.loss("D4", "D18")
async def test_the_last_exchange_is_shown_whoever_wrote_it(place: Place) -> None:
    """An answer that came whole, as an import writes it, is shown like one that was streamed."""
    async with Record.open(place.home) as record:
        await record.append(TRIP, Message.user("Was it imported?"))
        await record.append(TRIP, Message.assistant("It was, in one piece."))
    ended = await place.hansard.run("-r", TRIP, said=("And now?",))
    assert ended.out == "It was, in one piece.\nI was told: And now?\n"
    assert ": 8 messages." in ended.err


COMMANDS = {
    "number": "/resume 3",
    "id": f"/resume {TRIP}",
    "prefix": f"/resume {TRIP[:8]}",
    "title": "/resume trip to rome",
}


@pytest.mark.drawn(2)
@pytest.mark.loss("D13", "H1", "H9", "J1", "L6")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
async def test_the_command_resume(place: Place, command: str) -> None:
    """/sessions lists, /resume goes there by number, id, beginning or title; the session that was left ends as that.

    What is said next is in the session that was resumed, and comes out of all of it.
    """
    async with place.hansard.start() as program:
        await program.type("A new one.", "/sessions", command, "And now?")
        await program.shows("I was told: And now?\n")
        ended = await program.leave()
    assert ended.out == f"I was told: A new one.\n{answer(2)}\nI was told: And now?\n"
    listed = [line.split() for line in ended.err.splitlines() if line.strip()[:2] in {"1.", "2.", "3."}]
    assert [(line[0], line[1]) for line in listed[1:]] == [("2.", BOOK), ("3.", TRIP)]
    assert f"Resumed {TRIP} “Trip to Rome”: 6 messages." in ended.err
    async with Record.open(place.home) as record:
        left = await record.sessions.read(listed[0][1])
        assert (left.state, left.end_reason) == ("ended", "resumed_other")
        assert (await record.sessions.read(TRIP)).state == "open"
        assert len(await record.sessions()) == 3
    assert said(await transcript(place.home, left.id)) == [
        ("user", "A new one."),
        ("assistant", "I was told: A new one."),
    ]
    await assert_went_on(place, TRIP, "And now?")


@pytest.mark.loss("D13", "H9")
@pytest.mark.parametrize("source", ["environment", "file"])
async def test_a_session_that_is_left_may_stay_open(place: Place, source: str) -> None:
    """left_sessions = "keep": resuming another session ends nothing."""
    hansard = place.hansard
    if source == "environment":
        hansard = hansard._replace(environment={"HANSARD_LEFT_SESSIONS": "keep"})
    else:
        (place.home / "config.toml").write_text('left_sessions = "keep"\n')
    ended = await hansard.run("-r", BOOK, said=(f"/resume {TRIP}", "And now?"))
    assert ended.code == 0
    async with Record.open(place.home) as record:
        assert [session.state for session in await record.sessions()] == ["open", "open"]
    await assert_went_on(place, TRIP, "And now?")


@pytest.mark.loss("D13", "D14", "J6")
async def test_the_command_resume_refuses(place: Place) -> None:
    """A name that is missing, ambiguous or of another owner is told, and the conversation stays where it is."""
    async with Record.open(place.home) as record:
        secret = await record.create_session(source="test", owner="person:other", title="Secret")
        await converse(record, secret.id, 0, 1)
    asked = ("/resume Nowhere", "/resume 2025", "/resume Secret", f"/resume {secret.id}", "/resume 99", "/sessions")
    ended = await place.hansard.run("-c", said=(*asked, "And now?"))
    assert ended.out == f"{answer(2)}\nI was told: And now?\n"
    assert "'Nowhere'" in ended.err
    assert "Several sessions match:" in ended.err
    assert all(ended.err.count(f"{id}  ") >= 2 for id in (TRIP, BOOK))
    assert f"{secret.id}  " not in ended.err, "another owner's session is not listed"
    assert "Resumed" not in ended.err.replace(f"Resumed {BOOK} “A good book”: 6 messages.", "")
    await assert_went_on(place, BOOK, "And now?")


@pytest.mark.loss("D4", "D5", "C3", "I14")
async def test_every_generation_after_a_resume_is_built_from_the_full_record(home: Path) -> None:
    """Each of three requests after a resume holds every message before it, in its role and in order; so do later ones.

    The database is gone in between: what the model is told comes from the record, not from one of its files.
    """
    session_id = await make_home(home, 20, backup_after=0)
    delete_database(home)
    asked = [f"Number {number}?" for number in range(3)]
    async with Provider("openai", [Behaviour(pieces=("Told: ", "{last}"))]) as provider:
        environment = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "none"}
        ended = await Hansard(home, "openai:test-model", environment).run("-r", session_id, said=tuple(asked))
        requests = [exchange.body["messages"] for exchange in provider.answers]
    assert ended.code == 0
    assert len(requests) == 3
    whole = history(20) + [each for text in asked for each in (("user", text), ("assistant", f"Told: {text}"))]
    assert said(await transcript(home, session_id)) == whole
    for number, (system, *messages) in enumerate(requests):
        assert system["role"] == "system"
        told = [(message["role"], message["content"]) for message in messages]
        assert told == whole[: 41 + 2 * number]


STALLED = {"text": "This much and no more", "stall": {"after_pieces": 2}}


async def leave_a_question_waiting(hansard: Hansard) -> str:
    """Let one process answer and another one queue a question behind that; kill both with SIGKILL."""
    async with hansard.asks("-p", "First?") as answering:
        await answering.shows("This much")
        session_id = await only_session(hansard.home)
        async with hansard.asks("-r", session_id, "--busy", "queue", "-p", "Second?") as waiting:
            async with Record.open(hansard.home) as record:
                await followed(record, session_id, lambda entry: entry.text == "Second?")
            waiting.strike(signal.SIGKILL)
            await waiting.ended()
        answering.strike(signal.SIGKILL)
        await answering.ended()
    return session_id


@pytest.mark.drawn(1)
@pytest.mark.loss("A1", "A2", "A13", "A14", "F1", "F16")
@pytest.mark.parametrize("way", ["open", "closed", "question"])
async def test_a_restart_keeps_the_queue(home: Path, tmp_path: Path, way: str) -> None:
    """A question that waited when every process was killed is answered at the next start, once.

    With nobody saying anything, with standard input at its end, or together with the next question.
    """
    hansard = Hansard(home, write_script(tmp_path / "script.toml", STALLED, ECHO))
    session_id = await leave_a_question_waiting(hansard)
    before = logs(home)
    if way == "open":
        async with hansard.start("-c") as program:
            await program.shows("Second?")
            ended = await program.leave()
    else:
        ended = await hansard.run("-c", *(("-p", "Third?") if way == "question" else ()))
    assert ended.code == 0
    asked = ["Second?", "Third?"] if way == "question" else ["Second?"]
    assert ended.text.endswith("\n\n".join(asked))
    messages = [message for message in await transcript(home, session_id) if message.role != "notice"]
    assert [message.text for message in messages if message.role == "user"] == ["First?", *asked]
    replies = [message for message in messages if message.role == "assistant"]
    assert [(reply.text, reply.status) for reply in replies[:1]] == [("This much", "interrupted")]
    assert len(replies) == 2
    assert "your reply above was interrupted" in replies[1].text
    async with Record.open(home) as record:
        assert [turn.state for turn in await record.turns.list(session_id)] == ["lost", "completed"]
    assert_only_grew(home, before)
    await assert_whole(home, session_id)


@pytest.mark.loss("A14", "H3")
async def test_a_queue_waits_for_its_own_session(home: Path, tmp_path: Path) -> None:
    """Starts in other sessions neither answer nor lose what waits here."""
    hansard = Hansard(home, write_script(tmp_path / "script.toml", STALLED, ECHO))
    session_id = await leave_a_question_waiting(hansard)
    other = Hansard(home, write_script(tmp_path / "other.toml", ECHO))
    assert (await other.run("-p", "Elsewhere.")).out == "I was told: Elsewhere.\n"
    async with Record.open(home) as record:
        assert [turn.session_id for turn in await record.turns.list_queued()] == [session_id]
    async with hansard.start("-r", session_id) as program:
        await program.shows("Second?")
        assert (await program.leave()).code == 0


IN_TERMINAL = pytest.mark.skipif(not tmux.is_there(), reason="tmux is not installed")


@pytest.mark.drawn(1)
@IN_TERMINAL
@pytest.mark.loss("D4", "D13", "D18")
@pytest.mark.parametrize("way", ["named", "picked", "command"])
async def test_resume_in_a_terminal(place: Place, tmp_path: Path, way: str) -> None:
    """On a screen too: both sides of the last exchange, how many came back, and the next words in that session."""
    arguments = {"named": ("-r", "Trip to Rome"), "picked": ("-r",), "command": ("-c",)}[way]
    with ChatTerminal(tmp_path, place.hansard, *arguments) as terminal:
        if way == "picked":
            await asyncio.to_thread(terminal.wait, "A good book")
            terminal.type("rome")
        elif way == "command":
            await asyncio.to_thread(terminal.wait, READY)
            terminal.type("/resume trip to rome")
        shown = await asyncio.to_thread(terminal.wait, f"Resumed {TRIP} “Trip to Rome”: 6 messages.")
        assert question(2) in shown
        assert answer(2) in shown
        assert question(1) not in shown
        terminal.type("And now?")
        await asyncio.to_thread(terminal.wait, "I was told: And now?")
        terminal.leave()
    await assert_went_on(place, TRIP, "And now?")
