"""What the agent may do and knows, at the command line: memory, prompts, files, tools of a server, a yes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hansard.cli.main import cli
from hansard.domain.messages import File
from hansard.errors import HansardError
from hansard.record.api import Record
from tests.acceptance.commands import run_apart
from tests.tools.samples import PICTURE

SCRIPT = """
[[answers]]
text = "I try."
calls = [{ name = "mcp__t__echo", arguments = { text = "hello from the server" } }]

[[answers]]
text = "It says: {result}"
"""


def prepare(home: Path, do: str, ran: Path) -> None:
    """A home with a scripted model, a server and a rule for its tools."""
    home.mkdir(mode=0o700)
    (home / "script.toml").write_text(SCRIPT)
    arguments = json.dumps(["-m", "tests.tools.mcp_server", "stdio", str(ran)])
    (home / "config.toml").write_text(
        f'model = "scripted:{home}/script.toml"\n'
        f"[mcp.t]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\nenv = ['PYTHONPATH']\n"
        f"start_seconds_max = 60\n[[tools.rules]]\ntool = 'mcp__t__*'\ndo = '{do}'\n"
    )


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("do", "answer"), [("allow", "It says: hello from the server"), ("deny", "not allowed here")])
def test_a_tool_of_a_server_by_the_rules(home: Path, tmp_path: Path, do: str, answer: str) -> None:
    """A configured server's tool is run where a rule allows it, and not where one denies it."""
    # In a folder that is there before: where Landlock hides the home, the server can make no names beside it.
    ran = tmp_path / "server" / "ran"
    ran.parent.mkdir()
    prepare(home, do, ran)
    assert answer in run_apart(home, "-p", "go").stdout
    assert ran.exists() is (do == "allow")


def remembers(home: Path) -> None:
    """A home whose model wants to remember something, which it has to ask for."""
    home.mkdir(mode=0o700)
    call = '{ name = "memory", arguments = { action = "add", text = "Likes tea." } }'
    (home / "s.toml").write_text(f'[[answers]]\ncalls = [{call}]\n[[answers]]\ntext = "It says: {{result}}"\n')
    (home / "config.toml").write_text(f'model = "scripted:{home}/s.toml"\n')


def test_one_question_cannot_be_asked_another(home: Path) -> None:
    """With -p nobody is there to say yes, so it is a no at once."""
    remembers(home)
    assert "nobody can be asked" in run_apart(home, "-p", "go").stdout
    assert ask(home, "memory") == "Nothing is remembered.\n"


@pytest.mark.parametrize(("words", "runs"), [("yes", True), ("/no", False)])
def test_a_yes_at_the_command_line(home: Path, words: str, runs: bool) -> None:  # noqa: FBT001
    """The question stands on standard error, and the next line answers it."""
    remembers(home)
    ended = run_apart(home, stdin=f"go\n{words}\n")
    assert "May I run the tool memory" in ended.stderr
    assert ("did not allow this call" in ended.stdout) is not runs
    assert ("Likes tea." in ask(home, "memory")) is runs


def ask(home: Path, *arguments: str) -> str:
    """Run a command in this process, which is quicker, and return what it prints."""
    found = CliRunner().invoke(cli, ["--home", str(home), *arguments], env={"HANSARD_HOME": ""})
    assert found.exception is None, found.exception
    return found.stdout


def refused(home: Path, *arguments: str) -> str:
    """Run a command that is refused, and return why."""
    found = CliRunner().invoke(cli, ["--home", str(home), *arguments], env={"HANSARD_HOME": ""})
    assert isinstance(found.exception, HansardError)
    return str(found.exception)


def test_memory(home: Path) -> None:
    """Notes are added, listed, changed and forgotten, for people and for scripts; a home is never made by asking."""
    assert "there is no record" in refused(home, "memory")
    assert not home.exists()
    added = json.loads(ask(home, "memory", "add", "Likes tea.", "--json"))["notes"][0]
    assert (added["owner"], added["text"]) == ("person:admin", "Likes tea.")
    ask(home, "memory", "add", "Meets on Mondays.", "--owner", "room:matrix:!den:x.org")
    assert len(run_apart(home, "memory").stdout.splitlines()) == 2
    assert ask(home, "memory", "list", "--owner", "person:admin").split(None, 2)[2] == "Likes tea.\n"
    ask(home, "memory", "edit", added["id"], "Likes coffee.")
    assert "Likes coffee." in ask(home, "config", "prompt")
    assert "Mondays" not in ask(home, "config", "prompt")
    assert ask(home, "memory", "forget", added["id"]) == "forgotten: Likes coffee.\n"
    assert "there is no note" in refused(home, "memory", "forget", added["id"])
    assert "the limit is 500" in refused(home, "memory", "add", "x" * 501)
    assert "coffee" not in ask(home, "config", "prompt")


def test_what_a_new_session_would_be_told(home: Path) -> None:
    """Before anybody has talked, `config prompt` has the persona of the terminal's person already."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[people.ann]\nterminal = true\npersona = "Ann is a physician."\n')
    assert "Ann is a physician." in ask(home, "config", "prompt")
    assert not (home / "state.db").exists()


def test_the_frozen_prompt_is_shown(home: Path) -> None:
    """`config prompt` shows what a session was told at its start, whatever the settings say later."""
    (home.parent / "s.toml").write_text('[[answers]]\ntext = "hi"\n')
    model = ("-m", f"scripted:{home.parent}/s.toml")
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('system_prompt = "Be brief."\n')
    run_apart(home, *model, "-p", "hi")
    (home / "config.toml").write_text('system_prompt = "Be long."\n')
    (session,) = sorted(path.stem for path in (home / "sessions").rglob("*.jsonl"))
    shown = ask(home, "config", "prompt", session)
    assert "Be brief." in shown
    assert "Be long." not in shown
    assert "Tools: current_time, memory, session_search" in shown
    assert "Be long." in ask(home, "config", "prompt")
    fields = json.loads(ask(home, "config", "prompt", session, "--json"))
    assert "Be brief." in fields["system"]
    assert [tool["name"] for tool in fields["tools"]] == ["current_time", "memory", "session_search"]


@pytest.mark.loss("N4")
@pytest.mark.parametrize("way", ["option", "command"])
def test_files_are_handed_in(home: Path, tmp_path: Path, way: str) -> None:
    """A file is kept byte for byte beside the words, as what it is, and the model is told of it."""
    picture = tmp_path / "a dot.bin"
    picture.write_bytes(PICTURE)
    (tmp_path / "s.toml").write_text('[[answers]]\ntext = "You said: {last}"\n')
    model = ("-m", f"scripted:{tmp_path}/s.toml")
    if way == "option":
        ended = run_apart(home, *model, "--file", str(picture), "-p", "What is this?")
    else:
        ended = run_apart(home, *model, stdin=f'/file "{picture}" What is this?\n')
    assert "What is this?" in ended.stdout
    parts = asyncio.run(read_parts(home))
    assert [(part.name, part.media_type, data) for part, data in parts] == [("a dot.bin", "image/png", PICTURE)]


async def read_parts(home: Path) -> list[tuple[File, bytes]]:
    """The files of the only session, with their bytes."""
    async with Record.open(home) as record:
        (session,) = await record.sessions()
        files = [part for each in await record.load_transcript(session.id) for part in each.parts]
        return [(part, await record.blobs.read(part.blob)) for part in files if isinstance(part, File)]


@pytest.mark.parametrize(("path", "why"), [("/does/not/exist", "does not exist"), ("/proc/self", "is a folder")])
def test_a_file_that_cannot_be_read_is_named(home: Path, path: str, why: str) -> None:
    """Nothing is said to a model about a file that is not there."""
    (home.parent / "s.toml").write_text('[[answers]]\ntext = "hi"\n')
    ended = run_apart(home, "-m", f"scripted:{home.parent}/s.toml", "--file", path, "-p", "look", code=2)
    assert why in ended.stderr
    assert os.path.basename(path) in ended.stderr  # noqa: PTH119 - it need not be a path that exists
