"""`hansard -p`, as a script uses it: standard output is the answer and nothing else, and the exit code is the truth."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from hansard import Entry, Message, Record, Role, Status, TurnState
from hansard.domain.sessions import TURN_ENDS
from tests.acceptance.shown.nursery import ROOT
from tests.acceptance.shown.program import COMMAND, Program, environment, run

ECHO = """
[[answers]]
text = "You said: {last}"
"""
SLOW = """
[[answers]]
text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
delay_seconds = 0.05
"""
NEVER_ENDS = """
[[answers]]
text = "the beginning of it"
stall = { after_pieces = 2 }
"""
REFUSED = """
[[answers]]
failures = [{ kind = "refused", text = "The provider refused the request (400)" }]
"""
CUT = """
[[answers]]
text = "Grüße und 漢字 and then more"
failures = [{ kind = "cut", text = "The connection broke", after_pieces = 3 }]

[[answers]]
text = "and the rest."
"""
TOOL = """
[[answers]]
text = "Let me look."
reasoning = "A tool would know."
calls = [{ name = "current_time", arguments = '{"time_zone": "UTC"}' }]

[[answers]]
text = "It is late."
"""


class Ended(NamedTuple):
    """What a process left to see."""

    code: int
    output: bytes
    errors: str


class Ask:
    """`hansard` on one home with one script."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.variables = environment(folder)
        self._script = folder / "script.toml"

    def options(self, script: str) -> list[object]:
        """Return the options that every call has."""
        self._script.write_text(script)
        return ["--home", self.home, "-m", f"scripted:{self._script}"]

    async def __call__(self, script: str, *arguments: object, stdin: bytes | None = None) -> Ended:
        """Run it to its end."""
        options = self.options(script)
        return Ended(*await run(*options, *arguments, variables=self.variables, stdin=stdin))

    async def sessions(self) -> list[str]:
        """Return the ids of the sessions that there are, the latest first."""
        async with Record.open(self.home) as record:
            return [session.id for session in await record.sessions()]

    async def transcript(self, session_id: str = "") -> list[Message]:
        """Return what was said in a session, or in the latest, in a record that is in order and has no turn left."""
        async with Record.open(self.home) as record:
            session_id = session_id or (await record.sessions())[0].id
            assert (await record.verify()).ok
            assert {turn.state for turn in await record.turns.list(session_id)} <= TURN_ENDS
            return await record.load_transcript(session_id)

    async def ends(self) -> list[TurnState]:
        """Return how the turns of the latest session ended."""
        async with Record.open(self.home) as record:
            return [turn.state for turn in await record.turns.list((await record.sessions())[0].id)]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """A home and a way to ask."""
    return Ask(tmp_path)


def said(messages: list[Message], role: Role) -> list[tuple[str, Status]]:
    """Return the texts of one role, and how far each got."""
    return [(message.text, message.status) for message in messages if message.role == role]


async def test_the_answer_and_a_newline(ask: Ask) -> None:
    """Standard output is the text and one newline, standard error is empty, the exit code is 0."""
    assert await ask(ECHO, "-p", "Grüße, 漢字 🙂") == (0, "You said: Grüße, 漢字 🙂\n".encode(), "")
    messages = await ask.transcript()
    assert said(messages, Role.USER) == [("Grüße, 漢字 🙂", Status.COMPLETE)]
    assert said(messages, Role.ASSISTANT) == [("You said: Grüße, 漢字 🙂", Status.COMPLETE)]


@pytest.mark.parametrize("variable", ["NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"])
async def test_colour_is_no_matter_on_a_pipe(ask: Ask, variable: str) -> None:
    """Whatever the environment says of colour, a pipe is given the text as it is, control characters included."""
    script = '[[answers]]\ntext = "plain \\u001b[31m **bold** \\u0007"\n'
    ask.variables[variable] = "1"
    assert (await ask(script, "-p", "q")).output == b"plain \x1b[31m **bold** \x07\n"


async def test_every_message_of_a_turn_ends_its_line(ask: Ask) -> None:
    """A turn with a tool says two messages: each is a line of its own, and reasoning, call and result are not shown."""
    assert await ask(TOOL, "-p", "what time is it?") == (0, b"Let me look.\nIt is late.\n", "")
    messages = await ask.transcript()
    assert [message.role for message in messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]


@pytest.mark.loss("A6", "A7")
async def test_a_cut_answer_goes_on_in_a_new_message(ask: Ask) -> None:
    """What came before the cut and what came after it are printed and recorded; the notice is not in the answer."""
    ended = await ask(CUT, "-p", "q")
    assert (ended.code, ended.output) == (0, "Grüße und 漢字\nand the rest.\n".encode())
    messages = await ask.transcript()
    assert said(messages, Role.ASSISTANT) == [
        ("Grüße und 漢字", Status.INTERRUPTED),
        ("and the rest.", Status.COMPLETE),
    ]
    assert [f"{text}\n" for text, _ in said(messages, Role.NOTICE)] == [ended.errors]


async def test_a_failure_is_told_on_standard_error(ask: Ask) -> None:
    """A model that refuses: exit code 1, nothing on standard output, and the notice is the recorded one."""
    ended = await ask(REFUSED, "-p", "q")
    assert (ended.code, ended.output) == (1, b"")
    messages = await ask.transcript()
    assert said(messages, Role.USER) == [("q", Status.COMPLETE)]
    assert [f"{text}\n" for text, _ in said(messages, Role.NOTICE)] == [ended.errors]
    assert "refused the request (400)" in ended.errors
    assert await ask.ends() == [TurnState.FAILED]


@pytest.mark.loss("A1", "A6")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
async def test_a_signal_ends_it_and_the_record_knows(ask: Ask, number: signal.Signals, code: int) -> None:
    """A signal in the middle of an answer: the shell's exit code, and what was printed is recorded as interrupted."""
    options = ask.options(NEVER_ENDS)
    async with await Program.start(*options, "-p", "q", variables=ask.variables) as program:
        assert await program.prints(len(b"the beginning"))
        program.send(number)
        assert await program.ended() == code
    assert bytes(program.output) == b"the beginning"
    assert program.stderr == ""
    assert said(await ask.transcript(), Role.ASSISTANT) == [("the beginning", Status.INTERRUPTED)]
    assert await ask.ends() == [TurnState.LOST if number == signal.SIGKILL else TurnState.INTERRUPTED]


@pytest.mark.loss("A1", "A6")
async def test_a_reader_that_leaves(ask: Ask) -> None:
    """`| head`: no traceback, the exit code of a closed pipe, the turn is ended, and what was read is recorded."""
    command = [*COMMAND, *map(str, ask.options(SLOW)), "-p", "count"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=ask.variables, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        read = process.stdout.read(7)
        process.stdout.close()
        errors = await asyncio.to_thread(process.stderr.read)
        code = process.wait(timeout=120)
    assert (code, errors) == (141, b"")
    [(text, status)] = said(await ask.transcript(), Role.ASSISTANT)
    assert text.startswith(read.decode())
    assert status == Status.INTERRUPTED
    assert await ask.ends() == [TurnState.INTERRUPTED]


async def test_json_lines_are_what_a_follower_was_given(ask: Ask) -> None:
    """`--json` prints the entries of the turn in their order, with the chunks between them, and nothing else."""
    ended = await ask(TOOL, "--json", "-p", "what time is it?")
    items = [json.loads(line) for line in ended.output.splitlines()]
    entries = [item for item in items if item["type"] == "entry"]
    async with Record.open(ask.home) as record:
        recorded = await record.sessions.read_entries((await record.sessions())[0].id)
    first = next(index for index, entry in enumerate(recorded) if entry.kind == "message.added")
    assert [(entry["id"], entry["seq"], entry["kind"]) for entry in entries] == [
        (entry.id, entry.seq, entry.kind) for entry in recorded[first:]
    ]
    assert entries[-1]["kind"] == "turn.ended"
    chunks = [item for item in items if item["type"] == "chunk"]
    assert "".join(item["text"] for item in chunks if item["part"] == "text") == "Let me look.It is late."
    assert "".join(item["text"] for item in chunks if item["part"] == "reasoning") == "A tool would know."
    assert (ended.code, ended.errors) == (0, "")


@pytest.mark.parametrize(
    ("prompt", "stdin", "question"),
    [
        ("sum up", b"first\nsecond\n", "sum up\n\nfirst\nsecond"),
        ("", "nur Ärger\n".encode(), "nur Ärger"),
        ("q", b"", "q"),
        ("q", b"not \xff text\n", "q\n\nnot \ufffd text"),
        ("two\nlines", None, "two\nlines"),
        ("/help", None, "/help"),
        pytest.param("-x", None, "-x", id="dash"),
        pytest.param("- a list\n- of things", None, "- a list\n- of things", id="dashes"),
    ],
)
async def test_the_question_and_standard_input_are_one_message(
    ask: Ask, prompt: str, stdin: bytes | None, question: str
) -> None:
    """The option's text comes first and then standard input; what is recorded is what the model was asked."""
    option = [f"--prompt={prompt}"] if prompt else ["-p"]
    ended = await ask(ECHO, *option, stdin=stdin)
    assert (ended.code, ended.output) == (0, f"You said: {question}\n".encode())
    assert said(await ask.transcript(), Role.USER) == [(question, Status.COMPLETE)]


async def test_a_question_of_a_megabyte(ask: Ask) -> None:
    """A long question from standard input is recorded to its last character, and answered."""
    question = "".join(f"{number} ünïcode\n" for number in range(70_000)).strip()
    assert len(question.encode()) > 1_000_000
    ended = await ask('[[answers]]\ntext = "Long."\n', "-p", stdin=question.encode())
    assert ended == (0, b"Long.\n", "")
    assert said(await ask.transcript(), Role.USER) == [(question, Status.COMPLETE)]


@pytest.mark.parametrize(("prompt", "stdin"), [("", None), ("", b""), ("   ", b"\n\n"), ("", b" \n")])
async def test_nothing_asked(ask: Ask, prompt: str, stdin: bytes | None) -> None:
    """An empty question is refused with exit code 2 and a hint; nothing is recorded."""
    ended = await ask(ECHO, f"--prompt={prompt}", stdin=stdin)
    assert (ended.code, ended.output) == (2, b"")
    assert "nothing is asked" in ended.errors
    assert await ask.sessions() == []


async def test_too_much_is_refused_before_anything_is_recorded(ask: Ask) -> None:
    """Standard input beyond the limit: exit code 2, and nothing of it is recorded."""
    ended = await ask(ECHO, "-p", stdin=b"x" * (8 * 1024 * 1024 + 1))
    assert (ended.code, ended.output) == (2, b"")
    assert await ask.sessions() == []


async def test_continue_is_the_latest_session(ask: Ask) -> None:
    """`-c` goes on in the session that was used last, and only there."""
    for question in ("first", "second"):
        await ask(ECHO, "-p", question)
    second, first = await ask.sessions()
    assert (await ask(ECHO, "-r", first, "-p", "third")).code == 0
    assert await ask(ECHO, "-c", "-p", "fourth") == (0, b"You said: fourth\n", "")
    assert said(await ask.transcript(second), Role.USER) == [("second", Status.COMPLETE)]
    texts = [text for text, _ in said(await ask.transcript(first), Role.USER)]
    assert texts == ["first", "third", "fourth"]


@pytest.mark.loss("D13", "D14")
async def test_resume_by_id_beginning_and_title(ask: Ask) -> None:
    """`-r` takes an id, a beginning that only one has, and a title in any case; each time the same session goes on."""
    async with Record.open(ask.home) as record:
        await record.create_session(id="20260101-000000-aaaaaa", source="cli", title="Trip to Rome")
        await record.create_session(id="20260202-000000-bbbbbb", source="cli", title="Other")
    for name in ("20260101-000000-aaaaaa", "20260101", "Trip to Rome", "trip to rome"):
        assert await ask(ECHO, "-r", name, "-p", name) == (0, f"You said: {name}\n".encode(), ""), name
    assert len(said(await ask.transcript("20260101-000000-aaaaaa"), Role.USER)) == 4
    assert await ask.transcript("20260202-000000-bbbbbb") == []


@pytest.mark.loss("D13", "D14")
async def test_resume_of_what_is_ambiguous(ask: Ask) -> None:
    """A beginning or a title that several have: exit code 2 and the candidates; nothing is asked, nothing created."""
    ids = ["20260101-000000-aaaaaa", "20260101-000000-bbbbbb"]
    async with Record.open(ask.home) as record:
        for each in ids:
            await record.create_session(id=each, source="cli", title="Same")
    for name in ("20260101", "Same"):
        ended = await ask(ECHO, "-r", name, "-p", "q")
        assert (ended.code, ended.output) == (2, b"")
        assert all(each in ended.errors for each in ids)
    assert sorted(await ask.sessions()) == ids
    assert [await ask.transcript(each) for each in ids] == [[], []]


@pytest.mark.loss("D13", "D14")
@pytest.mark.parametrize("option", ["-r=20990101", "-r=no such title", "-r=../../etc/passwd", "-c", "--resume="])
async def test_resume_of_what_is_not_there(ask: Ask, option: str) -> None:
    """A session that does not exist: exit code 2, the error names it, and no session is created in its place."""
    name, _, value = option.partition("=")
    arguments = [name, value] if value else [option]
    async with Record.open(ask.home):
        pass
    ended = await ask(ECHO, *arguments, "-p", "q")
    assert (ended.code, ended.output) == (2, b"")
    assert value in ended.errors
    assert ended.errors.startswith("hansard: ")
    assert await ask.sessions() == []


async def test_resume_in_a_home_that_is_not_there(ask: Ask) -> None:
    """A name of a session, and no record: exit code 2, the error names the home, and none is made."""
    ended = await ask(ECHO, "-r", "talk", "-p", "q")
    assert (ended.code, ended.output) == (2, b"")
    assert f"there is no record at {ask.home}" in ended.errors
    assert not ask.home.exists()


@pytest.mark.loss("D13")
async def test_resume_of_an_ended_session_opens_it_and_says_so(ask: Ask) -> None:
    """An ended session that is named goes on; that it is open again is told, and recorded."""
    await ask(ECHO, "-p", "before")
    [session_id] = await ask.sessions()
    async with Record.open(ask.home) as record:
        await record.end_session(session_id, "left")
    ended = await ask(ECHO, "-r", session_id, "-p", "after")
    assert (ended.code, ended.output) == (0, b"You said: after\n")
    messages = await ask.transcript()
    assert [f"{text}\n" for text, _ in said(messages, Role.NOTICE)] == [ended.errors]
    assert "open again" in ended.errors


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-m", "nobody:x"], "model must be one of"),
        (["-m", "scripted:no-such-file.toml"], "no-such-file.toml"),
        (["--busy", "perhaps"], "perhaps"),
    ],
)
async def test_what_cannot_run_says_why(ask: Ask, arguments: list[str], named: str) -> None:
    """A wrong option: exit code 1 or 2, the error names it, no traceback, and the answer's pipe stays empty."""
    ended = await ask(ECHO, *arguments, "-p", "q")
    assert ended.code in {1, 2}
    assert ended.output == b""
    assert named in ended.errors


async def test_a_slow_reader_holds_up_nothing(ask: Ask) -> None:
    """An answer larger than a pipe holds is recorded to its end although nobody has read it yet."""
    words = " ".join(f"word{number}" for number in range(40_000))
    script = f'[[answers]]\ntext = "{words}"\npieces = "whole"\n'
    command = [*COMMAND, *map(str, ask.options(script)), "-p", "much"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=ask.variables, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        async with asyncio.timeout(120), Record.open(ask.home) as record:
            while not (sessions := await record.sessions()):  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.02)
            async for item in record.follow(sessions[0].id):
                if isinstance(item, Entry) and item.kind == "turn.ended":
                    break
        output = process.stdout.read()
        assert process.wait(timeout=120) == 0
    assert output == words.encode() + b"\n"
    assert await ask.ends() == [TurnState.COMPLETED]
