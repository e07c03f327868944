"""`hansard explain`: why a turn's tools were run or not, and in advance whether a tool would be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from hansard.cli.existing import reading
from hansard.cli.explain_ahead import explain_ahead
from hansard.cli.printing import examples
from hansard.cli.terminal.sanitize import safe
from hansard.intake.explaining import explain_turn, last_turn, read_facts

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    "explain",
    epilog=examples(
        "hansard explain 2f61c09e                   a turn, by the beginning of its id",
        "hansard explain 20261115-201233-k3v9qd     the last turn of a session",
        "hansard explain --person ann --tool mcp__bank__pay --place matrix:!den:example.org",
        "hansard explain --person telegram:12345 --tool mcp__bank__pay --place telegram:-100500",
        "hansard explain --person admin --tool memory --place terminal",
    ),
)
@click.argument("turn", required=False)
@click.option("--person", metavar="P", help="A name of [people], @ann:example.org, telegram:12345, or terminal.")
@click.option("--tool", metavar="T", help="The tool's name, such as mcp__bank__pay.")
@click.option("--place", metavar="K", help="matrix:!den:example.org, telegram:-100500, or terminal.")
@click.pass_obj
def command(options: dict[str, Any], turn: str | None, person: str | None, tool: str | None, place: str | None) -> None:
    """Say why a turn's tools were run or not, as it was decided then; or whether a tool would be run, by the settings.

    TURN is a turn's id, or the beginning of one, or a session: its last turn is meant.
    """
    asked = (person, tool, place)
    if turn is not None and asked == (None, None, None):
        click.echo(safe(asyncio.run(explain_past(options["home"], turn))))
    elif turn is None and person and tool and place:
        click.echo(safe(asyncio.run(explain_ahead(options["home"], person, tool, place))))
    else:
        raise click.UsageError("name a turn, or --person, --tool and --place together")


async def explain_past(home: Path, name: str) -> str:
    """Return why a turn's tools were run or not."""
    async with reading(home) as record:
        turn = await record.turns.find(name)
        if turn is None:
            turn = await last_turn(record, (await record.resolve(name)).id)
        return explain_turn(await read_facts(record, turn))
