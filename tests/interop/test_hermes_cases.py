"""Nine ways in which a Hermes home can be, its database written by the real hermes-agent: what becomes of each.

One home has them all, beside legacy files that are written by hand; it is written and imported once for each version.
The expected result of each case stands beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from hansard import Link, Message, Reasoning, Record, Session, ToolCall, ToolResult
from hansard.interop.hermes import HermesReport, import_hermes
from hansard.interop.hermes_parts import session_id_of
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

pytestmark = pytest.mark.slow

Line = dict[str, Any]


def exchange(number: int, **fields: object) -> list[Line]:
    """Return a question and its answer."""
    return [says("user", f"question {number}", **fields), says("assistant", f"answer {number}", **fields)]


DATABASE: dict[str, list[Line]] = {
    "lost-994": exchange(497),
    "richer": [
        says("user", "look"),
        says("assistant", "Looking.", tool_calls=calls_tool("c1", arguments='{"command": "ls"}')),
        says("tool", "a.txt", tool_call_id="c1", tool_name="terminal"),
        says("assistant", "One file."),
    ],
    "torn": exchange(1),
    "doubled": [*exchange(1), *exchange(1), *exchange(2)],
    "oks": [says("user", "ok"), says("assistant", "a"), says("user", "ok"), says("user", "ok")],
    "orphan": [
        says("user", "look"),
        says("tool", "a.txt", tool_call_id="lost", tool_name="terminal"),
        says("assistant", "There it is."),
    ],
    "first-part": exchange(1),
    "second-part": [says("user", "[CONTEXT SUMMARY]: we spoke"), says("assistant", "Go on.")],
}
"""What hermes-agent writes into state.db."""

SIGNED = [{"type": "reasoning.text", "text": "Done.", "signature": "sig"}]


def write_legacy_files(hermes: Path) -> None:
    """Write the logs and snapshots of older versions, as they were left."""
    times = [f"2023-01-01T10:{number // 60:02}:{number % 60:02}" for number in range(497)]
    log(hermes, "lost-994", [each for number in range(497) for each in exchange(number, timestamp=times[number])])
    snapshot(
        hermes,
        "richer",
        [
            says("user", "look"),
            says("assistant", "Looking.", tool_calls=calls_tool("c1"), reasoning="A file list will do."),
            says("tool", "a.txt", tool_call_id="c1"),
            says("assistant", "One file.", reasoning_details=SIGNED),
        ],
    )
    snapshot(hermes, "only-json", exchange(1), platform="telegram")
    log(hermes, "only-log", [says("session_meta", None, tools=[]), *exchange(1)])
    torn = json.dumps(says("assistant", "half an answ"))[:-9].encode() + b"\n"
    log(hermes, "torn", [*exchange(1), torn, *exchange(2)])
    log(hermes, "doubled", [*exchange(1), *exchange(2)])
    oks = [says("user", "ok")] * 3
    log(hermes, "oks", [says("user", "ok"), says("assistant", "a"), *oks, says("assistant", "b"), says("user", "ok")])


def calls() -> list[Call]:
    """Return what hermes-agent is asked to do."""
    found: list[Call] = []
    for session_id, lines in DATABASE.items():
        parent = {"parent_session_id": "first-part"} if session_id == "second-part" else {}
        found.append(("db", "create_session", (session_id, "cli"), {"model": "a-model", **parent}))
        for line in lines:
            more = {name: value for name, value in line.items() if name not in {"role", "content"}}
            found.append(("db", "append_message", (session_id, line["role"], line["content"]), more))
        if session_id == "first-part":
            found.append(("db", "set_session_title", (session_id, "My talk"), {}))
            found.append(("db", "end_session", (session_id, "compression"), {}))
    return found


class Case(NamedTuple):
    """What came of the home."""

    report: HermesReport
    sessions: dict[str, Session]
    transcripts: dict[str, list[Message]]

    def said(self, session_id: str) -> list[str]:
        """Who said what in a session of Hermes."""
        return [f"{message.role}: {message.text}" for message in self.transcripts[session_id]]

    def findings(self, session_id: str) -> list[tuple[str, str]]:
        """What is to be looked at in a session, and where."""
        return [(each.kind, each.where) for each in self.report.findings if each.session == session_id]

    def gaps(self, session_id: str) -> list[tuple[str, str]]:
        """What Hermes lost of a session, and where."""
        return [(each.kind, each.where) for each in self.report.gaps if each.session == session_id]


async def import_twice(hermes: Path, home: Path) -> Case:
    """Import; the source is as it was, the record is whole, and a second import changes nothing."""
    before = fingerprint(hermes)
    async with Record.open(home) as record:
        report = await import_hermes(record, hermes)
        sessions = {session.id: session for session in await record.sessions()}
        again = await import_hermes(record, hermes)
        assert (again.added, {session.id: session for session in await record.sessions()}) == (0, sessions)
        assert fingerprint(hermes) == before
        verified = await record.verify()
        assert verified.ok, verified.findings
        names = {each.hermes_id: each.id for each in report.imported}
        return Case(
            report,
            {name: sessions[session_id] for name, session_id in names.items()},
            {name: await record.load_transcript(session_id) for name, session_id in names.items()},
        )


@pytest.fixture(scope="module", params=[OLD, NEW])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The home with all nine cases, of one version, imported."""
    folder = tmp_path_factory.mktemp("cases")
    hermes = write_with_hermes(request.param, folder / "hermes", calls())
    write_legacy_files(hermes)
    return anyio.run(import_twice, hermes, folder / "home")


@pytest.mark.loss("M2", "M4")
def test_994_and_2_are_996(case: Case) -> None:
    """The log has 994 messages, the database the 2 after: 996, the older first, and nothing is in doubt."""
    expected = [text for number in range(498) for text in (f"user: question {number}", f"assistant: answer {number}")]
    assert len(expected) == 996
    assert case.said("lost-994") == expected
    assert (case.findings("lost-994"), case.gaps("lost-994")) == ([], [])


@pytest.mark.loss("M2")
def test_equal_lengths_take_the_richer_fields_of_each(case: Case) -> None:
    """Reasoning comes from the snapshot, the arguments of the call from the database."""
    messages = case.transcripts["richer"]
    assert case.said("richer") == ["user: look", "assistant: Looking.", "tool: a.txt", "assistant: One file."]
    call = ToolCall(id="c1", name="terminal", arguments='{"command": "ls"}')
    thought = Reasoning(text="A file list will do.", model="a-model")
    assert (messages[1].parts[0], messages[1].parts[-1]) == (thought, call)
    assert messages[2].parts == (ToolResult(call_id="c1", text="a.txt"),)
    assert messages[3].parts[0] == Reasoning(text="Done.", signature="sig", model="a-model")
    assert (case.findings("richer"), case.gaps("richer")) == ([], [])


@pytest.mark.loss("M2")
@pytest.mark.parametrize(("name", "source"), [("only-json", "telegram"), ("only-log", "hermes")])
def test_a_session_in_one_source_only(case: Case, name: str, source: str) -> None:
    """A snapshot or a log alone is a session, of the platform that it names or of Hermes; the gap report says so."""
    assert case.said(name) == ["user: question 1", "assistant: answer 1"]
    assert (case.sessions[name].source, case.findings(name)) == (source, [])
    assert case.gaps(name) == [("one source only", "")]


def test_a_torn_line(case: Case) -> None:
    """It is listed with its number, nothing is guessed from it, and the lines around it come."""
    expected = ["user: question 1", "assistant: answer 1", "user: question 2", "assistant: answer 2"]
    assert case.said("torn") == expected
    assert case.findings("torn") == [("unreadable", "sessions/torn.jsonl:3")]
    assert not case.report.complete


def test_a_doubled_turn(case: Case) -> None:
    """Twice in the database and once in the log is twice: which one is too many is not guessed."""
    turn = ["user: question 1", "assistant: answer 1"]
    assert case.said("doubled") == [*turn, *turn, "user: question 2", "assistant: answer 2"]
    assert case.findings("doubled") == []


def test_repeated_oks(case: Case) -> None:
    """Three in the database and five in the log are five, each at its place."""
    ok = "user: ok"
    assert case.said("oks") == [ok, "assistant: a", ok, ok, ok, "assistant: b", ok]
    assert case.findings("oks") == []


@pytest.mark.loss("M7")
def test_an_orphan_result(case: Case) -> None:
    """A result whose call Hermes lost is kept as a result, and named as what Hermes lost."""
    assert case.said("orphan") == ["user: look", "tool: a.txt", "assistant: There it is."]
    assert case.transcripts["orphan"][1].parts == (ToolResult(call_id="lost", text="a.txt"),)
    assert ("result without a call", "message 2") in case.gaps("orphan")


def test_compression_lineage(case: Case) -> None:
    """A session that Hermes split is two: the first ended with its reason and its title, the second its child."""
    first, second = case.sessions["first-part"], case.sessions["second-part"]
    assert (first.title, first.state, first.end_reason) == ("My talk", "ended", "compression")
    assert second.parent is not None
    assert (second.parent.session_id, second.parent.link, second.state) == (
        session_id_of("first-part"),
        Link.IMPORT,
        "open",
    )
    assert case.said("second-part") == ["user: [CONTEXT SUMMARY]: we spoke", "assistant: Go on."]


def test_everything_together(case: Case) -> None:
    """Ten sessions with 1,028 messages came, and one line could not be read."""
    assert (case.report.sessions, case.report.messages, case.report.added) == (10, 1028, 1028)
    assert [each.kind for each in case.report.findings] == ["unreadable"]
