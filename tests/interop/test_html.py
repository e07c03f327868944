"""The page for a browser: readable, whole, and harmless whatever was said."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.messages import File, Message, Reasoning, Text, ToolCall, ToolResult
from hansard.domain.text import clean_text
from hansard.interop.html import HARMLESS, HtmlExport, shown
from hansard.record.api import Record
from tests.interop.told import export, tell_story

ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "nav", "ul", "li", "a", "article", "h1", "h2", "small", "bdi"),
    *("dl", "dt", "dd", "section", "div", "p", "pre", "details", "summary"),
}
VOID = {"meta"}
HOSTILE = (
    "</pre></div></details><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title><base href=//evil><style>*{display:none}</style>",
    "<!-- --> <![CDATA[ ]]> &lt;b&gt; &#60;i&#62;",
    "javascript:alert(1) \x00\x1b[31m \u202eturned\x85\x9b",
)


PLACES = 9
"""Where a hostile story says its words: two messages, a file's name and type, reasoning, a call's name and arguments,
its result, and why the turn failed."""


class Page(HTMLParser):
    """Reads a page: its elements, attributes and text; complains of what is not closed as it was opened."""

    def __init__(self, page: str) -> None:
        """Read it."""
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note words."""
        self.text += data

    def handle_comment(self, data: str) -> None:
        """Nobody comments."""
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        """Nobody declares."""
        raise AssertionError(data)


def check(page: str) -> Page:
    """Read a page and make sure that it can do nothing."""
    read = Page(page)
    assert set(read.tags) <= ALLOWED
    assert read.tags.count("style") == 1
    for tag, name, value in read.attributes:
        assert not name.startswith("on")
        assert name in {"lang", "charset", "http-equiv", "content", "name", "id", "class", "dir", "href"}, (tag, name)
        assert name != "href" or value.startswith("#")
    return read


async def hostile_story(record: Record, words: str, **names: Any) -> None:  # noqa: ANN401 - a title or none
    """Say hostile words wherever words can be said."""
    await record.create_session(id="s", source="cli", **names)
    blob = await record.put_blob(b"x")
    await record.append(
        "s", Message.user([Text(words), File(blob=blob, name=words, media_type=words)], author="Eve <b>")
    )
    async with record.turn("s") as turn:
        async with turn.reply() as reply:
            await reply.write(words, part="reasoning")
            await reply.write(words)
            reply.add(ToolCall(id="c1", name=words, arguments=words))
        await turn.append(Message.tool("c1", words))
        turn.fail(words)


async def test_hostile_words_are_words(tmp_path: Path) -> None:
    """Whatever is said, wherever it is said, the page has our elements only, and shows the words."""
    for number, words in enumerate(HOSTILE):
        async with Record.open(tmp_path / str(number)) as record:
            await hostile_story(record, words, title='<i>title</i> & "more"')
            page = check((await export(record, HtmlExport(full=True))).decode())
        assert page.text.count(clean_text(words).translate(HARMLESS)) == PLACES
        assert '<i>title</i> & "more"' in page.text


@given(st.text())
def test_any_text_comes_back_from_the_page(text: str) -> None:
    """What a browser reads is what was said, controls aside; it holds no element and ends no attribute."""
    assert not set(shown(text)) & set("<>\"'")
    read = Page(f"<div>{shown(text)}</div>")
    assert read.tags == ["div"]
    controls = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2400-\u2421\ufffd]")
    assert controls.sub("", read.text) == controls.sub("", text)


async def test_the_policy_allows_nothing_but_its_own_style(home: Path) -> None:
    """The page forbids scripts and every fetch, and the one style sheet is the one whose digest it names."""
    async with Record.open(home) as record:
        await tell_story(record)
        page = (await export(record, HtmlExport())).decode()
    read = check(page)
    policy = next(value for tag, name, value in read.attributes if name == "content" and "default-src" in value)
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy == f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{digest}'"
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert not re.search(r"https?:|//|url\(|@import|<script|<link|<img|<iframe", page.replace("<!DOCTYPE html>", ""))


async def test_a_story_can_be_read(home: Path) -> None:
    """The page has who said what and when, tools folded, what was cut and why; taken back only when asked for."""
    async with Record.open(home) as record:
        await tell_story(record)
        brief = (await export(record, HtmlExport())).decode()
        full = (await export(record, HtmlExport(full=True))).decode()
    text = check(brief).text
    for words in (
        "Trip to Rome",
        "User (Ann)",
        "What time is it?",
        "map.png",
        '{"zone":"Rome"}',
        "It is 12:00 in Rome",
    ):
        assert words in text
    assert "interrupted" in text
    assert "the session ended: we are back" in text
    assert "Forgotten words" not in text
    assert "I should look." not in text
    assert "Forgotten words" in check(full).text
    assert "I should look." in check(full).text
    assert brief.count("<details>") == 1


async def test_several_sessions_have_a_list_that_leads_to_each(home: Path) -> None:
    """Of several sessions, each is linked from the top, by an anchor that is there."""
    async with Record.open(home) as record:
        await tell_story(record, "one")
        await tell_story(record, "two")
        read = check((await export(record, HtmlExport())).decode())
    links = [value for _, name, value in read.attributes if name == "href"]
    anchors = [f"#{value}" for _, name, value in read.attributes if name == "id"]
    assert links == anchors == ["#one", "#two"]


async def test_parts_of_every_kind_are_shown(home: Path) -> None:
    """A tool's result without a call, an empty message and a message of reasoning alone do not break the page."""
    async with Record.open(home) as record:
        await record.create_session(id="s", source="cli")
        await record.append("s", Message.assistant([Reasoning("only thought")], id="a1"))
        await record.append("s", Message.assistant([], id="a2"))
        await record.append("s", Message.tool("nobody", "orphan result", id="t1"))
        await record.append("s", Message.assistant([ToolCall(id="c9", name="unanswered")], id="a3"))
        await record.append("s", Message.user([ToolResult(call_id="x", text="odd")], id="u1"))
        text = check((await export(record, HtmlExport(full=True))).decode()).text
    for words in ("only thought", "orphan result", "unanswered", "no result"):
        assert words in text
