"""What an event of a person says: its words, what clients show in their place, its files, and how it is to be met.

Pure. Nothing that a person sends is left out: an event of a type that nobody knows here still says that it was sent.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final

import msgspec

from hansard.channels import Json, number_of, object_of, objects_of, text_of
from hansard.domain import markup
from hansard.ports.channel import Reading, RemoteFile, ReplyKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token


MESSAGE: Final = "m.room.message"
STICKER: Final = "m.sticker"
REACTION: Final = "m.reaction"
SIGNS: Final = {"👍": "yes", "👎": "no"}
"""Reactions that choose an answer beside a post."""
POLL_STARTS: Final = ("m.poll.start", "org.matrix.msc3381.poll.start")
COLOURS: Final = frozenset("\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
"""What may follow a sign: that it is a picture, and its colour."""
HTML: Final = "org.matrix.custom.html"

NOTICES: Final = frozenset({"m.notice", "m.server_notice"})
"""What programs say to people. It is recorded and never answered: two agents would talk for ever."""
FILES: Final = frozenset({"m.image", "m.file", "m.audio", "m.video"})
PROTOCOLS: Final = ("m.key.verification.", "m.call.", "org.matrix.call.")
"""Types of events by which clients talk to each other. Of them only the call itself is meant for a person."""
CALL: Final = "m.call.invite"

FALLBACK: Final = re.compile(r"> (?:\* )?<@[^\s:>]+:[^\s>]+>[^\n]*\n(?:>[^\n]*\n)*\n")
"""How older clients repeat the words that are answered above a reply: their author, the lines, an empty line.

Other lines that begin with `>` are a person's own."""

BLOCKS: Final = frozenset(
    {"p", "div", "br", "hr", "li", "ul", "ol", "blockquote", "pre", "tr", "table", "details", "summary"}
    | {"h1", "h2", "h3", "h4", "h5", "h6"}
)
REPLY_TAG: Final = "mx-reply"
LINKS: Final = ("http://", "https://", "mailto:")
OWN_LINKS: Final = "https://matrix.to/"
"""Links to people and rooms: clients show the name alone."""


class Says(msgspec.Struct, frozen=True, kw_only=True):
    """What an event says."""

    text: str
    """Its body; where it has none, what clients show."""
    formatted: str = ""
    """What clients show in place of the body, where that says something else."""
    quoted: str = ""
    """The beginning of the text in which a client repeated the message that is answered."""
    files: tuple[RemoteFile, ...] = ()
    reply: ReplyKind = ReplyKind.ANSWER

    @property
    def words(self) -> str:
        """The text without what a client repeated."""
        return self.text.removeprefix(self.quoted)


def says(kind: str, content: Json) -> Says:
    if kind == MESSAGE:
        return message_says(content)
    if kind == STICKER:
        return Says(text=text_of(content, "body"), files=files_of(content, is_sticker=True))
    if kind in POLL_STARTS:
        return Says(text=poll_text(kind, content))
    if kind == REACTION:
        return Says(text=f"({text_of(content, 'm.relates_to', 'key') or kind})", reply=ReplyKind.NONE)
    is_aside = (kind.startswith(PROTOCOLS) and kind != CALL) or text_of(content, "m.relates_to", "event_id")
    text = text_of(content, "body") or plain_text(content) or f"({kind})"
    return Says(text=text, reply=ReplyKind.NONE if is_aside else ReplyKind.EXPLAIN)


def choice_of(content: Json) -> str:
    """Return which answer a reaction chooses, in whatever colour; empty when it chooses none."""
    key = text_of(content, "m.relates_to", "key") if text_of(content, "m.relates_to", "event_id") else ""
    return SIGNS.get(key[:1], "") if all(sign in COLOURS for sign in key[1:]) else ""


def message_says(content: Json) -> Says:
    kind, body = text_of(content, "msgtype"), text_of(content, "body")
    files = files_of(content)
    if files:
        name = text_of(content, "filename")
        body = body if name and name != body else ""
    text = f"* {body}" if kind == "m.emote" else body
    quoted = quoted_in(content, text)
    formatted = formatted_of(content, text.removeprefix(quoted)) if body or not files else ""
    if not body and formatted:
        text, formatted = formatted, ""
    reply = ReplyKind.ANSWER
    if kind in NOTICES:
        reply = ReplyKind.NONE
    elif kind == "m.key.verification.request" or not (text.strip() or files):
        reply = ReplyKind.EXPLAIN
    return Says(text=text, formatted=formatted, quoted=quoted, files=files, reply=reply)


def quoted_in(content: Json, text: str) -> str:
    """How a text begins if it is a reply whose client repeated there what is answered; empty otherwise."""
    found = FALLBACK.match(text) if text_of(content, "m.relates_to", "m.in_reply_to", "event_id") else None
    return found.group() if found else ""


def plain_text(content: Json) -> str:
    """The words that extensible events carry for clients which do not know their type."""
    for field in ("m.text", "org.matrix.msc1767.text"):
        for found in (content.get(field), *(each.get("body") for each in objects_of(content, field))):
            if isinstance(found, str) and found:
                return found
    return ""


def poll_text(kind: str, content: Json) -> str:
    poll = object_of(content, kind) or object_of(content, "m.poll")
    answers = [plain_text(answer) for answer in objects_of(poll, "answers")]
    built = "\n".join([plain_text(object_of(poll, "question")), *(f"- {answer}" for answer in answers)])
    whole = plain_text(content)
    missing = [line for line in built.splitlines() if line.removeprefix("- ") not in whole]
    return "\n".join([whole, *missing]).strip() or f"({kind})"


def files_of(content: Json, *, is_sticker: bool = False) -> tuple[RemoteFile, ...]:
    """The file of a message, if it is one. The reference holds the keys of an encrypted one."""
    if text_of(content, "msgtype") not in FILES and not is_sticker:
        return ()
    sealed = object_of(content, "file")
    url = text_of(sealed, "url") or text_of(content, "url")
    if not url.startswith("mxc://"):
        return ()
    reference = {"url": url}
    if sealed:
        reference |= {
            "key": text_of(sealed, "key", "k"),
            "iv": text_of(sealed, "iv"),
            "sha256": text_of(sealed, "hashes", "sha256"),
        }
    return (
        RemoteFile(
            reference=msgspec.json.encode(reference).decode(),
            name="sticker" if is_sticker else text_of(content, "filename") or text_of(content, "body"),
            media_type=text_of(content, "info", "mimetype") or "application/octet-stream",
            size_bytes=max(0, number_of(content, "info", "size")),
        ),
    )


# HTML.


class Visible(HTMLParser):
    """Collects what a client shows of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._hidden = 0
        self._links: list[tuple[str, int]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._hidden += tag == REPLY_TAG
        if tag in BLOCKS:
            self._add("\n- " if tag == "li" else "\n")
        elif tag == "img":
            self._add(given.get("alt") or given.get("title") or "")
        elif tag == "a":
            self._links.append((given.get("href") or "", len(self.pieces)))

    def handle_endtag(self, tag: str) -> None:
        """End a line, or a link: where it leads is said unless its text says so."""
        if tag == REPLY_TAG:
            self._hidden = max(0, self._hidden - 1)
        elif tag in BLOCKS:
            self._add("\n")
        elif tag == "a" and self._links:
            target, start = self._links.pop()
            if target.startswith(LINKS) and not target.startswith(OWN_LINKS) and target not in self.pieces[start:]:
                self._add(f" ({target})")

    def handle_data(self, data: str) -> None:
        self._add(data)

    def _add(self, text: str) -> None:
        if not self._hidden:
            self.pieces.append(text)


def visible(html: str) -> str:
    parser = Visible()
    parser.feed(html)
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(parser.pieces).splitlines())
    return "\n".join(line for line in lines if line and line != "-")


def formatted_of(content: Json, body: str) -> str:
    """Return what clients show in place of a body; empty when it says the same, formatted or not."""
    html = text_of(content, "formatted_body")
    if not html or (body and text_of(content, "format") != HTML):
        return ""
    shown = visible(html)
    same = {squeezed(body), squeezed(visible(html_of(body)))}
    return "" if squeezed(shown) in same else shown


def squeezed(text: str) -> str:
    """A text without spaces and the signs of lists, for comparing."""
    return "".join("".join(line.strip().removeprefix("- ").split()) for line in text.splitlines())


def html_of(markdown: str, reading: Reading = Reading.MARKDOWN) -> str:
    """Return the HTML of a text; empty when it would say no more than the text itself."""
    if reading is Reading.LITERAL:
        return ""
    tokens = markup.parse(markdown, within_line=reading is Reading.CONTINUED)
    return "" if is_plain(tokens) else markup.html_of(tokens)


def is_plain(tokens: Sequence[Token]) -> bool:
    """Whether a text is one paragraph of words and nothing else."""
    inline = [child.type for token in tokens for child in token.children or ()]
    blocks = [token.type for token in tokens]
    return blocks in ([], ["paragraph_open", "inline", "paragraph_close"]) and set(inline) <= {"text", "softbreak"}
