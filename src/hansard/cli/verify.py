"""`hansard verify`: prove that both legs of the record agree."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from hansard.cli.existing import reading
from hansard.cli.printing import stdout_json

if TYPE_CHECKING:
    from pathlib import Path

    from hansard.journal.verify import Report

EXIT_CLEAN, EXIT_FINDINGS = 0, 1


async def verify(home: Path) -> Report:
    """Open the record, which recovers what a crash left, and compare everything."""
    async with reading(home, in_place=False) as record:
        return await record.verify()


@click.command("verify")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.pass_obj
def command(options: dict[str, Path], *, as_json: bool) -> None:
    """Check the database against the logs, the chains, and every table against the entries.

    Exit code 0: everything agrees. 1: there are findings. 2: it could not run.
    """
    home = options["home"]
    report = asyncio.run(verify(home))
    if as_json:
        fields = {
            "ok": report.ok,
            "sessions": report.sessions,
            "entries": report.entries,
            "findings": report.findings,
            "notes": report.notes,
        }
        stdout_json(fields)
    else:
        for finding in report.findings:
            click.echo(f"{finding.session_id or 'database'}: {finding.what}: {finding.detail}")
        for note in report.notes:
            click.echo(f"note: {note}")
        verdict = "everything agrees" if report.ok else f"{len(report.findings)} findings"
        what = "1 session" if report.sessions == 1 else f"{report.sessions} sessions"
        click.echo(f"{what}, {report.entries} entries: {verdict}")
    sys.exit(EXIT_CLEAN if report.ok else EXIT_FINDINGS)
