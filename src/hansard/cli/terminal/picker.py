"""Choose a session from a list that gets shorter while somebody types."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.styles import Style

from hansard.cli.terminal.completion import SessionChoice
from hansard.cli.terminal.screen import TerminalOutput
from hansard.cli.terminal.text import ID_ENDING_CHARACTERS, cells, cut, safe_line
from hansard.cli.terminal.view import MARKER

ROWS_MAX: Final = 12
ROWS_BESIDE: Final = 4
STYLE: Final = Style.from_dict(
    {"title": "bold", "prompt": "bold ansicyan", "chosen": "reverse", "dim": "dim", "help": "dim"}
)
HELP: Final = "type to search · ↑ ↓ choose · Enter opens · Esc leaves"


class PickerState:
    """Which sessions match, and which of them is chosen."""

    def __init__(self, lines: Sequence[SessionChoice]) -> None:
        self._lines = [
            (line, safe_line(f"{line.id} {line.title} {line.text} {line.source}").casefold()) for line in lines
        ]
        self.found = list(lines)
        self.index = 0

    def search(self, text: str) -> None:
        """Keep the sessions that have every word somewhere. The one that was chosen stays so if it matches."""
        chosen = self.chosen
        words = text.casefold().split()
        self.found = [line for line, words_of in self._lines if all(word in words_of for word in words)]
        self.index = self.found.index(chosen) if chosen in self.found else 0

    def move(self, by: int) -> None:
        """Choose another; the list has ends."""
        self.index = max(0, min(self.index + by, len(self.found) - 1))

    @property
    def chosen(self) -> SessionChoice | None:
        """The session that Enter takes, or None when nothing matches."""
        return self.found[self.index] if self.found else None

    def rows(self, count: int) -> list[tuple[SessionChoice, bool]]:
        first = max(0, min(self.index - count // 2, len(self.found) - count))
        return [(line, first + offset == self.index) for offset, line in enumerate(self.found[first : first + count])]


WIDE_COLUMNS: Final = 100
"""From here on there is room for whole ids; below, their ending tells sessions apart and leaves room for words."""


def describe(line: SessionChoice, columns: int) -> str:
    """Return a session as one line: when, how long, what about; and its id, to tell equal ones apart."""
    count = f"{line.messages} message{'' if line.messages == 1 else 's'}"
    left = "  ".join(filter(None, (safe_line(line.when), f"{count:>12}", safe_line(line.source))))
    right = line.id if columns >= WIDE_COLUMNS else line.id[-ID_ENDING_CHARACTERS:]
    room = columns - cells(left) - cells(right) - 4
    about = safe_line(line.title or line.text or "(nothing said yet)")
    if room < ROWS_MAX:
        return cut(f"{left}  {about}", columns)
    about = cut(about, room)
    return f"{left}  {about}{' ' * (room - cells(about))}  {right}"


async def pick(
    lines: Sequence[SessionChoice],
    *,
    title: str,
    colour: bool = True,
    input: Input | None = None,
    output: TerminalOutput | None = None,
) -> str | None:
    terminal = output or TerminalOutput.on(sys.stdout, colour=colour)
    choice = PickerState(lines)
    typed = Buffer(on_text_changed=lambda buffer: choice.search(buffer.text))

    def listed() -> StyleAndTextTuples:
        size = terminal.get_size()
        shown = choice.rows(max(1, min(ROWS_MAX, size.rows - ROWS_BESIDE)))
        text: StyleAndTextTuples = []
        for line, chosen in shown:
            mark = MARKER if chosen else " " * len(MARKER)
            style = "class:chosen" if chosen else ""
            text += [(style, mark + describe(line, size.columns - len(MARKER))), ("", "\n")]
        return text[:-1] if text else [("class:dim", "  nothing matches")]

    def footer() -> StyleAndTextTuples:
        return [("class:help", cut(f"{len(choice.found)} of {len(lines)} · {HELP}", terminal.get_size().columns))]

    search = Window(
        BufferControl(typed, input_processors=[BeforeInput([("class:prompt", MARKER)])]),
        height=1,
        dont_extend_height=True,
    )
    parts = [
        Window(FormattedTextControl([("class:title", cut(safe_line(title), terminal.get_size().columns))]), height=1),
        search,
        Window(FormattedTextControl(listed), dont_extend_height=True),
        Window(FormattedTextControl(footer), height=1),
    ]
    app: Application[str | None] = Application(
        layout=Layout(HSplit(parts), focused_element=search),
        key_bindings=_keys(choice),
        style=STYLE if colour else Style([]),
        include_default_pygments_style=False,
        output=terminal,
        input=input,
        erase_when_done=True,
        terminal_size_polling_interval=None,  # a signal tells of a change
    )
    # A lone Esc is told from the beginning of another key by waiting; half a second would be felt.
    app.ttimeoutlen = 0.05
    app.timeoutlen = 0.05
    try:
        return await app.run_async(handle_sigint=False, set_exception_handler=False)
    except EOFError:
        return None


def _keys(choice: PickerState) -> KeyBindings:
    keys = KeyBindings()

    def move(*names: str, by: int) -> None:
        for name in names:
            keys.add(name)(lambda _: choice.move(by))

    move("up", "c-p", by=-1)
    move("down", "c-n", "tab", by=1)
    move("pageup", by=-ROWS_MAX)
    move("pagedown", by=ROWS_MAX)

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        if choice.chosen is not None:
            event.app.exit(result=choice.chosen.id)

    @keys.add("escape")
    @keys.add("c-c")
    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=None)

    return keys
