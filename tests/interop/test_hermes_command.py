"""`hansard import`: what it prints, how it exits, and what an interruption leaves."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hansard import Record
from hansard.cli.importing import command
from hansard.cli.process import run
from hansard.interop.hermes import ImportProgress, import_hermes
from hansard.interop.hermes_parts import session_id_of
from tests.interop.hermes_homes import database, fingerprint, log, says

EXIT_INTERRUPTED = 130


@pytest.fixture
def hermes(tmp_path: Path) -> Path:
    """A Hermes home with a session that lacks a reply, one with escapes in a torn line, and an empty one."""
    home = tmp_path / "hermes"
    database(home, {"talk": [says("user", "one"), says("user", "two"), says("assistant", "2")], "empty": []})
    log(home, "torn", [says("user", "hello"), says("assistant", "hi"), b'{"role": "user", "content": "\x1b[31m\n'])
    return home


def call(home: Path, *arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(command, list(arguments), obj={"home": home})


def test_an_import_is_told_in_words(home: Path, hermes: Path) -> None:
    """Findings by their kind, then what Hermes lost, then the sum; exit code 1 because a line could not be read."""
    result = call(home, "hermes", str(hermes))
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert lines[-1] == "3 sessions, 5 messages: 5 new"
    assert "To look at:" in lines
    assert "  unreadable: 1" in lines
    assert any(line.startswith("    torn, sessions/torn.jsonl:3: no message: ") for line in lines)
    assert "What Hermes lost (as far as its files show):" in lines
    assert "    talk, message 1: 1 without a reply before the next message: 'one'" in lines
    assert "  empty session: 1" in lines
    assert "\x1b" not in result.stdout


def test_a_second_import_adds_nothing(home: Path, hermes: Path) -> None:
    """The same again is reported again, and nothing is new."""
    call(home, "hermes", str(hermes))
    assert call(home, "hermes", str(hermes)).stdout.splitlines()[-1] == "3 sessions, 5 messages: 0 new"


def test_json_has_everything(home: Path, hermes: Path) -> None:
    """One object with every session, finding and gap; a home in which all can be read exits with 0."""
    (hermes / "sessions" / "torn.jsonl").unlink()
    result = call(home, "hermes", str(hermes), "--json", "--owner", "person:anna")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["complete"], report["sessions"], report["messages"], report["added"]) == (True, 2, 3, 3)
    assert report["imported"][0] == {
        "hermes_id": "talk",
        "id": "talk-hermes",
        "sources": ["state.db"],
        "messages": 3,
        "added": 3,
    }
    assert [gap["kind"] for gap in report["gaps"]] == ["no reply", "empty session"]
    assert report["findings"] == []


def test_a_dry_run_writes_nothing(home: Path, hermes: Path) -> None:
    """It reports, and neither the record's home nor the source is touched."""
    before = fingerprint(hermes)
    result = call(home, "hermes", str(hermes), "--dry-run")
    assert result.stdout.splitlines()[-1] == "3 sessions, 5 messages: would be imported"
    assert not home.exists()
    assert fingerprint(hermes) == before


@pytest.mark.parametrize("arguments", [(), ("hermes",), ("hansard",)])
def test_help_has_examples(home: Path, arguments: tuple[str, ...]) -> None:
    """Help of each command shows how it is used, line by line."""
    result = call(home, *arguments, "--help")
    assert result.exit_code == 0
    assert any(line.startswith("    hansard ") and "import" in line for line in result.stdout.splitlines()), (
        result.stdout
    )


def test_a_path_that_does_not_exist_is_refused(home: Path) -> None:
    """Exit code 2, before a record is made."""
    assert call(home, "hermes", "/nowhere/at/all").exit_code == 2
    assert not home.exists()


@pytest.mark.loss("M4")
def test_ctrl_c_leaves_whole_messages_and_a_second_run_completes(home: Path, tmp_path: Path) -> None:
    """Struck in the middle of a long session: what is there is whole and in order, and the next import goes on."""
    texts = [f"message {number}" for number in range(1_000)]
    hermes = database(
        tmp_path / "hermes", {"long": [says("user", text) for text in texts], "next": [says("user", "x")]}
    )

    def strike(done: ImportProgress) -> None:
        if done.messages == 300:
            os.kill(os.getpid(), signal.SIGINT)

    async def start() -> int:
        async with Record.open(home) as record:
            await import_hermes(record, hermes, progress=strike)
        return 0

    with pytest.raises(SystemExit) as ended:
        run(start)
    assert ended.value.code == EXIT_INTERRUPTED

    async def look(expected: int | None) -> int:
        async with Record.open(home) as record:
            found = [message.text for message in await record.load_transcript(session_id_of("long"))]
            assert found == texts[: len(found)]
            assert (await record.verify()).ok
            if expected is None:
                assert 300 <= len(found) < 1_000
                report = await import_hermes(record, hermes)
                assert (report.added, report.messages) == (1_001 - len(found), 1_001)
                assert report.findings == []
            else:
                assert len(found) == expected
        return 0

    assert run(lambda: look(None)) == 0
    assert run(lambda: look(1_000)) == 0
