"""`hansard import`: take conversations from Hermes, or from Hansard's own export, into the record."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import click
import msgspec

from hansard.cli.existing import opened_record
from hansard.cli.printing import Meter, counted, stdout_json, takes_json
from hansard.cli.process import EXIT_DONE, EXIT_FAILED, run
from hansard.cli.terminal.text import safe_line
from hansard.interop.hermes import import_hermes
from hansard.interop.hermes_parts import HermesFinding
from hansard.interop.jsonl_import import import_file

LISTED_MAX: Final = 20
"""Lines of one kind that are listed for people; `--json` has all."""


@click.group("import")
def command() -> None:
    """Take conversations from elsewhere into the record.

    \b
    Examples:
      hansard import hermes ~/.hermes --dry-run
      hansard import hermes ~/.hermes
      hansard import hansard sessions.jsonl

    A second import of the same source changes nothing, so an interrupted one is simply repeated.
    """  # noqa: D301 - click's mark of lines that stay as they are


@command.command("hermes")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--dry-run", is_flag=True, help="Only report: read everything, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--owner", metavar="OWNER", help="Whose sessions they become; otherwise whom Hermes names.")
@click.pass_obj
def hermes(options: dict[str, Path], path: Path, *, dry_run: bool, as_json: bool, owner: str | None) -> None:
    """Import a Hermes home: state.db, sessions/*.jsonl and sessions/session_*.json, merged.

    PATH is the home of Hermes, usually ~/.hermes. It is read where it lies and never changed.

    \b
    Examples:
      hansard import hermes ~/.hermes --dry-run     what there is, and what Hermes lost
      hansard import hermes ~/.hermes               import it; again later for what is new
      hansard import hermes ~/.hermes --owner person:admin
      hansard import hermes ~/.hermes --json > report.json

    Exit code 0: all of it is in the record. 1: something could not be read, and is listed. 2: it could not run.
    """  # noqa: D301 - click's mark of lines that stay as they are
    sys.exit(run(lambda: _hermes(options["home"], path, owner, dry_run=dry_run, as_json=as_json)))


async def _hermes(home: Path, path: Path, owner: str | None, *, dry_run: bool, as_json: bool) -> int:
    with Meter() as meter:
        async with AsyncExitStack() as stack:
            record = None if dry_run else await stack.enter_async_context(opened_record(home))
            report = await import_hermes(record, path, owner=owner, progress=lambda done: meter.show(done.describe()))
    if as_json:
        stdout_json({"complete": report.complete, **msgspec.structs.asdict(report)})
    else:
        show_findings("To look at", report.findings)
        show_findings("What Hermes lost (as far as its files show)", report.gaps)
        done = "would be imported" if dry_run else f"{report.added:,} new"
        click.echo(f"{counted(report.sessions, 'session')}, {counted(report.messages, 'message')}: {done}")
    return EXIT_DONE if report.complete else EXIT_FAILED


def show_findings(headline: str, findings: list[HermesFinding]) -> None:
    """Print findings by their kind, the first few of each."""
    if not findings:
        return
    click.echo(f"{headline}:")
    for kind in dict.fromkeys(finding.kind for finding in findings):
        those = [finding for finding in findings if finding.kind == kind]
        click.echo(f"  {kind}: {len(those)}")
        for finding in those[:LISTED_MAX]:
            place = ", ".join(text for text in (finding.session, finding.where) if text)
            click.echo(f"    {safe_line(place)}: {safe_line(finding.detail)}")
        if len(those) > LISTED_MAX:
            click.echo(f"    … and {len(those) - LISTED_MAX} more; --json lists all")


@command.command("hansard")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@takes_json
def hansard(options: dict[str, Path], path: Path, *, as_json: bool) -> None:
    """Import what `hansard export --format jsonl` wrote.

    \b
    Examples:
      hansard import hansard sessions.jsonl
      hansard --home /elsewhere import hansard sessions.jsonl --json

    Exit code 0: all of it is in the record. 1: there are findings, and all of them are listed. 2: it could not run.
    """  # noqa: D301 - click's mark of lines that stay as they are
    sys.exit(run(lambda: _hansard(options["home"], path, as_json=as_json)))


async def _hansard(home: Path, path: Path, *, as_json: bool) -> int:
    with Meter() as meter:
        async with opened_record(home) as record:
            report = await import_file(
                record, path, lambda done, of: meter.show(f"{done * 100 // max(of, 1)} % of {of:,} bytes")
            )
    if as_json:
        stdout_json({"ok": report.ok, **msgspec.structs.asdict(report)})
    else:
        for finding in report.findings:
            click.echo(safe_line(str(finding)))
        for note in report.notes:
            click.echo(f"note: {safe_line(note)}")
        sessions, messages = counted(report.sessions, "new session"), counted(report.messages, "new message")
        click.echo(f"{sessions}, {messages}; {report.skipped:,} messages were there already")
    return EXIT_DONE if report.ok else EXIT_FAILED
