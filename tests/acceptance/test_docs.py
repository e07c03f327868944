"""What the documentation says is true: its programs run, and every command is in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]


def programs() -> list[tuple[str, str]]:
    """Every Python program in the documentation, with the page it stands on."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        found += [(page, program) for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    return found


@pytest.mark.drawn(4)
@pytest.mark.parametrize(("page", "program"), programs())
def test_programs_in_the_documentation_run(page: str, program: str, tmp_path: Path) -> None:
    """A program that a page shows runs as it stands, in a new home, and once more in the same."""
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, ""), page


def test_every_command_is_documented() -> None:
    """The reference shows the help of every command that there is."""
    reference = (ROOT / "docs" / "build" / "reference.md").read_text(encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "hansard.cli.main", "--help"], capture_output=True, text=True, timeout=120, check=True
    )
    commands = re.findall(r"^  (\w+) ", result.stdout.partition("Commands:")[2], re.MULTILINE)
    assert commands
    assert [name for name in commands if f"Usage: hansard {name}" not in reference] == []
