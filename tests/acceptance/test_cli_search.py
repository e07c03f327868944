"""`hansard search`, as a person or a script runs it: what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hansard.domain.messages import Message, Text, ToolCall
from hansard.record.api import Record
from tests.acceptance.commands import run
from tests.record.search.scene import delete_in_chat, edit_in_chat, say_in_chat

FOUND, NOTHING, COULD_NOT_RUN = 0, 1, 2
TRIP, OTHER = "20261115-201233-trip22", "20261116-080000-bobbob"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed home with two sessions, a tool call, something undone, and text that would command a terminal."""
    home = tmp_path_factory.mktemp("search") / "home"
    asyncio.run(fill(home))
    return home


async def fill(home: Path) -> None:
    """Make that home."""
    async with Record.open(home) as record:
        await record.create_session(id=TRIP, source="cli", title="Trip to Łódź")
        at = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)
        await record.append(TRIP, Message.user("When does the last ferry leave? 東京都", id="m1", at=at))
        call = ToolCall(id="c1", name="read_file", arguments='{"path": "/etc/ferries"}')
        await record.append(TRIP, Message.assistant([Text("Let me look."), call], id="m2", at=at))
        await record.append(TRIP, Message.tool("c1", "ferry at 22:15", id="m3"))
        await record.append(TRIP, Message.assistant("The last ferry leaves at 22:15.", id="m4", at=at))
        await record.append(TRIP, Message.user("forget the ferry", id="m5", at=at))
        await record.messages.undo(TRIP, ["m5"])
        await record.create_session(id=OTHER, source="matrix", owner="person:bob")
        long = "and so on, " * 60
        await record.append(OTHER, Message.user(f"{long} the \x1b[31m ferry\x1b[0m\nof Bob {long}", id="b1"))


def found(home: Path, *arguments: str, code: int = FOUND) -> list[dict[str, Any]]:
    """What a search finds, by its JSON."""
    output, errors = run(home, "search", *arguments, "--json", code=code)
    assert errors == ("" if code == FOUND else "Nothing was found.\n")
    result = json.loads(output)
    assert result["query"]
    hits: list[dict[str, Any]] = result["hits"]
    return hits


def ids(home: Path, *arguments: str, code: int = FOUND) -> set[str]:
    """The messages that a search finds."""
    return {hit["id"] for hit in found(home, *arguments, code=code)}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ferry"], {"m1", "m4", "b1"}),
        (["last", "ferry"], {"m1", "m4"}),
        (['"ferry leaves"'], {"m4"}),
        (["ferr*", "NOT", "Bob"], {"m1", "m4"}),
        (["東京"], {"m1"}),
        (["ferry", "--tools"], {"m1", "m3", "m4", "b1"}),
        (["/etc/ferries", "--tools"], {"m2"}),
        (["ferr*", "--tool", "read_file"], {"m2", "m3"}),
        (["ferry", "--role", "user"], {"m1", "b1"}),
        (["ferry", "--role", "tool"], {"m3"}),
        (["ferry", "--source", "matrix"], {"b1"}),
        (["ferry", "--owner", "person:bob"], {"b1"}),
        (["ferry", "--session", "Trip to Łódź"], {"m1", "m4"}),
        (["ferry", "--session", "20261116"], {"b1"}),
        (["ferry", "--title", "TRIP"], {"m1", "m4"}),
        (["ferry", "--until", "2026-11-15", "--title", "trip"], {"m1", "m4"}),
        (["ferry", "--since", "2026-11-15", "--until", "2026-11-15"], {"m1", "m4"}),
        (["ferry", "--all"], {"m1", "m4", "m5", "b1"}),
    ],
)
@pytest.mark.loss("K5")
def test_filters(told: Path, arguments: list[str], expected: set[str]) -> None:
    """Words, phrases, beginnings, operators and each filter find what they say."""
    assert ids(told, *arguments) == expected


@pytest.mark.loss("K4")
def test_what_filters_hide_is_told(told: Path) -> None:
    """Where filters leave nothing, it is said how many messages match without them."""
    for arguments in (["22:15", "--role", "user"], ["read_file"], ["forget"]):
        output, errors = run(told, "search", *arguments, code=NOTHING)
        assert output == ""
        assert errors.startswith("Nothing was found. Everywhere, with --tools and --all: ")
    assert json.loads(run(told, "search", "forget", "--json", code=NOTHING)[0])["hidden"] == 1


@pytest.mark.parametrize("arguments", [["nowhere"], ['"'], ["--", "--since"], ["()"]])
def test_nothing_found(told: Path, arguments: list[str]) -> None:
    """What is nowhere is no error: exit code 1, and a line on standard error."""
    assert run(told, "search", *arguments, code=NOTHING) == ("", "Nothing was found.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["ferry", "--role", "nobody"],
        ["ferry", "--since", "yesterday-ish"],
        ["ferry", "--context", "21"],
        ["ferry", "--limit", "0"],
        ["ferry", "--session", "no such session"],
        ["ferry", "--nonsense"],
    ],
)
def test_what_cannot_run(told: Path, arguments: list[str]) -> None:
    """Wrong use says so on standard error, prints nothing else, and ends with code 2."""
    output, errors = run(told, "search", *arguments, code=COULD_NOT_RUN)
    assert output == ""
    assert errors


def test_no_record(home: Path) -> None:
    """Searching never makes a home."""
    run(home, "search", "ferry", code=COULD_NOT_RUN)
    assert not home.exists()


def test_for_people(told: Path) -> None:
    """A line for the session, a line for each message: when, where, who, and the words around what was found."""
    output, errors = run(told, "search", "last", "ferry", "--context", "1")
    assert errors == ""
    lines = output.splitlines()
    assert lines[0] == f"{TRIP}  Trip to Łódź"
    assert "  #2 user: When does the last ferry leave? 東京都" in output
    assert "  #5 assistant: The last ferry leaves at 22:15." in output
    assert "      assistant: Let me look. read_file" in output
    assert "forget" not in output
    assert lines.count(lines[0]) == 1


@pytest.mark.loss("D19")
def test_undone_is_marked(told: Path) -> None:
    """What was undone is found with --all only, and marked, also beside what was not."""
    assert "#6 user (undone): forget the ferry" in run(told, "search", "forget", "--all")[0]
    assert "      user (undone): forget the ferry" in run(told, "search", "leaves", "--all", "--context", "1")[0]


@pytest.mark.loss("F18")
def test_changes_in_a_chat_are_marked(home: Path) -> None:
    """What was edited is found by its old words, shown with its new ones; what was deleted with --all; both marked."""

    async def talk() -> None:
        async with Record.open(home) as record:
            await record.create_session(id=OTHER, source="matrix")
            await say_in_chat(record, OTHER, "the fery", "$e1")
            await edit_in_chat(record, "$e1", "the ferry")
            await say_in_chat(record, OTHER, "a secret ferry", "$e2")
            await delete_in_chat(record, "$e2")

    asyncio.run(talk())
    assert "#2 user (edited): the ferry\n" in run(home, "search", "fery")[0]
    assert "secret" not in run(home, "search", "ferry", "--context", "2")[0]
    everything = run(home, "search", "secret", "--all", "--context", "1")[0]
    assert "#4 user (deleted): a secret ferry\n" in everything
    assert "      user (edited): the ferry\n" in everything
    (hit,) = found(home, "fery")
    assert (hit["text"], hit["edited"], hit["deleted"], hit["highlights"]) == ("the ferry", True, False, [])


def test_a_long_message_is_cut_around_what_was_found(told: Path) -> None:
    """Of a long message the words around the match are shown, on one line, and nothing that a terminal obeys."""
    output, _ = run(told, "search", "Bob")
    line = output.splitlines()[1]
    assert len(line) < 260
    assert "ferry␛[0m of Bob and so on" in line
    assert "\x1b" not in output
    assert ": …" in line
    assert line.endswith("…")


def test_grouped(told: Path) -> None:
    """With --by-session every session stands once, that of the best hit first, and nothing is lost."""
    plain, grouped = found(told, "ferry"), found(told, "ferry", "--by-session")
    order = [hit["session_id"] for hit in grouped]
    assert sorted(order, key=order.index) == order
    assert order[0] == plain[0]["session_id"]
    assert {hit["id"] for hit in plain} == {hit["id"] for hit in grouped}


def test_json(told: Path) -> None:
    """A hit for scripts: its session, place, words, marks in characters of them, and neighbours."""
    (hit,) = found(told, "leaves", "--context", "2")
    assert (hit["session_id"], hit["title"], hit["seq"], hit["role"], hit["undone"]) == (
        TRIP,
        "Trip to Łódź",
        5,
        "assistant",
        False,
    )
    assert [hit["text"][start:end] for start, end in hit["highlights"]] == ["leaves"]
    assert [each["id"] for each in hit["before"]] == ["m2", "m3"]
    assert hit["after"] == []
    assert hit["before"][1]["tools"] == "ferry at 22:15"
    assert datetime.fromisoformat(hit["at"]) == datetime(2026, 11, 15, 12, 30, tzinfo=UTC)


def test_limit(told: Path) -> None:
    """--limit is a limit, of the best."""
    assert [hit["id"] for hit in found(told, "ferry", "--limit", "1")] == [found(told, "ferry")[0]["id"]]


def test_help() -> None:
    """Help has examples, each option, and the exit codes."""
    output, _ = run(Path("nowhere"), "search", "--help")
    assert "Examples:\n    hansard search ferry timetable\n" in output
    assert "Exit code 0: found. 1: nothing was found. 2: it could not run." in " ".join(output.split())
    filters = "--role --owner --source --session --title --since --until --tool --tools --all --context --limit"
    for option in [*filters.split(), "--by-session", "--json"]:
        assert f"  {option} " in output or f"  {option}\n" in output, option
    assert " search Find what was said" in " ".join(run(Path("nowhere"), "--help")[0].split())


def test_marks_in_a_terminal(told: Path) -> None:
    """In a terminal what was found is bold; that, and nothing else, is a control sequence."""
    shown, terminal = pty.openpty()
    command = [sys.executable, "-m", "hansard.cli.main", "--home", str(told), "search", "leaves"]
    subprocess.run(command, stdout=terminal, stdin=subprocess.DEVNULL, check=True, timeout=120)
    os.close(terminal)
    data = b""
    while piece := read_some(shown):
        data += piece
    os.close(shown)
    assert b"The last ferry \x1b[1mleaves\x1b[0m at 22:15." in data
    assert data.count(b"\x1b") == 2


def read_some(descriptor: int) -> bytes:
    """Read from a terminal whose other end may be closed: then there is nothing more."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
