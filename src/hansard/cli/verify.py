"""`hansard verify`: prove that both legs of the record agree."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from hansard.cli.existing import reading, with_record
from hansard.cli.printing import counted, stdout_json, takes_json

EXIT_CLEAN, EXIT_FINDINGS = 0, 1


@click.command("verify")
@takes_json
def command(options: dict[str, Path], *, as_json: bool) -> None:
    """Check the database against the logs, the chains, and every table against the entries.

    Exit code 0: everything agrees. 1: there are findings. 2: it could not run.
    """
    # Opening the record recovers what a crash left: that is no finding.
    report = with_record(options["home"], lambda record: record.verify(), partial(reading, in_place=False))
    if as_json:
        counts = {"ok": report.ok, "sessions": report.sessions, "entries": report.entries}
        stdout_json({**counts, "findings": report.findings, "notes": report.notes})
    else:
        for finding in report.findings:
            click.echo(f"{finding.session_id or 'database'}: {finding.what}: {finding.detail}")
        for note in report.notes:
            click.echo(f"note: {note}")
        verdict = "everything agrees" if report.ok else counted(len(report.findings), "finding")
        what = "1 session" if report.sessions == 1 else f"{report.sessions} sessions"
        click.echo(f"{what}, {report.entries} entries: {verdict}")
    sys.exit(EXIT_CLEAN if report.ok else EXIT_FINDINGS)
