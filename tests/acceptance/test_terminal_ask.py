"""`ask` in a real terminal: the call is on the screen, and a yes that is typed runs it while the turn waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.record.api import Record
from tests.acceptance.fresh_desk import Desk, assert_clean
from tests.acceptance.fresh_terminal import needs_tmux

IN_ORDER = "record: in order"
NOTE = "likes tea"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A terminal of this test's own."""
    return Desk(tmp_path)


@needs_tmux
@pytest.mark.parametrize(("words", "kept"), [("yes", [NOTE]), ("/no", [])])
async def test_a_yes_that_is_typed(desk: Desk, words: str, kept: list[str]) -> None:
    """Remembering asks by default; what is typed answers, and does not interrupt."""
    remember = {"name": "memory", "arguments": {"action": "add", "text": NOTE}}
    desk.script({"text": "One moment.", "calls": [remember]}, {"text": "That is settled."})
    with desk.shell() as shell:
        shell.type("hansard")
        shell.see(IN_ORDER)
        shell.type("Remember that I like tea.")
        shell.see("May I run the tool memory")
        shell.see(NOTE)
        shell.type(words)
        shell.see("That is settled.")
        shell.keys("C-d")
        assert shell.prompt() == 0
    async with Record.open(desk.home) as record:
        assert [note.text for note in await record.memory.list()] == kept
    await assert_clean(desk.home)
