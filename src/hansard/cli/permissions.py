"""`hansard permissions`: what people allowed beyond one call, by answering a question with `session` or `always`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from hansard.cli.existing import reading, with_record
from hansard.cli.printing import examples, stdout_json, takes_json
from hansard.cli.terminal.text import safe_line
from hansard.record.permissions import Permission


@click.group(
    "permissions",
    invoke_without_command=True,
    epilog=examples(
        "hansard permissions                 list what people allowed for good, or for a session",
        "hansard permissions revoke p42      let one count no more: the tool asks again",
    ),
)
@takes_json
def command(options: dict[str, Any], *, as_json: bool) -> None:
    """Show which tools people allowed for more than one call, and revoke that.

    A permission is one tool, for one person, in one place; for a session, or always. It turns `ask` into `allow`, and
    never changes a `deny`. Barring a person revokes all of theirs.

    Exit code 0: done. 2: it could not run.
    """
    show(with_record(options["home"], lambda record: record.permissions.list(), reading), as_json=as_json)


@command.command("list", epilog=examples("hansard permissions list --json"))
@takes_json
def list_all(options: dict[str, Any], *, as_json: bool) -> None:
    """List permissions, the oldest first, the same as `hansard permissions`."""
    show(with_record(options["home"], lambda record: record.permissions.list(), reading), as_json=as_json)


@command.command("revoke", epilog=examples("hansard permissions revoke p42"))
@click.argument("permission")
@takes_json
def revoke(options: dict[str, Any], permission: str, *, as_json: bool) -> None:
    """Let PERMISSION count no more: the next call of its tool asks again."""
    revoked = with_record(options["home"], lambda record: record.permissions.revoke(permission))
    if as_json:
        stdout_json({"revoked": fields_of(revoked)})
    else:
        click.echo(f"Revoked: {safe_line(line_of(revoked))}")


def show(permissions: list[Permission], *, as_json: bool) -> None:
    if as_json:
        stdout_json({"permissions": [fields_of(each) for each in permissions]})
        return
    for each in permissions:
        click.echo(safe_line(line_of(each)))
    if not permissions:
        click.echo("Nobody allowed anything beyond one call.")


def line_of(each: Permission) -> str:
    until = f"session {each.session_id}" if each.session_id else "always"
    return f"{each.id:8} {each.tool}  {each.person or 'the terminal'}  {each.place or 'terminal'}  {until}"


def fields_of(each: Permission) -> dict[str, object]:
    at = datetime.fromtimestamp(each.granted_at / 1_000_000, UTC)
    return {**each._asdict(), "granted_at": at.isoformat(), "session_id": each.session_id or None}
