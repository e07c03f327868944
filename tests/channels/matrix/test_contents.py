"""What is pure about Matrix: contents, HTML, sizes, keys, secrets and what refusals mean."""

from __future__ import annotations

import html.parser
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.channels import canonical
from hansard.channels.matrix import posting, secret_storage
from hansard.channels.matrix.contents import html_of, says
from hansard.channels.matrix.reading import MatrixEventFacts, MatrixPlace, Self, event_of, place_of
from hansard.channels.matrix.wire import MatrixResponse, error_of, retry_seconds_of
from hansard.errors import ChannelBusy, ChannelDown, ChatGone, InvalidInput, PostRefused, PostUnknown
from hansard.ports.channel import Event, EventKind, Post

ME = Self("@bot:example.org", "Clerk")
ALLOWED = (
    {"del", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "p", "a", "ul", "ol", "sup", "sub", "li", "b", "i", "u"}
    | {"strong", "em", "s", "code", "hr", "br", "div", "table", "thead", "tbody", "tr", "th", "td", "caption", "pre"}
    | {"span", "img", "details", "summary"}
)
"""The specification's list."""
ATTRIBUTES = {"a": {"href"}, "ol": {"start"}, "code": {"class"}}
POST = Post(key="key", chat="matrix:room:!a:b", markdown="")


class Tags(html.parser.HTMLParser):
    """Collects what a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag."""
        self.seen.append((tag, dict(attrs)))
        if tag not in {"br", "hr"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Tags end in the order in which they began."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep the words."""
        self.words += data


def parsed(markdown: str) -> Tags:
    """What a browser makes of the HTML of a text."""
    tags = Tags()
    tags.feed(html_of(markdown))
    tags.close()
    return tags


@given(st.text() | st.from_regex(r"([*_`~#>|\[\]()<>&\"'!\-\n 0-9a-z.:/]|https://|javascript:|```){0,60}"))
def test_only_allowed_html(markdown: str) -> None:
    """Whatever the words are, the HTML has only tags and attributes of the specification, properly nested."""
    tags = parsed(markdown)
    assert tags.open == []
    for tag, attributes in tags.seen:
        assert tag in ALLOWED
        assert set(attributes) <= ATTRIBUTES.get(tag, set())
        assert (attributes.get("href") or "https:").partition(":")[0].lower() in {
            "https",
            "http",
            "ftp",
            "mailto",
            "magnet",
        }


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("just words", ""),
        ("two\nlines", ""),
        ("**a** and *b*", "<p><strong>a</strong> and <em>b</em></p>"),
        ("a\nb `c`", "<p>a<br>\nb <code>c</code></p>"),
        ("<b>x</b> **y**", "<p>&lt;b&gt;x&lt;/b&gt; <strong>y</strong></p>"),
        ("[x](javascript:alert(1))", ""),
        ("[x](https://a.b/?c=1&d=2)", '<p><a href="https://a.b/?c=1&amp;d=2">x</a></p>'),
        ("![cat](https://a.b/c.png)", '<p><a href="https://a.b/c.png">cat</a></p>'),
        ("```py\nif a < b:\n```", '<pre><code class="language-py">if a &lt; b:\n</code></pre>'),
        ("3. a\n4. b", '<ol start="3"><li>a</li>\n<li>b</li>\n</ol>'),
        ("~~no~~", "<p><del>no</del></p>"),
    ],
)
def test_html(markdown: str, expected: str) -> None:
    """Markdown becomes the HTML that clients know; words alone need none."""
    assert html_of(markdown) == expected


def test_tables_and_quotes() -> None:
    """Tables and quotes keep their words in their places."""
    tags = parsed("> a\n\n|x|y|\n|-|-|\n|1|2|\n")
    assert [tag for tag, _ in tags.seen][:3] == ["blockquote", "p", "table"]
    assert "".join(tags.words.split()) == "axy12"


@given(st.text(max_size=1_750), st.tuples(st.booleans(), st.booleans()))
def test_every_text_of_the_promised_size_fits(text: str, form: tuple[bool, bool]) -> None:
    """No text of the promised size makes an event that is too large, and its words are never cut."""
    encrypted, edit = form
    assert len(text.encode()) <= posting.TEXT_BYTES_MAX
    filled = text * max(1, posting.TEXT_BYTES_MAX // max(1, len(text.encode())))
    post = Post(key="k" * 60, chat="matrix:room:!a:b", markdown=filled, edits="$" + "e" * 43 if edit else "")
    content = posting.text_content(post, MatrixPlace("!a:b"), is_encrypted=encrypted)
    assert posting.event_bytes(content, is_encrypted=encrypted) <= posting.EVENT_BYTES_MAX
    assert (content["m.new_content"] if edit else content)["body"] == filled


@given(st.text(st.characters(codec="utf-8"), max_size=80))
def test_a_key_comes_back_from_its_transaction(key: str) -> None:
    """The key of a post can be read from its transaction id, which is safe in an address."""
    transaction = posting.transaction_of(key)
    assert posting.key_of(transaction) == key
    assert transaction.isascii()
    assert "/" not in transaction


@pytest.mark.parametrize("text", ["", "m1234.5", "h.%%%", "h._w"])
def test_transactions_of_others_have_no_key(text: str) -> None:
    """Ids that were not made here give no key."""
    assert posting.key_of(text) == ""


@pytest.mark.parametrize("chat", ["matrix:room:!a:b.org", "matrix:room:!a:b.org:thread:$c", "matrix:room:!nodomain"])
def test_chats_have_one_name(chat: str) -> None:
    """A chat's name is read and written as the same."""
    assert place_of(chat).chat == chat


@pytest.mark.loss("J8")
def test_other_platforms_chats_are_refused() -> None:
    """The name of another platform's chat is no room."""
    with pytest.raises(InvalidInput):
        place_of("telegram:chat:42")


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 7, "", "m.text", "m.image", "m.replace", "$a", "mxc://a/b", [], ["x"], {}, [{}]]
)
FIELDS = st.sampled_from(
    [
        "msgtype",
        "body",
        "m.relates_to",
        "m.new_content",
        "rel_type",
        "event_id",
        "m.mentions",
        "file",
        "url",
        "info",
        "formatted_body",
        "m.poll",
        "question",
        "answers",
        "m.text",
        "key",
    ]
)


CONTENTS = st.dictionaries(FIELDS, ODD | st.dictionaries(FIELDS, ODD | st.dictionaries(FIELDS, ODD)))


@given(
    CONTENTS, st.sampled_from(["m.room.message", "m.room.redaction", "m.sticker", "m.poll.start", "m.reaction", "x"])
)
def test_any_content_can_be_read(content: dict[str, Any], kind: str) -> None:
    """Whatever a sender puts into an event, reading it gives an event or nothing."""
    raw = {"type": kind, "event_id": "$a", "sender": "@eve:x", "origin_server_ts": 1, "content": content}
    found = event_of(raw, MatrixEventFacts(room_id="!r:x", is_direct=False), ME)
    assert found is None or isinstance(found, Event)


@pytest.mark.parametrize(
    ("content", "for_agent"),
    [
        ({"body": "hello all"}, False),
        ({"body": "bot: hello"}, True),
        ({"body": "@bot hello"}, True),
        ({"body": "Clerk, hello"}, True),
        ({"body": "clerk"}, True),
        ({"body": "bottom line"}, False),
        ({"body": "hello bot"}, False),
        ({"body": "see @bot:example.org"}, True),
        ({"body": "x", "formatted_body": '<a href="https://matrix.to/#/%40bot%3Aexample.org">Clerk</a>'}, True),
        ({"body": "x", "m.mentions": {"user_ids": ["@bot:example.org"]}}, True),
        ({"body": "x", "m.mentions": {"user_ids": "@bot:example.org"}}, False),
    ],
)
def test_who_is_meant(content: dict[str, Any], *, for_agent: bool) -> None:
    """The agent is meant when it is named: by intent, by a link, or at the beginning."""
    raw = {"type": "m.room.message", "event_id": "$a", "sender": "@a:x", "content": {"msgtype": "m.text", **content}}
    found = event_of(raw, MatrixEventFacts(room_id="!r:x", is_direct=False), ME)
    assert found is not None
    assert found.is_for_agent is for_agent


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("> <@a:x> first\n> second\n\nmine", "mine"),
        ("> * <@a:x> waves\n\nmine", "mine"),
        ("> <@a:x> first\n\n> a quote of mine\nand more", "> a quote of mine\nand more"),
        ("> a quote of mine\n\nand more", "> a quote of mine\n\nand more"),
        ("> <Ann> wrote this\n\nand more", "> <Ann> wrote this\n\nand more"),
        ("> <@a:x> is my favourite address\nand more", "> <@a:x> is my favourite address\nand more"),
        ("mine", "mine"),
    ],
)
def test_a_reply_is_taken_whole(body: str, words: str) -> None:
    """A reply's text is its whole body; what an old client repeated of the answered message is known as that."""
    content = {"msgtype": "m.text", "body": body, "m.relates_to": {"m.in_reply_to": {"event_id": "$b"}}}
    raw = {"type": "m.room.message", "event_id": "$a", "sender": "@a:x", "content": content}
    found = event_of(raw, MatrixEventFacts(room_id="!r:x", is_direct=True), ME)
    assert found is not None
    assert (found.kind, found.text, found.words, found.reply_to) == (EventKind.MESSAGE, body, words, "$b")


@pytest.mark.parametrize(
    ("body", "html", "shown"),
    [
        ("**a** and [b](https://b.c)", '<strong>a</strong> and <a href="https://b.c">b</a>', ""),
        ("- one\n- two", "<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n", ""),
        ("a < b", "a &lt; b", ""),
        ("Ann: hello", '<a href="https://matrix.to/#/@ann:x">Ann</a>: hello', ""),
        ("mine", "<mx-reply><blockquote>theirs</blockquote></mx-reply>mine", ""),
        ("I agree", "I do <b>not</b>", "I do not"),
        ("see this", '<a href="https://evil.example/">see this</a>', "see this (https://evil.example/)"),
        ("hi", '<p>hi</p><p><img src="mxc://a/b" alt="a cat"></p>', "hi\na cat"),
    ],
)
def test_what_clients_show_is_kept_where_it_differs(body: str, html: str, shown: str) -> None:
    """Formatted words are kept beside the plain ones, unless they are the same with other marks."""
    content = {"msgtype": "m.text", "body": body, "format": "org.matrix.custom.html", "formatted_body": html}
    said = says("m.room.message", content)
    assert (said.text, said.formatted) == (body, shown)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (429, "M_LIMIT_EXCEEDED", ChannelBusy),
        (401, "M_UNKNOWN_TOKEN", ChannelDown),
        (403, "M_FORBIDDEN", ChatGone),
        (404, "M_NOT_FOUND", ChatGone),
        (404, "", ChannelDown),
        (403, "M_RESOURCE_LIMIT_EXCEEDED", ChannelDown),
        (413, "M_TOO_LARGE", PostRefused),
        (400, "M_BAD_JSON", PostRefused),
        (500, "M_UNKNOWN", PostUnknown),
        (502, "", PostUnknown),
    ],
)
def test_refusals_are_told_apart(status: int, code: str, expected: type[Exception]) -> None:
    """Each answer of a homeserver, or of what stands before it, means what it means."""
    assert type(error_of(MatrixResponse(status, {"errcode": code} if code else {}), "posting")) is expected


@pytest.mark.parametrize(
    ("body", "header", "seconds"),
    [({"retry_after_ms": 1500}, None, 1.5), ({}, "7", 7.0), ({"retry_after_ms": 1}, "3", 3.0), ({}, "soon", 5.0)],
)
def test_how_long_to_wait(body: dict[str, Any], header: str | None, seconds: float) -> None:
    """The header says how long to wait, then the older field, then a fixed pause."""
    assert retry_seconds_of(body, header) == seconds


def test_the_recovery_key_people_know() -> None:
    """A key that other clients write is read as the same bytes, and mistakes in it are found."""
    key = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    text = "EsTc LW2K PGiF wKEA 3As5 g5c4 BXwk qeeJ ZJV8 Q9fu gUMN UE4d"
    assert secret_storage.recovery_text(key) == text
    assert secret_storage.recovery_key(text.replace(" ", "")) == key
    for wrong in (text[:-1], text.replace("PGiF", "PGjF"), text + "1", text.replace("E", "0"), ""):
        with pytest.raises(InvalidInput):
            secret_storage.recovery_key(wrong)


@given(st.binary(min_size=32, max_size=32), st.text(max_size=40), st.binary(max_size=100))
def test_secrets_open_only_with_their_key_and_name(key: bytes, name: str, secret: bytes) -> None:
    """A secret is read back with its key under its name, and with nothing else."""
    sealed = secret_storage.seal(key, name, secret)
    assert secret_storage.unseal(key, name, sealed) == secret
    assert secret_storage.unseal(key, name + "x", sealed) is None
    assert secret_storage.unseal(bytes([key[0] ^ 1]) + key[1:], name, sealed) is None
    described = secret_storage.description(key)
    assert secret_storage.opens(key, described)
    assert not secret_storage.opens(bytes([key[0] ^ 1]) + key[1:], described)


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.dictionaries(TEXT, TEXT | st.integers(-(2**53), 2**53)))
def test_canonical_json(value: dict[str, Any]) -> None:
    """What is signed is canonical JSON, as the standard library writes it."""
    expected = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert canonical(value) == expected
