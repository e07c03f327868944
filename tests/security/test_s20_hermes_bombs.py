"""S20: a small Hermes database that describes endless values is refused in a sentence, and links are not followed."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hansard.errors import InvalidInput
from hansard.journal.sqlite.foreign import open_foreign

HANSARD = str(Path(sys.executable).with_name("hansard"))
MEMORY_BYTES_MAX = 1_500_000_000
WAIT_SECONDS_MAX = 120

SESSIONS = "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, started_at REAL)"
MESSAGES = "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, timestamp REAL)"
ROW = "INSERT INTO sessions VALUES ('s1', 'cli', 1.0)"
SAID = "INSERT INTO messages (session_id, role, timestamp) VALUES ('s1', 'user', 1.0)"

MANY = (
    "INSERT INTO messages (session_id, role, timestamp) WITH RECURSIVE n (i) AS "
    "(VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT 's1', 'user', i FROM n"
)

BOMBS = {  # a column is generated for rows that are there: inserting them would generate it, too
    "generated": (
        SESSIONS,
        MESSAGES.replace(" content TEXT,", ""),
        ROW,
        SAID,
        "ALTER TABLE messages ADD COLUMN content TEXT GENERATED ALWAYS AS (printf('%.*c', 900000000, 'x'))",
    ),
    "blob": (
        SESSIONS.replace(" source TEXT,", ""),
        MESSAGES,
        "INSERT INTO sessions (id, started_at) VALUES ('s1', 1.0)",
        SAID,
        "ALTER TABLE sessions ADD COLUMN source TEXT GENERATED ALWAYS AS (hex(zeroblob(400000000)))",
    ),
    "virtual": (
        SESSIONS,
        "CREATE VIRTUAL TABLE messages USING fts5 (id, session_id, role, content, timestamp)",
        ROW,
    ),
    "repeated": (
        SESSIONS,
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, timestamp REAL)",
        ROW,
        MANY,
        f"ALTER TABLE messages ADD COLUMN content TEXT DEFAULT '{'x' * 900_000}'",
    ),
}


def make_home(folder: Path, *statements: str) -> Path:
    """A Hermes home with a database."""
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "state.db") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return folder


def run_import(home: Path, hermes: Path) -> subprocess.CompletedProcess[str]:
    """Import in a process that has little memory."""
    return subprocess.run(
        [
            str(Path(sys.executable).with_name("hansard")),
            "--home",
            str(home),
            "import",
            "hermes",
            str(hermes),
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX)),
    )


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_bomb_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    """No MemoryError and no traceback: the report names the file and says why."""
    done = run_import(tmp_path / "home", make_home(tmp_path / "hermes", *BOMBS[name]))
    assert "Traceback" not in done.stderr
    assert "MemoryError" not in done.stderr
    assert "state.db cannot be read: " in done.stdout + done.stderr


def test_a_whole_database_is_read(tmp_path: Path) -> None:
    """The limits are far from what Hermes writes."""
    content = "word " * 2_000_000
    hermes = make_home(tmp_path / "hermes", SESSIONS, MESSAGES, ROW)
    with sqlite3.connect(hermes / "state.db") as connection:
        connection.execute("INSERT INTO messages VALUES (1, 's1', 'user', ?, 1.0)", (content,))
    connection.close()
    with open_foreign(hermes / "state.db") as database:
        assert database.rows("SELECT content FROM messages") == [{"content": content}]


LOG = json.dumps({"role": "user", "content": "somebody else's secret"}) + "\n"
SNAPSHOT = json.dumps({"session_id": "x", "messages": [{"role": "user", "content": "somebody else's secret"}]})


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Logs, snapshots and the index that are links are listed and not read; the rest is imported."""
    elsewhere, hermes = tmp_path / "elsewhere", tmp_path / "hermes"
    elsewhere.mkdir()
    (hermes / "sessions").mkdir(parents=True)
    (hermes / "sessions" / "own.jsonl").write_text(LOG.replace("somebody else's secret", "my own"))
    for name, text in (("a.jsonl", LOG), ("session_b.json", SNAPSHOT), ("sessions.json", "{}")):
        (elsewhere / name).write_text(text)
        (hermes / "sessions" / name).symlink_to(elsewhere / name)
    done = run_import(tmp_path / "home", hermes)
    assert done.returncode in {0, 1}, done.stderr
    assert done.stdout.count("links are not followed") == 3
    logs = "".join(path.read_text() for path in (tmp_path / "home").rglob("*.jsonl"))
    assert "my own" in logs
    assert "secret" not in logs


def test_a_linked_folder_is_not_followed(tmp_path: Path) -> None:
    """Nor is a folder of sessions that lies elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.jsonl").write_text(LOG)
    hermes = make_home(tmp_path / "hermes", SESSIONS, MESSAGES, ROW)
    (hermes / "sessions").symlink_to(tmp_path / "elsewhere")
    done = run_import(tmp_path / "home", hermes)
    assert "links are not followed" in done.stdout
    assert "secret" not in "".join(path.read_text() for path in (tmp_path / "home").rglob("*.jsonl"))


@pytest.mark.parametrize("side", ["", "-wal", "-journal"])
def test_a_linked_database_is_not_followed(tmp_path: Path, side: str) -> None:
    """Neither the database nor a file beside it."""
    hermes = make_home(tmp_path / "hermes", SESSIONS, MESSAGES, ROW)
    real = tmp_path / f"real{side}"
    path = hermes / f"state.db{side}"
    if side:
        real.write_bytes(b"")
    else:
        path.rename(real)
    path.symlink_to(real)
    with pytest.raises(InvalidInput, match="is a link"), open_foreign(hermes / "state.db") as database:
        database.rows("SELECT 1")
