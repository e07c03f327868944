"""The screen in a real terminal, read as a person reads it."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

from tests.cli.terminal.samples import CJK
from tests.cli.terminal.tmux import Terminal, is_there

pytestmark = [
    pytest.mark.skipif(not is_there(), reason="tmux is not installed"),
    pytest.mark.slow,
]

SNAPSHOTS = Path(__file__).parent / "snapshots"
READY = "record: in order"
KEYS_MAX = 20
"""Keys that are pressed until one is quick: a busy machine makes some dear, but not all."""


def is_idle(screen: str) -> bool:
    """Whether the input is empty and stands above the status."""
    return re.search(r"\n\u203a ?\ndriver .*in order", screen) is not None


def words(text: str) -> list[str]:
    """Return the words of a text in their order, as often as they are there."""
    return re.findall(r"\w+", text)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_rich_answer_looks_as_it_should(tmp_path: Path, columns: int) -> None:
    """Headings, lists, code, quotations and tables are on the screen as the snapshot has them, line for line."""
    with Terminal(tmp_path, "plain", columns=columns, rows=60) as terminal:
        terminal.wait(READY)
        terminal.type("rich 0.001")
        screen = terminal.wait(lambda text: "done {" in text and is_idle(text))
    expected = (SNAPSHOTS / f"rich-{columns}.txt").read_text()
    assert [line.rstrip() for line in screen.rstrip().split("\n")] == expected.rstrip().split("\n")


def test_a_long_answer_is_in_the_scrollback_once(tmp_path: Path) -> None:
    """What was streamed, more than a screen of it, is there word for word when it is finished, and nothing twice."""
    with Terminal(tmp_path) as terminal:
        terminal.wait(READY)
        terminal.type("words 0.001")
        terminal.wait(lambda text: "done {" in text and is_idle(text))
        said = [word for word in words(terminal.everything()) if word.startswith("word") and word != "words"]
    assert said == [f"word{number}" for number in range(400)]


def test_code_of_many_lines_streams_in_time(tmp_path: Path) -> None:
    """Five thousand lines come through, each once and in order, and typing stays possible meanwhile."""
    with Terminal(tmp_path) as terminal:
        terminal.wait(READY)
        terminal.type("code 0")
        terminal.wait("def function_")
        terminal.type("typed meanwhile", enter=False)
        terminal.wait("typed meanwhile")
        terminal.logged(2)
        terminal.wait("done {")
        found = re.findall(r"def function_(\d+)\(x: int\) -> int:  # \1$", terminal.everything(), re.MULTILINE)
    assert found == [str(number) for number in range(5000)]


def test_ten_thousand_pasted_lines(tmp_path: Path) -> None:
    """They arrive whole, do not send themselves, leave the keys quick, and are sent by Enter."""
    pasted = "\n".join(f"line {number}" for number in range(10_000))
    with Terminal(tmp_path) as terminal:
        terminal.wait(READY)
        starting = terminal.processor_seconds()
        terminal.paste(pasted)
        screen = terminal.wait("line 9999")
        assert READY in screen
        typed = ""
        costs: list[float] = []
        while not costs or (costs[-1] >= starting and len(costs) < KEYS_MAX):
            begun = terminal.processor_seconds()
            typed += "!"
            terminal.type("!", enter=False)
            terminal.wait(f"line 9999{typed}")
            costs.append(terminal.processor_seconds() - begun)
        assert costs[-1] < starting, "a key costs the processor as much as the start of the program"
        assert not terminal.log.exists()
        terminal.keys("Enter")
        assert json.loads(terminal.logged(1)[0]) == pasted + typed
        terminal.wait(is_idle)
        assert re.findall(r"line (\d+)", terminal.everything()) == [str(number) for number in range(10_000)]


def test_ctrl_c_once_interrupts_and_twice_leaves(tmp_path: Path) -> None:
    """The first ends the answer and says so; the second ends the program and leaves the terminal as it was."""
    with Terminal(tmp_path) as terminal:
        terminal.wait(READY)
        terminal.type("long 0.01 150")
        terminal.wait("word30")
        terminal.keys("C-c")
        terminal.wait("⎯ interrupted")
        terminal.keys("C-c")
        screen = terminal.wait("goodbye")
        assert READY not in screen
        assert terminal.logged(4)[1:] == ['"interrupted"', '"played"', '"left"']


@pytest.mark.loss("A6")
def test_leaving_in_the_middle_of_an_answer_keeps_its_words(tmp_path: Path) -> None:
    """Whatever was on the screen when the person left is still there afterwards."""
    with Terminal(tmp_path) as terminal:
        terminal.wait(READY)
        terminal.type("words 0.01 150")
        seen = terminal.wait("word60")
        terminal.keys("C-d")
        terminal.wait("goodbye")
        after = words(terminal.everything())
    last = max(int(word.removeprefix("word")) for word in words(seen) if re.fullmatch(r"word\d+", word))
    # The last one may be cut: the answer was.
    *numbered, _ = [word for word in after if re.fullmatch(r"word\d+", word)]
    assert numbered == [f"word{number}" for number in range(len(numbered))]
    assert len(numbered) >= last


def test_another_size_draws_the_live_text_anew(tmp_path: Path) -> None:
    """Narrower, wider, lower: the input and the status stay whole below the text, and at the end no word is missing."""
    with Terminal(tmp_path, columns=100, rows=30) as terminal:
        terminal.wait(READY)
        terminal.type("words 0.01 150")
        terminal.wait("word20")
        for columns, rows in ((60, 30), (90, 20), (40, 12), (120, 30)):
            terminal.resize(columns, rows)
            terminal.wait(partial(is_drawn, columns=columns))
        terminal.go_on()
        terminal.wait(lambda text: "done {" in text and is_idle(text))
        text = terminal.everything()
    printed = text[text.rindex("word0 ") :]
    assert [word for word in words(printed) if re.fullmatch(r"word\d+", word)] == [
        f"word{number}" for number in range(400)
    ]


def test_a_narrower_terminal_leaves_no_remains(tmp_path: Path) -> None:
    """A drawing whose lines the terminal broke in two is erased whole: no word of it is seen twice."""
    with Terminal(tmp_path, columns=120, rows=40) as terminal:
        terminal.wait(READY)
        terminal.type("words 0.01 60")
        terminal.wait("word60")  # nothing is drawn any more: a drawing that meets the change would leave remains
        terminal.resize(70, 40)
        terminal.wait(partial(is_drawn, columns=70))
        terminal.keys("C-c")
        terminal.wait("⎯ interrupted")
        # The last one may be cut: the answer was.
        *numbered, _ = [word for word in words(terminal.everything()) if re.fullmatch(r"word\d+", word)]
    assert numbered == [f"word{number}" for number in range(len(numbered))]
    assert len(numbered) > 50


def is_drawn(screen: str, columns: int) -> bool:
    """Whether the input is there once, and the live text above it is drawn for this width."""
    lines = [line.rstrip() for line in screen.split("\n") if line.startswith("word")]
    is_once = is_idle(screen) and screen.count(READY) == 1
    return is_once and bool(lines) and columns - 10 < max(map(len, lines)) <= columns


def test_wide_characters_and_escapes(tmp_path: Path) -> None:
    """Chinese, Japanese and emoji are drawn whole; what tries to command the terminal is only seen."""
    with Terminal(tmp_path) as terminal:
        terminal.wait(READY)
        terminal.type("cjk 0.001")
        terminal.wait(lambda text: "done {" in text and is_idle(text))
        terminal.type("escape 0")
        terminal.wait("after evil")
        text = terminal.everything()
    assert "".join(CJK.split()) in "".join(text.split())
    assert "before ␛[2J␛]0;owned␇ after evil" in text


def test_ctrl_l_draws_anew(tmp_path: Path) -> None:
    """The input and what was typed into it are there again, at the top of an empty screen."""
    with Terminal(tmp_path) as terminal:
        terminal.wait(READY)
        terminal.type("half a line", enter=False)
        terminal.wait("half a line")
        terminal.keys("C-l")
        terminal.wait(lambda text: "ready" not in text and "half a line" in text and READY in text)


def test_lines_and_history(tmp_path: Path) -> None:
    """A message of several lines is edited in place, and the arrow brings it back."""
    with Terminal(tmp_path) as terminal:
        terminal.wait(READY)
        terminal.type("first", enter=False)
        terminal.keys("M-Enter")
        terminal.type("second", enter=False)
        terminal.keys("C-j")
        terminal.type("third")
        assert json.loads(terminal.logged(1)[0]) == "first\nsecond\nthird"
        terminal.wait(is_idle)
        terminal.keys("Up")
        terminal.wait(lambda text: text.count("third") == 2)
        terminal.keys("C-c")
        terminal.wait(is_idle)
        terminal.type("/re", enter=False)
        terminal.wait("go on with another session")
        terminal.keys("Tab")
        terminal.wait("\u203a /resume")
        terminal.keys("C-c")
        terminal.wait(is_idle)


def test_an_error_is_seen_and_the_terminal_restored(tmp_path: Path) -> None:
    """A handler that fails ends the screen; afterwards the terminal echoes lines again."""
    with Terminal(tmp_path) as terminal:
        terminal.wait(READY)
        terminal.type("fail")
        screen = terminal.wait("goodbye")
    assert "raised: the handler failed" in screen
    assert READY not in screen


def test_no_colour_is_no_colour(tmp_path: Path) -> None:
    """Asked for none, the screen has no colour, dimness or weight in any cell; asked for some, it has."""
    for arguments in ((), ("plain",)):
        folder = tmp_path / ("plain" if arguments else "colour")
        folder.mkdir()
        with Terminal(folder, *arguments, rows=60) as terminal:
            terminal.wait(READY)
            terminal.type("rich 0")
            terminal.wait(lambda text: "done {" in text and is_idle(text))
            styled = re.search(r"\x1b\[(?:0;)?[1-9]", terminal.screen(styled=True)) is not None
        assert styled == (not arguments)


def test_the_picker(tmp_path: Path) -> None:
    """The list gets shorter while somebody types, Enter takes what is marked, and nothing of it stays."""
    with Terminal(tmp_path, "pick") as terminal:
        screen = terminal.wait("62 of 62")
        assert "\u203a yesterday" in screen
        terminal.type("egg", enter=False)
        terminal.wait("1 of 62")
        terminal.keys("Enter")
        assert json.loads(terminal.logged(1)[0]) == "20261114-101010-aaaaaa"
        terminal.wait(lambda screen: "Which session?" not in screen)
