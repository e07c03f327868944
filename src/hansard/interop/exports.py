"""Exports that are not read back in: Markdown and a page of HTML for people, lines of examples for fine-tuning."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections import Counter
from collections.abc import AsyncIterator
from urllib.parse import unquote

from hansard.domain import markup
from hansard.domain.messages import File, Message, Role, Status
from hansard.domain.sessions import Session
from hansard.interop.transcripts import (
    NO_CHAT,
    TOLD_AT_HOME,
    Exporter,
    Happened,
    Item,
    TranscriptItem,
    Used,
    earlier_of,
    files_of,
    json_line,
    marks_of,
    read_items,
    read_transcript,
    reasoning_of,
    says_something,
    session_facts,
    survey_known,
    tool_facts,
    utc,
    who,
    words_of,
)
from hansard.record.api import Record

LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""Whatever any reader may take for the end of a line."""

MARKUP = re.compile(r"([\\`*_\[\]<>#!|~&])")
BACKTICKS = re.compile("`+")
FENCE_BACKTICKS = 3


class MarkdownExport(Exporter):
    """Writes sessions as Markdown, for reading and for notes.

    What people and models said is quoted, line by line: a heading that is not in a quotation is Hansard's own, so
    nobody's words can pass for somebody else's. Code blocks are fenced with more backticks than they contain.
    """

    def __init__(self, *, full: bool = False) -> None:
        """`full`: with the model's reasoning, with what was undone, edited or deleted."""
        self._full = full
        self._told = False

    async def session(self, record: Record, session: Session) -> AsyncIterator[bytes]:
        facts = "".join(f"- {name}: {plain(value)}\n" for name, value in session_facts(session))
        yield f"# {plain(session.title or session.id)}\n\n{facts}\n".encode()
        async for item in read_transcript(record, session, full=self._full):
            if text := self._item(item):
                yield f"{text}\n".encode()

    def notice(self, message: Message) -> bytes:
        """Return what a chat was told that had no session; the first one below a heading of its own."""
        heading, self._told = "" if self._told else f"# {TOLD_AT_HOME}\n\n", True
        facts = f"{plain(who(message))} · {utc(message.at_microseconds)} · {plain(message.chat or NO_CHAT)}"
        return f"{heading}## {facts}\n\n{quoted(words_of(message))}\n\n".encode()

    def _item(self, item: Item) -> str:
        if isinstance(item, Happened):
            return f"*{plain(item.text)}*\n"
        if isinstance(item, Used):
            return used_text(item)
        return self._said(item) if says_something(item.message, full=self._full) else ""

    def _said(self, item: TranscriptItem) -> str:
        message = item.message
        marks = "".join(f" · {mark}" for mark in marks_of(item))
        pieces = [f"## {plain(who(message))} · {utc(message.at_microseconds)}{marks}\n"]
        if self._full and (thought := reasoning_of(message)):
            pieces.append(f"Reasoning:\n\n{quoted(thought)}\n")
        if words := words_of(message):
            pieces.append(f"{quoted(words)}\n")
        pieces += [f"- attached: {file_text(file)}\n" for file in files_of(message)]
        if self._full:
            earlier = earlier_of(item)
            pieces += [f"{earlier.name.capitalize()}:\n\n{quoted(words)}\n" for words in earlier.words]
            pieces += [f"- was attached: {file_text(file)}\n" for file in earlier.files]
        return "\n".join(pieces)


def plain(text: str) -> str:
    """Return a text on one line in which nothing is markup."""
    return MARKUP.sub(r"\\\1", " ".join(text.split()))


def quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in LINE_ENDS.split(text))


def fenced(text: str) -> str:
    longest = max((len(run) for run in BACKTICKS.findall(text)), default=0)
    fence = "`" * max(FENCE_BACKTICKS, longest + 1)
    lines = "\n".join(LINE_ENDS.split(text))
    return f"{fence}\n{lines}\n{fence}"


def used_text(item: Used) -> str:
    name, outcome = tool_facts(item)
    marks = " · taken back" if item.undone else ""
    pieces = [f"### Tool {plain(name)}: {plain(outcome)}{marks}\n"]
    if item.call is not None:
        pieces.append(f"{fenced(item.call.arguments)}\n")
    if item.result is not None and item.result.text:
        pieces.append(f"{fenced(item.result.text)}\n")
    if item.result is not None and item.result.blob:
        pieces.append(f"- attached: `{plain(item.result.blob)}`\n")
    return "\n".join(pieces)


def file_text(file: File) -> str:
    return f"{plain(file.name or 'a file')}, {plain(file.media_type)}, {file.size_bytes} bytes, {plain(file.blob)}"


STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #888; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 3rem 0 .5rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; color: var(--soft); font-size: .85rem; }
dd { margin: 0; overflow-wrap: anywhere; }
section { border-left: 3px solid var(--line); margin: 1rem 0; padding: 0 0 0 1rem; }
section.user { border-color: #2a7; }
section.assistant { border-color: #47c; }
section.undone { opacity: .6; }
h2 { font-size: .85rem; font-weight: 600; margin: 0; }
h2 small, p.event, p.file { font-weight: 400; font-size: .85rem; color: var(--soft); }
div.words, pre { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; margin: .25rem 0; }
pre { font: .85rem/1.45 ui-monospace, monospace; background: #8881; padding: .5rem; }
div.rendered { white-space: normal; }
div.rendered > :first-child { margin-top: 0; }
div.rendered > :last-child { margin-bottom: 0; }
div.rendered p, div.rendered ul, div.rendered ol { margin: .5rem 0; }
div.rendered li > ul, div.rendered li > ol { margin: 0; }
h3, h4, h5, h6 { font-size: 1rem; margin: 1rem 0 .25rem; }
h3 { font-size: 1.15rem; }
code { font: .85em/1.45 ui-monospace, monospace; background: #8882; padding: .1em .3em; border-radius: 3px; }
pre code { font: inherit; background: none; padding: 0; }
blockquote { border-left: 3px solid var(--line); color: var(--soft); margin: .5rem 0; padding: 0 0 0 .75rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: .5rem 0; }
th, td { border: 1px solid var(--line); padding: .2rem .6rem; text-align: start; vertical-align: top; }
hr { border: 0; border-top: 1px solid var(--line); }
details { margin: .5rem 0; }
summary { color: var(--soft); font-size: .85rem; cursor: pointer; overflow-wrap: anywhere; }
"""

POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
)

PICTURES_START = 0x2400
REPLACEMENT = "\ufffd"
HARMLESS = (
    {code: chr(PICTURES_START + code) for code in range(0x20) if chr(code) not in "\t\n"}
    | {ord("\r"): None, 0x7F: "\u2421"}
    | dict.fromkeys(range(0x80, 0xA0), REPLACEMENT)
)
"""Control characters, which have no place in a page, and what stands for each."""


RENDERED_CHARACTERS_MAX = 50_000
"""A longer text is shown as it is: the parser takes seconds for some of them."""

PAGE = markup.Dialect(link_attributes=' rel="noreferrer noopener"', headings_below=2, numbers=True)

WORD = re.compile(r"[^\W_]+")
TAG = re.compile(r"<[^>]*>")
ATTRIBUTE = re.compile(r' (?:href|class|value)="([^"]*)"')


def shown(text: str) -> str:
    """Return a text as it may stand anywhere in the page, also between quotation marks."""
    return html.escape(text.translate(HARMLESS))


class HtmlExport(Exporter):
    """Writes sessions as one page that can be opened anywhere and does nothing but be read.

    Everything is escaped, there is no script and nothing is fetched: the page's own policy forbids both, and names the
    one style sheet by its digest. Each message is an island of its own writing direction, so no text can turn its
    neighbours. The assistant's Markdown is rendered where that loses no word; what people typed is shown as they typed
    it.
    """

    def __init__(self, *, full: bool = False) -> None:
        """`full`: with the model's reasoning, with what was undone, edited or deleted."""
        self._full = full
        self._told = False

    def begin(self, sessions: list[Session]) -> bytes:
        """Return the head of the page and, of several sessions, a list that leads to each."""
        title = shown(sessions[0].title or sessions[0].id) if len(sessions) == 1 else f"{len(sessions)} sessions"
        links = "".join(
            f'<li><a href="#{shown(session.id)}"><bdi>{shown(session.title or session.id)}</bdi></a></li>\n'
            for session in sessions
        )
        contents = f"<nav><ul>\n{links}</ul></nav>\n" if len(sessions) > 1 else ""
        return (
            "<!DOCTYPE html>\n"
            '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
            '<meta name="referrer" content="no-referrer">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{contents}"
        ).encode()

    async def session(self, record: Record, session: Session) -> AsyncIterator[bytes]:
        facts = "".join(
            f"<dt>{shown(name)}</dt><dd><bdi>{shown(value)}</bdi></dd>\n" for name, value in session_facts(session)
        )
        heading = f"<h1><bdi>{shown(session.title or session.id)}</bdi></h1>"
        yield f'<article id="{shown(session.id)}">\n{heading}\n<dl>\n{facts}</dl>\n'.encode()
        async for item in read_transcript(record, session, full=self._full):
            if text := self._item(item):
                yield text.encode()
        yield b"</article>\n"

    def notice(self, message: Message) -> bytes:
        heading, self._told = "" if self._told else f"<h1>{TOLD_AT_HOME}</h1>\n", True
        facts = f"{utc(message.at_microseconds)} · {message.chat or NO_CHAT}"
        return (
            f'{heading}<section class="{shown(message.role)}">\n'
            f"<h2><bdi>{shown(who(message))}</bdi> <small>{shown(facts)}</small></h2>\n"
            f"{words_html(words_of(message))}</section>\n"
        ).encode()

    def end(self) -> bytes:
        return b"</body>\n</html>\n"

    def _item(self, item: Item) -> str:
        if isinstance(item, Happened):
            return f'<p class="event"><bdi>{shown(item.text)}</bdi></p>\n'
        if isinstance(item, Used):
            return used_html(item)
        return self._said(item) if says_something(item.message, full=self._full) else ""

    def _said(self, item: TranscriptItem) -> str:
        message = item.message
        marks = [utc(message.at_microseconds), *marks_of(item)]
        thought = reasoning_of(message) if self._full else ""
        words = words_of(message)
        files = "".join(file_html(file) for file in files_of(message))
        return (
            f'<section class="{shown(message.role)}{" undone" if item.undone else ""}">\n'
            f"<h2><bdi>{shown(who(message))}</bdi> <small>{shown(' · '.join(marks))}</small></h2>\n"
            + (f"<details><summary>reasoning</summary><pre>{shown(thought)}</pre></details>\n" if thought else "")
            + (words_html(words, is_markdown=message.role == Role.ASSISTANT) if words else "")
            + f"{files}{earlier_html(item) if self._full else ''}</section>\n"
        )


def words_html(words: str, *, is_markdown: bool = False) -> str:
    """Return the words of a message: as they were typed, or rendered where that loses no word."""
    rendered = rendered_html(words.translate(HARMLESS)) if is_markdown else ""
    kind = "words rendered" if rendered else "words"
    return f'<div class="{kind}" dir="auto">{rendered or shown(words)}</div>\n'


def rendered_html(markdown: str) -> str:
    """Return a text as HTML; empty when it is very long, or when not every word of it would be in the page.

    Markdown has places for words that nobody sees: titles of links, definitions that no link uses, cells beyond the
    last column, what is nested too deeply.
    """
    if len(markdown) > RENDERED_CHARACTERS_MAX:
        return ""
    rendered = markup.html_of(markup.parse(markdown), PAGE)
    values = [unquote(html.unescape(value)) for value in ATTRIBUTE.findall(rendered)]
    kept = Counter(WORD.findall(" ".join([html.unescape(TAG.sub(" ", rendered)), *values])))
    return "" if Counter(WORD.findall(markdown)) - kept else rendered


def earlier_html(item: TranscriptItem) -> str:
    earlier = earlier_of(item)
    versions = "".join(
        f"<details><summary>{earlier.name}</summary>{words_html(words)}</details>\n" for words in earlier.words
    )
    return versions + "".join(file_html(file, "was attached") for file in earlier.files)


def file_html(file: File, what: str = "attached") -> str:
    """Return what is known of an attachment; its bytes are not in the page."""
    name, media_type = shown(file.name or "a file"), shown(file.media_type)
    facts = f"<bdi>{name}</bdi>, <bdi>{media_type}</bdi>, {file.size_bytes} bytes, {shown(file.blob)}"
    return f'<p class="file">{what}: {facts}</p>\n'


def used_html(item: Used) -> str:
    name, outcome = tool_facts(item)
    marks = " · taken back" if item.undone else ""
    arguments = f"<pre>{shown(item.call.arguments)}</pre>\n" if item.call else ""
    result = f"<pre>{shown(item.result.text)}</pre>\n" if item.result and item.result.text else ""
    blob = f'<p class="file">attached: {shown(item.result.blob)}</p>\n' if item.result and item.result.blob else ""
    summary = f"tool <bdi>{shown(name)}</bdi>: {shown(outcome)}{marks}"
    return f"<details>\n<summary>{summary}</summary>\n{arguments}{result}{blob}</details>\n"


ROLES = frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT})
BETWEEN = "\n\n"
"""What stands between two messages that became one."""


class ChatExport(Exporter):
    """Writes sessions as examples for fine-tuning: one line a session, `{"messages":[{"role":…,"content":…},…]}`.

    An example holds what people and the model said to each other, in its latest words: no notices, no reasoning, no
    tools, nothing undone or deleted, nothing that people said among themselves, no answer that was cut off. Neighbours
    of one role are one message, and an example ends with an answer: readers of such files expect both. A session
    without an answer gives no line. Hansard's own words are no example.
    """

    async def session(self, record: Record, session: Session) -> AsyncIterator[bytes]:
        """Yield the line of a session, in pieces: it is written before it is whole."""
        known = await survey_known(record, session)
        waiting: list[bytes] = []
        begun = False
        async for role, content in joined(spoken(read_items(record, session, known))):
            waiting.append(json_line({"role": role, "content": content}))
            if role == Role.ASSISTANT:
                yield (b"," if begun else b'{"messages":[') + b",".join(waiting)
                waiting, begun = [], True
        if begun:
            yield b"]}\n"


async def spoken(items: AsyncIterator[object]) -> AsyncIterator[tuple[Role, str]]:
    """Yield the role and the words of each message between people and the model."""
    async for item in items:
        if isinstance(item, TranscriptItem) and not item.undone and belongs(item.message):
            yield item.message.role, words_of(item.message)


def belongs(message: Message) -> bool:
    """Return whether a message teaches anything: whole, with words, and said to the model or by it."""
    is_whole = message.status == Status.COMPLETE and not message.is_retracted
    return message.role in ROLES and is_whole and not message.is_observed and bool(words_of(message).strip())


async def joined(messages: AsyncIterator[tuple[Role, str]]) -> AsyncIterator[tuple[Role, str]]:
    last: Role | None = None
    pieces: list[str] = []
    async for role, content in messages:
        if last is not None and role != last:
            yield last, BETWEEN.join(pieces)
            pieces = []
        last = role
        pieces.append(content)
    if last is not None:
        yield last, BETWEEN.join(pieces)
