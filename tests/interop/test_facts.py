"""`hansard export --facts`: what an auditor needs, without anybody's words, and nothing that an import would take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner

from hansard.cli.export import command
from hansard.interop.jsonl_import import import_file
from hansard.record.api import Record
from tests.interop.told import everything, tell_story

Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Do something; the command beside it has a loop of its own."""
    return asyncio.run(work)


def export_with_facts(home: Path, target: Path) -> list[dict[str, object]]:
    """Run the command; return the lines."""
    done = CliRunner().invoke(command, ["--all", "--facts", "-o", str(target)], obj={"home": home})
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]


async def make_story(home: Path) -> list[tuple[str, int, str, str]]:
    """A home with a story, somebody who may talk, and a fork; return every entry of its sessions."""
    async with Record.open(home) as record:
        session = await tell_story(record)
        child = await record.fork(session.id)
        await record.access.allow("matrix", "@ann:example.org")
        found = [
            *await record.sessions.read_entries(session.id),
            *await record.sessions.read_entries(child.id, session.head_seq),
        ]
        return [(entry.session_id, entry.seq, entry.id, entry.kind) for entry in found]


def test_every_entry_is_a_fact_without_its_words(home: Path, tmp_path: Path) -> None:
    """Each entry of each session once, in order; the home's after them; words only in message lines."""
    entries = run(make_story(home))
    lines = export_with_facts(home, tmp_path / "facts.jsonl")
    facts = [line for line in lines if line["type"] == "fact"]
    assert [(f["session_id"], f["seq"], f["id"], f["kind"]) for f in facts if f["session_id"]] == entries
    assert "access.changed" in {fact["kind"] for fact in facts if not fact["session_id"]}
    assert "cursor.moved" not in {fact["kind"] for fact in facts}
    bodies = [fact["body"] for fact in facts if isinstance(fact["body"], dict)]
    assert not {"parts", "code", "text", "summary"} & {name for body in bodies for name in body}


def test_an_import_skips_facts(home: Path, tmp_path: Path) -> None:
    """They happened in another home: nobody is allowed there because of them, and nothing is reported."""
    run(make_story(home))
    export_with_facts(home, tmp_path / "facts.jsonl")

    async def take() -> None:
        async with Record.open(tmp_path / "other") as record:
            assert (await import_file(record, tmp_path / "facts.jsonl")).ok
            assert await record.access.list() == []

    run(take())
    assert run(everything(tmp_path / "other")) == run(everything(home))


def test_facts_are_for_jsonl(home: Path) -> None:
    """Another format has no place for them."""
    done = CliRunner().invoke(command, ["--all", "--facts", "--format", "html"], obj={"home": home})
    assert done.exit_code == 2
    assert "--facts is for --format jsonl" in done.output
