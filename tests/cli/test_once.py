"""`hansard -p`: a question that is recorded and cannot be answered does not let the program wait without end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hansard.cli.once import NOT_ANSWERED
from hansard.cli.process import EXIT_COULD_NOT_RUN, EXIT_DONE
from tests.acceptance.stories_program import write_script
from tests.record.helpers_facts import raw_rows


def ask(home: Path, model: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Ask, by the program itself."""
    command = [sys.executable, "-m", "hansard.cli.main", "--home", str(home), "-m", model, *options, "-p", "hello"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300)


def test_a_turn_that_cannot_be_run(tmp_path: Path) -> None:
    """The database lacks what the begin of a turn needs: that is told, and the question is recorded."""
    home = tmp_path / "home"
    model = write_script(tmp_path / "script.toml", {"text": "One."}, {"text": "Two."})
    assert ask(home, model).returncode == EXIT_DONE
    (session_id,) = (path.stem for path in (home / "sessions").rglob("*.jsonl"))
    raw_rows(home, "DROP TABLE turn_person")
    asked = ask(home, model, "-r", session_id)
    assert asked.returncode == EXIT_COULD_NOT_RUN
    assert "state.db is damaged" in asked.stderr
    assert NOT_ANSWERED.format(id=session_id) in asked.stderr
