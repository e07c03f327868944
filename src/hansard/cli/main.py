"""The `hansard` command: options that all commands share, and the table of commands."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

import click

from hansard.errors import HansardError

COMMANDS = {
    "demo": "hansard.cli.demo",
    "verify": "hansard.cli.verify",
}

EXIT_COULD_NOT_RUN = 2


def default_home() -> Path:
    """Return where the record lives when nobody says otherwise."""
    return Path(os.environ.get("HANSARD_HOME") or "~/.hansard").expanduser()


class Commands(click.Group):
    """Commands that are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, for help."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        module = COMMANDS.get(cmd_name)
        return None if module is None else import_module(module).command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--home", type=click.Path(path_type=Path), help="Where the record lives; $HANSARD_HOME or ~/.hansard.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(package_name="hansard", message="hansard %(version)s")
@click.pass_context
def cli(ctx: click.Context, home: Path | None, *, debug: bool) -> None:
    """Talk to an agent whose record never loses a word that anyone was shown."""
    ctx.obj = {"home": home or default_home(), "debug": debug}


def main(arguments: list[str] | None = None) -> None:
    """Run a command; errors say what happened, what is safe and what to do."""
    debug = "--debug" in (sys.argv if arguments is None else arguments)
    try:
        cli.main(args=arguments, prog_name="hansard", standalone_mode=True)
    except HansardError as error:
        if debug:
            raise
        click.echo(f"hansard: {error}\n{error.hint}", err=True)
        sys.exit(EXIT_COULD_NOT_RUN)


if __name__ == "__main__":
    main()
