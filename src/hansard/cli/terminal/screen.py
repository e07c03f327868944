"""The screen: printed text above, what is being written below it, then the input and a status line.

Reads: items of the record, in order, by `show`. Writes: the terminal. What a person types appears only as the entry
that was read back; the input is erased when it is sent. Invariants: finished text is printed once and never drawn
again; each drawing is one write; whatever ends `run`, the terminal is restored and nothing that was taken by `show` is
left unprinted.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition, has_completions
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from hansard.cli import load
from hansard.cli.terminal.completion import Suggestions
from hansard.cli.terminal.plain import is_dumb, reflows, run_plain
from hansard.cli.terminal.text import STYLED, cut, safe_line, tail_rows
from hansard.cli.terminal.view import MARKER, RENDER, View
from hansard.record.messages.entries import Chunk, Entry

DRAWINGS_PER_SECOND_MAX: Final = 20
DRAWING_SHARE_MAX: Final = 0.25
"""Drawing takes about this part of the time: what is slow to draw is drawn less often."""

DRAWINGS_PER_SECOND_MIN: Final = 4
"""While something changes; one slow drawing, such as the first in colour, does not hold up the next for long."""

LEAVE_SECONDS: Final = 2.0
"""A second Ctrl-C within this time leaves."""

ROWS_BESIDE_LIVE: Final = 6
"""Rows that stay for the input, the status and a look at what was printed."""

INPUT_ROWS_MAX: Final = 10
MENU_ROWS_MAX: Final = 8

STYLE: Final = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "status": "dim",
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit",
        "completion-menu.completion.current": "noinherit reverse",
        "completion-menu.meta.completion": "noinherit dim",
        "completion-menu.meta.completion.current": "noinherit reverse",
        "scrollbar.background": "noinherit",
        "scrollbar.button": "noinherit",
    }
)


SYNCHRONISED_BEGIN: Final = "\x1b[?2026h"
SYNCHRONISED_END: Final = "\x1b[?2026l"
ERASE_DOWN: Final = "\x1b[K\x1b7\x1b[B\x1b[J\x1b8"
"""To the end of the row; save the cursor; one row down; to the end of the screen; back."""


class TerminalOutput(Vt100_Output):
    """A terminal that shows a drawing whole or not at all."""

    held = False

    @classmethod
    def on(cls, stdout: TextIO, *, colour: bool) -> TerminalOutput:
        """Return the terminal behind a stream. It is never asked for its cursor: the answer would come as input."""
        depth = ColorDepth.DEPTH_4_BIT if colour else ColorDepth.DEPTH_1_BIT

        def size() -> Size:
            try:
                columns, rows = os.get_terminal_size(stdout.fileno())
            except OSError:
                columns, rows = 0, 0
            return Size(rows=rows or 24, columns=columns or 80)

        return cls(stdout, size, term=os.environ.get("TERM"), default_color_depth=depth, enable_cpr=False)

    def hold_output(self) -> None:
        if not self.held:
            self.held = True
            self.write_raw(SYNCHRONISED_BEGIN)

    def release(self) -> None:
        if self.held:
            self.held = False
            self.write_raw(SYNCHRONISED_END)
            self.flush()

    def erase_down(self) -> None:
        """Erase this row and, from the one below it, the rest.

        Erased from the very first row on, some terminals keep a copy in the scrollback: it would be there twice.
        """
        self.write_raw(ERASE_DOWN)

    def disable_autowrap(self) -> None:
        """Leave it on: a row that the terminal takes after it got narrower is broken, not cut, as those before it were.

        So where a drawing begins depends on what was drawn and on the width now, not on which of them came first.
        """

    def flush(self) -> None:
        if not self.held:
            super().flush()


class Screen:
    """A conversation in a terminal. It belongs to one event loop, and every method is called on it."""

    def __init__(
        self,
        *,
        submit: Callable[[str], None],
        interrupt: Callable[[], bool],
        status: Callable[[], str],
        completions: Callable[[str], Awaitable[list[Completion]]],
        history_path: Path | None,
        colour: bool,
        reasoning: bool = False,
        input: Input | None = None,
        output: TerminalOutput | None = None,
    ) -> None:
        """`input` and `output` are the standard ones unless they are given.

        `submit` is called at Enter; the text may have many lines. `interrupt` at Ctrl-C with nothing typed; it returns
        whether something was interrupted: if nothing was, the person leaves, as with a second Ctrl-C.
        """
        self._on_submit = submit
        self._on_interrupt = interrupt
        self._status = status
        self._plain = output is None and is_dumb()
        self._output = output or TerminalOutput.on(sys.stdout, colour=colour)
        self._view = View(width=self._output.get_size().columns, colour=colour and not self._plain, reasoning=reasoning)
        self._pending: list[str] = []
        self._written = asyncio.Event()
        self._left = asyncio.Event()
        self._interrupted_at = -LEAVE_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._ended = False
        history, self.history_trouble = open_history(history_path)
        self._input = Buffer(
            multiline=True,
            history=history,
            completer=Suggestions(completions),
            complete_while_typing=Condition(lambda: self._input.text.startswith("/")),
        )
        self._keys_from = input
        self._style = STYLE if colour else Style([])
        self._app: Drawn | None = None

    def show(self, item: Entry | Chunk) -> None:
        self._print(self._view.feed(item))

    async def drawn(self) -> None:
        """Wait until everything that was taken by `show` is on the terminal."""
        while self._pending:
            self._written.clear()
            await self._written.wait()

    def note(self, text: str) -> None:
        self._print(self._view.note(text))

    def refresh(self) -> None:
        """Draw again soon: the status changed."""
        if self._app is not None and self._running and self._timer is None:
            loop = asyncio.get_running_loop()
            pause = min(self._app.drawing_seconds / DRAWING_SHARE_MAX, 1 / DRAWINGS_PER_SECOND_MIN)
            pause = max(pause, 1 / DRAWINGS_PER_SECOND_MAX)
            delay = max(0.0, self._app.drawn_at + pause - time.monotonic())
            self._timer = loop.call_later(delay, self._draw)

    def leave(self) -> None:
        self._left.set()
        self._end()

    async def run(self) -> None:
        """Be the screen until somebody leaves or the input ends. An error of a handler ends it, and is raised."""
        self._running = True
        # The first answer is not to wait for this: it takes longer than drawing the prompt.
        loading = asyncio.create_task(asyncio.to_thread(load, RENDER))
        try:
            if self._plain:
                self._print([])
                await run_plain(self._submit, self._interrupt, self._left)
            elif not self._left.is_set():
                self._app = Drawn(
                    layout=self._layout(),
                    key_bindings=self._keys(),
                    style=self._style,
                    include_default_pygments_style=False,
                    output=self._output,
                    input=self._keys_from,
                    erase_when_done=True,
                    terminal_size_polling_interval=None,
                    before_render=self._before_drawing,
                )
                # Ctrl-C is a key here; signals and unhandled errors stay with whoever runs the process.
                await self._app.run_async(handle_sigint=False, set_exception_handler=False)
        except EOFError:
            pass  # a terminal that went away is a person who left
        finally:
            self._running, self._ended = False, True
            if self._timer is not None:
                self._timer.cancel()
            # A terminal that went away takes nothing; what it would have shown is in the record.
            with suppress(OSError):
                self._print(self._view.flush())
            loading.cancel()

    # Printing.

    def _print(self, pieces: list[str]) -> None:
        self._pending += pieces
        if self._running and not self._plain:
            self.refresh()
        elif self._running or self._ended:
            self._write_pending()
            self._output.flush()

    def _write_pending(self) -> None:
        """Write what is finished. In raw mode a newline alone would not go back to the left."""
        text = "".join(self._pending)
        self._pending.clear()
        self._output.write_raw(text.replace("\n", "\r\n") if self._running and not self._plain else text)
        self._written.set()

    def _draw(self) -> None:
        self._timer = None
        if self._app is not None:
            self._app.invalidate()

    def _before_drawing(self, app: Application[None]) -> None:
        """Print what is finished where the drawing stood; the drawing follows below it, in the same write."""
        self._view.resize(self._output.get_size().columns)
        if self._pending:
            app.renderer.erase()
            self._write_pending()

    # The layout.

    def _layout(self) -> Layout:
        live = Window(FormattedTextControl(self._live), wrap_lines=True, dont_extend_height=True)
        typed = Window(
            BufferControl(self._input),
            height=self._input_height,
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=self._prefix,
        )
        parts = [
            ConditionalContainer(live, Condition(lambda: bool(self._view.live))),
            Window(height=1),
            typed,
            CompletionsMenu(max_height=MENU_ROWS_MAX, scroll_offset=1),
            Window(FormattedTextControl(self._status_line), height=1, style="class:status"),
        ]
        return Layout(HSplit(parts, align=VerticalAlign.TOP), focused_element=typed)

    def _input_height(self) -> Dimension:
        return Dimension(min=1, max=min(INPUT_ROWS_MAX, max(1, self._output.get_size().rows - ROWS_BESIDE_LIVE)))

    def _prefix(self, line: int, wrapped: int) -> StyleAndTextTuples:
        return [("class:prompt", MARKER)] if line == wrapped == 0 else [("", " " * len(MARKER))]

    def _live(self) -> StyleAndTextTuples:
        size = self._output.get_size()
        rows = min(self._input.document.line_count, INPUT_ROWS_MAX)
        rows_max = max(1, size.rows - ROWS_BESIDE_LIVE - rows + 1)
        return fragments(tail_rows(self._view.live, columns=size.columns, rows_max=rows_max))

    def _status_line(self) -> StyleAndTextTuples:
        return [("class:status", cut(safe_line(self._status()), self._output.get_size().columns))]

    # Keys.

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def bind(*names: str) -> Callable[[Callable[[], None]], None]:
            """Bind keys to something; what it raises ends the screen, and is raised by `run`."""

            def add(act: Callable[[], None]) -> None:
                def pressed(_event: KeyPressEvent) -> None:
                    try:
                        act()
                    except Exception as error:  # noqa: BLE001  # boundary: process edge
                        self._end(error)

                keys.add(*names)(pressed)

            return add

        bind("enter")(self._enter)
        bind("escape", "enter")(lambda: self._input.insert_text("\n"))
        bind("c-j")(lambda: self._input.insert_text("\n"))
        bind("c-c")(self._control_c)
        bind("c-d")(self._control_d)
        # A stopped process would keep its session from others; and the key is not to be typed as a character.
        bind("c-z")(lambda: None)
        keys.add("escape", filter=has_completions)(lambda event: event.current_buffer.cancel_completion())
        return keys

    def _enter(self) -> None:
        text = self._input.text
        if text.strip():
            self._input.append_to_history()
        self._input.reset()
        self._submit(text)

    def _control_c(self) -> None:
        if self._input.text:
            self._input.reset()
        else:
            self._interrupt()

    def _control_d(self) -> None:
        if self._input.text:
            self._input.delete()
        else:
            self.leave()

    def _submit(self, text: str) -> None:
        if text.strip():
            self._on_submit(text)

    def _interrupt(self) -> None:
        now = time.monotonic()
        if now - self._interrupted_at < LEAVE_SECONDS or not self._on_interrupt():
            self.leave()
        else:
            self._interrupted_at = now

    def _end(self, error: BaseException | None = None) -> None:
        if self._app is not None:
            self._app.end(error)


def fragments(text: str) -> StyleAndTextTuples:
    """Return styled text as prompt_toolkit takes it. Faster than its own reader, which goes character by character."""
    found: StyleAndTextTuples = []
    style = ""
    for index, piece in enumerate(STYLED.split(text)):
        if index % 2:
            style = style_of(piece)
        elif piece:
            found.append((style, piece))
    return found


@cache
def style_of(numbers: str) -> str:
    """Return prompt_toolkit's name of a style, by the numbers that switch it on."""
    return to_formatted_text(ANSI(f"\x1b[{numbers}mx"))[0][0]


class Drawn(Application[None]):
    """An application whose every drawing is one write, and which ends with the error that a drawing met."""

    drawn_at = 0.0
    drawing_seconds = 0.0

    def end(self, error: BaseException | None = None) -> None:
        """End, once. An error is raised by whoever runs this."""
        if self.is_running and self.future is not None and not self.future.done():
            if error is None:
                self.exit()
            else:
                self.exit(exception=error)

    def _redraw(self, render_as_done: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is in the base class
        output = self.output
        assert isinstance(output, TerminalOutput)
        started = time.monotonic()
        output.hold_output()
        try:
            super()._redraw(render_as_done)
        except OSError:
            self.end(EOFError())
        except Exception as error:  # noqa: BLE001  # boundary: process edge
            self.end(error)
        finally:
            self.drawn_at = time.monotonic()
            self.drawing_seconds = self.drawn_at - started
            with suppress(OSError):
                output.release()

    def _on_resize(self) -> None:
        """Go up to where the drawing begins now: a narrower terminal broke its lines into more rows."""
        drawn = self.renderer.last_rendered_screen
        output = self.output
        assert isinstance(output, TerminalOutput)
        output.hold_output()
        if drawn is not None and reflows():
            columns, gained = output.get_size().columns, 0
            for row in range(drawn.get_cursor_position(self.layout.current_window).y):
                line = drawn.data_buffer[row].items()
                width = max((column + cell.width for column, cell in line if cell.char.strip()), default=0)
                gained += max(0, math.ceil(width / columns) - 1)
            output.cursor_up(gained)
        super()._on_resize()


ENTRY_CHARACTERS_MAX: Final = 64 * 1024
"""What is longer was pasted, and is in the record; nobody looks for it with the arrow keys."""

READ_BYTES_MAX: Final = 1024 * 1024
"""The end of the file that is read: the prompt does not wait for years of typing."""

MODE: Final = 0o600


class PrivateHistory(FileHistory):
    """A convenience: when the disk refuses it, the conversation goes on without it."""

    def __init__(self, path: Path) -> None:
        """Create the file for its owner alone, or make it so."""
        super().__init__(path)
        self.path = path
        descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, MODE)
        try:
            os.fchmod(descriptor, MODE)
        finally:
            os.close(descriptor)

    def load_history_strings(self) -> Iterable[str]:
        """Return what was typed, the latest first. The lines of one message start with a plus."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - READ_BYTES_MAX))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        typed: list[list[str]] = [[]]
        for line in text.split("\n"):
            if line.startswith("+"):
                typed[-1].append(line[1:])
            elif typed[-1]:
                typed.append([])
        return ["\n".join(lines) for lines in reversed(typed) if lines]

    def store_string(self, string: str) -> None:
        if len(string) <= ENTRY_CHARACTERS_MAX:
            with suppress(OSError):
                super().store_string(string)


def open_history(path: Path | None) -> tuple[History, str]:
    """Return the history in a file, or of this run only; and why the file cannot be used."""
    if path is None:
        return InMemoryHistory(), ""
    try:
        return PrivateHistory(path), ""
    except OSError as error:
        return InMemoryHistory(), f"What you type is not kept for the arrow keys: {path}: {error.strerror}."
