"""`hansard verify`, as a person or a script runs it: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from hansard.domain.arrivals import Cursor
from hansard.domain.deliveries import Delivery, DeliveryState
from hansard.domain.messages import File, Message
from hansard.record.api import Record
from hansard.record.schema import SCHEMA
from tests.acceptance.shown.program import run_forked

EXIT_CLEAN, EXIT_FINDINGS, EXIT_COULD_NOT_RUN = 0, 1, 2


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    found = run_forked(*arguments, variables=os.environ | environment)
    assert "Traceback" not in found.stderr + found.stdout
    return found


def verify(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `hansard verify` on a home."""
    return run("--home", str(home), "verify", *arguments)


STAMP = "UPDATE record SET previous = stamp, stamp = randomblob(8)"
"""What each commit of Hansard does. A commit without it is noticed at opening, and everything is compared."""


@contextmanager
def changed(home: Path, statement: str, *more: str) -> Iterator[None]:
    """Change a closed home's database behind Hansard's back, and keep it open meanwhile, so that its WAL stays."""
    with closing(apsw.Connection(str(home / "state.db"))) as connection:
        key = connection.execute("SELECT key FROM journal WHERE id = 's1'").get
        with connection:
            connection.execute(statement, {"s1": key})
            for each in more:
                connection.execute(each)
        yield


def change(home: Path, statement: str) -> None:
    """Change a closed home's database behind Hansard's back, and close it."""
    with changed(home, statement):
        pass


@pytest.fixture
async def filled(home: Path) -> Path:
    """A closed home with a bit of everything in it."""
    async with Record.open(home) as record:
        for name in ("s1", "s2"):
            session = await record.create_session(id=name, source="test", title=name)
            blob = await record.blobs.put(b"attachment")
            await record.append(session.id, Message.user([File(blob=blob)], id="m1"))
            await record.append(session.id, Message.user("hello there", id="m2"))
            async with record.turn(session.id) as turn, turn.reply(id="r1") as reply:
                await reply.write("a streamed answer")
            await record.deliveries.create(
                Delivery(id="d1", session_id=session.id, channel="c", target="t", message_id="r1")
            )
            await record.deliveries.move(session.id, "d1", DeliveryState.SENDING)
            await record.deliveries.move(session.id, "d1", DeliveryState.SENT, receipt="$1")
        await record.fork("s1", 3)
        await record.routes.move("key", "s1")
        await record.accept([], None, Cursor(channel="c", account="a", value="v"))
    return home


async def test_a_clean_record(filled: Path) -> None:
    """Everything agrees: exit 0, one line for a person, nothing on standard error, and again the same."""
    for _ in range(2):
        found = verify(filled)
        assert (found.returncode, found.stderr) == (EXIT_CLEAN, "")
        assert "3 sessions" in found.stdout
        assert "everything agrees" in found.stdout


async def test_json_of_a_clean_record(filled: Path) -> None:
    """--json prints one object that a script can read."""
    found = verify(filled, "--json")
    told = json.loads(found.stdout)
    assert found.returncode == EXIT_CLEAN
    assert (told["ok"], told["findings"], told["sessions"]) == (True, [], 3)
    assert told["entries"] > 20


async def test_the_home_of_the_environment(filled: Path) -> None:
    """$HANSARD_HOME names the home when no option does."""
    found = run("verify", HANSARD_HOME=str(filled))
    assert found.returncode == EXIT_CLEAN
    assert "3 sessions" in found.stdout


@pytest.mark.loss("B13", "D8")
async def test_a_byte_flipped_in_a_log(filled: Path) -> None:
    """One changed letter in a log is found and named, exit 1; the database's words are still those that were said."""
    log = filled / "sessions" / "other" / "s1.jsonl"
    data = log.read_bytes()
    log.write_bytes(data.replace(b"hello there", b"hello then!"))
    found = verify(filled)
    assert found.returncode == EXIT_FINDINGS
    assert "s1: log:" in found.stdout
    assert "s2" not in found.stdout
    async with Record.open(filled) as record:
        assert (await record.load_transcript("s1"))[1].text == "hello there"


ROW_CHANGES = {
    "UPDATE entry SET body = CAST(replace(CAST(body AS TEXT), 'there', 'then!') AS BLOB) WHERE journal = :s1": "chain",
    "UPDATE entry SET at = at + 1 WHERE id = 'm2' AND journal = :s1": "chain",
    "UPDATE journal SET messages = messages - 1 WHERE key = :s1": "projection",
    "UPDATE journal SET active_at = active_at + 1 WHERE key = :s1": "projection",
    "UPDATE session SET title = 'Changed' WHERE journal = :s1": "projection",
    "UPDATE session SET state = 'ended' WHERE journal = :s1": "projection",
    "UPDATE turn SET state = 'failed' WHERE journal = :s1": "projection",
    "UPDATE delivery SET state = 'failed' WHERE journal = :s1": "projection",
    "DELETE FROM session WHERE journal = :s1": "projection",
    "UPDATE route SET generation = 7": "projection",
    "UPDATE cursor SET value = 'w'": "projection",
    "INSERT INTO intake VALUES ('c', 'a', 'e', 1)": "projection",
    "INSERT INTO chunk VALUES (:s1, 0, 'r1', 'text', CAST('x' AS BLOB))": "part",
}
"""What somebody changes behind Hansard's back, and what verify calls it. :s1 is the journal of session s1."""


@pytest.mark.loss("D7", "D8", "D9", "B13")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entry WHERE id = 'm2' AND journal = :s1",
        "DELETE FROM entry WHERE journal = :s1 AND seq = (SELECT head_seq FROM journal WHERE key = :s1)",
        "UPDATE journal SET head_digest = zeroblob(32) WHERE key = :s1",
        "UPDATE entry SET body = CAST(replace(CAST(body AS TEXT), 'there', 'then!') AS BLOB) WHERE journal = :s1",
        "UPDATE entry SET at = at + 1 WHERE id = 'm2' AND journal = :s1",
    ],
)
async def test_a_database_with_other_entries_than_its_digests_say_is_rebuilt(filled: Path, statement: str) -> None:
    """Entries that are missing or changed, or another head, are noticed at opening: the log gives them back."""
    before = rows(filled)
    change(filled, statement)
    found = verify(filled, "--json")
    assert (found.returncode, json.loads(found.stdout)["ok"]) == (0, True)
    assert rows(filled) == before


def rows(home: Path) -> list[tuple[object, ...]]:
    """What the database holds of session s1: its entries, and its head."""
    with closing(apsw.Connection(str(home / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        entries = connection.execute(
            "SELECT id, seq, at, body FROM entry WHERE journal = (SELECT key FROM journal WHERE id = 's1') ORDER BY seq"
        ).fetchall()
        return entries + connection.execute("SELECT head_seq, head_digest FROM journal WHERE id = 's1'").fetchall()


@pytest.mark.drawn(4)
@pytest.mark.loss("D7", "D8", "D9", "B13")
@pytest.mark.parametrize(("statement", "what"), ROW_CHANGES.items())
async def test_a_row_that_was_changed(filled: Path, statement: str, what: str) -> None:
    """Whatever row is changed so that no opening notices it, verify finds it, says what it is, and ends with 1."""
    with changed(filled, statement, STAMP):
        found = verify(filled, "--json")
    told = json.loads(found.stdout)
    assert found.returncode == EXIT_FINDINGS
    assert told["ok"] is False
    assert what in {finding["what"] for finding in told["findings"]}
    assert all(finding["detail"] for finding in told["findings"])


@pytest.mark.loss("N4", "J9")
async def test_a_damaged_and_a_lost_blob(filled: Path) -> None:
    """An attachment that changed or is gone is a finding for each message that names it."""
    (blob,) = (path for path in (filled / "blobs").rglob("*") if path.is_file())
    blob.write_bytes(b"other bytes")
    damaged = json.loads(verify(filled, "--json").stdout)["findings"]
    blob.unlink()
    lost = json.loads(verify(filled, "--json").stdout)["findings"]
    for findings in (damaged, lost):
        assert {finding["what"] for finding in findings} == {"blob"}
        assert {finding["session_id"] for finding in findings} >= {"s1", "s2"}


@pytest.mark.loss("L3")
async def test_a_log_of_no_session_is_kept_and_named(filled: Path) -> None:
    """A file that no session accounts for is a finding; it is neither taken in nor removed."""
    stray = filled / "sessions" / "other" / "stray.jsonl"
    stray.write_text("not a log\n")
    found = verify(filled)
    assert found.returncode == EXIT_FINDINGS
    assert "stray" in found.stdout
    assert stray.read_text() == "not a log\n"


@pytest.mark.loss("D7")
async def test_a_lost_leg_is_rebuilt_before_it_is_verified(filled: Path) -> None:
    """Opening rebuilds a lost database from the logs, and lost logs from the database: then everything agrees."""
    for path in filled.glob("state.db*"):
        path.unlink()
    assert verify(filled).returncode == EXIT_CLEAN
    for path in filled.rglob("*.jsonl"):
        path.unlink()
    found = verify(filled)
    assert found.returncode == EXIT_CLEAN
    assert "3 sessions" in found.stdout


def test_no_home(tmp_path: Path) -> None:
    """A home that is not there is said so, exit 2, and none is made by looking."""
    found = verify(tmp_path / "nowhere")
    assert found.returncode == EXIT_COULD_NOT_RUN
    assert "there is no record at" in found.stderr
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_is_no_home(tmp_path: Path) -> None:
    """Somebody else's folder, named by mistake, is said to hold no record, and stays as it is."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_text("x")
    found = verify(tmp_path / "photos")
    assert found.returncode == EXIT_COULD_NOT_RUN
    assert "there is no record at" in found.stderr
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["one.jpg"]


def test_a_file_as_home(tmp_path: Path) -> None:
    """A file in place of the home cannot be verified."""
    (tmp_path / "file").write_text("x")
    found = verify(tmp_path / "file")
    assert found.returncode == EXIT_COULD_NOT_RUN
    assert found.stdout == ""


@pytest.mark.loss("M1")
async def test_a_newer_database(filled: Path) -> None:
    """A database of a newer Hansard is left alone, exit 2, with what to do."""
    change(filled, f"PRAGMA user_version = {SCHEMA.version + 1}")
    found = verify(filled, "--json")
    assert found.returncode == EXIT_COULD_NOT_RUN
    assert found.stdout == ""
    assert "Upgrade Hansard" in found.stderr


@pytest.mark.loss("B14")
@pytest.mark.parametrize("data", [b"garbage, not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_garbage_for_a_database(filled: Path, data: bytes) -> None:
    """Garbage in place of state.db is damage: exit 2, what to do, and the garbage is still there."""
    for path in filled.glob("state.db*"):
        path.unlink()
    (filled / "state.db").write_bytes(data)
    found = verify(filled)
    assert found.returncode == EXIT_COULD_NOT_RUN
    assert "damaged" in found.stderr
    assert "Move state.db away, with state.db-wal and state.db-shm if they are there" in found.stderr
    assert (filled / "state.db").read_bytes() == data


def test_wrong_usage(tmp_path: Path) -> None:
    """An unknown option is exit 2, with the usage."""
    found = verify(tmp_path, "--nonsense")
    assert found.returncode == EXIT_COULD_NOT_RUN
    assert "Usage:" in found.stderr
