"""Rule 16: text that UTF-8 or a database cannot carry is recorded without loss; views show U+FFFD."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard import Message, Record, Role, Text, ToolCall, ToolResult
from hansard.domain.messages import Part
from hansard.interop.jsonl_import import import_file
from tests.domain.originals import original
from tests.interop.told import export_jsonl
from tests.record.helpers_facts import SESSION, assert_clean, new_session

ODD = "a\ud800b\0\0c\udfff"
SHOWN = "a\ufffdb\ufffd\ufffdc\ufffd"


async def originals(record: Record) -> list[str]:
    """Return what every part of the session said as it came in."""

    def said(part: Part) -> str:
        return original(part, "arguments" if isinstance(part, ToolCall) else "text")

    return [said(part) for message in await record.load_transcript(SESSION) for part in message.parts]


@pytest.mark.loss("C11", "N3")
async def test_odd_text_is_recorded_without_loss(home: Path, tmp_path: Path) -> None:
    """Appended, streamed, in calls and results; after a rebuild and through an export: as it came in."""
    async with Record.open(home) as record:
        await new_session(record)
        await record.append(SESSION, Message.user(ODD, id="m"))
        await record.append(SESSION, Message.user(ODD, id="m"))
        async with record.turn(SESSION) as turn:
            async with turn.reply() as reply:
                for piece in ("x\ud834", "\udd1ey", "\0", "\ud800"):
                    await reply.write(piece)
                reply.add(ToolCall(id="1", name="t", arguments=ODD))
            await turn.append(Message.make(Role.TOOL, [ToolResult(call_id="1", text=ODD)]))
        said = [ODD, "x\U0001d11ey\0\ud800", ODD, ODD]
        assert await originals(record) == said
        texts = [message.text for message in await record.load_transcript(SESSION)]
        assert texts == [SHOWN, "x\U0001d11ey\ufffd\ufffd", SHOWN]
        assert [hit.message.id for hit in await record.search("x")]
        await assert_clean(record)
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink()
    async with Record.open(home) as record:
        assert await originals(record) == said
        await assert_clean(record)
    path = await export_jsonl(home, tmp_path / "export.jsonl")
    async with Record.open(tmp_path / "other") as record:
        await import_file(record, path)
        assert await originals(record) == said
        await assert_clean(record)


async def test_written_replacement_characters_are_not_mistaken(home: Path) -> None:
    """U+FFFD that somebody wrote, and text that looks like an escape, stay what they are."""
    async with Record.open(home) as record:
        await new_session(record)
        texts = ["\ufffd", "1|text=0:d800", "\ufffd\ud800"]
        for text in texts:
            await record.append(SESSION, Message.user([Text(text)]))
        assert await originals(record) == texts
