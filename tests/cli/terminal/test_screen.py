"""The screen with its keys, on a terminal that keeps what is written to it."""

from __future__ import annotations

import asyncio
import io
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from prompt_toolkit.completion import Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.color_depth import ColorDepth

from hansard.cli.terminal.completion import SessionChoice, complete
from hansard.cli.terminal.screen import (
    DRAWINGS_PER_SECOND_MAX,
    ENTRY_CHARACTERS_MAX,
    ERASE_DOWN,
    SYNCHRONISED_BEGIN,
    SYNCHRONISED_END,
    PrivateHistory,
    Screen,
    TerminalOutput,
    fragments,
)
from hansard.cli.terminal.text import tail_rows
from hansard.domain.messages import Role
from hansard.errors import RecordUnavailable
from tests.cli.terminal.items import added, chunk, opened, sealed

WAIT_SECONDS = 120.0
SEQUENCES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Paper(io.StringIO):
    """A terminal's other end, which keeps every write by itself."""

    def __init__(self) -> None:
        """Nothing is written yet."""
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        """Keep one write."""
        self.writes.append(text)
        return super().write(text)


class Stage:
    """A screen, its keys and its paper."""

    def __init__(self, keys: PipeInput, history: Path | None = None) -> None:
        """Build a screen that nobody runs yet."""
        self.keys = keys
        self.paper = Paper()
        self.submitted: list[str] = []
        self.interrupts = 0
        self.busy = False
        self.failing: Exception | None = None
        self.status = "status"
        self.changed = asyncio.Event()
        output = TerminalOutput(
            self.paper, lambda: Size(rows=24, columns=80), default_color_depth=ColorDepth.DEPTH_4_BIT
        )
        output.enable_cpr = False
        self.screen = Screen(
            submit=self._submit,
            interrupt=self._interrupt,
            status=self._status,
            completions=self._complete,
            history_path=history,
            colour=True,
            input=keys,
            output=output,
        )

    def _submit(self, text: str) -> None:
        self.submitted.append(text)
        self.changed.set()
        if self.failing is not None:
            raise self.failing

    def _interrupt(self) -> bool:
        self.interrupts += 1
        self.changed.set()
        return self.busy

    def _status(self) -> str:
        if self.status == "broken":
            message = "the status failed"
            raise LookupError(message)
        return self.status

    async def _complete(self, text: str) -> list[Completion]:
        if text.startswith("/x"):
            message = "no record"
            raise RecordUnavailable(message)
        # The terminal is sent only the cells that change: the title has no letter where a command above has the same.
        return complete(
            text, commands={"/resume": "go on", "/retry": "again"}, sessions=[SessionChoice(id="2026-a", title="Oslo")]
        )

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not true():  # noqa: ASYNC110 - bytes of a terminal set no event
                await asyncio.sleep(0.01)

    async def until_shown(self, text: str) -> None:
        """Wait until the terminal was sent a text."""
        await self.until(lambda: text in self.bare())

    def bare(self) -> str:
        """Everything that was written, without what moves and colours."""
        return SEQUENCES.sub("", self.paper.getvalue())


@asynccontextmanager
async def running(history: Path | None = None) -> AsyncIterator[tuple[Stage, asyncio.Task[None]]]:
    """A screen that runs while the test does."""
    with create_pipe_input() as keys:
        stage = Stage(keys, history)
        task = asyncio.create_task(stage.screen.run())
        try:
            await stage.until_shown("status")
            yield stage, task
        finally:
            stage.screen.leave()
            with suppress(RuntimeError, LookupError, asyncio.CancelledError):
                await asyncio.wait_for(task, WAIT_SECONDS)


async def test_enter_sends_and_erases() -> None:
    """What was typed is sent whole, and shows only when it is read back."""
    async with running() as (stage, _):
        stage.keys.send_text("hello\r")
        await stage.until(lambda: stage.submitted == ["hello"])
        stage.screen.show(added(Role.USER, "as it was recorded"))
        await stage.until_shown("as it was recorded")


async def test_many_lines_are_one_message() -> None:
    """Alt-Enter and Ctrl-J begin a line, a paste keeps its own, and only Enter sends."""
    async with running() as (stage, _):
        stage.keys.send_text("one\x1b\rtwo\nthree ")
        stage.keys.send_text("\x1b[200~four\r\nfive\n\x1b[201~")
        stage.keys.send_text("six\r")
        await stage.until(lambda: bool(stage.submitted))
        assert stage.submitted == ["one\ntwo\nthree four\nfive\nsix"]


async def test_nothing_is_sent_for_nothing() -> None:
    """Enter on an empty input, or on spaces, sends no message."""
    async with running() as (stage, _):
        stage.keys.send_text("\r   \rx\r")
        await stage.until(lambda: stage.submitted == ["x"])


async def test_ctrl_c_clears_then_interrupts_then_leaves() -> None:
    """With text it clears; without, it interrupts what runs; again within two seconds it leaves."""
    async with running() as (stage, task):
        stage.busy = True
        stage.keys.send_text("some text\x03")
        stage.keys.send_text("\x03")
        await stage.until(lambda: stage.interrupts == 1)
        assert (stage.submitted, task.done()) == ([], False)
        async with asyncio.timeout(WAIT_SECONDS):
            while not task.done():  # on a slow machine the two seconds are over: then it interrupts once more
                stage.keys.send_text("\x03")
                await asyncio.sleep(0.1)
        await task


async def test_ctrl_c_leaves_when_nothing_runs() -> None:
    """There is nothing to interrupt, so the person wants to go."""
    async with running() as (stage, task):
        stage.keys.send_text("\x03")
        await asyncio.wait_for(task, WAIT_SECONDS)


async def test_ctrl_d_leaves_only_an_empty_input() -> None:
    """With text it deletes the character under the cursor; without, it leaves."""
    async with running() as (stage, task):
        stage.keys.send_text("ab\x1b[D\x04\r")
        await stage.until(lambda: stage.submitted == ["a"])
        stage.keys.send_text("\x04")
        await asyncio.wait_for(task, WAIT_SECONDS)


async def test_the_end_of_the_input_leaves() -> None:
    """A terminal that went away is a person who left."""
    async with running() as (stage, task):
        stage.keys.close()
        await asyncio.wait_for(task, WAIT_SECONDS)


async def test_each_drawing_is_one_write() -> None:
    """Nothing flickers: whatever erases or draws is inside one synchronised write, and no write holds half of one."""
    async with running() as (stage, _):
        stage.screen.show(opened())
        for number in range(40):
            stage.screen.show(chunk(f"word{number} ", number * 10))
            if number % 10 == 0:
                stage.screen.note(f"note {number}")
            await asyncio.sleep(0.01)
        stage.screen.show(sealed("", message_id="m1"))
        await stage.until_shown("word39")
    drawings = [write for write in stage.paper.writes if ERASE_DOWN in write or "word" in write]
    assert len(drawings) > 3
    for write in drawings[:-1]:
        assert write.startswith(SYNCHRONISED_BEGIN)
        assert write.endswith(SYNCHRONISED_END)
        assert write.count(SYNCHRONISED_BEGIN) == write.count(SYNCHRONISED_END) == 1


async def test_a_flood_is_drawn_seldom() -> None:
    """A thousand chunks at once are a handful of drawings."""
    async with running() as (stage, _):
        before = len(stage.paper.writes)
        stage.screen.show(opened())
        for number in range(1000):
            stage.screen.show(chunk("x ", number * 2))
        stage.screen.note("the end")
        await stage.until_shown("the end")
        assert len(stage.paper.writes) - before < 5


async def test_a_stream_is_drawn_at_a_bounded_rate() -> None:
    """However fast chunks come, the screen is drawn twenty times a second at most."""
    async with running() as (stage, _):
        stage.screen.show(opened())
        before, begun = len(stage.paper.writes), time.monotonic()
        for number in range(200):
            stage.screen.show(chunk("x ", number * 2))
            await asyncio.sleep(0.003)
        drawn, seconds = len(stage.paper.writes) - before, time.monotonic() - begun
        assert 2 < drawn <= seconds * DRAWINGS_PER_SECOND_MAX + 2


async def test_finished_text_is_written_once() -> None:
    """What is in the scrollback is never drawn again."""
    async with running() as (stage, _):
        stage.screen.show(opened())
        for offset, text in ((0, "first block\n\n"), (13, "second block\n\n"), (27, "third")):
            stage.screen.show(chunk(text, offset))
            await stage.until_shown(text.strip())
        stage.keys.send_text("typing\r")
        await stage.until(lambda: bool(stage.submitted))
        assert stage.bare().count("first block") <= 2
        before = stage.bare().count("first block")
        stage.status = "STATUS NOW"
        stage.screen.refresh()
        await stage.until_shown("STATUS NOW")
        assert stage.bare().count("first block") == before


@pytest.mark.loss("A6")
@pytest.mark.parametrize("how", ["leave", "cancel", "end", "error"])
async def test_whatever_ends_it_nothing_is_left_unprinted(how: str) -> None:
    """Finished and live text is on the terminal when `run` has returned, however it returned."""
    async with running() as (stage, task):
        stage.screen.show(opened())
        stage.screen.show(chunk("a finished block\n\nand half a sent"))
        if how == "leave":
            stage.screen.leave()
        elif how == "cancel":
            task.cancel()
        elif how == "end":
            stage.keys.close()
        else:
            stage.failing = RuntimeError("the handler failed")
            stage.keys.send_text("x\r")
        with suppress(RuntimeError, asyncio.CancelledError):
            await asyncio.wait_for(task, WAIT_SECONDS)
        last = stage.bare()
        assert "a finished block" in last
        assert last.rstrip().endswith("and half a sent")
        assert task.cancelled() == (how == "cancel")
        stage.screen.show(chunk("ence", 33))
        stage.screen.show(sealed("a finished block\n\nand half a sentence"))
        assert stage.bare().rstrip().endswith("ence")


async def test_an_error_of_a_handler_is_raised() -> None:
    """Nothing is swallowed: `run` raises it once the terminal is restored."""
    async with running() as (stage, task):
        stage.failing = RuntimeError("the handler failed")
        stage.keys.send_text("x\r")
        with pytest.raises(RuntimeError, match="the handler failed"):
            await asyncio.wait_for(task, WAIT_SECONDS)


async def test_an_error_while_drawing_is_raised() -> None:
    """A status that fails ends the screen instead of leaving it dead."""
    async with running() as (stage, task):
        stage.status = "broken"
        stage.screen.refresh()
        with pytest.raises(LookupError, match="the status failed"):
            await asyncio.wait_for(task, WAIT_SECONDS)


async def test_what_came_before_it_ran_is_shown_first() -> None:
    """Items that were given early wait for the terminal, in their order."""
    with create_pipe_input() as keys:
        stage = Stage(keys)
        stage.screen.note("early")
        stage.screen.show(added(Role.USER, "later"))
        assert stage.paper.getvalue() == ""
        task = asyncio.create_task(stage.screen.run())
        await stage.until_shown("status")
        assert stage.bare().index("early") < stage.bare().index("later") < stage.bare().index("status")
        stage.screen.leave()
        await asyncio.wait_for(task, WAIT_SECONDS)


async def test_leaving_before_it_ran_is_leaving() -> None:
    """Nobody waits for a person who was asked to go before they came; what there was to show is shown."""
    with create_pipe_input() as keys:
        stage = Stage(keys)
        stage.screen.note("early")
        stage.screen.leave()
        await asyncio.wait_for(stage.screen.run(), WAIT_SECONDS)
        assert "early" in stage.bare()


async def test_history_comes_back_and_is_private(tmp_path: Path) -> None:
    """Up brings back what was typed in another run; the file is for its owner alone."""
    path = tmp_path / "history"
    path.touch(mode=0o644)
    async with running(path) as (stage, _):
        stage.keys.send_text("first\x1b\rmore\rsecond\r")
        await stage.until(lambda: len(stage.submitted) == 2)
    assert path.stat().st_mode & 0o777 == 0o600
    async with running(path) as (stage, _):
        stage.keys.send_text("\x1b[A\x1b[A\r")
        await stage.until(lambda: bool(stage.submitted))
        assert stage.submitted == ["first\nmore"]


def test_a_long_history_is_read_from_its_end(tmp_path: Path) -> None:
    """However much was typed in its life, the latest comes first, and old things are not waited for."""
    history = PrivateHistory(tmp_path / "history")
    for number in range(300):
        history.store_string(f"message {number}\n" + "x" * 10_000)
    history.store_string("y" * (ENTRY_CHARACTERS_MAX + 1))
    found = list(PrivateHistory(tmp_path / "history").load_history_strings())
    assert found[0] == "message 299\n" + "x" * 10_000
    assert 90 < len(found) < 110


async def test_a_history_that_cannot_be_kept_stops_nobody(tmp_path: Path) -> None:
    """Without a file to write to, messages are sent all the same."""
    async with running(tmp_path / "missing" / "history") as (stage, _):
        stage.keys.send_text("hello\r")
        await stage.until(lambda: stage.submitted == ["hello"])
    path = tmp_path / "history"
    async with running(path) as (stage, _):
        path.unlink()
        path.mkdir()
        stage.keys.send_text("hello\r")
        await stage.until(lambda: stage.submitted == ["hello"])


async def test_completion_of_commands_and_sessions() -> None:
    """Tab fills in a command; after it the sessions are offered by title, and the id is filled in."""
    async with running() as (stage, _):
        stage.keys.send_text("/re")
        await stage.until_shown("/retry")
        stage.keys.send_text("\t \r")
        await stage.until(lambda: stage.submitted == ["/resume "])
        stage.keys.send_text("/resume osl")
        await stage.until_shown("Oslo")
        stage.keys.send_text("\t\r")
        await stage.until(lambda: stage.submitted == ["/resume ", "/resume 2026-a"])


async def test_completion_without_a_record_is_none() -> None:
    """A record that cannot be read offers nothing, and breaks nothing."""
    async with running() as (stage, _):
        stage.keys.send_text("/x\t\r")
        await stage.until(lambda: stage.submitted == ["/x"])


def test_styled_text_is_read_for_prompt_toolkit() -> None:
    """Styles arrive by name, and text by itself has none."""
    assert fragments("a\x1b[1;31mb\x1b[0mc\n") == [("", "a"), ("ansired bold", "b"), ("", "c\n")]


def test_the_end_of_a_text_fits_its_rows() -> None:
    """Rows are counted as the terminal will break the lines; one line is always shown."""
    assert tail_rows("a\nb\nc", columns=10, rows_max=2) == "b\nc"
    assert tail_rows("a\n" + "x" * 25 + "\nc", columns=10, rows_max=4) == "x" * 25 + "\nc"
    assert tail_rows("\x1b[31m" + "x" * 10 + "\x1b[0m\nb", columns=10, rows_max=2).count("\n") == 1
    assert tail_rows("x" * 100, columns=10, rows_max=2) == "x" * 100


def test_candidates() -> None:
    """Commands by their beginning, sessions by the beginning of their id or a part of their title."""
    commands = {"/resume": "a", "/retry": "b"}
    sessions = [SessionChoice(id="20261115-x", title="Trip to Rome", when="today"), SessionChoice(id="20261114-y")]

    def texts(text: str) -> list[str]:
        return [found.text for found in complete(text, commands=commands, sessions=sessions)]

    assert texts("/re") == ["/resume", "/retry"]
    assert texts("/resume ") == ["/resume 20261115-x", "/resume 20261114-y"]
    assert texts("/resume ROME") == ["/resume 20261115-x"]
    assert texts("/resume 20261114") == ["/resume 20261114-y"]
    assert texts("/retry x") == texts("hello /re") == texts("/re\nx") == []


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
async def test_a_new_history_is_private_from_its_first_byte(tmp_path: Path) -> None:
    """The file is made for its owner alone, whatever the umask allows."""
    before = os.umask(0)
    try:
        async with running(tmp_path / "history"):
            assert (tmp_path / "history").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
