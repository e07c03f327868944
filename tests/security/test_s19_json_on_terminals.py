"""S19: JSON on a terminal says what was said, and no byte of it commands the terminal or turns its writing around."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import hansard.cli
from hansard.cli.terminal.text import UNSAFE, safe_json
from hansard.domain.messages import Message
from hansard.record.api import Record

EVIL = "C1 \x9b31m \x90q\x9c, bidi \u202e\u2066\u200f, delete \x7f, tag \U000e0041, line \u2028, hidden \u200b, ü 家"
WAIT_SECONDS_MAX = 120

COMMANDS = {
    "sessions": ("sessions", "--json"),
    "show": ("sessions", "show", "s", "--json"),
    "raw": ("sessions", "show", "s", "--raw"),
    "search": ("search", "bidi", "--json"),
    "export": ("export", "s"),
    "once": ("--model", "scripted:evil.toml", "-p", "hello", "--json"),
}


def test_escapes_say_the_same() -> None:
    """A program reads back every character, those beyond the basic plane included."""
    line = json.dumps({"text": EVIL}, ensure_ascii=False)
    assert UNSAFE.search(line) is not None
    assert UNSAFE.search(safe_json(line)) is None
    assert json.loads(safe_json(line)) == {"text": EVIL}
    assert "ü 家" in safe_json(line)


@pytest.fixture(scope="module")
def evil_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with words that want to command a terminal."""
    home = tmp_path_factory.mktemp("evil") / "home"

    async def make() -> None:
        async with Record.open(home) as record:
            session = await record.create_session(id="s", source="cli", title="Evil")
            await record.append(session.id, Message.user(EVIL))

    asyncio.run(make())
    toml = json.dumps(EVIL).replace("\\udb40\\udc41", "\\U000e0041")  # TOML has no surrogate pairs
    (home.parent / "evil.toml").write_text(f"[[answers]]\ntext = {toml}\n")
    return home


def run_on_terminal(home: Path, *arguments: str) -> str:
    """Run a command whose standard output is a terminal; return the characters that the terminal was given."""
    outer, inner = pty.openpty()
    pieces: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(outer, 65536):
                pieces.append(data)
        except OSError:
            return

    reader = threading.Thread(target=read)
    reader.start()
    command = [str(Path(sys.executable).with_name("hansard")), "--home", str(home), *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=inner,
        stderr=subprocess.PIPE,
        cwd=home.parent,
        timeout=WAIT_SECONDS_MAX,
        check=False,
    )
    os.close(inner)
    reader.join(WAIT_SECONDS_MAX)
    os.close(outer)
    assert done.returncode == 0, done.stderr.decode()
    return b"".join(pieces).decode().replace("\r\n", "\n")


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", list(COMMANDS))
def test_no_command_of_a_terminal(evil_home: Path, name: str) -> None:
    """Each command that writes JSON, on a real terminal: nothing unsafe, valid JSON, and the words in it."""
    shown = run_on_terminal(evil_home, *COMMANDS[name])
    assert UNSAFE.search(shown) is None
    lines = [shown] if name in {"show", "sessions"} else shown.splitlines()
    read = [json.loads(line) for line in lines if line.strip()]
    assert read
    assert name == "sessions" or "\x9b31m" in repr_text(read)


def repr_text(value: object) -> str:
    """Return all the text in a value."""
    if isinstance(value, dict):
        return "".join(repr_text(each) for each in value.values())
    if isinstance(value, list):
        return "".join(repr_text(each) for each in value)
    return str(value)


def test_one_place_writes_json() -> None:
    """No command encodes JSON for standard output by itself."""
    folder = Path(hansard.cli.__path__[0])
    own = re.compile(r"click\.echo\((?:msgspec\.json|json\.dumps)")
    assert [path.name for path in folder.rglob("*.py") if own.search(path.read_text(encoding="utf-8"))] == []
