"""What a chat was shown is in its export, also what it was told before it had a session."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner

from hansard.cli.export import command
from hansard.domain.notices import ENGLISH
from hansard.interop.jsonl_import import import_file
from hansard.ports.channel import EventKind
from hansard.record.api import Record
from tests.intake.town import HOME_OF_ANN, town

UNREADABLE = ENGLISH.unreadable


def export(home: Path, *arguments: str) -> str:
    """Run `hansard export`."""
    result = CliRunner().invoke(command, list(arguments), obj={"home": home}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


async def tell_at_home(home: Path) -> None:
    """Let Ann be told something before she has a session, and again in her session."""
    async with town(home) as here:
        sealed = here.event(kind=EventKind.UNREADABLE, raw="sealed")
        await here.take(sealed)
        await here.take(here.event("now I can", id=sealed.id))
        await here.take(here.event(kind=EventKind.UNREADABLE, raw="sealed again"))


def test_an_export_has_what_every_chat_was_shown(home: Path, tmp_path: Path) -> None:
    """Of a session, what its chat was told in it; of everything, also what chats were told that had no session."""
    asyncio.run(tell_at_home(home))
    for form in ("markdown", "html"):
        everything = export(home, "--all", "--format", form)
        assert everything.count(UNREADABLE) == 2, everything
        assert "Told in chats that had no session" in everything
    lines = [json.loads(line) for line in export(home, "--all").splitlines()]
    (notice,) = (line for line in lines if line["type"] == "notice")
    assert (notice["chat"], notice["text"]) == (HOME_OF_ANN, UNREADABLE)
    session_id = next(line["id"] for line in lines if line["type"] == "session")
    one = [json.loads(line) for line in export(home, session_id).splitlines()]
    assert [line["parts"][0]["text"] for line in one if line.get("role") == "notice"] == [UNREADABLE]
    assert not [line for line in one if line["type"] == "notice"]
    path = tmp_path / "everything.jsonl"
    path.write_text(export(home, "--all"))

    async def take() -> None:
        async with Record.open(tmp_path / "other") as record:
            report = await import_file(record, path)
            assert (report.ok, report.sessions) == (True, 1)

    asyncio.run(take())
