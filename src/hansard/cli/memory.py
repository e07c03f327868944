"""`hansard memory`: what is remembered for each person and room."""

from __future__ import annotations

import os
from typing import Any

import click

from hansard.app.config import load_config
from hansard.cli.existing import opened_record, reading, with_record
from hansard.cli.printing import examples, stdout_json, takes_json
from hansard.cli.terminal.text import safe_line
from hansard.domain.limits import NOTE_CHARACTERS_MAX, NOTES_MAX
from hansard.domain.people import terminal_owner
from hansard.record.memory import Note


@click.group(
    "memory",
    invoke_without_command=True,
    epilog=examples(
        "hansard memory                                   all notes of all owners",
        "hansard memory list --owner person:ann           those of one",
        'hansard memory add "Prefers short answers."      remember something about yourself',
        'hansard memory edit k3v9 "Prefers long ones."    change a note',
        "hansard memory forget k3v9                       forget it",
    ),
)
@takes_json
def command(options: dict[str, Any], *, as_json: bool) -> None:
    """Show and change what the agent remembers.

    Notes belong to a person or to a room, and are told to the model in sessions of that owner which begin later, never
    in those of others. A shell sees all owners.
    """
    show(with_record(options["home"], lambda record: record.memory.list(), reading), as_json=as_json)


@command.command("list", epilog=examples("hansard memory list --owner room:matrix:!abc:example.org --json"))
@click.option("--owner", metavar="OWNER", help="Only the notes of this owner, such as person:ann.")
@takes_json
def list_all(options: dict[str, Any], *, owner: str | None, as_json: bool) -> None:
    """List notes, the oldest of each owner first."""
    notes = with_record(options["home"], lambda record: record.memory.list(owner), reading)
    show(notes, as_json=as_json)


@command.command(
    "add",
    help=f"Remember TEXT, at most {NOTE_CHARACTERS_MAX} characters; {NOTES_MAX} notes for each owner.",
    epilog=examples('hansard memory add "Lives in Bern."', 'hansard memory add "Meets on Mondays." --owner person:ann'),
)
@click.argument("text")
@click.option("--owner", metavar="OWNER", help="For whom; not given: for the terminal's person.")
@takes_json
def add(options: dict[str, Any], text: str, *, owner: str | None, as_json: bool) -> None:
    """Remember something."""
    whose = owner or terminal_owner(load_config(options["home"], os.environ, {}).settings.people)
    note = with_record(options["home"], lambda record: record.memory.add(whose, text, by="admin"), opened_record)
    show([note], as_json=as_json)


@command.command("edit", epilog=examples('hansard memory edit k3v9 "Lives in Basel."'))
@click.argument("note_id", metavar="ID")
@click.argument("text")
@takes_json
def edit(options: dict[str, Any], note_id: str, text: str, *, as_json: bool) -> None:
    """Let the note ID say TEXT from now on."""
    note = with_record(options["home"], lambda record: record.memory.edit(note_id, text, by="admin"))
    show([note], as_json=as_json)


@command.command("forget", epilog=examples("hansard memory forget k3v9"))
@click.argument("note_id", metavar="ID")
@takes_json
def forget(options: dict[str, Any], note_id: str, *, as_json: bool) -> None:
    """Forget the note ID: no session that begins from now on is told it.

    Sessions that were told it before keep what they were told, and the record keeps that it was noted.
    """
    note = with_record(options["home"], lambda record: record.memory.forget(note_id, by="admin"))
    if as_json:
        show([note], as_json=True)
    else:
        click.echo(f"forgotten: {safe_line(note.text)}")


def show(notes: list[Note], *, as_json: bool) -> None:
    if as_json:
        fields = [
            {"id": note.id, "owner": note.owner, "text": note.text, "changed_at": note.changed_at.isoformat()}
            for note in notes
        ]
        stdout_json({"notes": fields})
        return
    if not notes:
        click.echo("Nothing is remembered.")
    for note in notes:
        click.echo(f"{note.id}  {safe_line(note.owner)}  {safe_line(note.text)}")
