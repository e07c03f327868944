"""`hansard people identities` and `hansard people confirm`: the Matrix identities that this home has pinned."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click

from hansard.channels.matrix.keeping import Confirmation, Keeping, Pin
from hansard.cli.existing import check_record, with_record
from hansard.cli.printing import examples, stdout_json
from hansard.cli.terminal.text import safe_line
from hansard.domain.people import read_identity
from hansard.errors import InvalidInput

MATRIX = "matrix"
EXIT_REFUSED = 1
NONE = "none"


@click.command("identities", epilog=examples("hansard people identities"))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.pass_obj
def identities(options: dict[str, Any], *, as_json: bool) -> None:
    """List the Matrix identities (cross-signing master keys) that were pinned when they were first seen.

    One that changed is marked: that person's devices get no keys, and nothing that they write is acted on, until you
    confirm it. Ask the person, by another way than Matrix, whether the new key is theirs.

    Exit code 0: done. 2: it could not run.
    """
    keeping = Keeping(options["home"])
    pins = sorted(keeping.pins().items())
    fields = [fields_of(keeping, user_id, pin) for user_id, pin in pins]
    if as_json or options["json"]:
        stdout_json({"identities": fields})
        return
    if not fields:
        click.echo("No identity is pinned.")
    for each in fields:
        click.echo(safe_line(line_of(each)))


@click.command(
    "confirm",
    epilog=examples("hansard people confirm @ann:example.org", "hansard people confirm @ann:example.org KEY"),
)
@click.argument("identity")
@click.argument("key", required=False, default="")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.pass_obj
def confirm(options: dict[str, Any], identity: str, key: str, *, as_json: bool) -> None:
    """Say that the changed Matrix identity of IDENTITY is theirs. With KEY: only if it is this one.

    It is recorded, and a gateway that runs goes by it at once. A person whose identity was removed is confirmed the
    same way: their devices then count as those of people who have none.

    Exit code 0: the new identity counts. 1: nothing is to be confirmed. 2: it could not run.
    """
    home = options["home"]
    channel, user_id = read_identity(identity)
    if channel != MATRIX:
        raise InvalidInput(f"{identity} is not of Matrix, where people have identities")
    check_record(home)
    keeping = Keeping(home)
    pin = keeping.pins().get(user_id)
    why = why_not(user_id, pin, key)
    if why or pin is None:
        click.echo(safe_line(f"hansard: {why}."), err=True)
        sys.exit(EXIT_REFUSED)
    # It is recorded before it counts.
    with_record(home, lambda record: record.people.confirm_identity(MATRIX, user_id, pin.seen))
    keeping.keep_confirmation(Confirmation(user_id=user_id, master=pin.seen))
    if as_json or options["json"]:
        stdout_json(fields_of(keeping, user_id, pin))
        return
    click.echo(safe_line(f"The identity {pin.seen or NONE} of {user_id} counts from now on."))


def why_not(user_id: str, pin: Pin | None, key: str) -> str:
    """Return why there is nothing to confirm; empty when there is."""
    if pin is None:
        return f"no identity of {user_id} is pinned"
    if not pin.is_changed:
        return f"the identity of {user_id} has not changed"
    if key and key != pin.seen:
        return f"the identity of {user_id} is {pin.seen or NONE} now, and not {key}"
    return ""


def fields_of(keeping: Keeping, user_id: str, pin: Pin) -> dict[str, Any]:
    confirmation = keeping.confirmation(user_id) if pin.is_changed else None
    return {
        "identity": user_id,
        "key": pin.master,
        "since": written_time(pin.since_seconds),
        "changed_to": (pin.seen or NONE) if pin.is_changed else None,
        "changed_at": written_time(pin.seen_seconds) if pin.is_changed else None,
        "confirmed": confirmation is not None and confirmation.master == pin.seen,
    }


def line_of(fields: dict[str, Any]) -> str:
    start = f"{fields['identity']}  {fields['key']}  since {fields['since']}"
    if fields["changed_to"] is None:
        return start
    end = "confirmed" if fields["confirmed"] else f"not confirmed: hansard people confirm {fields['identity']}"
    return f"{start}  CHANGED {fields['changed_at']} to {fields['changed_to']}, {end}"


def written_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")
