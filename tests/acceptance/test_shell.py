"""`hansard` between other programs: closed streams, pipes that break, options that mean nothing, exit codes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from hansard.cli.process import EXIT_READER_GONE
from hansard.record.api import Record
from tests.acceptance.shown.program import run_forked
from tests.tools.servers import ROOT, environment

SCRIPT = '[[answers]]\ntext = "Hello, {last}."\n'
FAILING = '[[answers]]\nfailures = [{ kind = "refused", text = "not today" }]\n[[answers]]\ntext = "Hello."\n'


def prepare(home: Path, script: str = SCRIPT) -> None:
    """Make a home whose model answers by a script."""
    home.mkdir(mode=0o700)
    (home / "script.toml").write_text(script)
    (home / "config.toml").write_text(f'model = "scripted:{home}/script.toml"\n')


def shell(home: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which `hansard` is Hansard on a home."""
    defined = f'hansard() {{ "{sys.executable}" -W error -m hansard.cli.main --home "{home}" "$@"; }}'
    return subprocess.run(
        ["bash", "-c", f"{defined}; {line}"],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def hansard(home: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run Hansard on a home where no shell is needed: a start from the nursery costs a tenth of one by a shell."""
    return run_forked("--home", home, *arguments, variables=environment(), stdin=stdin)


async def count_messages(home: Path) -> int:
    """Return how much is in a home."""
    async with Record.open(home) as record:
        return sum(session.messages for session in await record.sessions())


async def count_sessions(home: Path) -> int:
    """Return how many sessions a home has."""
    async with Record.open(home) as record:
        return len(await record.sessions())


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    ("line", "code", "out", "err"),
    [
        ("hansard -p hi >&-", 2, "", "hansard: standard output is closed, so nothing could be shown\n"),
        ("hansard sessions >&-", 2, "", "hansard: standard output is closed, so nothing could be shown\n"),
        ("echo hi | hansard >&-", 2, "", "hansard: standard output is closed, so nothing could be shown\n"),
        ("hansard -p hi <&-", 0, "Hello, hi.\n", ""),
        ("hansard -p hi 2>&-", 0, "Hello, hi.\n", ""),
        ("hansard -p hi <&- 2>&-", 0, "Hello, hi.\n", ""),
        ("hansard <&-", 0, "", ""),
        ("hansard -p hi >/dev/full", 2, "", "hansard: standard output cannot be written: No space left on device.\n"),
        ("hansard config >/dev/full", 2, "", "hansard: standard output cannot be written: No space left on device.\n"),
        ("hansard -p 0>/dev/null", 2, "", "hansard: standard input cannot be read: Bad file descriptor\n"),
        ("hansard 0>/dev/null", 2, "", "hansard: standard input cannot be read: Bad file descriptor\n"),
        ("hansard gateway status >&-", 2, "", ""),
    ],
)
def test_streams_that_are_not_there(home: Path, line: str, code: int, out: str, err: str) -> None:
    """Without standard output nothing is asked; without the others it works; no closed stream is a traceback."""
    prepare(home)
    ended = shell(home, line)
    assert (ended.returncode, ended.stdout) == (code, out), ended.stderr
    assert ended.stderr.startswith(err), ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    if ">&-" in line and "2>&-" not in line:
        assert asyncio.run(count_messages(home)) == 0


LEFT = ("-p hi", "sessions", "config", "export --all", "search first", "verify", "verify --json", "--help", "--version")


@pytest.mark.drawn(3)
@pytest.mark.parametrize("command", [*LEFT, "verify --help", "sessions show ID --raw"])
def test_a_reader_that_leaves(home: Path, command: str) -> None:
    """Nobody reads the output any more: no words, and the exit code of a closed pipe, not the one of findings."""
    prepare(home)
    hansard(home, "-p", "first")
    (session,) = (path.stem for path in (home / "sessions").rglob("*.jsonl"))
    # Nobody has the other end any more when the command begins.
    ended = shell(home, f"exec 3> >(exec true); wait $!; hansard {command.replace('ID', session)} >&3")
    assert (ended.returncode, ended.stderr) == (EXIT_READER_GONE, "")


def test_a_failed_turn_in_lines(home: Path) -> None:
    """A turn that fails makes the exit code 1, as with -p, also if a later one is answered."""
    prepare(home, FAILING)
    assert hansard(home, "-p", "hi").returncode == 1
    ended = hansard(home, stdin="one\ntwo\n")
    assert (ended.returncode, ended.stdout) == (1, "Hello.\n"), ended.stderr
    assert "not today" in ended.stderr
    assert hansard(home, "-c", stdin="three\n").returncode == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--file x", "--file goes with -p TEXT. In a conversation, /file PATH hands in a file."),
        ("-c -p hi --follow", "--follow shows a session live and asks nothing"),
        ("-p --follow", "--follow shows a session live and asks nothing"),
        ("--follow", "--follow needs a session: hansard -r ID --follow"),
        ("-r x -c", "-r names a session and -c takes the latest one"),
        ("--json sessions", "hansard sessions --help lists them."),
        ("-p hi config", "-p before `config` is for talking"),
    ],
)
def test_options_that_would_be_ignored_are_refused(home: Path, line: str, says: str) -> None:
    """Exit code 2 and what to do, and nothing is asked or recorded."""
    prepare(home)
    ended = hansard(home, *line.split(), stdin="hi\n")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in " ".join(ended.stderr.split())
    assert not (home / "state.db").exists()


def test_json_on_a_terminal_is_refused(home: Path) -> None:
    """A conversation on a terminal is not JSON: it says with what --json goes."""
    prepare(home)
    ended = shell(home, f'script -qec "{sys.executable} -m hansard.cli.main --home {home} --json" /dev/null')
    assert "--json goes with -p TEXT" in ended.stdout
    assert ended.returncode == 2


def test_json_in_a_pipe_and_after_the_prompt(home: Path) -> None:
    """`--json` works in lines, and `-p --json` reads the question from standard input."""
    prepare(home)
    for options in (("--json",), ("-p", "--json"), ("--json", "-p")):
        ended = hansard(home, *options, stdin="hi\n")
        assert ended.returncode == 0, ended.stderr
        assert '"text":"Hello, hi."' in ended.stdout
        assert all(each.startswith('{"type":') for each in ended.stdout.splitlines())
    assert hansard(home, "-p", "-5 + 3?").stdout == "Hello, -5 + 3?.\n"


def test_a_file_that_is_not_there(home: Path) -> None:
    """It says to check the path, and leaves no empty session behind."""
    prepare(home)
    ended = hansard(home, "-p", "hi", "--file", "/no/such/file")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "hansard: '/no/such/file' does not exist\n"
        "Check the path, and whether you may read the file. Nothing was sent or recorded.\n"
    )
    listed = hansard(home, "sessions")
    assert "no sessions" in listed.stdout.lower() + listed.stderr.lower()


def test_a_failed_question_says_how_to_ask_again(home: Path) -> None:
    """In a shell there is no /retry: `hansard -c` comes before it, and that works."""
    prepare(home, FAILING)
    ended = hansard(home, "-p", "hi")
    assert "Your message is recorded; `hansard -c`, and there /retry, asks again." in ended.stderr
    (home / "script.toml").write_text(SCRIPT)
    assert hansard(home, "-c", stdin="/retry\n").stdout == "Hello, hi.\n"


def test_an_export_to_standard_output(home: Path, tmp_path: Path) -> None:
    """`-o -` is standard output, and makes no file."""
    prepare(home)
    hansard(home, "-p", "hi")
    plain = hansard(home, "export", "--all")
    dashed = shell(home, f"cd {tmp_path}; hansard export --all -o -")
    assert (dashed.returncode, dashed.stderr) == (0, "")
    assert dashed.stdout == plain.stdout != ""
    assert list(tmp_path.glob("-")) == []
    assert hansard(home, "export", "--all", "-o", "-", "--json").returncode == 2


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("variable", "setting", "is_coloured"),
    [
        ("", "auto", True),
        ("NO_COLOR=", "auto", True),
        ("NO_COLOR=1", "auto", False),
        ("", "never", False),
        ("NO_COLOR=1", "always", True),
    ],
)
def test_colour_is_written_where_it_is_wanted(home: Path, variable: str, setting: str, is_coloured: bool) -> None:  # noqa: FBT001
    """An empty NO_COLOR is not set, and every command goes by `terminal.colour`."""
    prepare(home)
    with (home / "config.toml").open("a") as file:
        file.write(f'terminal.colour = "{setting}"\n')
    hansard(home, "-p", "hi")
    program = f"{sys.executable} -m hansard.cli.main --home {home}"
    for command in ("sessions", "sessions show 2", "search hi"):
        ended = shell(home, f"unset NO_COLOR; {variable} TERM=xterm script -qec '{program} {command}' /dev/null")
        assert ended.returncode == 0, ended.stdout
        assert ("\x1b[" in ended.stdout) is is_coloured, (command, ended.stdout)
    piped = shell(home, f"unset NO_COLOR; {variable} hansard sessions show 2")
    assert ("\x1b[" in piped.stdout) is (setting == "always")


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("hansard --home $'/tmp/h\\xff' sessions", "the path of the home must be UTF-8"),
        ("hansard --home '~nobody-of-this-name/x' sessions", "nobody knows which folder '~nobody-of-this-name/x' is"),
        ("hansard export --all -o /dev/full", "/dev/full cannot be written: No space left on device"),
        ("hansard -p hi --file /", "'/' is a folder"),
        ("hansard -p hi --file /dev/null", "'/dev/null' is no regular file"),
        ("hansard sessions --since 99999999999d", "'99999999999d' is longer ago than dates go"),
    ],
)
def test_wrong_input_is_told_in_words(home: Path, line: str, told: str) -> None:
    """No traceback: one sentence that names what is wrong, one that says what to do."""
    prepare(home)
    assert hansard(home, "-p", "hello").returncode == 0
    done = shell(home, line)
    assert done.returncode == 2, done
    assert done.stderr.startswith(f"hansard: {told}"), done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_script_that_is_missing_is_told_without_a_contradiction(home: Path) -> None:
    """The message was recorded, so nothing says that nothing was written."""
    prepare(home)
    done = hansard(home, "-m", "scripted:no-such-file", "-p", "hi")
    assert "no-such-file cannot be read" in done.stderr
    assert "Nothing was written" not in done.stderr


def test_a_limit_of_file_sizes_is_named(home: Path) -> None:
    """Whoever runs into `ulimit -f` is told that, and not to look for errors of the disk."""
    prepare(home)
    assert hansard(home, "-p", "hello").returncode == 0
    done = shell(home, "ulimit -f 1; hansard -p hi")
    assert done.returncode != 0
    assert "ulimit -f" in done.stderr
    assert "errors of the disk" not in done.stderr
