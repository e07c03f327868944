"""Hermes homes for tests: written by the real hermes-agent in an environment of its own, or by hand."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".envs"
WRITER = Path(__file__).with_name("hermes_writer.py")

NEW, OLD = "0.19.0", "0.13.0"
REQUIREMENTS = {
    NEW: ("hermes-agent==0.19.0",),
    # The gateway of this version, which writes the logs, reads its settings with PyYAML.
    OLD: ("hermes-agent==0.13.0", "pyyaml>=6"),
}
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1", "--timeout", "20")
INSTALL_SECONDS_MAX = 120

Call = tuple[str, str, Sequence[Any], dict[str, Any]]


def hermes_python(version: str) -> Path:
    """The interpreter of an environment with this version; a test that cannot have one is skipped, and says why."""
    folder, trouble = make_environment(version)
    if trouble:
        pytest.skip(f"hermes-agent {version} cannot be installed here: {trouble}")
    return folder / "bin" / "python"


@functools.cache
def make_environment(version: str) -> tuple[Path, str]:
    """Return the folder of an environment, made once by whichever process comes first, or what went wrong, once too.

    The stores of Hermes need nothing beyond its own wheel: its dependencies are half a gigabyte.
    """
    folder = ENVIRONMENTS / f"hermes-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    ready = folder / ".ready"
    with (folder.parent / f"hermes-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready.is_file():
            return folder, ""
        venv.create(folder, clear=True, with_pip=False)
        install = ["--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-compile", "--no-deps"]
        try:
            done = subprocess.run(
                [*PIP, *install, *REQUIREMENTS[version]],
                capture_output=True,
                check=False,
                text=True,
                timeout=INSTALL_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            return folder, f"it took longer than {INSTALL_SECONDS_MAX} s"
        if done.returncode:
            return folder, done.stderr.strip()[-300:] or f"pip ended with {done.returncode}"
        ready.touch()
        return folder, ""


def write_with_hermes(version: str, home: Path, calls: Iterable[Call], *, leave: bool = False) -> Path:
    """Let a real hermes-agent write a home."""
    home.mkdir(parents=True, exist_ok=True)
    given = json.dumps({"calls": list(calls), "leave": leave})
    environment = {"HERMES_HOME": str(home), "HOME": str(home), "PATH": os.environ["PATH"]}
    subprocess.run(
        [hermes_python(version), str(WRITER)],
        input=given,
        env=environment,
        text=True,
        check=True,
        timeout=120,
        capture_output=True,
    )
    return home


SESSIONS_SQL = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, parent_session_id TEXT, started_at REAL,
    ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0, title TEXT
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,
    tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, finish_reason TEXT, reasoning TEXT
);
"""
"""The columns that every version has had."""


def database(home: Path, sessions: dict[str, list[dict[str, Any]]], **facts: dict[str, Any]) -> Path:
    """Write a state.db by hand: messages by session, and further columns of a session's row."""
    home.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(home / "state.db"))
    if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]:
        connection.execute(SESSIONS_SQL)
    with connection:
        for number, (session_id, messages) in enumerate(sessions.items()):
            row = {"id": session_id, "source": "cli", "started_at": 1_700_000_000.0 + number}
            insert(connection, "sessions", {**row, "message_count": len(messages), **facts.get(session_id, {})})
            for place, message in enumerate(messages):
                calls = message.get("tool_calls")
                fields = {"session_id": session_id, "timestamp": 1_700_000_000.0 + place, **message}
                if calls is not None:
                    fields["tool_calls"] = json.dumps(calls)
                insert(connection, "messages", fields)
    connection.close()
    return home


def insert(connection: apsw.Connection, table: str, fields: dict[str, Any]) -> None:
    """Insert one row."""
    names, marks = ", ".join(fields), ", ".join("?" for _ in fields)
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(fields.values()))  # noqa: S608


def log(home: Path, session_id: str, messages: Iterable[dict[str, Any] | bytes]) -> Path:
    """Write a log as the gateway did, line by line; bytes are written as they are."""
    path = home / "sessions" / f"{session_id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [each if isinstance(each, bytes) else f"{json.dumps(each)}\n".encode() for each in messages]
    path.write_bytes(b"".join(lines))
    return path


def snapshot(home: Path, session_id: str, messages: list[dict[str, Any]], **fields: Any) -> Path:  # noqa: ANN401
    """Write a snapshot as the agent did after each turn."""
    path = home / "sessions" / f"session_{session_id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {
        "session_id": session_id,
        "model": "a-model",
        "platform": "cli",
        "session_start": "2025-01-02T03:04:05",
        "message_count": len(messages),
        "messages": messages,
        **fields,
    }
    path.write_text(json.dumps(whole, indent=2))
    return path


def says(role: str, content: str | None, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a message as Hermes writes it."""
    return {"role": role, "content": content, **fields}


def calls_tool(call_id: str, name: str = "terminal", arguments: str = "{}") -> list[dict[str, Any]]:
    """Return the tool calls of an assistant's message, as Hermes writes them."""
    return [{"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}]


def fingerprint(home: Path) -> dict[str, tuple[int, int, str]]:
    """Return what must not change: every file with its time, mode and bytes; folders with their times."""
    found = {}
    for path in [home, *sorted(home.rglob("*"))]:
        look = path.stat()
        data = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(home))] = (look.st_mtime_ns, look.st_mode, data)
    return found
