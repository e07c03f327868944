"""S9: a program that serves tools reads neither Hansard's environment and memory nor its home."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from hansard.tools import confined
from tests.security.unprivileged import give_away, interpreter, own_folder, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing keeps programs apart elsewhere")

HALVES = ("MARK-9f31", "c07e-SECRET")
MARK = "".join(HALVES)
GIVEN = {"OPENAI_API_KEY": f"sk-{MARK}", "DATABASE_URL": f"x://u:{MARK}@h", "ODD": f"{MARK} ü", "HANSARD_BUSY": "queue"}


def write_home(folder: Path, *, extra: str = "") -> Path:
    """Make a home with secrets in it, and a server that looks for them."""
    home = folder / "home"
    (home / "matrix").mkdir(parents=True)
    (home / "matrix" / "session.json").write_text(MARK)
    (home / "keys.toml").write_text(f'anthropic = "{MARK}"\n')
    shutil.copy(Path(__file__).with_name("spy.py"), folder / "spy.py")
    arguments = [str(folder / "spy.py"), ":".join(reversed(HALVES)), str(home)]
    (home / "config.toml").write_text(
        f'model = "scripted:{folder / "script.toml"}"\n'
        f"[mcp.spy]\ncommand = {json.dumps(interpreter())}\nargs = {json.dumps(arguments)}\n{extra}"
        '[[tools.rules]]\ntool = "mcp__spy__*"\ndo = "allow"\n'
    )
    (folder / "script.toml").write_text(
        '[[answers]]\ncalls = [{ name = "mcp__spy__look", arguments = {} }]\n[[answers]]\ntext = "{result}"\n'
    )
    give_away(folder)
    return home


def test_a_program_reads_nothing() -> None:
    """Environment and memory of every process above it, keys, the Matrix store and the record: nothing is found."""
    with own_folder() as folder:
        home = write_home(folder)
        hansard = [interpreter(), "-m", "hansard.cli.main", "--home", str(home)]
        done = run(*hansard, "-p", "Look.", given=GIVEN, cwd=home)
        assert done.returncode == 0, done.stderr
        assert "looked as" in done.stdout
        assert MARK not in done.stdout
        assert "/" not in done.stdout, f"it found the mark in {done.stdout}"
        assert done.stderr == ""


def test_what_it_finds_unconfined() -> None:
    """Allowed to look, it finds the files and the environment of the shell above: the test above can fail.

    Of Hansard itself it finds nothing even so: its environment is clean, and its memory closed.
    """
    with own_folder() as folder:
        home = write_home(folder, extra="confined = false\n")
        told = folder / "pid"
        hansard = [interpreter(), "-m", "hansard.cli.main", "--home", str(home)]
        script = f'echo $$ > {told}; exec "$@"'
        done = run("/bin/sh", "-c", script, "sh", *hansard, "-p", "Look.", given=GIVEN, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert str(home / "keys.toml") in done.stdout
        assert f"{home}/matrix/session.json" in done.stdout
        assert "/environ" in done.stdout
        assert f"/proc/{told.read_text().strip()}/" not in done.stdout


def test_starting_anew_changes_nothing_else() -> None:
    """A process that starts itself anew keeps its id, standard input, variables and exit code."""
    with own_folder() as folder:
        home = write_home(folder)
        answers = '[[answers]]\ntext = "{last}"\n[[answers]]\nfailures = [{ kind = "refused" }]\n'
        (folder / "script.toml").write_text(answers)
        program = (
            "import os, sys, hansard.cli.main as m\n"
            "is_new = 'HANSARD_ENVIRONMENT_PIPE' in os.environ\n"
            "print('pid', os.getpid(), os.environ.get('ODD'), is_new, file=sys.stderr)\n"
            "try: m.main()\n"
            "finally: print('end', os.environ['ODD'], os.environ['HANSARD_BUSY'], file=sys.stderr)\n"
        )
        words = [interpreter(), "-c", program, "--home", str(home)]
        done = run("/bin/sh", "-c", 'printf "one\\ntwo\\n" | "$@"', "sh", *words, given=GIVEN, cwd=folder)
        first, second, end, *_ = [line for line in done.stderr.splitlines() if line.startswith(("pid", "end"))]
        assert first.split()[:2] == second.split()[:2]
        assert (first.split()[2:], second.split()[2:]) == ([MARK, "ü", "False"], ["None", "True"])
        assert end == f"end {MARK} ü queue"
        assert "one" in done.stdout
        assert done.returncode == 1, "the second turn failed"


def test_landlock_hides_as_well() -> None:
    """Where there are no user namespaces, Landlock hides home and processes, and leaves the rest."""
    with own_folder() as folder:
        home = folder / "above" / "home"
        home.mkdir(parents=True)
        (home / "keys.toml").write_text(MARK)
        (folder / "beside").mkdir()
        (folder / "beside" / "file").write_text("seen\n")
        give_away(folder)
        program = (
            f"import os, runpy, sys\nconfined = runpy.run_path({confined.__file__!r})\n"
            "assert confined['hide_by_landlock']([sys.argv[1]])\nos.execv(sys.argv[2], sys.argv[2:])\n"
        )
        shell = (
            f"cat {home}/keys.toml; ls {home}; cat {folder}/beside/file; echo new > {folder}/beside/new; "
            f"cat {folder}/beside/new; tr '\\0' '\\n' < /proc/$PPID/environ; "
            f"echo > {home}/x; mv {home} {folder}/beside/"
        )
        words = [interpreter(), "-I", "-S", "-c", program, str(home), "/bin/sh", "-c", shell]
        done = run(*words, given={"OPENAI_API_KEY": MARK}, cwd=folder)
        assert done.stdout.split() == ["seen", "new"], done.stderr
        assert (home / "keys.toml").read_text() == MARK


def test_a_plain_command_is_not_started_anew() -> None:
    """Commands that start no program keep their process as it is."""
    with own_folder() as folder:
        home = write_home(folder)
        program = "import sys, hansard.cli.main as m\nprint('began', file=sys.stderr)\nm.main()\n"
        done = run(interpreter(), "-c", program, "--home", str(home), "sessions", given=GIVEN, cwd=folder)
        assert done.stderr.count("began") == 1
