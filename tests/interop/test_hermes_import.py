"""Import of hand-made Hermes homes; the expected result of each is written out."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import apsw
import pytest

from hansard import File, Link, Message, Reasoning, Record, Role, SessionState, Status, ToolCall, ToolResult
from hansard.domain.ids import check_session_id
from hansard.errors import InvalidInput
from hansard.interop.hermes import HermesReport, import_hermes
from hansard.interop.hermes_parts import session_id_of
from tests.interop.hermes_homes import calls_tool, database, fingerprint, log, says, snapshot

S = "20250305_091523_a1b2c3"
ID = "20250305-091523-a1b2c3-hermes"


@pytest.fixture
async def record(home: Path) -> AsyncIterator[Record]:
    """An empty record."""
    async with Record.open(home) as opened:
        yield opened


@pytest.fixture
def hermes(tmp_path: Path) -> Path:
    """Where a Hermes home is written."""
    return tmp_path / "hermes"


async def take(record: Record, hermes: Path) -> HermesReport:
    """Import; the source is as it was, the record is whole, and a second import changes nothing."""
    before = fingerprint(hermes)
    report = await import_hermes(record, hermes)
    heads = [(session.id, session.head_seq) for session in await record.sessions()]
    again = await import_hermes(record, hermes)
    assert again.added == 0
    assert [(session.id, session.head_seq) for session in await record.sessions()] == heads
    assert fingerprint(hermes) == before
    verified = await record.verify()
    assert verified.ok, verified.findings
    return report


def kinds(report: HermesReport) -> list[str]:
    """Return what is to be looked at."""
    return [finding.kind for finding in report.findings]


def gaps(report: HermesReport) -> list[tuple[str, str, str]]:
    """Return what Hermes lost."""
    return [(gap.kind, gap.session, gap.where) for gap in report.gaps]


async def said(record: Record, session_id: str = ID) -> list[tuple[str, str]]:
    """Return who said what."""
    return [(str(message.role), message.text) for message in await record.load_transcript(session_id)]


def exchange(number: int, **fields: object) -> list[dict[str, object]]:
    """Return a question and its answer."""
    return [says("user", f"question {number}", **fields), says("assistant", f"answer {number}", **fields)]


@pytest.mark.loss("M2", "M4")
async def test_994_in_the_log_and_2_in_the_database_are_996(record: Record, hermes: Path) -> None:
    """The log has 994 messages, the database the 2 of the first turn after: all 996 come, in order, without a doubt."""
    old = [
        each
        for number in range(497)
        for each in exchange(number, timestamp=f"2023-01-01T10:{number // 60:02}:{number % 60:02}")
    ]
    log(hermes, S, old)
    database(hermes, {S: exchange(497)})
    report = await take(record, hermes)
    expected = [(str(each["role"]), str(each["content"])) for number in range(498) for each in exchange(number)]
    assert len(expected) == 996
    assert await said(record) == expected
    assert (report.messages, report.added, kinds(report), gaps(report)) == (996, 996, [], [])


async def test_994_in_the_database_and_2_in_the_log_are_996(record: Record, hermes: Path) -> None:
    """The other way round, with an overlap of 4: a common line places the rest, and times are not needed."""
    database(hermes, {S: [each for number in range(497) for each in exchange(number)]})
    log(hermes, S, [each for number in range(495, 498) for each in exchange(number)])
    report = await take(record, hermes)
    assert (await said(record))[-3:] == [
        ("assistant", "answer 496"),
        ("user", "question 497"),
        ("assistant", "answer 497"),
    ]
    assert (report.messages, kinds(report)) == (996, [])


async def test_equal_lengths_take_the_richer_fields_of_each(record: Record, hermes: Path) -> None:
    """Two sources of equal length: reasoning comes from the one, the tool call and the time from the other."""
    rich_call = calls_tool("c1", arguments='{"command": "ls"}')
    database(
        hermes,
        {
            S: [
                says("user", "look"),
                says("assistant", "Looking.", tool_calls=rich_call),
                says("tool", "a.txt", tool_call_id="c1", tool_name="terminal"),
                says("assistant", "One file."),
            ]
        },
    )
    snapshot(
        hermes,
        S,
        [
            says("user", "look"),
            says("assistant", "Looking.", tool_calls=calls_tool("c1"), reasoning="A file list will do."),
            says("tool", "a.txt", tool_call_id="c1"),
            says(
                "assistant",
                "One file.",
                reasoning_details=[{"type": "reasoning.text", "text": "Done.", "signature": "sig"}],
            ),
        ],
    )
    report = await take(record, hermes)
    transcript = await record.load_transcript(ID)
    assert [message.parts[0] for message in transcript[1::2]] == [
        Reasoning(text="A file list will do.", model="a-model"),
        Reasoning(text="Done.", signature="sig", model="a-model"),
    ]
    assert transcript[1].parts[2] == ToolCall(id="c1", name="terminal", arguments='{"command": "ls"}')
    assert transcript[2].parts == (ToolResult(call_id="c1", text="a.txt"),)
    assert [message.at.timestamp() for message in transcript] == [1_700_000_000.0 + place for place in range(4)]
    assert (report.messages, kinds(report), gaps(report)) == (4, [], [])


async def test_a_session_only_in_json(record: Record, hermes: Path) -> None:
    """A snapshot alone becomes a session, with its platform as source; that it is in one source only is reported."""
    database(hermes, {"other": exchange(0)})
    snapshot(hermes, S, exchange(1), platform="telegram")
    report = await take(record, hermes)
    assert await said(record) == [("user", "question 1"), ("assistant", "answer 1")]
    assert (await record.sessions.read(ID)).source == "telegram"
    assert sorted(gaps(report)) == [("one source only", S, ""), ("one source only", "other", "")]


async def test_a_session_only_in_the_log(record: Record, hermes: Path) -> None:
    """A log alone becomes a session; local times without a zone are read as such, and metadata is no message."""
    log(hermes, S, [says("session_meta", None, tools=[]), *exchange(1, timestamp="2025-03-05T09:15:23.250000")])
    report = await take(record, hermes)
    transcript = await record.load_transcript(ID)
    assert [message.text for message in transcript] == ["question 1", "answer 1"]
    assert transcript[0].at.timestamp() == datetime(2025, 3, 5, 9, 15, 23, 250_000).timestamp()  # noqa: DTZ001 - local
    assert (report.messages, kinds(report), gaps(report)) == (2, [], [])


async def test_a_torn_line_is_listed_and_the_rest_comes(record: Record, hermes: Path) -> None:
    """Lines that are no JSON, no message or no UTF-8 are listed with their numbers; nothing is guessed from them."""
    torn = json.dumps(says("assistant", "half an answ"))[:-9].encode()
    log(
        hermes,
        S,
        [*exchange(1), torn + b"\n", b'["a", "list"]\n', b'{"role": "user", "content": "\xff"}\n', b"\n", *exchange(2)],
    )
    report = await take(record, hermes)
    assert [text for _, text in await said(record)] == ["question 1", "answer 1", "question 2", "answer 2"]
    name = f"sessions/{S}.jsonl"
    assert [finding.where for finding in report.findings] == [f"{name}:3", f"{name}:4", f"{name}:5"]
    assert not report.complete
    assert '"half' in report.findings[0].detail


async def test_a_torn_snapshot_and_a_damaged_database_are_listed(record: Record, hermes: Path) -> None:
    """Files that cannot be read at all do not keep the log from being imported."""
    log(hermes, S, exchange(1))
    snapshot(hermes, S, exchange(1)).write_text('{"session_id": "x", "messages": [{"ro')
    (hermes / "state.db").write_bytes(b"this is no database" * 100)
    report = await take(record, hermes)
    assert await said(record) == [("user", "question 1"), ("assistant", "answer 1")]
    assert [(finding.kind, finding.where) for finding in report.findings] == [
        ("unreadable", "state.db"),
        ("unreadable", f"sessions/session_{S}.json"),
    ]


async def test_rows_that_cannot_be_read_are_listed_one_by_one(record: Record, hermes: Path) -> None:
    """Text that is no UTF-8 in a session's row or in a message costs that row alone, and each is listed."""
    database(hermes, {S: [*exchange(1), *exchange(2)], "other": exchange(3)})
    connection = apsw.Connection(str(hermes / "state.db"))
    connection.execute("UPDATE messages SET content = CAST(x'ff41' AS TEXT) WHERE id = 2")
    connection.execute("UPDATE sessions SET title = CAST(x'ff41' AS TEXT) WHERE id = 'other'")
    connection.close()
    report = await take(record, hermes)
    assert [text for _, text in await said(record)] == ["question 1", "question 2", "answer 2"]
    assert [text for _, text in await said(record, "other-hermes")] == ["question 3", "answer 3"]
    assert [(finding.kind, finding.where) for finding in report.findings] == [
        ("unreadable", "state.db, session 2"),
        ("unreadable", "state.db, message 2"),
    ]


async def test_messages_without_a_session_row_come(record: Record, hermes: Path) -> None:
    """Messages whose session's row is gone become a session all the same, and it is listed."""
    database(hermes, {S: exchange(1)})
    connection = apsw.Connection(str(hermes / "state.db"))
    connection.execute("DELETE FROM sessions")
    connection.close()
    report = await take(record, hermes)
    assert [text for _, text in await said(record)] == ["question 1", "answer 1"]
    assert kinds(report) == ["no session row"]


async def test_a_doubled_turn_stays_doubled(record: Record, hermes: Path) -> None:
    """The database has a turn twice, the log once: max(2, 1) is 2, and which one is too many is not guessed."""
    database(hermes, {S: [*exchange(1), *exchange(1), *exchange(2)]})
    log(hermes, S, [*exchange(1), *exchange(2)])
    report = await take(record, hermes)
    assert [text for _, text in await said(record)] == [
        "question 1", "answer 1", "question 1", "answer 1", "question 2", "answer 2",
    ]  # fmt: skip
    assert kinds(report) == []


async def test_repeated_oks_are_as_many_as_the_source_that_has_most(record: Record, hermes: Path) -> None:
    """Three "ok" in the database and five in the log are five; the lines between keep their places."""
    database(hermes, {S: [says("user", "ok"), says("assistant", "a"), says("user", "ok"), says("user", "ok")]})
    log(
        hermes,
        S,
        [
            says("user", "ok"),
            says("assistant", "a"),
            *[says("user", "ok")] * 3,
            says("assistant", "b"),
            says("user", "ok"),
        ],
    )
    report = await take(record, hermes)
    assert [text for _, text in await said(record)] == ["ok", "a", "ok", "ok", "ok", "b", "ok"]
    assert kinds(report) == []


async def test_an_orphan_result_is_kept_and_reported(record: Record, hermes: Path) -> None:
    """A result whose call Hermes lost, and a call whose result it lost, are kept and named in the gap report."""
    database(
        hermes,
        {
            S: [
                says("user", "look"),
                says("tool", "a.txt", tool_call_id="lost", tool_name="terminal"),
                says("assistant", None, tool_calls=calls_tool("c2", "read_file")),
                says("assistant", "Nothing there."),
            ]
        },
    )
    report = await take(record, hermes)
    transcript = await record.load_transcript(ID)
    assert transcript[1].parts == (ToolResult(call_id="lost", text="a.txt"),)
    assert transcript[2].parts == (ToolCall(id="c2", name="read_file"),)
    assert gaps(report) == [("result without a call", S, "message 2"), ("call without a result", S, "message 3")]


async def test_compression_lineage(record: Record, hermes: Path) -> None:
    """A session that Hermes split by compression is two, linked, the first ended with its reason; titles are kept."""
    database(
        hermes,
        {
            "child": [says("user", "[CONTEXT SUMMARY]: we spoke"), says("assistant", "Go on.")],
            "parent": exchange(1),
            "lost_child": exchange(2),
        },
        child={"parent_session_id": "parent", "title": "My talk #2"},
        parent={"ended_at": 1_700_000_100.0, "end_reason": "compression", "title": "My talk"},
        lost_child={"parent_session_id": "deleted"},
    )
    report = await take(record, hermes)
    parent, child = await record.sessions.read("parent-hermes"), await record.sessions.read("child-hermes")
    assert child.parent is not None
    assert (child.parent.session_id, child.parent.link) == ("parent-hermes", Link.IMPORT)
    assert (parent.title, child.title) == ("My talk", "My talk #2")
    assert (parent.state, parent.end_reason) == (SessionState.ENDED, "compression")
    assert child.state == SessionState.OPEN
    assert ("parent missing", "lost_child", "") in gaps(report)


async def test_a_circle_of_parents_is_cut(record: Record, hermes: Path) -> None:
    """Sessions that are each other's parents are imported, and the circle is reported."""
    database(hermes, {"a": exchange(1), "b": exchange(2)}, a={"parent_session_id": "b"}, b={"parent_session_id": "a"})
    report = await take(record, hermes)
    assert len(await record.sessions()) == 2
    assert [kind for kind, _, _ in gaps(report)] == ["parent missing"]


async def test_the_gap_report(record: Record, hermes: Path) -> None:
    """Replies that were never written down, empty sessions and rows that are missing are named with their places."""
    database(
        hermes,
        {
            S: [
                says("user", "one"),
                says("user", "two"),
                says("user", "three"),
                says("assistant", "3"),
                says("user", "four"),
            ],
            "empty": [],
            "lost": exchange(1),
        },
        empty={"message_count": 7},
        lost={"message_count": 996},
    )
    report = await take(record, hermes)
    assert gaps(report) == [
        ("no reply", S, "messages 1 to 2"),
        ("no reply", S, "message 5"),
        ("empty session", "empty", ""),
        ("missing messages", "lost", ""),
    ]
    details = [gap.detail for gap in report.gaps]
    assert details[0] == "2 without a reply before the next message: 'one'"
    assert "counted 7" in details[2]
    assert "counted 996, and 2 are" in details[3]


async def test_an_ambiguous_place_is_reported(record: Record, hermes: Path) -> None:
    """Where neither a common line nor a time says what came first, both are kept and the place is reported."""
    snapshot(hermes, S, [says("user", "a"), says("user", "b"), says("user", "z")])
    database(hermes, {S: [says("user", "a"), says("user", "c"), says("user", "z")]})
    report = await take(record, hermes)
    assert sorted(text for _, text in await said(record)) == ["a", "b", "c", "z"]
    assert kinds(report) == ["ambiguous place"]
    assert report.complete


@pytest.mark.loss("M6")
async def test_what_hermes_wrote_since_comes_with_the_next_import(record: Record, hermes: Path) -> None:
    """A second import adds what is new, at the end; words spoken in Hansard meanwhile stay."""
    database(hermes, {S: exchange(1)}, **{S: {"ended_at": 1.0, "end_reason": "cli_close"}})
    await import_hermes(record, hermes)
    await record.reopen_session(ID)
    await record.append(ID, Message.user("spoken here"))
    log(hermes, S, [*exchange(1), *exchange(2)])
    report = await take(record, hermes)
    assert [text for _, text in await said(record)] == [
        "question 1",
        "answer 1",
        "spoken here",
        "question 2",
        "answer 2",
    ]
    assert (report.added, kinds(report)) == (2, [])
    assert (await record.sessions.read(ID)).state == SessionState.OPEN


async def test_what_appears_before_imported_words_is_added_and_reported(record: Record, hermes: Path) -> None:
    """The record only grows: a message found later, in the middle, comes at the end, and is reported as late."""
    database(hermes, {S: [*exchange(1), *exchange(3)]})
    await import_hermes(record, hermes)
    log(hermes, S, [*exchange(1), *exchange(2), *exchange(3)])
    report = await import_hermes(record, hermes)
    assert [text for _, text in await said(record)][-2:] == ["question 2", "answer 2"]
    assert (report.added, kinds(report)) == (2, ["placed late"])


async def test_fields_that_became_richer_are_reported_not_written_over(record: Record, hermes: Path) -> None:
    """What an earlier import recorded stays as it is."""
    database(hermes, {S: exchange(1)})
    await import_hermes(record, hermes)
    snapshot(hermes, S, [says("user", "question 1"), says("assistant", "answer 1", reasoning="Hm.")])
    report = await import_hermes(record, hermes)
    assert (report.added, kinds(report)) == (0, ["changed since"])
    assert await said(record) == [("user", "question 1"), ("assistant", "answer 1")]


async def test_pictures_and_long_texts_become_files(record: Record, hermes: Path) -> None:
    """A picture inside a message is a blob, an address stays text, and a result too large for an entry is a blob."""
    picture = base64.b64encode(b"\x89PNG picture").decode()
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    large = "x" * 9_000_000
    database(hermes, {S: [says("user", f"\0json:{json.dumps(content)}"), says("tool", large, tool_call_id="c")]})
    await take(record, hermes)
    shown, result = await record.load_transcript(ID)
    assert shown.text == "What is this?[image: https://example.org/a.png]"
    (file,) = [part for part in shown.parts if isinstance(part, File)]
    assert (await record.blobs.read(file.blob), file.media_type) == (b"\x89PNG picture", "image/png")
    (part,) = result.parts
    assert isinstance(part, ToolResult)
    assert (await record.blobs.read(part.blob)).decode() == large


async def test_what_cannot_be_recorded_is_listed_and_the_rest_comes(record: Record, hermes: Path) -> None:
    """A message over the limit of an entry, made of many large texts, is listed; its neighbours of the batch come."""
    content = [{"type": "text", "text": "x" * 1_000_000} for _ in range(12)]
    database(hermes, {S: [*exchange(1), says("user", f"\0json:{json.dumps(content)}"), *exchange(2)]})
    report = await take(record, hermes)
    assert [text for _, text in await said(record)] == ["question 1", "answer 1", "question 2", "answer 2"]
    assert (kinds(report), report.complete, report.added, report.messages) == (["refused"], False, 4, 5)


async def test_owners_come_from_hermes_unless_they_are_given(record: Record, hermes: Path, tmp_path: Path) -> None:
    """A chat belongs to its person, a terminal session to the admin; `owner` takes all."""
    database(hermes, {"chat": exchange(1), "mine": exchange(2)}, chat={"source": "telegram", "user_id": "42"})
    await take(record, hermes)
    owners = {session.id: session.owner for session in await record.sessions()}
    assert owners == {"chat-hermes": "person:telegram:42", "mine-hermes": "person:admin"}
    async with Record.open(tmp_path / "second") as second:
        await import_hermes(second, hermes, owner="person:anna")
        assert {session.owner for session in await second.sessions()} == {"person:anna"}


async def test_a_room_owns_what_was_said_in_it(record: Record, hermes: Path) -> None:
    """The gateway's index says that a log belongs to a group: the room owns it, and its ids are kept."""
    log(hermes, S, exchange(1))
    origin = {"platform": "matrix", "chat_id": "!abc:example.org", "chat_type": "group", "user_id": "@a:example.org"}
    index = {
        "k": {
            "session_id": S,
            "session_key": "agent:main:matrix",
            "platform": "matrix",
            "chat_type": "group",
            "origin": origin,
        }
    }
    (hermes / "sessions" / "sessions.json").write_text(json.dumps(index))
    await take(record, hermes)
    session = await record.sessions.read(ID)
    assert (session.owner, session.source) == ("room:matrix:!abc:example.org", "matrix")
    settings = (await record.conversation(ID)).settings
    assert settings["hermes.session_id"] == S
    assert settings["hermes.chat_id"] == "!abc:example.org"


async def test_unfinished_replies_and_unknown_roles(record: Record, hermes: Path) -> None:
    """A reply that Hermes calls incomplete is interrupted; a role that nobody knows is a notice, and listed."""
    database(
        hermes, {S: [says("user", "q"), says("assistant", "half", finish_reason="incomplete"), says("oracle", "doom")]}
    )
    report = await take(record, hermes)
    transcript = await record.load_transcript(ID)
    assert [message.status for message in transcript] == [Status.COMPLETE, Status.INTERRUPTED, Status.COMPLETE]
    assert transcript[2].role == Role.NOTICE
    assert kinds(report) == ["unknown role"]


async def test_a_dry_run_needs_no_record(hermes: Path) -> None:
    """Without a record the same is reported, and nothing is written anywhere."""
    database(hermes, {S: [*exchange(1), says("user", "and?")]})
    before = fingerprint(hermes)
    report = await import_hermes(None, hermes)
    assert (report.dry_run, report.sessions, report.messages, report.added) == (True, 1, 3, 0)
    assert gaps(report) == [("no reply", S, "message 3")]
    assert fingerprint(hermes) == before


async def test_what_is_no_hermes_home_is_refused(record: Record, tmp_path: Path) -> None:
    """An empty folder is not a Hermes home, and neither is a home of Hansard."""
    with pytest.raises(InvalidInput, match="no Hermes home"):
        await import_hermes(record, tmp_path / "nothing")
    with pytest.raises(InvalidInput):
        await import_hermes(record, record.home)


@pytest.mark.parametrize(
    ("hermes_id", "expected"),
    [
        (S, ID),
        ("cron_job1_20250305", "cron-job1-20250305-hermes"),
        ("a_b_c", "a-b-c-hermes"),
        ("a-b-c", "a-b-c-cbd2be7b-hermes"),
        ("a-b_c", "a-b-c-0b7808a0-hermes"),
        ("Über/..", "ber-d1aef614-hermes"),
        ("", "session-e3b0c442-hermes"),
        ("x" * 200, f"{'x' * 40}-aa20c23e-hermes"),
    ],
)
def test_session_ids(hermes_id: str, expected: str) -> None:
    """An id keeps its form where it can; where several would look alike, a piece of their digest tells them apart."""
    assert check_session_id(session_id_of(hermes_id)) == expected
