"""`hansard` in a real terminal, as a person sees it: every screen, every key, and what of it is in the record."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from hansard import Record, Status
from hansard.cli.terminal.view import MARKER
from tests.acceptance.fresh_desk import (
    FIGURES,
    HALF,
    ROWS,
    SCRIPT,
    SHORT,
    WHOLE,
    Desk,
    assert_clean,
    assert_shows,
    conversation,
    write_history,
)
from tests.acceptance.fresh_machine import skip_with_a_local_model
from tests.acceptance.fresh_terminal import folded, gone, needs_tmux
from tests.acceptance.stories_homes import stranger

pytestmark = [needs_tmux]

WIDTHS = pytest.mark.parametrize("columns", [80, 120])
IN_ORDER = "record: in order"
HALF_SHOWN = "with milk"
"""The last words of an answer that stops half-way."""


COLOUR = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A machine on which nobody has talked yet; the model answers with what it was told."""
    made = Desk(tmp_path)
    made.script(SHORT)
    return made


@pytest.mark.drawn(1)
@WIDTHS
@pytest.mark.loss("A1", "A7")
async def test_a_first_conversation(desk: Desk, columns: int) -> None:
    """The first screen, an answer while it comes, Ctrl-C once and again, and all of it when one comes back."""
    desk.script(HALF, WHOLE)
    with desk.shell(columns) as shell:
        shell.type("hansard")
        assert_shows(shell, IN_ORDER, "first", columns)
        shell.type("How do I make tea?")
        assert_shows(shell, HALF_SHOWN, "streaming", columns)
        shell.keys("C-c")
        assert_shows(shell, "⎯ interrupted", "interrupted", columns)
        shell.type("And once more, please.")
        assert_shows(shell, "That is all.", "answered", columns)
        shell.keys("C-c")
        assert shell.prompt() == 0
        assert_shows(shell, "] $", "left", columns)
        shell.assert_restored()
        shell.clear()
        shell.type("hansard -c")
        assert_shows(shell, "Resumed", "continued", columns)
        shell.keys("C-d")
        assert shell.prompt() == 0
    said = await conversation(desk.home)
    half = str(HALF["text"]).partition("| Sencha")[0].rstrip()
    assert [(role, text, status) for role, text, status in said if role != "notice"] == [
        ("user", "How do I make tea?", Status.COMPLETE),
        ("assistant", half, Status.INTERRUPTED),
        ("user", "And once more, please.", Status.COMPLETE),
        ("assistant", str(WHOLE["text"]), Status.COMPLETE),
    ]
    await assert_clean(desk.home)


@WIDTHS
async def test_commands(desk: Desk, columns: int) -> None:
    """The list of commands, what completes one, a mistyped one, the sessions, and a message of several lines."""
    await write_history(desk.home)
    with desk.shell(columns) as shell:
        shell.type("hansard")
        shell.see(IN_ORDER)
        shell.type("/re", enter=False)
        assert_shows(shell, "/retry", "completion", columns)
        shell.keys("Tab")
        shell.see(f"{MARKER}/resume")
        shell.type(" ", enter=False)
        assert_shows(shell, "Trip to Rome", "completion-sessions", columns)
        shell.keys("C-c")
        shell.type("/help")
        assert_shows(shell, "Show this.", "help", columns)
        shell.type("/sesions")
        shell.type("/sessions")
        assert_shows(shell, " 5. ", "sessions", columns)
        shell.type("The first line,", enter=False)
        shell.keys("M-Enter")
        shell.type("the second,", enter=False)
        shell.keys("C-j")
        shell.type("  and the third.", enter=False)
        assert_shows(shell, "and the third.", "lines-typed", columns)
        shell.keys("Enter")
        assert_shows(shell, "You said: The first line,", "lines-answered", columns)
    said = await conversation(desk.home)
    assert ("user", "The first line,\nthe second,\n  and the third.", Status.COMPLETE) in said
    assert ("notice", "There is no command /sesions. Did you mean /sessions?", Status.COMPLETE) in said


@pytest.mark.drawn(1)
@WIDTHS
@pytest.mark.loss("D13", "D14")
async def test_resume(desk: Desk, columns: int) -> None:
    """By a title: the last exchange and how much came back. With nothing named: a list that searches as one types."""
    await write_history(desk.home)
    with desk.shell(columns) as shell:
        shell.type("hansard -r 'Trip to Rome'")
        assert_shows(shell, "Resumed", "resumed", columns)
        shell.keys("C-d")
        assert shell.prompt() == 0
        shell.clear()
        shell.type("hansard -r")
        assert_shows(shell, "4 of 4", "picker", columns)
        shell.type("welt", enter=False)
        assert_shows(shell, "0 of 4", "picker-nothing", columns)
        shell.keys("C-u")
        shell.type("italy mil", enter=False)
        assert_shows(shell, "1 of 4", "picker-found", columns)
        shell.keys("Enter")
        assert_shows(shell, "Resumed", "picked", columns)
        shell.type("Why?")
        shell.see("You said: Why?")
        shell.keys("C-d")
        assert shell.prompt() == 0
        shell.clear()
        shell.type("hansard -r nothing-like-it")
        shell.prompt()
        assert_shows(shell, "[2] $", "not-found", columns)
    said = await conversation(desk.home)
    assert [text for role, text, _ in said if role == "user"] == [
        "What is the capital of Italy, and why is it not Milan?",
        "Why?",
    ]
    await assert_clean(desk.home)


@pytest.mark.drawn(1)
@WIDTHS
@pytest.mark.loss("D15", "F5")
async def test_two_terminals_in_one_conversation(desk: Desk, columns: int) -> None:
    """What one says and is answered is seen in the other while it comes; both speak, and both show the same words."""
    desk.script(SHORT, HALF, {"text": "So be it.", "usage": FIGURES}, SHORT)
    with desk.shell(columns) as first, desk.shell(columns, "second") as second:
        first.type("hansard")
        first.see(IN_ORDER)
        first.type("Hello.")
        first.see("You said: Hello.")
        session_id = await latest_session(desk.home)
        before = await conversation(desk.home)
        second.type(f"hansard -r {session_id} --follow")
        assert_shows(second, "You said: Hello.", "followed", columns)
        assert await conversation(desk.home) == before
        first.type("How do I make tea?")
        assert_shows(second, HALF_SHOWN, "followed-live", columns)
        second.type("Never mind.")
        first.see("So be it.")
        first.type("As you like.")
        second.see("You said: As you like.")
        assert_shows(first, "You said: As you like.", "both-spoke", columns)
        shown = [words_since(f"{MARKER}Hello.", shell.everything()) for shell in (first, second)]
        assert shown[0] == shown[1]
        second.keys("C-d")
        assert second.prompt() == 0
        first.keys("C-d")
        assert first.prompt() == 0
    said = [(role, text) for role, text, _ in await conversation(desk.home) if role == "user"]
    assert [text for _, text in said] == ["Hello.", "How do I make tea?", "Never mind.", "As you like."]
    await assert_clean(desk.home)


async def latest_session(home: Path) -> str:
    """Return the id of the session in which something was said last."""
    async with Record.open(home) as record:
        latest, *_ = await record.sessions()
    return latest.id


def words_since(beginning: str, text: str) -> str:
    """Return what was said from some words on, without the input and the status line below it."""
    return folded(text[text.index(beginning) :].rpartition(MARKER.strip())[0])


async def test_a_paste_of_ten_thousand_lines(desk: Desk) -> None:
    """It is one message, recorded byte for byte and shown whole; nothing is sent before Enter."""
    desk.script({"text": "I have read it."})
    ends = ("\n", "\n\n", "  \n")
    text = (
        "".join(f"{number}\tline {number:05} änd 漢字 \\ ${{x}} `y`{ends[number % 3]}" for number in range(10_000))
        + "the end"
    )
    with desk.shell() as shell:
        shell.type("hansard")
        shell.see(IN_ORDER)
        shell.paste(text)
        shell.see("the end")
        assert not await sessions(desk.home)
        shell.keys("Enter")
        shell.see("I have read it.")
        shown = shell.everything()
        assert [int(found) for found in re.findall(r"line (\d{5})", shown)] == list(range(10_000))
        shell.type("And now?")
        shell.see(lambda screen: screen.count("I have read it.") == 2)
    assert [text for role, text, _ in await conversation(desk.home) if role == "user"] == [text, "And now?"]


async def sessions(home: Path) -> int:
    """Return how many sessions a home has."""
    async with Record.open(home) as record:
        return len(await record.sessions())


@pytest.mark.parametrize("above", [40], ids=["a full one"])
async def test_another_width_while_an_answer_comes(desk: Desk, above: int) -> None:
    """From 120 columns to 80 and back, twice: every word is there once, in its order, and one input below them."""
    text = numbered()
    words = re.findall(r"w\d{4}", text)
    cuts = [0, *(text.index(words[number]) for number in (40, 100, 160, 230, 300, 345, 400, 470)), len(text)]
    desk.script({"pieces": [text[start:end] for start, end in pairwise(cuts)], "delay_seconds": 1.5})
    with desk.shell(120) as shell:
        shell.type(f"seq {above} && hansard")
        shell.see(IN_ORDER)
        shell.type("Count.")
        for number, columns in {99: 80, 229: 120, 344: 80, 469: 120}.items():
            shell.see(words[number], everything=True)
            shell.resize(columns, ROWS[120])
        shell.see(words[-1])
        shell.see(lambda screen: "answering" not in screen)
        shown = shell.everything()
        assert re.findall(r"w\d{4}", shown) == words
        assert shown.count(MARKER.strip()) == 2
        assert shown.count(IN_ORDER) == 1


async def test_many_widths_while_an_answer_comes_fast(desk: Desk) -> None:
    """Drawings that are on their way while the terminal changes may leave a row behind; no word is ever lost."""
    text = numbered()
    words = re.findall(r"w\d{4}", text)
    desk.script({"text": text, "delay_seconds": 0.008})
    with desk.shell(120) as shell:
        shell.type("hansard")
        shell.see(IN_ORDER)
        shell.type("Count.")
        for number in range(20, 500, 30):
            shell.see(words[number], everything=True)
            shell.resize(120 - number % 70, ROWS[120])
        shell.see(words[-1])
        shell.see(lambda screen: "answering" not in screen)
        assert list(dict.fromkeys(re.findall(r"w\d{4}", shell.everything()))) == words
    assert ("assistant", text, Status.COMPLETE) in await conversation(desk.home)


def numbered() -> str:
    """Return Markdown of all kinds whose words are numbered; its paragraphs take many lines."""
    kinds = ("{} " * 120, "- {} {}\n- {}", "```\n{} {}\n{}\n```", "> {} {}", "|{}|{}|\n|--|--|\n|{}|{}|")
    text = "\n\n".join(kinds * 4)
    return text.format(*(f"w{number:04}" for number in range(text.count("{}"))))


@pytest.mark.parametrize("no_colour", ["1", ""])
async def test_colour(desk: Desk, no_colour: str) -> None:
    """With NO_COLOR not one byte that is written to the terminal asks for a colour; without it some do."""
    desk.script(WHOLE)
    await write_history(desk.home)
    with desk.shell(NO_COLOR=no_colour) as shell:
        shell.type("hansard -r")
        shell.see("4 of 4")
        shell.keys("Enter")
        shell.see("Resumed")
        shell.type("How do I make tea?")
        shell.see("That is all.")
        shell.type("/he", enter=False)
        shell.see("List the commands.")
        shell.keys("C-c")
        shell.keys("C-d")
        shell.prompt()
        found = COLOUR.findall(shell.raw)
    assert bool(found) is not bool(no_colour), found[:5]


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)], ids=str
)
@pytest.mark.loss("A1", "A7", "A13")
async def test_a_signal(desk: Desk, number: signal.Signals, code: int) -> None:
    """It ends the turn as interrupted, with every word that was shown, and gives the terminal back as it was."""
    desk.script(HALF)
    with desk.shell() as shell:
        shell.type("hansard")
        shell.see(IN_ORDER)
        shell.type("How do I make tea?")
        shell.see(HALF_SHOWN)
        shell.strike(number)
        assert shell.prompt() == code
        shell.assert_restored()
        assert HALF_SHOWN in shell.screen()
        assert "answering" not in shell.screen()
    await assert_half_is_kept(desk)


@pytest.mark.loss("A1", "A7", "A13")
async def test_the_window_is_closed(desk: Desk) -> None:
    """Whoever closes the window in the middle of an answer finds it in the record, as far as it was shown."""
    desk.script(HALF)
    with desk.shell() as shell:
        shell.type("hansard")
        shell.see(IN_ORDER)
        shell.type("How do I make tea?")
        shell.see(HALF_SHOWN)
        pid = shell.pid
        shell.close()
        gone(pid)
    await assert_half_is_kept(desk)


async def assert_half_is_kept(desk: Desk) -> None:
    """The answer that stopped half-way is in the transcript as interrupted, and its turn has ended so."""
    said = [each for each in await conversation(desk.home) if each[0] != "notice"]
    half = str(HALF["text"]).partition("| Sencha")[0].rstrip()
    assert said == [("user", "How do I make tea?", Status.COMPLETE), ("assistant", half, Status.INTERRUPTED)]
    async with Record.open(desk.home) as record:
        (session,) = await record.sessions()
        assert [turn.state for turn in await record.turns.list(session.id)] == ["interrupted"]
    await assert_clean(desk.home)


@pytest.mark.loss("A1", "A7")
async def test_control_c(desk: Desk) -> None:
    """Once it interrupts and one goes on; with something typed it clears that; twice it leaves, at once."""
    desk.script(HALF, {"text": "Here I am."}, HALF)
    with desk.shell() as shell:
        shell.type("hansard")
        shell.see(IN_ORDER)
        shell.type("How do I make tea?")
        shell.see(HALF_SHOWN)
        shell.type("Not sent", enter=False)
        shell.see(f"{MARKER}Not sent")
        shell.keys("C-c")
        shell.see(lambda screen: "Not sent" not in screen)
        assert "answering" in shell.screen()
        shell.keys("C-c")
        shell.see("⎯ interrupted")
        shell.type("Are you there?")
        shell.see("Here I am.")
        shell.type("Again.")
        shell.see(lambda screen: screen.count(HALF_SHOWN) == 2)
        shell.keys("C-c", "C-c")
        assert shell.prompt() == 0
        shell.assert_restored()
    ends = [(text, status) for role, text, status in await conversation(desk.home) if role == "assistant"]
    assert [status for _, status in ends] == [Status.INTERRUPTED, Status.COMPLETE, Status.INTERRUPTED]
    assert [text for role, text, _ in await conversation(desk.home) if role == "user"] == [
        "How do I make tea?",
        "Are you there?",
        "Again.",
    ]
    await assert_clean(desk.home)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine at which nobody answers."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@WIDTHS
@pytest.mark.loss("A14")
async def test_no_model(desk: Desk, columns: int, closed_port: int) -> None:
    """Without a key, a server or the demo model the message is taken, and one is told what to do about it."""
    skip_with_a_local_model()
    with desk.shell(columns, HANSARD_MODEL="", OLLAMA_HOST=f"127.0.0.1:{closed_port}") as shell:
        shell.type("hansard")
        shell.see(IN_ORDER)
        shell.type("Is anybody there?")
        assert_shows(shell, "install-demo", "no-model", columns)
        shell.keys("C-d")
        assert shell.prompt() == 0
    said = await conversation(desk.home)
    assert ("user", "Is anybody there?", Status.COMPLETE) in said
    assert said[-1][0] == "notice"
    assert "install-demo" in said[-1][1]
    await assert_clean(desk.home)


@pytest.mark.drawn(1)
@WIDTHS
@pytest.mark.loss("A14")
async def test_an_unavailable_model(desk: Desk, columns: int, closed_port: int) -> None:
    """A model that cannot be reached is told as that; the message stays, and the next one is answered by another."""
    variables = {
        "HANSARD_MODEL": "openai:gpt-unreachable",
        "OPENAI_API_KEY": "not-a-key",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{closed_port}/v1",
        "HANSARD_LIMITS__ATTEMPTS_MAX": "2",
    }
    with desk.shell(columns, **variables) as shell:
        shell.type("hansard")
        shell.see(IN_ORDER)
        shell.type("Is anybody there?")
        assert_shows(shell, "127.0.0.1", "unavailable-model", columns)
        shell.keys("C-d")
        assert shell.prompt() == 0
        assert shell.run(f"hansard -c -m scripted:{SCRIPT} -p 'And now?'") == 0
        assert "And now?" in shell.screen()
    await assert_clean(desk.home)


@pytest.mark.drawn(1)
@WIDTHS
@pytest.mark.loss("B2")
async def test_a_record_that_a_stranger_holds(desk: Desk, columns: int) -> None:
    """The status line says that the record cannot be written; what was typed meanwhile is taken when it can be."""
    with desk.shell(columns) as shell:
        shell.type("hansard")
        shell.see(IN_ORDER)
        shell.type("Hello.")
        shell.see("You said: Hello.")
        async with stranger(desk.home, "BEGIN IMMEDIATE") as let_go:
            shell.type("Are you there?")
            assert_shows(shell, "another program holds state.db locked", "held", columns)
            let_go()
            # In a thread, so that the stranger's end is noticed meanwhile.
            await asyncio.to_thread(shell.see, "You said: Are you there?")
            assert_shows(shell, "You said: Are you there?", "let-go", columns)
        shell.keys("C-d")
        assert shell.prompt() == 0
    assert [text for role, text, _ in await conversation(desk.home) if role == "user"] == ["Hello.", "Are you there?"]
    await assert_clean(desk.home)
