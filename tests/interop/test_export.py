"""Exports for people and programs: complete, the same every time, and nobody's words pass for somebody else's."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hansard.domain.messages import Message, ToolCall
from hansard.interop.exports import ChatExport, HtmlExport, MarkdownExport, fenced, plain, quoted
from hansard.interop.jsonl import JsonlExport
from hansard.interop.transcripts import (
    PAGE_ENTRIES,
    Happened,
    TranscriptItem,
    Used,
    all_sessions,
    parents_first,
    read_transcript,
    survey,
)
from hansard.record.api import Record
from hansard.record.messages.entries import Entry
from tests.interop.told import Teller, export, tell_story


async def test_every_export_is_the_same_twice(home: Path, seed: int) -> None:
    """The same record gives the same bytes, also after its home was opened again."""
    writers = (lambda: JsonlExport(print), MarkdownExport, HtmlExport, ChatExport)
    async with Record.open(home) as record:
        await Teller(record, seed).sessions(6)
        first = [await export(record, make()) for make in writers]
    async with Record.open(home) as record:
        assert [await export(record, make()) for make in writers] == first


async def test_a_transcript_is_read_as_it_was_said(home: Path) -> None:
    """Turns, tools with their results, what happened between; what was taken back only on request."""
    async with Record.open(home) as record:
        session = await tell_story(record)
        brief = [item async for item in read_transcript(record, session, full=False)]
        full = [item async for item in read_transcript(record, session, full=True)]
    said = [item.message.id for item in brief if isinstance(item, TranscriptItem)]
    assert said == ["m1", "r1", "r2", "m4", "r3", "n1"]
    assert [item.message.id for item in full if isinstance(item, TranscriptItem) and item.undone] == ["m2", "m3"]
    used = [item for item in brief if isinstance(item, Used)]
    assert [(each.call and each.call.name, each.result and each.result.text) for each in used] == [
        ("clock", "It is 12:00 in Rome")
    ]
    assert [item.text for item in brief if isinstance(item, Happened)] == [
        "2 messages were taken back",
        "the turn failed: Cut: ",
        "the session ended: we are back",
    ]


async def test_messages_said_during_an_answer_stand_where_the_transcript_has_them(home: Path, seed: int) -> None:
    """Read page by page, every session gives the very messages that load_transcript gives, in the same order."""
    async with Record.open(home) as record:
        await Teller(record, seed).sessions(12)
        for session in await all_sessions(record):
            items = [item async for item in read_transcript(record, session, full=False)]
            read = [item.message for item in items if isinstance(item, TranscriptItem)]
            loaded = await record.load_transcript(session.id)
            tools = {message.id for message in loaded if message.role == "tool"}
            assert read == [message for message in loaded if message.id not in tools]


async def test_calls_and_results_that_lack_each_other_are_told(home: Path) -> None:
    """A result whose call is not there, and a call that never got a result, are both shown."""
    async with Record.open(home) as record:
        await record.create_session(id="s", source="cli")
        await record.append("s", Message.tool("orphan", "a result", id="t1"))
        await record.append("s", Message.assistant([ToolCall(id="lonely", name="clock")], id="a1"))
        await record.append("s", Message.assistant("never mind", id="a2"))
        session = await record.sessions.read("s")
        items = [item async for item in read_transcript(record, session, full=False)]
    used = [item for item in items if isinstance(item, Used)]
    assert [(each.call and each.call.id, each.result and each.result.text) for each in used] == [
        (None, "a result"),
        ("lonely", None),
    ]
    last = items[-1]
    assert isinstance(last, TranscriptItem)
    assert last.message.id == "a2"


async def test_markdown_has_every_word(home: Path) -> None:
    """A story as Markdown: who, when, tools whole, an answer that was cut; what was taken back only with full."""
    async with Record.open(home) as record:
        await tell_story(record)
        brief = (await export(record, MarkdownExport())).decode()
        full = (await export(record, MarkdownExport(full=True))).decode()
    for words in (
        "# Trip to Rome",
        "## User (Ann)",
        "> What time is it?",
        "map.png",
        '{"zone":"Rome"}',
        "12:00 in Rome",
    ):
        assert words in brief
    assert "interrupted\n\n> Tomorrow it will b\n" in brief
    assert "Forgotten words" not in brief
    assert "I should look." not in brief
    assert "taken back\n\n> Forgotten words\n" in full
    assert "> I should look.\n" in full


HOSTILE = st.text(st.sampled_from("ab #>`~*_[]<>&|\\!\n\r\u2028\x0b\x0c-=1.\t"), max_size=60)


@given(HOSTILE)
@example("```\nnot code\n```")
@example("````\n# heading")
def test_nobodys_words_leave_their_quotation(words: str) -> None:
    """Whatever is said, a Markdown reader sees our headings, one quotation and one block of code."""
    page = f"## before\n\n{quoted(words)}\n\n{fenced(words)}\n\n## {plain(words) or 'x'}\n"
    tokens = MarkdownIt().parse(page)
    outer = [token.type for token in tokens if token.level == 0 and token.nesting >= 0]
    assert outer == ["heading_open", "blockquote_open", "fence", "heading_open"]
    heading = next(token for token in reversed(tokens) if token.type == "inline")
    assert {child.type for child in heading.children or ()} <= {"text", "text_special"}


async def test_chat_has_examples_for_training(home: Path) -> None:
    """One line a session: roles and words, whole answers only, neighbours joined, ending with an answer."""
    async with Record.open(home) as record:
        await tell_story(record)
        await record.create_session(id="silent", source="cli")
        await record.append("silent", Message.user("anybody?", id="m1"))
        lines = (await export(record, ChatExport())).decode().splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "messages": [
                {"role": "user", "content": "What time is it?"},
                {"role": "assistant", "content": "Let me look.\n\nIt is noon."},
            ]
        }
    ]


async def test_chat_alternates(home: Path, seed: int) -> None:
    """In every example no two neighbours have one role, nothing is empty, and the last word is the assistant's."""
    async with Record.open(home) as record:
        await Teller(record, seed).sessions(20)
        lines = (await export(record, ChatExport())).decode().splitlines()
    assert lines
    for line in lines:
        roles = [message["role"] for message in json.loads(line)["messages"]]
        assert all(first != second for first, second in pairwise(roles))
        assert roles[-1] == "assistant"
        assert all(message["content"].strip() for message in json.loads(line)["messages"])


async def test_a_missing_attachment_is_reported_and_the_rest_is_written(home: Path) -> None:
    """An attachment that cannot be read is told; every message is in the export all the same."""
    async with Record.open(home) as record:
        await tell_story(record)
        for path in (home / "blobs").rglob("*"):
            if path.is_file():
                path.unlink()
        findings: list[str] = []
        lines = (await export(record, JsonlExport(findings.append))).splitlines()
    assert len(findings) == 1
    assert "m1" in findings[0]
    assert [json.loads(line)["type"] for line in lines] == ["hansard", "session", *["message"] * 9, "end"]


async def test_what_happened_to_a_parent_did_not_happen_to_its_fork(home: Path) -> None:
    """A fork of a session that had ended and was archived did neither itself; what was undone before it still is."""
    async with Record.open(home) as record:
        await tell_story(record)
        await record.sessions.archive("story")
        child = await record.fork("story", id="child")
        parent = await survey(record, await record.sessions.read("story"))
        own = await survey(record, child)
    assert (parent.ended_once, parent.archived_once, sorted(parent.fold.undone)) == (True, True, ["m2", "m3"])
    assert (own.ended_once, own.archived_once, sorted(own.fold.undone)) == (False, False, ["m2", "m3"])


async def test_parents_come_first(home: Path) -> None:
    """Whatever the order asked for, a session stands after the one that it came from, and nothing stands twice."""
    async with Record.open(home) as record:
        first = await record.create_session(id="a", source="cli")
        second = await record.fork("a", id="b")
        third = await record.create_session(id="c", source="cli", parent="b")
        other = await record.create_session(id="d", source="cli")
    assert [session.id for session in parents_first([third, other, second, first, third])] == ["a", "b", "c", "d"]
    assert [session.id for session in parents_first([third])] == ["c"]


class Counted:
    """A record that counts the pages which it is asked for."""

    def __init__(self, record: Record) -> None:
        """Ask a real one."""
        self._record = record
        self.sessions = self
        self.pages = 0

    async def read_entries(self, session_id: str, after: int, limit: int) -> list[Entry]:
        """Count a page."""
        self.pages += 1
        return await self._record.sessions.read_entries(session_id, after, limit)


async def test_an_export_holds_a_page_at_a_time(home: Path) -> None:
    """A long session is written while it is read: once through to survey it, then no page before it is needed."""
    count = 10 * PAGE_ENTRIES
    async with Record.open(home) as record:
        await record.create_session(id="long", source="cli")
        for start in range(0, count, 100):
            await record.accept([("long", Message.user("word " * 20, id=f"m{start + n}")) for n in range(100)])
        session = await record.sessions.read("long")
        counted = Counted(record)
        pages_all = -(-session.head_seq // PAGE_ENTRIES)
        written = 0
        async for _ in MarkdownExport().session(cast("Record", counted), session):
            if written:
                assert counted.pages == pages_all + (written + 1 + PAGE_ENTRIES - 1) // PAGE_ENTRIES
            written += 1
    assert written == count + 1
