"""The page for a browser: readable, whole, and harmless whatever was said."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hansard.domain.messages import File, Message, Reasoning, Text, ToolCall, ToolResult
from hansard.domain.text import clean_text
from hansard.interop.exports import HARMLESS, RENDERED_CHARACTERS_MAX, HtmlExport, rendered_html, shown, words_html
from hansard.record.api import Record
from tests.interop.told import export, tell_story

ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "nav", "ul", "li", "a", "article", "h1", "h2", "small", "bdi"),
    *("dl", "dt", "dd", "section", "div", "p", "pre", "details", "summary"),
}
RENDERED = {
    *("p", "br", "hr", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "pre", "code", "a"),
    *("table", "thead", "tbody", "tr", "th", "td", "strong", "em", "del"),
}
"""What may be inside an assistant's message, and nowhere else unless it is allowed there as well."""
VOID = {"meta", "br", "hr"}
SCHEMES = ("https:", "http:", "ftp:", "mailto:", "magnet:")
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
        self.rendered: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.hidden: list[str] = []
        self.text = ""
        self.pieces: list[str] = []
        self._open: list[str] = []
        self._rendering = 0
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element; those inside an assistant's message apart."""
        (self.rendered if self._rendering else self.tags).append(tag)
        given = dict(attrs)
        assert len(given) == len(attrs)
        if self._rendering:
            check_rendered(tag, given)
            self.hidden += [unquote(value or "") for value in given.values()]
        else:
            self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)
        if given.get("class") == "words rendered":
            assert not self._rendering
            self._rendering = len(self._open)

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        if len(self._open) == self._rendering:
            self._rendering = 0
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note words."""
        self.pieces.append(data)
        self.text += data

    def handle_comment(self, data: str) -> None:
        """Nobody comments."""
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        """Nobody declares."""
        raise AssertionError(data)


def check_rendered(tag: str, attributes: dict[str, str | None]) -> None:
    """What an assistant's message made of the page can do nothing but lead somewhere, when somebody follows it."""
    assert tag in RENDERED
    if tag == "a":
        assert set(attributes) == {"href", "rel"}
        assert (attributes["href"] or "").lower().startswith(SCHEMES)
        assert attributes["rel"] == "noreferrer noopener"
    elif tag == "code":
        assert set(attributes) <= {"class"}
        assert (attributes.get("class") or "language-").startswith("language-")
    else:
        assert set(attributes) <= {"ol": {"start"}, "li": {"value"}}.get(tag, set())
        assert all((value or "").isdecimal() for value in attributes.values())


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
    blob = await record.blobs.put(b"x")
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


def page_of(markdown: str) -> Page:
    """What a browser makes of an assistant's message."""
    return Page(words_html(markdown, is_markdown=True))


@given(
    st.text()
    | st.from_regex(
        r"([*_`~#>|\[\]()<>&\"'!\-+\n 0-9a-z.:/\\]|https://|javascript:|```|\n\n|&lt;|\[a\]: b|<script>){0,60}"
    )
)
@example("[x]: https://a.b 'a title that nobody sees'")
@example("|a|b|\n|-|-|\n|1|2|three|")
@example("> " * 50 + "deep")
@example("".join(" " * 2 * depth + "* a\n" for depth in range(40)))
@example('[a](https://b "title") [b](<javascript:alert(1)>) [c](data:text/html,x) ![d](https://e/f.png)')
@example('<javascript:alert(1)> <https://a.b/"onmouseover=alert(1)>')
@example("```js onload=x\nalert(1)\n```")
@example("7. seven\n3. three")
@example("0*0*")
def test_an_answer_loses_no_word_and_gains_no_power(markdown: str) -> None:
    """Whatever an assistant says: rendered or as typed, every word is in the page, and nothing in it can act."""
    page = page_of(markdown)
    said = Counter(re.findall(r"[^\W_]+", markdown.translate(HARMLESS)))
    hidden = " ".join(value for value in page.hidden)
    # Half a word can be emphasised: what the signs parted in the source is one word for whoever reads it.
    joined, parted = (
        Counter(re.findall(r"[^\W_]+", f"{text} {hidden}")) for text in (page.text, " ".join(page.pieces))
    )
    assert not said - (joined | parted)


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("# One\n\n###### Six", "<h3>One</h3>\n<h6>Six</h6>"),
        ("**a** *b* ~~c~~ `d`", "<p><strong>a</strong> <em>b</em> <del>c</del> <code>d</code></p>"),
        ("[x](https://a.b)", '<p><a href="https://a.b" rel="noreferrer noopener">x</a></p>'),
        ("[x](https://a.b/東京)", '<p><a href="https://a.b/%E6%9D%B1%E4%BA%AC" rel="noreferrer noopener">x</a></p>'),
        ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>"),
        ("2. b\n1. a", '<ol start="2"><li value="2">b</li>\n<li value="1">a</li>\n</ol>'),
        ("AT&amp;T", ""),
        ("see [1]\n\n[1]: https://a.b", "<p>see [1]</p>\n<p>[1]: https://a.b</p>"),
    ],
)
def test_markdown(markdown: str, expected: str) -> None:
    """The assistant's Markdown is rendered below the page's own headings; where a word would go, it stays as typed."""
    assert rendered_html(markdown) == expected


def test_a_text_cannot_grow_without_end() -> None:
    """A few lines that ask for millions of cells are no table, and a very long text is shown as it is."""
    columns = 3000
    wide = f"|{'a|' * columns}\n|{'-|' * columns}\n" + "|\n" * columns
    assert len(words_html(wide, is_markdown=True)) < 10 * len(wide)
    assert rendered_html("**a** " * RENDERED_CHARACTERS_MAX) == ""


async def test_people_are_shown_as_they_typed(home: Path) -> None:
    """Only what the assistant said is rendered: a person's stars are stars, and so are those of a notice."""
    async with Record.open(home) as record:
        await record.create_session(id="s", source="cli")
        for message in (Message.user("*mine*"), Message.notice("*ours*"), Message.assistant("*yours*")):
            await record.append("s", message)
        page = (await export(record, HtmlExport())).decode()
    read = check(page)
    assert read.rendered == ["p", "em"]
    assert "*mine*" in read.text
    assert "*ours*" in read.text
    assert "*yours*" not in read.text


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
        await record.append("s", Message.assistant([Reasoning(text="only thought")], id="a1"))
        await record.append("s", Message.assistant([], id="a2"))
        await record.append("s", Message.tool("nobody", "orphan result", id="t1"))
        await record.append("s", Message.assistant([ToolCall(id="c9", name="unanswered")], id="a3"))
        await record.append("s", Message.user([ToolResult(call_id="x", text="odd")], id="u1"))
        text = check((await export(record, HtmlExport(full=True))).decode()).text
    for words in ("only thought", "orphan result", "unanswered", "no result"):
        assert words in text
