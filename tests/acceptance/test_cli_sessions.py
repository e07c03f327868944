"""`hansard sessions` and `hansard export`, as a person or a script runs them: what they print, and how they end."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from msgspec.structs import replace

from hansard.cli.sessions import table
from hansard.cli.sessions_show import show_for_people
from hansard.domain.deliveries import Delivery, DeliveryState
from hansard.domain.limits import READ_ROWS_MAX
from hansard.domain.messages import Message
from hansard.domain.sessions import Link
from hansard.record.api import Record
from tests.acceptance.commands import EXIT_COULD_NOT_RUN, EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, run
from tests.interop.told import tell_story

ROOT = Path(__file__).parents[2]
VERBS = ("show", "title", "end", "reopen", "fork", "undo", "archive", "unarchive")


def start(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start the command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "hansard.cli.main", "--home", str(home), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TZ": "UTC"},
    )


def run_json(home: Path, *arguments: str, code: int = EXIT_DONE) -> dict[str, object]:
    """Run the command and return its one JSON object."""
    found = json.loads(run(home, *arguments, "--json", code=code)[0])
    assert isinstance(found, dict)
    return found


@pytest.fixture
def told(home: Path) -> Path:
    """A closed home with a story, a short session of somebody else's, and an empty one."""
    asyncio.run(fill(home))
    return home


async def fill(home: Path) -> None:
    """Make that home."""
    async with Record.open(home) as record:
        await tell_story(record, "20261115-201233-story2")
        await record.create_session(id="20261116-080000-bobbob", source="matrix", owner="person:bob")
        await record.append("20261116-080000-bobbob", Message.user("buy \x1b[31mmilk\x1b[0m\nand bread", id="b1"))
        await record.append("20261116-080000-bobbob", Message.assistant("Noted.", id="b2"))
        delivery = Delivery(
            id="d1",
            session_id="20261116-080000-bobbob",
            channel="matrix",
            target="!room:here",
            message_id="b2",
        )
        await record.deliveries.create(delivery)
        await record.deliveries.move(delivery.session_id, "d1", DeliveryState.SENDING)
        await record.deliveries.move(delivery.session_id, "d1", DeliveryState.SENT, receipt="$event")
        await record.create_session(id="20261116-090000-silent", source="cli")


def verify(home: Path) -> None:
    """Both legs of the record agree."""
    assert run_json(home, "verify")["findings"] == []


def test_the_list_has_the_latest_first(told: Path) -> None:
    """One line a session: id, when, how many messages, state, source, owner, title or first words; nothing commands."""
    out, err = run(told, "sessions")
    lines = out.splitlines()
    assert err == ""
    assert [line.split()[0] for line in lines] == [
        "20261116-090000-silent",
        "20261116-080000-bobbob",
        "20261115-201233-story2",
    ]
    assert lines[0].endswith("(nothing said)")
    assert lines[1].split()[3:] == ["2", "open", "matrix", "person:bob", "buy", "␛[31mmilk␛[0m", "and", "bread"]
    assert lines[2].split()[3:] == ["8", "ended", "cli", "person:admin", "Trip", "to", "Rome"]


def test_a_list_on_a_terminal_fits_it() -> None:
    """It has a heading, leaves out what is the same in every line, and cuts what would wrap, wide characters too."""
    row = ("20261116-090000-silent", "2026-11-16 09:00", "12", "open", "cli", "person:admin", "日本語" * 9)
    assert table([row, (*row[:2], "3", "ended", *row[4:6], "Rome")], 72) == [
        "id                      last active       msgs  state  about",
        "20261116-090000-silent  2026-11-16 09:00    12  open   日本語日本語日本…",
        "20261116-090000-silent  2026-11-16 09:00     3  ended  Rome",
    ]
    both = table([row, (*row[:4], "matrix", "person:bob", "Rome")], 200)
    assert both[0].split() == ["id", "last", "active", "msgs", "state", "source", "owner", "about"]
    assert both[2].endswith("matrix  person:bob    Rome")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--owner", "person:bob"], ["bobbob"]),
        (["--source", "cli"], ["silent", "story2"]),
        (["--state", "ended"], ["story2"]),
        (["--since", "1h"], ["silent", "bobbob", "story2"]),
        (["--since", "2999-01-01"], []),
        (["--limit", "1"], ["silent"]),
        (["--since", "1h", "--limit", "2"], ["silent", "bobbob"]),
        (["--archived"], []),
    ],
)
def test_filters(told: Path, options: list[str], expected: list[str]) -> None:
    """Each filter leaves what it names, in both ways to ask for a list; JSON says whether there is more."""
    for form in (["sessions", *options], ["sessions", "list", *options]):
        found = run_json(told, *form)
        sessions = found["sessions"]
        assert isinstance(sessions, list)
        assert [each["id"].rpartition("-")[2] for each in sessions] == expected
        assert found["more"] is ("--limit" in options)


def test_more_than_the_limit_is_told(told: Path) -> None:
    """A list that was cut says so on standard error."""
    out, err = run(told, "sessions", "--limit", "1")
    assert len(out.splitlines()) == 1
    assert "There are more" in err


def test_the_list_as_json(told: Path) -> None:
    """A script gets every field, and first words as they were said."""
    sessions = run_json(told, "sessions")["sessions"]
    assert isinstance(sessions, list)
    bob = sessions[1]
    assert (bob["owner"], bob["messages"], bob["state"], bob["archived"]) == ("person:bob", 2, "open", False)
    assert bob["first_words"] == "buy \x1b[31mmilk\x1b[0m and bread"
    assert sessions[2]["end_reason"] == "we are back"


@pytest.mark.loss("D19", "N3")
def test_show_for_reading(told: Path) -> None:
    """Turns with their times, tools folded, what was cut and why; what was taken back is not there."""
    out, _ = run(told, "sessions", "show", "Trip to Rome")
    for text in ("User (Ann)", "  What time is it?", "attached: map.png", '▸ clock({"zone":"Rome"}) ok: It is 12:00'):
        assert text in out
    assert "· interrupted\n  Tomorrow it will b\n" in out
    assert "— the turn failed: Cut" in out
    assert "2 messages were taken back" in out
    assert "Forgotten words" not in out
    assert "I should look" not in out
    assert "\x1b" not in out


def test_show_full(told: Path) -> None:
    """All of it: reasoning, arguments and results whole, entries numbered, what was taken back marked."""
    out, _ = run(told, "sessions", "show", "20261115", "--full")
    assert "  I should look." in out
    assert '    {"zone":"Rome"}\n    It is 12:00 in Rome\n' in out
    assert "entries 4 to 5" in out
    assert "· taken back · entry 11\n  Forgotten words\n" in out


def test_show_where_it_was_delivered(told: Path) -> None:
    """Below a message stands where it went; all of it with the platform's own id; nothing in it commands a terminal."""
    brief, _ = run(told, "sessions", "show", "20261116-08")
    assert "  Noted.\n  → matrix !room:here: sent\n" in brief
    assert "buy ␛[31mmilk" in brief
    assert "post to matrix !room:here: sent $event" in run(told, "sessions", "show", "20261116-08", "--full")[0]


async def test_show_counts_every_delivery(home: Path) -> None:
    """More posts and edits than one page holds are all told, once each."""
    count = READ_ROWS_MAX + 100
    async with Record.open(home) as record:
        await record.create_session(id="busy", source="matrix")
        await record.append("busy", Message.assistant("many", id="m1"))
        each = Delivery(id="d", session_id="busy", channel="matrix", target="!room", message_id="m1")
        made = (record.deliveries.create(replace(each, id=f"d{number}")) for number in range(count))
        await asyncio.gather(*made)
        with redirect_stdout(io.StringIO()) as out:
            await show_for_people(record, await record.sessions.read("busy"), full=False)
    assert f"→ matrix !room: pending ×{count}\n" in out.getvalue()


def test_show_raw(told: Path) -> None:
    """Every entry is one line of JSON, in order, also those that nobody reads."""
    out, _ = run(told, "sessions", "show", "20261115", "--raw")
    entries = [json.loads(line) for line in out.splitlines()]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert {"session.created", "turn.started", "message.sealed", "messages.undone"} <= {e["kind"] for e in entries}
    run(told, "sessions", "show", "20261115", "--raw", "--json", code=EXIT_COULD_NOT_RUN)


def test_show_json(told: Path) -> None:
    """One object: the session, and its messages with parts, state and deliveries; what was taken back is marked."""
    found = run_json(told, "sessions", "show", "20261115")
    messages = found["messages"]
    assert isinstance(messages, list)
    assert [each["id"] for each in messages] == ["m1", "r1", "t1", "r2", "m2", "m3", "m4", "r3", "n1"]
    assert [each["id"] for each in messages if each["undone"]] == ["m2", "m3"]
    assert messages[1]["parts"][2]["name"] == "clock"
    delivered = run_json(told, "sessions", "show", "20261116-08")["messages"]
    assert isinstance(delivered, list)
    assert delivered[1]["deliveries"][0]["state"] == "sent"


def test_title_end_and_reopen(told: Path) -> None:
    """Each says what it did, is in the record, and a second time changes nothing."""
    assert "“Shopping”" in run(told, "sessions", "title", "20261116-08", "Shopping")[0]
    assert run_json(told, "sessions", "end", "shopping", "enough")["state"] == "ended"
    assert run_json(told, "sessions", "end", "Shopping", "later")["end_reason"] == "enough"
    assert run_json(told, "sessions", "reopen", "Shopping")["state"] == "open"
    before = run_json(told, "sessions", "reopen", "Shopping")["head_seq"]
    assert run_json(told, "sessions", "title", "Shopping", "Shopping")["head_seq"] == before
    assert run_json(told, "sessions", "end", "Shopping")["end_reason"]
    verify(told)


def test_fork_shares_and_does_not_copy(told: Path) -> None:
    """A fork has its parent's words up to the entry named, and one entry of its own."""
    child = run_json(told, "sessions", "fork", "Trip to Rome", "--at", "9", "--title", "Trip to Naples")
    assert child["parent"] == {"session_id": "20261115-201233-story2", "link": Link.FORK, "at": 9}
    out, _ = run(told, "sessions", "show", "Trip to Naples")
    assert "It is noon." in out
    assert "Tomorrow" not in out
    assert "a fork of 20261115-201233-story2 begins here" in out
    log = next(told.rglob(f"{child['id']}.jsonl"))
    assert len(log.read_bytes().splitlines()) == 1
    run(told, "sessions", "fork", "Trip to Rome", "--at", "9999", code=EXIT_COULD_NOT_RUN)
    verify(told)


@pytest.mark.loss("D19")
def test_undo_takes_turns_back(told: Path) -> None:
    """Undone turns leave the transcript and stay in the record; with nothing left, that is told."""
    assert run_json(told, "sessions", "undo", "20261115")["undone"] == ["m4", "r3"]
    assert run_json(told, "sessions", "undo", "20261115", "5")["undone"] == ["m1", "r1", "t1", "r2"]
    assert "nothing to undo" in run(told, "sessions", "undo", "20261115", code=EXIT_FAILED)[0]
    out, _ = run(told, "sessions", "show", "20261115")
    assert "What time is it?" not in out
    assert "What time is it?" in run(told, "sessions", "show", "20261115", "--full")[0]
    verify(told)


@pytest.mark.loss("D19")
def test_an_undo_is_undone(told: Path) -> None:
    """What was taken back comes back to its place, the latest first, or several together; then there is no more."""
    before, _ = run(told, "export", "20261115", "--format", "chat")
    run(told, "sessions", "undo", "20261115")
    run(told, "sessions", "undo", "20261115", "5")
    assert run(told, "export", "20261115", "--format", "chat")[0] == ""
    assert run_json(told, "sessions", "undo", "20261115", "--restore")["restored"] == ["m1", "r1", "t1", "r2"]
    assert "2 messages" in run(told, "sessions", "undo", "20261115", "--restore")[0]
    assert run(told, "export", "20261115", "--format", "chat")[0] == before
    out, _ = run(told, "sessions", "show", "20261115")
    assert out.index("It is noon.") < out.index("And tomorrow?") < out.index("4 messages were restored")
    assert run_json(told, "sessions", "undo", "20261115", "2", "--restore")["restored"] == ["m2", "m3"]
    assert "nothing to restore" in run(told, "sessions", "undo", "20261115", "--restore", code=EXIT_FAILED)[0]
    verify(told)


def test_archive_hides_and_loses_nothing(told: Path) -> None:
    """An archived session is out of lists and still found by name; unarchived, it is back."""
    run(told, "sessions", "archive", "Trip to Rome")
    assert "story2" not in run(told, "sessions")[0]
    assert run(told, "sessions", "--archived")[0].split()[0] == "20261115-201233-story2"
    assert "It is noon." in run(told, "sessions", "show", "Trip to Rome")[0]
    assert "It is noon." in run(told, "export", "--all")[0]
    assert run_json(told, "sessions", "unarchive", "Trip to Rome")["archived"] is False
    assert "story2" in run(told, "sessions")[0]
    verify(told)


@pytest.mark.loss("D13", "D14")
@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_session_is_an_error(told: Path, verb: str) -> None:
    """Every verb names what it could not find, and makes nothing."""
    more = ["x"] if verb == "title" else []
    _, err = run(told, "sessions", verb, "nobody", *more, code=EXIT_COULD_NOT_RUN)
    assert "nobody" in err
    assert len(run(told, "sessions")[0].splitlines()) == 3


def test_an_ambiguous_name_lists_what_it_may_mean(told: Path) -> None:
    """A beginning that several ids have is refused, with a line about each of them."""
    _, err = run(told, "sessions", "show", "20261116", code=EXIT_COULD_NOT_RUN)
    lines = [line.split()[0] for line in err.splitlines()]
    assert lines[:2] == ["20261116-080000-bobbob", "20261116-090000-silent"]
    assert "several sessions" in err


def test_a_home_without_a_record_is_never_made(home: Path) -> None:
    """Asking where nothing is ends with an error, and leaves nothing behind."""
    for arguments in (["sessions"], ["sessions", "show", "x"], ["export", "--all"]):
        assert "there is no record" in run(home, *arguments, code=EXIT_COULD_NOT_RUN)[1]
    assert not home.exists()


def test_wrong_use_is_refused(told: Path) -> None:
    """A date that is none, a limit of nothing, an export of nothing: exit code 2, and it says what is right."""
    assert "7d" in run(told, "sessions", "--since", "yesterday-ish", code=EXIT_COULD_NOT_RUN)[1]
    run(told, "sessions", "--limit", "0", code=EXIT_COULD_NOT_RUN)
    run(told, "export", code=EXIT_COULD_NOT_RUN)
    run(told, "export", "--all", "Trip to Rome", code=EXIT_COULD_NOT_RUN)
    run(told, "export", "--all", "--json", code=EXIT_COULD_NOT_RUN)
    run(told, "export", "--all", "-o", str(told / "no" / "such" / "folder"), code=EXIT_COULD_NOT_RUN)


def test_export_to_a_file(told: Path, tmp_path: Path) -> None:
    """A file holds what a pipe would have been given, is private, and takes the place of an older one."""
    target = tmp_path / "out.jsonl"
    target.write_text("older", encoding="utf-8")
    for form in ("jsonl", "markdown", "html", "chat"):
        piped, _ = run(told, "export", "--all", "--format", form)
        done = run_json(told, "export", "--all", "--format", form, "-o", str(target))
        assert target.read_text(encoding="utf-8") == piped
        assert done == {"sessions": 3, "bytes": len(piped.encode()), "file": str(target), "findings": []}
        assert target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.jsonl"]


def test_export_of_some(told: Path) -> None:
    """Sessions that are named are exported, each once."""
    out, _ = run(told, "export", "Trip to Rome", "20261116-08", "20261115", "--no-blobs")
    kinds = [json.loads(line)["type"] for line in out.splitlines()]
    assert kinds == ["hansard", "session", *["message"] * 9, "end", "session", *["message"] * 2, "end"]


def test_an_attachment_that_is_gone_is_a_finding(told: Path) -> None:
    """An export that lacks an attachment is written, names the message, and ends with 1."""
    for path in (told / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()
    out, err = run(told, "export", "--all", code=EXIT_FAILED)
    assert "m1" in err
    assert out.count('"type":"message"') == 11


def test_a_process_of_its_own(told: Path) -> None:
    """Through real pipes the same comes out, byte for byte; a reader who leaves early causes no noise."""
    process = start(told, "export", "--all")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out.decode(), err) == (EXIT_DONE, run(told, "export", "--all")[0], b"")
    leaving = start(told, "sessions", "show", "20261115", "--raw")
    assert leaving.stdout is not None
    leaving.stdout.close()
    assert leaving.wait(timeout=120) != EXIT_DONE
    assert leaving.stderr is not None
    assert b"Traceback" not in leaving.stderr.read()
    leaving.stderr.close()


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions"],
        ["sessions", "--json"],
        ["sessions", "show", "evil"],
        ["sessions", "show", "evil", "--full"],
        ["sessions", "show", "evil", "--raw"],
        ["sessions", "show", "evil", "--json"],
        ["export", "--all"],
        ["export", "--all", "--format", "markdown"],
    ],
)
async def test_words_cannot_command_a_terminal(home: Path, arguments: list[str]) -> None:
    """On a terminal no control of eight bits and none of seven comes from what was said, in any form of output."""
    async with Record.open(home) as record:
        await record.create_session(id="evil", source="cli")
        await record.append("evil", Message.user("\x9b31mred \x1b]0;title\x07 \u202eturned", id="m1", author="Eve"))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hansard.cli.main", "--home", str(home), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=os.environ | {"NO_COLOR": "1"},
    )
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:
        pass
    finally:
        os.close(ours)
    process.communicate(timeout=120)
    assert process.returncode == EXIT_DONE
    assert "31mred" in shown.decode()
    assert not set(shown.decode()) & set("\x1b\x9b\x07\u202e")


def is_begun(folder: Path) -> bool:
    """Return whether an export has written something that does not have its name yet."""
    try:
        return any(path.stat().st_size for path in folder.glob(".out.md.*"))
    except FileNotFoundError:  # it was given its name just now
        return False


async def test_ctrl_c_leaves_the_older_file(home: Path, tmp_path: Path) -> None:
    """Interrupted in the middle, an export leaves the file that was there, and nothing beside it."""
    async with Record.open(home) as record:
        await record.create_session(id="long", source="cli")
        for start_at in range(0, 6_000, 100):
            await record.accept([("long", Message.user("word " * 50, id=f"m{start_at + n}")) for n in range(100)])
    (folder := tmp_path / "exports").mkdir()
    target = folder / "out.md"
    code = EXIT_DONE
    while code == EXIT_DONE:  # an export that was done before the signal reached it is none in the middle
        target.write_text("older", encoding="utf-8")
        process = start(home, "export", "--all", "--format", "markdown", "-o", str(target))
        while process.poll() is None and not is_begun(folder):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        assert b"Traceback" not in process.communicate(timeout=120)[1]
        code = process.returncode
    assert code == EXIT_INTERRUPTED
    assert [(path.name, path.read_text(encoding="utf-8")) for path in folder.iterdir()] == [("out.md", "older")]


PAGES: dict[tuple[str, ...], str] = {
    ("sessions",): "use/sessions.md",
    **{("sessions", verb): "use/sessions.md" for verb in ("list", *VERBS)},
    ("export",): "use/sessions.md",
    ("import", "hermes"): "use/import.md",
    ("import", "hansard"): "use/import.md",
}
"""Each command, and the page that explains it."""


@pytest.mark.parametrize("arguments", PAGES)
def test_every_command_is_explained(home: Path, arguments: tuple[str, ...]) -> None:
    """Help has examples of the very command and --json; its page names it and all its options."""
    out, _ = run(home, *arguments, "--help")
    examples = out.partition("Examples:")[2]
    assert f"hansard {' '.join(arguments)}" in examples
    assert "--json" in out
    page = (ROOT / "docs" / PAGES[arguments]).read_text(encoding="utf-8")
    assert f"hansard {' '.join(arguments)}" in page
    for option in (word.strip(",.") for line in out.splitlines() for word in line.split() if word.startswith("--")):
        assert option.partition("/")[0] in page or option in {"--help", "--all"}, option


@pytest.mark.parametrize("arguments", [("sessions",), ("sessions", "undo"), ("export",), ("import", "hermes")])
def test_exit_codes_are_in_the_help(home: Path, arguments: tuple[str, ...]) -> None:
    """Whoever writes a script finds them where they look first."""
    assert "Exit code " in run(home, *arguments, "--help")[0]


def test_every_command_gives_json(told: Path, tmp_path: Path) -> None:
    """Each of them, asked for it, prints one JSON object and nothing else, and ends with 0."""
    target, other = str(tmp_path / "out.jsonl"), tmp_path / "other"
    sessions = {
        "list": [],
        "show": ["20261115"],
        "title": ["20261115", "Rome"],
        "end": ["20261115"],
        "reopen": ["20261115"],
        "fork": ["20261115"],
        "undo": ["20261115"],
        "archive": ["20261115-201233-story2"],
        "unarchive": ["20261115-201233-story2"],
    }
    assert {*sessions} == {"list", *VERBS}
    ids = [run_json(told, "sessions", verb, *more).get("id") for verb, more in sessions.items()]
    assert ids[2:5] == ["20261115-201233-story2"] * 3
    assert run_json(told, "export", "--all", "-o", target)["sessions"] == 4
    assert run_json(other, "import", "hansard", target)["ok"] is True
    (tmp_path / "hermes" / "sessions").mkdir(parents=True)
    assert run_json(other, "import", "hermes", str(tmp_path / "hermes"))["complete"] is True
