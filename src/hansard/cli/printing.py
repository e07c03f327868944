"""What commands print beside their results (examples, counts, how far long work is), and the numbers they take."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, Final, Self

import click
import msgspec

from hansard.cli import load
from hansard.cli.process import PARTS
from hansard.cli.terminal.text import safe_json
from hansard.domain.settings import Colour

SHOW_SECONDS: Final = 0.5
"""How often progress is shown on a terminal; elsewhere ten times as seldom, as lines of their own."""

CLEAR: Final = "\r\033[K"


def examples(*lines: str) -> str:
    """Return examples for the end of a help page, each on a line of its own."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def takes_json(function: Callable[..., None]) -> Callable[..., None]:
    """Pass the command its options and `--json`. `--json` given to a group counts for its subcommands.

    A group is called when none of its subcommands is.
    """

    @click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
    @click.pass_context
    @wraps(function)
    def run(ctx: click.Context, /, *, as_json: bool, **given: Any) -> None:  # noqa: ANN401 - click's values
        ctx.obj = {**ctx.obj, "json": as_json or ctx.obj.get("json", False)}
        if ctx.invoked_subcommand is None:
            function(ctx.obj, as_json=ctx.obj["json"], **given)

    return run


def stdout_json(value: object) -> None:
    """Write a value as one line of JSON: every `--json` does it here."""
    stdout_json_line(msgspec.json.encode(value).decode())


def stdout_json_line(line: str) -> None:
    """Write a line of JSON: as it is into a pipe; to a terminal with escapes for what could command it."""
    click.echo(safe_json(line) if sys.stdout.isatty() else line)


def wants_colour(colour: Colour) -> bool:
    """Return whether to write in colour, and in bold or faint. An empty NO_COLOR counts as not set."""
    if colour is Colour.AUTO:
        return not os.environ.get("NO_COLOR")
    return colour is Colour.ALWAYS


def faint(text: str) -> str:
    """Return what is beside the point, faint where that is wanted."""
    return styled(text, dim=True)


def heading(text: str) -> str:
    """Return a heading, or what was looked for, in bold where that is wanted."""
    return styled(text, bold=True)


def styled(text: str, **style: bool) -> str:
    """Return a text in a style, if `terminal.colour` wants that. click leaves the style out where there is no terminal.

    The settings are read once in a command, and what is wrong with them is no business of what is printed.
    """
    context = click.get_current_context(silent=True)
    options = context.obj if context is not None and isinstance(context.obj, dict) else {}
    if "colour" not in options:
        home = options.get("home")
        read = load(PARTS["settings"]).read_config
        options["colour"] = read(home, os.environ, {})[0].settings.terminal.colour if home else Colour.AUTO
    colour = options["colour"]
    if context is not None and colour is Colour.ALWAYS:
        context.color = True
    return click.style(text, **style) if wants_colour(colour) else text


class Meter:
    """Progress on standard error: one line that is written over in a terminal, a line now and then elsewhere."""

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing shown, so that short work shows nothing. `quiet`: the result itself is on the terminal."""
        self._quiet = quiet
        self._clock = clock
        self._shown_at = clock()
        self._shown = False
        self._in_place = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the line free for what comes next, also when the work was interrupted."""
        self.clear()

    def clear(self) -> None:
        if self._shown and self._in_place:
            self._shown = False
            click.echo(CLEAR, err=True, nl=False)

    def show(self, text: str) -> None:
        """Show how far the work is, if that was not said just now."""
        now = self._clock()
        if self._quiet or now - self._shown_at < (SHOW_SECONDS if self._in_place else 10 * SHOW_SECONDS):
            return
        self._shown_at, self._shown = now, True
        click.echo(f"{CLEAR}{text}" if self._in_place else text, err=True, nl=not self._in_place)


NUMBER_MAX: Final = 1_000_000_000
"""The largest number that a command takes: more than a record has of anything, and every layer below can hold it."""

QUOTED_CHARACTERS_MAX: Final = 40
"""Of a word that is no number, or no good one, where the usage error quotes it."""


class WholeNumber(click.IntRange):
    """A whole number from `least` to `most`, both included. Anything else is a usage error."""

    def __init__(self, least: int = 1, most: int = NUMBER_MAX) -> None:
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Return the number; what cannot be one is refused unread, however long it is."""
        if isinstance(value, str) and len(value) > QUOTED_CHARACTERS_MAX:
            self.fail(f"{value[:QUOTED_CHARACTERS_MAX]}… is not in the range {self._describe_range()}.", param, ctx)
        return int(super().convert(value, param, ctx))
