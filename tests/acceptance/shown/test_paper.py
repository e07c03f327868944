"""The terminal in memory shows what a real one shows: the same bytes, side by side with tmux."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.shown.paper import Paper
from tests.acceptance.shown.program import environment, until
from tests.acceptance.shown.terminal import COLUMNS, ROWS, Terminal

SCRIPT = '''
[[answers]]
delay_seconds = 0.004
text = """# Überschrift

Words **in bold**, *slanted*, `code`, 漢字 and かな, a 🙂, an é, and so many of them that the line does not fit into \
the window and has to go on below: one two three four five six seven eight nine ten eleven twelve thirteen fourteen.

- first
- second

```
def listing():
    return "漢字"
```

> quoted

1. one
2. two

| a | b |
| - | - |
| 1 | 2 |

the end of it"""
'''


def rows_of(text: str) -> list[str]:
    """Return rows without the space at their ends and without empty ones at the bottom."""
    return "\n".join(row.rstrip() for row in text.split("\n")).rstrip("\n").split("\n")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
async def test_the_same_bytes_give_the_same_rows(tmp_path: Path) -> None:
    """A conversation with headings, lists, wide characters and scrolling stands in tmux row for row as it does here."""
    (tmp_path / "s.toml").write_text(SCRIPT)
    options = ["--home", tmp_path / "home", "-m", "scripted:~/s.toml"]
    async with await Terminal.start(*options, variables=environment(tmp_path)) as terminal:
        for number in (1, 2):
            await terminal.type(f"question {number}, with ä and 漢")
            await terminal.shows(lambda: terminal.text.count("the end of it") == number, "the end")  # noqa: B023
            await terminal.settled()
        raw, expected, scrolled = bytes(terminal.raw), terminal.paper.screen, terminal.paper.history
    assert len(scrolled) > 5
    shown = await in_tmux(tmp_path, raw, expected[-1])
    assert rows_of(shown) == rows_of("\n".join([*scrolled, *expected]))


async def in_tmux(folder: Path, raw: bytes, last: str) -> str:
    """Return what a real terminal shows of bytes that a program wrote, what has scrolled away included."""
    (folder / "raw").write_bytes(raw)
    variables = environment(folder, LC_ALL="C.UTF-8", TERM="xterm-256color")

    def tmux(*arguments: object) -> str:
        command = ["tmux", "-u", "-f", "/dev/null", "-S", str(folder / "tmux"), *map(str, arguments)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=variables)
        return done.stdout

    size = ("-x", COLUMNS, "-y", ROWS)
    wait = f"cat {folder / 'raw'}; touch {folder / 'done'}; exec sleep 60"
    tmux("new-session", "-d", *size, "sh", "-c", wait)
    try:
        await until((folder / "done").exists, "the bytes")
        await asyncio.sleep(0)
        await until(lambda: last.strip() in tmux("capture-pane", "-p"), last)
        return tmux("capture-pane", "-p", "-S", "-")
    finally:
        tmux("kill-server")


def test_what_vanishes_is_seen() -> None:
    """Every drawing is looked at: what stands there for one of them only is seen all the same."""
    seen: list[list[str]] = []
    paper = Paper(20, 3, lambda: seen.append(paper.screen))
    for word in (b"now", b"then"):
        paper.feed(b"\x1b[?2026h\r\x1b[K" + word + b"\x1b[?2026l")
    assert [rows[0] for rows in seen] == ["now", "then"]


@pytest.mark.parametrize(
    ("data", "rows", "history"),
    [
        (b"one\r\ntwo\r\nthree\r\nfour", ["two", "three", "four"], ["one"]),
        (b"abcdefgh", ["abcde", "fgh", ""], []),
        (b"abcde\r\nf", ["abcde", "f", ""], []),
        ("abcd漢".encode(), ["abcd", "漢", ""], []),
        (b"\x1b[?7labcdefgh", ["abcdh", "", ""], []),
        (b"abc\x1b[2Dx\x1b[1;5Hy\x1b[2;1Hz", ["axc y", "z", ""], []),
        (b"abc\r\ndef\x1b[A\x1b[2D\x1b[J", ["a", "", ""], []),
        (b"abc\x1b7\r\n\x1b8d", ["abcd", "", ""], []),
        ("e\u0301\x1b[31mx".encode(), ["e\u0301x", "", ""], []),
    ],
)
def test_moves_and_erasures(data: bytes, rows: list[str], history: list[str]) -> None:
    """Each sequence does what terminals do, also when it comes byte by byte."""
    for pieces in ([data], [data[index : index + 1] for index in range(len(data))]):
        paper = Paper(5, 3, lambda: None)
        for piece in pieces:
            paper.feed(piece)
        assert (paper.screen, paper.history) == (rows, history)
