"""Write docs/reference.md from the code: commands, errors, entry kinds, limits, crash points, the schema."""

from __future__ import annotations

import ast
import inspect
import sys
from importlib import resources
from itertools import pairwise
from pathlib import Path

import click

from hansard import errors
from hansard.cli.main import cli
from hansard.domain import limits
from hansard.domain.entries import KINDS
from hansard.intake.commands import help_text
from hansard.testing import crash

TARGET = Path(__file__).parents[1] / "docs" / "reference.md"


def first_line(thing: object) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def command_section() -> str:
    """Every command with its help."""
    context = click.Context(cli, info_name="hansard")
    pieces = [f"```\n{cli.get_help(context)}\n```"]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        with click.Context(command, info_name=name, parent=context) as inner:
            pieces.append(f"```\n{command.get_help(inner)}\n```")
            for below, nested in sorted(getattr(command, "commands", {}).items()):
                with click.Context(nested, info_name=below, parent=inner) as innermost:
                    pieces.append(f"```\n{nested.get_help(innermost)}\n```")
    return "\n\n".join(pieces)


def error_section() -> str:
    """Every error: what it means, whether to retry, what to do."""
    rows = ["| error | meaning | retry helps | what to do |", "|---|---|---|---|"]
    for name, cls in vars(errors).items():
        if isinstance(cls, type) and issubclass(cls, errors.HansardError):
            rows.append(f"| `{name}` | {first_line(cls)} | {'yes' if cls.retryable else 'no'} | {cls.hint} |")
    return "\n".join(rows)


def kind_section() -> str:
    """Every entry kind with its version and fields."""
    rows = ["| kind | version | meaning | fields |", "|---|---|---|---|"]
    for kind, (version, body) in KINDS.items():
        fields = ", ".join(f"`{name}`" for name in body.__struct_fields__)
        rows.append(f"| `{kind}` | {version} | {first_line(body)} | {fields} |")
    return "\n".join(rows)


def limit_section() -> str:
    """Every limit with its reason, as limits.py gives it."""
    rows = ["| limit | value | reason |", "|---|---|---|"]
    body = ast.parse(inspect.getsource(limits)).body
    for statement, reason in pairwise(body):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(reason, ast.Expr) and isinstance(reason.value, ast.Constant):
            name = statement.target.id
            rows.append(f"| `{name}` | {getattr(limits, name):,} | {' '.join(str(reason.value.value).split())} |")
    return "\n".join(rows)


def reference() -> str:
    """The whole page."""
    schema = resources.files("hansard.record.sqlite").joinpath("schema.sql").read_text(encoding="utf-8")
    points = ", ".join(f"`{point}`" for point in crash.CRASH_POINTS + crash.OPENING_POINTS)
    return f"""# Reference

Generated from the code by `make reference`; a test keeps it true.

## Commands

{command_section()}

## In a chat

```
{help_text()}
```

## Errors

All are in `hansard.errors` and, by name, in `hansard`.

{error_section()}

## Entry kinds

{kind_section()}

## Limits

{limit_section()}

## Crash points

`hansard.testing.CrashPoint(name, occurrence)` kills the process there: {points}.

## Schema

```sql
{schema}```
"""


def main() -> int:
    """Write the page, or, with --check, say whether it is up to date."""
    if "--check" in sys.argv:
        return 0 if TARGET.read_text(encoding="utf-8") == reference() else 1
    TARGET.write_text(reference(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
