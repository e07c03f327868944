"""Import of homes that the real hermes-agent wrote: the newest version, and an old one with its logs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import apsw
import pytest

from hansard import Intake, Reasoning, Record, Role, SessionState, ToolCall, ToolResult
from hansard.engine.context import render
from hansard.interop.hermes import import_hermes
from hansard.interop.hermes_parts import session_id_of
from tests.acceptance.stories_program import Hansard, assert_whole, transcript, write_script
from tests.acceptance.stories_program import said as words
from tests.engine.validator import assert_valid
from tests.interop.hermes_homes import (
    NEW,
    OLD,
    Call,
    calls_tool,
    fingerprint,
    log,
    says,
    snapshot,
    write_with_hermes,
)

pytestmark = [pytest.mark.slow]

S, CHILD = "20250305_091523_a1b2c3", "20250305_101523_d4e5f6"
ID, CHILD_ID = session_id_of(S), session_id_of(CHILD)

CALLS: list[Call] = [
    ("db", "create_session", (S, "telegram"), {"user_id": "42", "model": "a-model"}),
    ("db", "append_message", (S, "user", "What is here?"), {}),
    (
        "db",
        "append_message",
        (S, "assistant", None),
        {"tool_calls": calls_tool("c1", "terminal", '{"command": "ls"}'), "reasoning": "I should look."},
    ),
    ("db", "append_message", (S, "tool", "a.txt"), {"tool_call_id": "c1", "tool_name": "terminal"}),
    ("db", "append_message", (S, "assistant", "One file: a.txt. ✓"), {"finish_reason": "stop"}),
    ("db", "append_message", (S, "tool", "late"), {"tool_call_id": "lost", "tool_name": "terminal"}),
    ("db", "set_session_title", (S, "Files"), {}),
    ("db", "end_session", (S, "compression"), {}),
    ("db", "create_session", (CHILD, "telegram"), {"user_id": "42", "parent_session_id": S}),
    ("db", "append_message", (CHILD, "user", [{"type": "text", "text": "And now?"}]), {}),
]

EXPECTED = [
    (Role.USER, "What is here?"),
    (Role.ASSISTANT, ""),
    (Role.TOOL, "a.txt"),
    (Role.ASSISTANT, "One file: a.txt. ✓"),
    (Role.TOOL, "late"),
]


@pytest.mark.loss("M1", "M7")
@pytest.mark.parametrize("leave", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("version", [OLD, NEW])
async def test_a_database_of_the_real_hermes(version: str, home: Path, tmp_path: Path, *, leave: bool) -> None:
    """Messages, calls, title, lineage and owner come over, with what only the WAL holds; the source stays."""
    hermes = write_with_hermes(version, tmp_path / "hermes", CALLS, leave=leave)
    before = fingerprint(hermes)
    assert ("state.db-wal" in before) == leave
    async with Record.open(home) as record:
        report = await import_hermes(record, hermes)
        found = await record.load_transcript(ID)
        assert [(message.role, message.text) for message in found] == EXPECTED
        assert found[1].parts[0] == Reasoning(text="I should look.", model="a-model")
        assert found[1].parts[1] == ToolCall(id="c1", name="terminal", arguments='{"command": "ls"}')
        assert found[2].parts == (ToolResult(call_id="c1", text="a.txt"),)
        parent, child = await record.sessions.read(ID), await record.sessions.read(CHILD_ID)
        assert (parent.title, parent.state, parent.end_reason) == ("Files", SessionState.ENDED, "compression")
        assert child.parent is not None
        assert child.parent.session_id == ID
        assert (parent.owner, parent.source) == ("person:telegram:42", "telegram")
        assert [message.text for message in await record.load_transcript(CHILD_ID)] == ["And now?"]
        assert [(gap.kind, gap.session) for gap in report.gaps] == [("result without a call", S), ("no reply", CHILD)]
        assert (report.findings, report.messages) == ([], 6)
        assert (await import_hermes(record, hermes)).added == 0
    assert fingerprint(hermes) == before


@pytest.mark.loss("M2")
async def test_the_old_gateway_and_its_logs(home: Path, tmp_path: Path) -> None:
    """The old gateway wrote each message to both, and at times to the log alone: the union comes, each once."""
    both: list[Call] = [
        (
            "gateway",
            "append_to_transcript",
            (S, says("user", f"m{number}", timestamp=f"2025-03-05T09:15:{number:02}")),
            {},
        )
        for number in range(6)
    ]
    calls: list[Call] = [("db", "create_session", (S, "telegram"), {}), *both]
    calls.insert(4, ("gateway", "append_to_transcript", (S, says("assistant", "only in the log")), {"skip_db": True}))
    calls.insert(6, ("db", "append_message", (S, "assistant", "only in the database"), {}))
    hermes = write_with_hermes(OLD, tmp_path / "hermes", calls)
    async with Record.open(home) as record:
        report = await import_hermes(record, hermes)
        found = [message.text for message in await record.load_transcript(ID)]
    assert found == ["m0", "m1", "m2", "only in the log", "m3", "only in the database", "m4", "m5"]
    assert report.findings == []


async def test_a_compacted_session_of_the_new_hermes(home: Path, tmp_path: Path) -> None:
    """Compaction in place keeps old rows and writes the end again: each is there once, and the summary between.

    The order of writing decides, although the summary claims an earlier time. What a person rewound is there,
    and taken back; that the session is archived is kept, until a person says otherwise.
    """
    tail = [says("user", "third"), says("assistant", "3")]
    calls: list[Call] = [
        ("db", "create_session", (S, "cli"), {}),
        *[("db", "append_message", (S, role, text), {}) for role, text in (("user", "first"), ("assistant", "1"))],
        *[("db", "append_message", (S, role, text), {}) for role, text in (("user", "second"), ("assistant", "2"))],
        *[("db", "append_message", (S, str(each["role"]), each["content"]), {}) for each in tail],
        ("db", "archive_and_compact", (S, [says("user", "[SUMMARY] first, second", timestamp=1.0), *tail]), {}),
        ("db", "append_message", (S, "user", "fourth"), {"platform_message_id": "1004"}),
        ("db", "append_message", (S, "assistant", "4"), {}),
        ("db", "append_message", (S, "user", "a slip"), {}),
        ("db", "rewind_to_message", (S, 12), {}),
        ("db", "append_message", (S, "user", "fifth"), {}),
        ("db", "set_session_archived", (S, True), {}),
    ]
    hermes = write_with_hermes(NEW, tmp_path / "hermes", calls)
    async with Record.open(home) as record:
        report = await import_hermes(record, hermes)
        found = [message.text for message in await record.load_transcript(ID)]
        conversation = await record.conversation(ID)
        assert (await record.sessions.read(ID)).archived
        await record.sessions.unarchive(ID)
        assert (await import_hermes(record, hermes)).added == 0
        assert not (await record.sessions.read(ID)).archived
        received = await record.accept([], Intake(channel="hermes:cli", account=ID, event_id="1004"))
    expected = ["first", "1", "second", "2", "[SUMMARY] first, second", "third", "3", "fourth", "4"]
    assert [placed.message.text for placed in conversation.placed + conversation.waiting] == [*expected, "fifth"]
    assert found == [*expected, "fifth"]
    assert report.messages == len(expected) + 2
    assert report.findings == []
    assert received.duplicate
    assert [entry.text for entry in received.entries] == ["fourth"]


@pytest.mark.parametrize("version", [OLD, NEW])
async def test_imported_sessions_are_resumed_and_spoken_in(version: str, home: Path, tmp_path: Path) -> None:
    """Every imported session gives a valid request, and `-r` goes on with it: what was said stands, and the answer."""
    calls = [*CALLS, ("db", "append_message", (CHILD, "assistant", None), {"tool_calls": calls_tool("c1")})]
    hermes = write_with_hermes(version, tmp_path / "hermes", calls)
    log(hermes, "only_log", [says("tool", "orphan"), *[says("assistant", "twice", tool_calls=calls_tool("d"))] * 2])
    snapshot(hermes, "only_json", [says("system", "be kind"), says("user", None), says("assistant", "")])
    async with Record.open(home) as record:
        report = await import_hermes(record, hermes)
        for each in report.imported:
            conversation = await record.conversation(each.id)
            assert_valid(render(conversation.placed + conversation.waiting, conversation.ends))
    hansard = Hansard(home, write_script(tmp_path / "script.toml", {"text": "I was told: {told}"}))
    ended = await hansard.run("-r", ID, "-p", "Still there?")
    told = re.sub(r"data \w+", "data MARK", ended.text)
    late = "[Hansard: data MARK begins]\nlate\n[Hansard: data MARK ends]"
    orphan = f"[Hansard: a tool's result without its call:\n{late}\n]"
    assert (ended.code, told) == (0, f"I was told: {orphan}\n\nStill there?")
    spoken = words(await transcript(home, ID))
    assert spoken[-2:] == [("user", "Still there?"), ("assistant", ended.text)]
    assert spoken[0] == ("user", "What is here?")
    await assert_whole(home, ID)
    async with Record.open(home) as record:
        again = await import_hermes(record, hermes)
        assert (again.added, (await record.sessions.read(ID)).state) == (0, SessionState.OPEN)


async def test_fixtures_are_of_the_versions_that_they_name(tmp_path: Path) -> None:
    """The two versions have different schemas, so that the tests above test two."""
    columns = {}
    for version in (OLD, NEW):
        hermes = write_with_hermes(version, tmp_path / version, CALLS)
        columns[version] = json.dumps(sorted(_columns(hermes)))
    assert "platform_message_id" in columns[NEW]
    assert "platform_message_id" not in columns[OLD]


def _columns(hermes: Path) -> list[str]:

    connection = apsw.Connection(str(hermes / "state.db"))
    return [row[1] for row in connection.execute("PRAGMA table_info(messages)")]
