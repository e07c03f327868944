"""Followed items become text: no word lost, none taken back, nothing that commands a terminal."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.cli.terminal.view import MARKER, View
from hansard.domain.messages import File, Reasoning, Role, Status, Text, ToolCall, ToolOutcome, ToolResult
from hansard.domain.sessions import TurnState
from hansard.journal.concepts import Body
from hansard.record.messages.entries import Chunk, Entry, MessageAdded
from hansard.record.sessions import SessionEnd, SessionReopened, SessionTitled
from hansard.record.turns.entries import TurnEnded
from tests.cli.terminal.items import added, chunk, chunks, entry, opened, sealed
from tests.cli.terminal.samples import CJK, RICH, listing, paragraph

MARKS = [
    "\n",
    "\n\n",
    " ",
    "    ",
    "# ",
    "- ",
    "* ",
    "1. ",
    "> ",
    "~~~\n",
    "---",
    "***",
    "**",
    "_",
    "` ",
    "a",
    "word",
    "ab",
]
MARKDOWN = st.lists(st.sampled_from(MARKS), max_size=50).map("".join)
SIGN = MARKER.strip()
STYLE = re.compile(r"\x1b\[[\d;]*m")


def plain_view(width: int = 80) -> View:
    """Return a view without colour."""
    return View(width=width, colour=False)


def letters(text: str) -> str:
    """Return only what was said, without marks and layout."""
    return "".join(character for character in text if character in "abdorw")


def said(view: View, text: str, size: int = 7) -> str:
    """Stream a whole message; return what was printed."""
    items: list[Entry | Chunk] = [opened(), *chunks(text, size), sealed(text)]
    return "".join(piece for item in items for piece in view.feed(item))


@given(MARKDOWN, st.integers(1, 9))
@pytest.mark.loss("D18")
def test_every_word_is_visible_at_every_moment(text: str, size: int) -> None:
    """After each chunk, what was printed and what is live have every letter that came, in its order, once."""
    view = plain_view()
    printed = "".join(view.feed(opened()))
    came = ""
    for item in chunks(text, size):
        printed += "".join(view.feed(item))
        came += item.text
        assert letters(printed + view.live) == letters(came)
    printed += "".join(view.feed(sealed(text)))
    assert letters(printed) == letters(text)
    assert view.live == ""


@given(MARKDOWN, st.integers(1, 9), st.integers(10, 100))
def test_pieces_do_not_depend_on_the_chunks(text: str, size: int, width: int) -> None:
    """A message is printed the same whether it was streamed in pieces, came at once, or was never streamed."""
    streamed = said(plain_view(width), text, size)
    assert streamed == said(plain_view(width), text, len(text) or 1)
    assert streamed == "".join(plain_view(width).feed(sealed(text)))
    assert streamed == "".join(plain_view(width).feed(added(Role.ASSISTANT, text)))
    assert streamed == "" or streamed.endswith("\n")


@given(st.text(st.characters(exclude_categories=[]), max_size=200), st.booleans())
def test_nothing_untrusted_commands_the_terminal(text: str, colour: bool) -> None:  # noqa: FBT001 - drawn
    """Whoever writes it, a message brings no control but newlines, and in colour only styles."""
    view = View(width=40, colour=colour)
    printed = said(view, text)
    call = ToolCall(id="c", name=text, arguments=text)
    for item in (
        added(Role.USER, text, author=text),
        added(Role.NOTICE, text),
        added(Role.TOOL, ToolResult(call_id="c", text=text)),
        sealed(text, call),
        entry("session.titled", SessionTitled(title=text)),
        entry("turn.ended", TurnEnded(turn_id="t", state=TurnState.LOST, reason=text)),
    ):
        printed += "".join(view.feed(item))
    printed += "".join(view.note(text))
    bare = STYLE.sub("", printed) if colour else printed
    bare.encode()
    assert not [
        character for character in bare if character != "\n" and (character < " " or "\x7f" <= character <= "\x9f")
    ]


@pytest.mark.parametrize("text", [RICH, CJK, listing(50), paragraph(500)])
def test_without_colour_there_is_no_escape(text: str) -> None:
    """Not one escape sequence, printed or live."""
    view = plain_view()
    items: list[Entry | Chunk] = [opened(), *chunks(text, 5)]
    for item in items:
        assert "\x1b" not in "".join(view.feed(item)) + view.live
    assert "\x1b" not in "".join(view.feed(sealed(text)))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_fit_the_width(width: int) -> None:
    """Prose, lists, quotations and tables are never wider than the terminal."""
    text = RICH.replace("echo", "") + CJK + paragraph(100)
    assert max(len(line) for line in said(plain_view(width), text).split("\n")) <= width


def test_markdown_is_drawn() -> None:
    """Marks become looks; what is no Markdown here is shown as it is."""
    printed = said(
        View(width=80, colour=True), "**strong** `code` <b>html</b> ![image](a.png)\nnext line\n\n[ref]: http://x\n"
    )
    assert "\x1b[1mstrong\x1b[0m" in printed
    assert "\x1b[36mcode\x1b[0m" in printed
    bare = STYLE.sub("", printed)
    assert bare == "strong code <b>html</b> image (a.png)\nnext line\n\n[ref]: http://x\n"


def test_strong_words_do_not_show_their_marks_while_they_are_written() -> None:
    """What is strong when it is finished is strong before: no mark appears only to vanish."""
    view = View(width=80, colour=True)
    for item in (opened(), chunk("so **str")):
        view.feed(item)
    assert view.live == "so \x1b[1mstr\x1b[0m"


def test_a_mark_that_stays_open_is_printed() -> None:
    """A message that ends in the middle of strong words shows the marks that it has."""
    assert said(plain_view(), "so **str") == "so **str\n"


def test_numbers_and_tight_lists_are_kept() -> None:
    """Items stay close together, with the numbers and signs that were written."""
    assert said(plain_view(), "Do:\n3. a\n4. b\n\n7) c\n") == "Do:\n3. a\n4. b\n\n7) c\n"


def test_code_goes_to_the_scrollback_line_by_line() -> None:
    """Only the line that is being written is live, however long the listing is."""
    view = plain_view()
    printed = 0
    for item in chunks(listing(5000), 11):
        printed += sum(piece.count("\n") for piece in view.feed(item))
        assert view.live.count("\n") <= 1
    assert printed == 5000


def test_a_fence_that_says_more_than_a_language_is_heard() -> None:
    """The language is no line of its own; a file's name, or whatever else stands there, is."""
    assert said(plain_view(), "a\n```py\nx\n```\nb\n") == "a\n\n  x\n\nb\n"
    assert said(plain_view(), "a\n```py notes.py\nx\n```\nb\n") == "a\n\n  py notes.py\n  x\n\nb\n"
    assert said(plain_view(), "```\n```\nb\n") == "b\n"


def test_code_keeps_its_colours_over_lines() -> None:
    """A string that spans lines is a string in each of them, though each is printed by itself."""
    view = View(width=80, colour=True)
    text = 'x = """\nimport os\n"""\nimport os\n'
    lines = "".join(piece for item in chunks(f"```python\n{text}", 3) for piece in view.feed(item)).split("\n")
    assert "\x1b[33mimport os\x1b[0m" in lines[1]
    assert "\x1b[94mimport\x1b[0m os" in lines[3]


def test_a_long_paragraph_is_live_by_its_end() -> None:
    """What is live stays small, and its last word is the last that came."""
    view = plain_view()
    text = paragraph(5000).strip()
    for item in chunks(text, 400):
        view.feed(item)
        assert view.live.count("\n") < 70
        assert view.live.endswith(item.text.split()[-1]) or item.text.endswith(" ")


def test_thinking_is_a_word_that_goes_away() -> None:
    """Reasoning is one live word until the answer begins; it is never printed."""
    view = plain_view()
    view.feed(opened())
    assert view.feed(chunk("let me see", part="reasoning")) == []
    assert view.live == "thinking…"
    assert view.feed(chunk("Yes.", 10)) == []
    assert view.live == "Yes."
    assert view.feed(sealed(Reasoning(text="let me see"), "Yes.")) == ["Yes.\n"]


def test_thinking_is_shown_to_who_wants_it() -> None:
    """With the setting, reasoning is printed before the answer, dimmed, streamed or not."""
    items: list[Entry | Chunk] = [opened(), chunk("first\nsec", part="reasoning"), chunk("ond", 9, part="reasoning")]
    items.append(chunk("Yes.", 12))
    seal = sealed(Reasoning(text="first\nsecond"), "Yes.")
    view = View(width=80, colour=True, reasoning=True)
    printed = "".join(piece for item in [*items, seal] for piece in view.feed(item))
    assert printed == "\x1b[2mfirst\x1b[0m\n\x1b[2msecond\x1b[0m\n\nYes.\n"
    assert STYLE.sub("", "".join(View(width=80, colour=True, reasoning=True).feed(seal))) == "first\nsecond\n\nYes.\n"


@pytest.mark.loss("A6", "A7")
def test_an_interrupted_message_says_so() -> None:
    """The text stays, and a mark tells that it is not whole."""
    view = plain_view()
    printed = [piece for item in (opened(), chunk("half a sent")) for piece in view.feed(item)]
    printed += view.feed(sealed("half a sent", status=Status.INTERRUPTED))
    assert "".join(printed) == "half a sent\n\n⎯ interrupted\n"


@pytest.mark.loss("D18")
def test_a_chunk_that_comes_again_is_not_shown_again() -> None:
    """What was seen is known by its offset; of an overlap only the new part is shown."""
    view = plain_view()
    for item in (opened(), chunk("one ", 0), chunk("one ", 0), chunk("ne two", 1)):
        view.feed(item)
    assert view.live == "one two"


def test_a_seal_brings_what_no_chunk_did() -> None:
    """Words that only the seal has are shown; words that were streamed are not shown twice."""
    view = plain_view()
    printed = [piece for item in (opened(), chunk("one\n\n"), sealed("one\n\ntwo")) for piece in view.feed(item)]
    assert "".join(printed) == "one\n\ntwo\n"


def test_following_from_the_middle_of_a_message() -> None:
    """A follower that came late shows what it was given, and the seal does not repeat it."""
    view = plain_view()
    printed = [piece for item in (chunk("of it", 4), sealed("all of it")) for piece in view.feed(item)]
    assert "".join(printed) == "of it\n"


def test_what_a_person_said() -> None:
    """Behind a marker, as it was written, with who said it if that is known."""
    view = plain_view(20)
    assert view.feed(added(Role.USER, "one\n  two **x**")) == [f"{SIGN} one\n    two **x**\n"]
    assert view.feed(added(Role.USER, "a long line that wraps", author="ann")) == [
        f"\n{SIGN} ann: a long line\n  that wraps\n"
    ]
    picture = File(blob="b" * 64, name="a.png", size_bytes=9)
    assert view.feed(added(Role.USER, picture)) == [f"\n{SIGN} [file: a.png, 9\n  bytes]\n"]


def test_what_the_program_said() -> None:
    """Notices are dimmed; a command that somebody typed looks like what it is."""
    view = View(width=80, colour=True)
    assert view.feed(added(Role.NOTICE, "a\n  b")) == ["\x1b[2ma\x1b[0m\n\x1b[2m  b\x1b[0m\n"]
    assert view.feed(added(Role.NOTICE, "/help", author="ann")) == [f"\n\x1b[2m{SIGN}\x1b[0m \x1b[2m/help\x1b[0m\n"]
    assert view.feed(added(Role.SYSTEM, "secret instructions")) == []


def test_tools_are_one_line_each() -> None:
    """Calls and results are folded, cut to the width, and stand close together."""
    view = plain_view(30)
    call = ToolCall(id="c", name="search", arguments='{"query": "something long"}')
    printed = view.feed(sealed("Let me look.", call, call))
    printed += view.feed(added(Role.TOOL, ToolResult(call_id="c", text="\nfirst\nsecond")))
    printed += view.feed(added(Role.TOOL, ToolResult(call_id="c", outcome=ToolOutcome.NOT_STARTED)))
    lines = "".join(printed).split("\n")
    line = '→ search {"query": "something…'
    assert lines == ["Let me look.", "", line, line, "← ok: first", "← not started", ""]
    assert len(line) == 30


class Undone(Body, frozen=True):
    """A body that this version of the view was not made for."""

    message_ids: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (
            "turn.ended",
            TurnEnded(turn_id="t", state=TurnState.LOST, reason="it died"),
            "⎯ this turn was lost: it died\n",
        ),
        ("turn.ended", TurnEnded(turn_id="t", state=TurnState.FAILED, reason="no model"), ""),
        ("turn.ended", TurnEnded(turn_id="t", state=TurnState.COMPLETED), ""),
        ("session.ended", SessionEnd(reason="reset"), "⎯ session ended: reset\n"),
        ("session.reopened", SessionReopened(), "⎯ session reopened\n"),
        ("session.titled", SessionTitled(title="A\nTrip"), "⎯ title: A Trip\n"),
        ("messages.undone", Undone(message_ids=("a", "b")), "⎯ 2 messages undone\n"),
        ("messages.undone", Undone(message_ids=("a",)), "⎯ 1 message undone\n"),
        ("messages.restored", Undone(message_ids=("a", "b")), "⎯ 2 messages restored\n"),
        ("something.new", Undone(), ""),
    ],
)
def test_facts_are_one_line(kind: str, body: Body, expected: str) -> None:
    """What a person should know is one line; what they need not, and kinds of later versions, are nothing."""
    assert "".join(plain_view().feed(entry(kind, body))) == expected


def test_words_that_come_in_between_keep_the_reply_whole() -> None:
    """A message that arrives while another is written is printed at once; the paragraph goes on below it."""
    view = plain_view()
    printed = [piece for item in (opened(), chunk("one\n\ntwo an")) for piece in view.feed(item)]
    printed += view.feed(added(Role.USER, "wait"))
    assert view.live == "\ntwo an"
    printed += view.feed(chunk("d three", 11)) + view.feed(sealed("one\n\ntwo and three"))
    assert "".join(printed) == f"one\n\n{SIGN} wait\n\ntwo and three\n"


@pytest.mark.loss("A6")
def test_another_session_ends_what_is_live() -> None:
    """Who goes to another session while an answer is written keeps what they saw of it, and it is live no longer."""
    view = plain_view()
    for item in (opened(), chunk("half a sent")):
        view.feed(item)
    other = msgspec.structs.replace(added(Role.USER, "hello"), session_id="another")
    assert "".join(view.feed(other)) == f"half a sent\n\n{SIGN} hello\n"
    assert view.live == ""


def test_another_width_draws_only_what_is_live() -> None:
    """What was printed stays; the live text is wrapped anew."""
    view = plain_view(40)
    for item in (opened(), chunk("some words that need two lines at this width")):
        view.feed(item)
    assert view.live.count("\n") == 1
    view.resize(80)
    assert view.live.count("\n") == 0
    view.resize(1)
    assert max(map(len, view.live.split("\n"))) <= 10


@pytest.mark.loss("A6")
def test_a_flush_prints_what_is_live_and_goes_on() -> None:
    """When nobody draws any longer, what was live is printed once, and what comes later continues it."""
    view = plain_view()
    for item in (opened(), chunk("```\none\ntw")):
        view.feed(item)
    assert "".join(view.flush()) == "  tw\n"
    assert view.live == ""
    assert "".join(view.flush()) == ""
    assert "".join(view.feed(chunk("o\nthree\n", 10))) == "  o\n  three\n"


def test_bodies_without_the_fields_are_nothing_worse() -> None:
    """A newer body of a known kind does not break the view."""

    class Empty(Body, frozen=True):
        pass

    for kind in ("message.added", "message.sealed", "turn.ended", "session.ended", "session.titled"):
        plain_view().feed(entry(kind, Empty()))
    body = msgspec.structs.replace(MessageAdded(role=Role.USER, parts=(Text("x"),)), parts=())
    assert plain_view().feed(entry("message.added", body)) == [f"{SIGN}\n"]
