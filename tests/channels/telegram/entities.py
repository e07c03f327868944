"""Formatted text as Telegram reads it: HTML and MarkdownV2 to words and entities, and what it refuses."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any, NamedTuple

Json = dict[str, Any]

TEXT_UNITS_MAX = 4096
CAPTION_UNITS_MAX = 1024
TAGS = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "tg-spoiler": "spoiler",
    "a": "text_link",
    "code": "code",
    "pre": "pre",
    "blockquote": "blockquote",
}
ESCAPED = set("_*[]()~`>#+-=|{}.!")
MARKS = {"*": "bold", "_": "italic", "__": "underline", "~": "strikethrough", "||": "spoiler"}
MENTION = re.compile(r"(?<![\w@])@[A-Za-z][A-Za-z0-9_]{2,31}(?!\w)")
COMMAND = re.compile(r"(?<!\S)/[A-Za-z0-9_]{1,32}(?:@[A-Za-z0-9_]{3,32})?(?!\w)")
URL = re.compile(r"https?://[^\s<>]+")


NOT_PARSED = "Bad Request: can't parse entities"


class RefusedText(Exception):
    """Telegram does not take a text."""


class Rich(NamedTuple):
    """Words, and what they mean."""

    text: str
    entities: tuple[Json, ...] = ()


def units(text: str) -> int:
    """Return how Telegram counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def read_text(text: str, mode: str, entities: list[Json], units_max: int, what: str) -> Rich:
    """Read a text in one of the modes; refuse what Telegram refuses."""
    if mode.upper() == "HTML":
        rich = read_html(text)
    elif mode.upper() == "MARKDOWNV2":
        rich = read_markdown(text)
    elif mode:
        raise RefusedText("Bad Request: unsupported parse_mode")
    else:
        rich = Rich(text, tuple(entities))
    rich = trimmed(rich)
    if units(rich.text) > units_max:
        raise RefusedText(f"Bad Request: {what} is too long")
    return Rich(rich.text, found_in(rich))


def trimmed(rich: Rich) -> Rich:
    """Return a text without blanks around it; entities move along."""
    lead = units(rich.text) - units(rich.text.lstrip())
    text = rich.text.strip()
    size = units(text)
    kept = []
    for entity in rich.entities:
        start = max(0, entity["offset"] - lead)
        end = min(size, entity["offset"] - lead + entity["length"])
        if end > start:
            kept.append(entity | {"offset": start, "length": end - start})
    return Rich(text, tuple(kept))


def found_in(rich: Rich) -> tuple[Json, ...]:
    """Return the entities with those that Telegram finds by itself: not in code, and not in links."""
    closed = [
        (e["offset"], e["offset"] + e["length"]) for e in rich.entities if e["type"] in {"code", "pre", "text_link"}
    ]
    found = list(rich.entities)
    for kind, pattern in (("mention", MENTION), ("bot_command", COMMAND), ("url", URL)):
        for match in pattern.finditer(rich.text):
            start, length = units(rich.text[: match.start()]), units(match[0])
            if not any(first < start + length and start < last for first, last in closed):
                found.append({"type": kind, "offset": start, "length": length})
    return tuple(sorted(found, key=lambda each: (each["offset"], -each["length"])))


class Reader(HTMLParser):
    """Reads Telegram's HTML."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.entities: list[Json] = []
        self._open: list[tuple[str, int, Json]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag that there is."""
        given = dict(attrs)
        if tag not in TAGS:
            raise RefusedText(
                f'Bad Request: can\'t parse entities: Unsupported start tag "{tag}" at byte offset {self.getpos()[1]}'
            )
        more: Json = {"url": given.get("href") or ""} if tag == "a" else {}
        language = (given.get("class") or "").removeprefix("language-")
        if tag == "code" and language and self._open and self._open[-1][0] == "pre":
            self._open[-1][2]["language"] = language
        self._open.append((tag, units(self.text), more))

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that is open."""
        if not self._open or self._open[-1][0] != tag:
            raise RefusedText(
                f"Bad Request: can't parse entities: Unmatched end tag at byte offset {self.getpos()[1]}, "
                f'expected "</{self._open[-1][0] if self._open else ""}>", found "</{tag}>"'
            )
        _, start, more = self._open.pop()
        inner = self._open[-1][0] if self._open else ""
        length = units(self.text) - start
        if length and not (tag == "code" and inner == "pre"):
            self.entities.append({"type": TAGS[tag], "offset": start, "length": length, **more})

    def handle_data(self, data: str) -> None:
        """Take words."""
        self.text += data

    def finish(self) -> Rich:
        """Return what was read."""
        self.close()
        if self._open:
            last = self._open[-1][0]
            raise RefusedText(f"{NOT_PARSED}: Can't find end tag corresponding to start tag {last}")
        return Rich(self.text, tuple(self.entities))


def read_html(text: str) -> Rich:
    """Read HTML."""
    reader = Reader()
    reader.feed(text)
    return reader.finish()


def read_markdown(text: str) -> Rich:
    """Read MarkdownV2: enough of it to refuse what Telegram refuses."""
    out, entities = "", list[Json]()
    opened: list[tuple[str, int]] = []
    place = 0
    while place < len(text):
        sign = text[place]
        mark = next((each for each in ("__", "||", "*", "_", "~") if text.startswith(each, place)), "")
        if sign == "\\" and place + 1 < len(text):
            out += text[place + 1]
            place += 2
        elif sign == "`":
            fence = "```" if text.startswith("```", place) else "`"
            end = text.find(fence, place + len(fence))
            if end < 0:
                raise RefusedText(
                    f"Bad Request: can't parse entities: Can't find end of Code entity at byte offset {place}"
                )
            code = text[place + len(fence) : end]
            entities.append({"type": "pre" if fence == "```" else "code", "offset": units(out), "length": units(code)})
            out += code
            place = end + len(fence)
        elif mark:
            place += len(mark)
            if opened and opened[-1][0] == mark:
                start = opened.pop()[1]
                entities.append({"type": MARKS[mark], "offset": start, "length": units(out) - start})
            else:
                opened.append((mark, units(out)))
        elif sign in ESCAPED:
            raise RefusedText(
                f"Bad Request: can't parse entities: Character '{sign}' is reserved and must be escaped with the "
                "preceding '\\'"
            )
        else:
            out += sign
            place += 1
    if opened:
        kind = MARKS[opened[-1][0]].capitalize()
        raise RefusedText(f"Bad Request: can't parse entities: Can't find end of {kind} entity")
    return Rich(out, tuple(entities))
