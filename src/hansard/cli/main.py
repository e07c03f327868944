"""The `hansard` command: options that all commands share, talking, and the table of commands."""

from __future__ import annotations

import logging
import os
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
import msgspec

from hansard.app import ENVIRONMENT_PIPE
from hansard.cli import end_at_interrupt, load
from hansard.cli.process import (
    COMMANDS,
    EXIT_COULD_NOT_RUN,
    PARTS,
    STANDARD_OUTPUT,
    TALKS,
    Options,
    ending_without_reader,
    fill_standard_streams,
    silence_stdout,
)
from hansard.errors import HansardError, InvalidInput, OutputClosed

NEEDS_NO_OUTPUT = "gateway"
"""The one command that runs without standard output: it logs, and services often have none."""


class ProcessStart(msgspec.Struct, frozen=True, kw_only=True):
    """How this process began."""

    is_output_closed: bool
    is_own: bool
    """It runs this command and nothing else, so it may start itself anew, unless it did already."""


def usable(home: Path) -> Path:
    """Return the path of a home without `~`, or say why it cannot be used."""
    try:
        home = home.expanduser()
    except RuntimeError:
        raise InvalidInput(f"nobody knows which folder {str(home)!r} is: give the whole path with --home") from None
    if str(home).encode(errors="surrogateescape").decode(errors="replace") != str(home):
        raise InvalidInput(f"the path of the home must be UTF-8, and {str(home)!r} is not")
    return home


class Commands(click.Group):
    """Commands that are imported when they are called."""

    def make_context(self, *given: Any, **more: Any) -> click.Context:  # noqa: ANN401 - click's values
        """Read the options; `--help` and `--version` are shown here."""
        with ending_without_reader():
            return super().make_context(*given, **more)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        with ending_without_reader():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        row = COMMANDS.get(cmd_name)
        return None if row is None else load(row[0]).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands into the help, from the table: none has to be imported for that."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in sorted(COMMANDS.items())])


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    type=click.Path(readable=False),
    help="Where the record lives; $HANSARD_HOME or ~/.hansard.",
)
@click.option(
    "-r",
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[ID|TITLE]",
    help="Go on with a session; alone, choose one.",
)
@click.option("-c", "--continue", "continued", is_flag=True, help="Go on with the latest session.")
@click.option("-p", "--prompt", metavar="[TEXT]", help="One turn, plain output; reads stdin too.")
@click.option(
    "--file", multiple=True, metavar="PATH", help="With -p: a file for the model to look at; may be repeated."
)
@click.option("--json", is_flag=True, help="With -p, or in a pipe: every followed item, one a line.")
@click.option("-m", "--model", metavar="MODEL", help="openai:NAME, anthropic:NAME, demo, scripted:FILE.")
@click.option(
    "--busy", type=click.Choice(["interrupt", "queue", "steer"]), help="What a message does to a running answer."
)
@click.option("--follow", is_flag=True, help="With -r or -c: show the session live, and change nothing by that.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(package_name="hansard", message="hansard %(version)s")
@click.pass_context
def cli(ctx: click.Context, /, home: str | None, **given: Any) -> None:  # noqa: ANN401 - click's values
    """Talk to an agent whose record never loses a word that anyone was shown."""
    if home == "":
        raise click.UsageError("--home is empty: give a path, or leave it out.")
    options = Options(home=usable(Path(home or os.environ.get("HANSARD_HOME") or "~/.hansard")), **given)
    start = ctx.obj if isinstance(ctx.obj, ProcessStart) else ProcessStart(is_output_closed=False, is_own=False)
    if start.is_output_closed and ctx.invoked_subcommand != NEEDS_NO_OUTPUT:
        raise OutputClosed("standard output is closed, so nothing could be shown")
    ctx.obj = {"home": options.home, "debug": options.debug, "is_own": start.is_own}
    if ctx.invoked_subcommand is not None:
        refuse_options_of_talk(given, ctx.invoked_subcommand)
        return
    way = way_to_talk(options)
    if mistake := mistake_in(options, way):
        raise click.UsageError(mistake)
    if start.is_own:
        load(PARTS["secrecy"]).hide_environment(options.home)
    sys.exit(load(TALKS[way]).main(options))


def refuse_options_of_talk(given: dict[str, Any], command: str) -> None:
    """Refuse options that would mean nothing to a command."""
    names = {"continued": "--continue", "prompt": "-p"}
    found = [names.get(name, f"--{name}") for name, value in given.items() if value and name != "debug"]
    if found:
        why = f"{found[0]} before `{command}` is for talking, and would be ignored."
        raise click.UsageError(f"{why} Options of a command stand after its name: hansard {command} --help lists them.")


def mistake_in(options: Options, way: str) -> str:
    """Return which options would be ignored, and what to do; empty when none would be."""
    names_session = options.resume is not None or options.continued
    if options.file and way != "once":
        return "--file goes with -p TEXT. In a conversation, /file PATH hands in a file."
    if options.json and way == "chat":
        return "--json goes with -p TEXT, or with pipes: … | hansard --json"
    if options.follow and way == "once":
        return "--follow shows a session live and asks nothing: leave out -p, or leave out --follow."
    if options.follow and not names_session:
        return "--follow needs a session: hansard -r ID --follow, or hansard -c --follow"
    if options.resume is not None and options.continued:
        return "-r names a session and -c takes the latest one: give one of them."
    return ""


def way_to_talk(options: Options) -> str:
    """Return whether to ask once, to talk in a terminal, or through pipes."""
    if options.prompt is not None:
        return "once"
    in_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return "chat" if in_terminal else "lines"


def main(arguments: list[str] | None = None) -> None:
    """Run a command; errors say what happened, what is safe and what to do."""
    if arguments is None:
        end_at_interrupt()
    is_new = ENVIRONMENT_PIPE in os.environ
    if is_new:
        load(PARTS["secrecy"]).take_environment()
    is_own = arguments is None and not is_new and runs_alone()
    start = ProcessStart(is_output_closed=fill_standard_streams(), is_own=is_own)
    given = with_prompt(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    if not debug:
        logging.getLogger().addHandler(logging.NullHandler())  # nothing but what is meant for people is shown
    try:
        cli.main(args=given, prog_name="hansard", standalone_mode=True, obj=start)
    except HansardError as error:
        if debug:
            raise
        click.echo(f"hansard: {error}\n{error.hint}", err=True)
        sys.exit(EXIT_COULD_NOT_RUN)
    except OSError as error:
        if debug or error.filename != STANDARD_OUTPUT:
            raise
        silence_stdout()
        why = f"standard output cannot be written: {error.strerror}"
        click.echo(f"hansard: {why}.\n{OutputClosed.hint} What was recorded is kept.", err=True)
        sys.exit(EXIT_COULD_NOT_RUN)


def runs_alone() -> bool:
    """Whether this process was started for this command, so that starting it again with the same words does the same.

    It was not when another program calls `main`, or a fork of one that has changed `sys.argv`.
    """
    begin = len(sys.orig_argv) - len(sys.argv[1:])
    if begin < 2 or sys.orig_argv[begin:] != sys.argv[1:]:  # noqa: PLR2004 - the interpreter, and what it runs
        return False
    option, entry = sys.orig_argv[begin - 2 : begin]
    if option == "-m":
        return entry.startswith("hansard")
    return sys.argv[0] == (option if option == "-c" else entry)


def with_prompt(arguments: list[str]) -> list[str]:
    """Return the arguments with an empty text after `-p` where none follows: the question is on standard input.

    (click's own optional values cannot begin with a dash, as a question may.)
    """
    options = {name for parameter in cli.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given: list[str] = []
    for argument, after in zip_longest(arguments, arguments[1:]):
        given.append(argument)
        if argument in {"-p", "--prompt"} and (after is None or after in options):
            given.append("")
    return given


if __name__ == "__main__":
    main()
