"""`hansard export`: sessions to a file or a pipe, for another home, a reader, a browser or a training run."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
import msgspec

from hansard.cli.existing import reading
from hansard.cli.printing import Meter, counted, examples, stdout_json
from hansard.cli.process import EXIT_DONE, EXIT_FAILED, run
from hansard.cli.sessions import resolve
from hansard.cli.terminal.text import safe, safe_json, safe_line
from hansard.domain.sessions import Session
from hansard.errors import InvalidInput
from hansard.interop.exports import ChatExport, HtmlExport, MarkdownExport
from hansard.interop.jsonl import JsonlExport, home_facts
from hansard.interop.transcripts import Exporter, all_sessions, missing_past, parents_first, read_notices
from hansard.record.api import Record

FORMATS = {"jsonl": safe_json, "markdown": safe, "html": safe, "chat": safe_json}
"""What an export can be, and how a terminal may have it."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What to export, and how."""

    names: tuple[str, ...]
    everything: bool
    format: str
    output: Path | None
    full: bool
    blobs: bool
    facts: bool
    as_json: bool


def unwritable(path: Path, error: OSError) -> InvalidInput:
    """Return the error of a file that an export cannot be written to."""
    hint = "Name another file with -o, or make room. The record and an older file of that name are unchanged."
    return InvalidInput(f"{path} cannot be written: {error.strerror}", hint)


class Target:
    """Where an export goes. A file appears under its name when it is whole; until then the old one stays."""

    def __init__(self, path: Path | None, harmless: Callable[[str], str] = safe) -> None:
        """None: standard output; `harmless` is how a terminal may have it."""
        self._path = path
        self._harmless = harmless
        self._temporary: Path | None = None
        self._file: Any = None
        self.bytes = 0

    def __enter__(self) -> Self:
        """Open it, private: conversations are."""
        if self._path is None:
            self._file = sys.stdout.buffer
            return self
        try:
            if self._path.exists() and not stat.S_ISREG(self._path.stat().st_mode):
                self._file = self._path.open("wb")
            else:
                number, name = tempfile.mkstemp(prefix=f".{self._path.name[:100]}.", dir=self._path.parent)
                self._temporary = Path(name)
                self._file = os.fdopen(number, "wb")
        except OSError as error:
            raise unwritable(self._path, error) from None
        return self

    def write(self, data: bytes) -> None:
        """Write some more. What goes to a terminal cannot command it."""
        self.bytes += len(data)
        if self._path is None and sys.stdout.isatty():
            data = self._harmless(data.decode()).encode()
        with self._told():
            self._file.write(data)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say which file could not be written. Standard output has errors of its own."""
        try:
            yield
        except OSError as error:
            if self._path is None:
                raise
            raise unwritable(self._path, error) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Put a whole file under its name, or remove half of one."""
        try:
            with self._told():
                if error is None:
                    self._file.flush()
                if self._temporary is not None and self._path is not None and error is None:
                    os.fsync(self._file.fileno())
                    self._temporary.replace(self._path)
        finally:
            if self._path is not None:
                with suppress(OSError):  # what could not be written was told
                    self._file.close()
            if self._temporary is not None:
                with suppress(FileNotFoundError):
                    self._temporary.unlink()


def exporter(asked: Asked, report: Callable[[str], None]) -> Exporter:
    if asked.format == "markdown":
        return MarkdownExport(full=asked.full)
    if asked.format == "html":
        return HtmlExport(full=asked.full)
    if asked.format == "chat":
        return ChatExport()
    return JsonlExport(report, blobs=asked.blobs, facts=asked.facts)


async def choose(record: Record, asked: Asked) -> list[Session]:
    """Return what is to be exported, each session after the one that it came from."""
    if asked.everything:
        return parents_first(await all_sessions(record))
    return parents_first([await resolve(record, name) for name in asked.names])


def tell(done: dict[str, object], text: str, *, as_json: bool) -> None:
    if as_json:
        stdout_json(done)
    else:
        click.echo(safe_line(text), err=True)


async def export(home: Path, asked: Asked) -> int:
    findings: list[str] = []
    meter = Meter(quiet=asked.output is None and sys.stdout.isatty())
    async with reading(home) as record:
        sessions = await choose(record, asked)
        writer = exporter(asked, findings.append)
        with meter, Target(asked.output, FORMATS[asked.format]) as target:
            target.write(writer.begin(sessions))
            for number, session in enumerate(sessions, 1):
                if (missing := await missing_past(record, session)) is not None:
                    findings.append(f"session {session.id} is exported without its past: {missing}. {missing.hint}")
                async for piece in writer.session(record, session):
                    target.write(piece)
                    meter.show(f"session {number:,} of {len(sessions):,}, {target.bytes:,} bytes")
            if asked.everything:
                async for message in read_notices(record):
                    target.write(writer.notice(message))
            if asked.everything and asked.facts:
                async for fact in home_facts(record):
                    target.write(fact)
            target.write(writer.end())
    for finding in findings:
        click.echo(safe_line(finding), err=True)
    if asked.output is not None:
        done = {"sessions": len(sessions), "bytes": target.bytes, "file": str(asked.output), "findings": findings}
        text = f"{counted(len(sessions), 'session')}, {target.bytes:,} bytes: {asked.output}"
        tell(done, text, as_json=asked.as_json)
    return EXIT_FAILED if findings else EXIT_DONE


@click.command(
    "export",
    epilog=examples(
        "hansard export --all -o everything.jsonl",
        'hansard export "Trip to Rome" --format markdown',
        "hansard export 20261115-20 --format html -o trip.html",
        "hansard export --all --format chat -o examples.jsonl",
    ),
)
@click.argument("names", metavar="[SESSION]...", nargs=-1)
@click.option(
    "--all", "everything", is_flag=True, help="Every session, archived ones too, and what chats without one were told."
)
@click.option(
    "-f", "--format", type=click.Choice(list(FORMATS)), default="jsonl", show_default=True, help="How it is written."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file; else, or with -, a pipe.",
)
@click.option("--full", is_flag=True, help="markdown, html: with reasoning, and what was undone, marked.")
@click.option("--blobs/--no-blobs", default=True, help="jsonl: with the attachments themselves; the default.")
@click.option(
    "--facts", is_flag=True, help="jsonl: with who asked, what was decided, answered and delivered, for an audit."
)
@click.option("--json", "as_json", is_flag=True, help="With -o: what was written, as one JSON object.")
@click.pass_obj
def command(options: dict[str, Any], /, **given: Any) -> None:  # noqa: ANN401 - click's values
    """Write sessions out, for another home, a reader, a browser or a training run.

    jsonl is Hansard's own: `hansard import hansard FILE` takes it in again. markdown and html are for reading. chat has
    one example a line, for fine-tuning. A SESSION is named by its id, a unique beginning of it, or its title.

    Exit code 0: done. 1: done, but an attachment could not be read, or the past of a fork is missing: it is exported
    without. 2: it could not run.
    """
    if given["output"] == Path("-"):
        given["output"] = None
    asked = Asked(**given)
    if bool(asked.names) == asked.everything:
        raise click.UsageError("Name the sessions to export, or say --all.")
    if asked.facts and asked.format != "jsonl":
        raise click.UsageError("--facts is for --format jsonl.")
    if asked.as_json and asked.output is None:
        raise click.UsageError("--json says what was written to a file: give one with -o.")
    sys.exit(run(lambda: export(options["home"], asked)))
