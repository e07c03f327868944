"""Cutting a long text into posts: where a reader would pause, never inside of what belongs together.

Pure. A post shows a stretch of the text, in UTF-8 bytes, whatever the platform counts its limit in. Stretches follow
one another without a gap, so that they add up to the text. What is shown of one may be more than its words: a code
fence that a cut lies in is closed and opened again. A post that begins in the middle of a line is read as such, and no
cut lies inside of a link, of `code` or of **bold** words if there is another place for it: so the posts together show
every sign that the whole text would show.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from hansard.domain.markup import parse, visible
from hansard.ports.channel import Capabilities, Reading

FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,}|~{3,})(?P<info>[^\n]*)$", re.MULTILINE)
SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*\s+|[。！？]")  # noqa: RUF001 - signs of other scripts
WORD_END = re.compile(r"\s+")
PARAGRAPH_END = re.compile(r"\n(?:[ \t]*\n)+")
LINE_END = re.compile(r"\n")
SIGNS = re.compile(r"[`*_~\[<\\&|]|^[ \t]*(?:[-+=>#]|\d+[.)])", re.MULTILINE)
"""Without any of these, a text reads the same however it is cut."""

PARAGRAPH_CHARACTERS_MAX = 10_000
"""How much of a paragraph is read on either side of a cut: more than fits into a post."""

CUTS_TRIED_MAX = 6
"""How many pauses of one kind are tried, to find one that lies in nothing that belongs together."""

INFO_CHARACTERS_MAX = 40
"""What is repeated of a fence's language when it is opened again."""

MARK_CHARACTERS_MAX = 40
"""A fence of more signs than this is text as any other."""

ZERO_WIDTH_JOINER = "\u200d"
REGIONAL_FIRST, REGIONAL_LAST = "\U0001f1e6", "\U0001f1ff"
SKIN_FIRST, SKIN_LAST = "\U0001f3fb", "\U0001f3ff"
HANGUL = ((0x1100, 0x115F), (0x1160, 0x11A7), (0x11A8, 0x11FF))
GRAPHEME_CHARACTERS_MAX = 64
"""A cluster of more characters than this, which no script has, may be cut: a post has to end somewhere."""


class PostFence(NamedTuple):
    """A code fence that is open at some place: how it is closed, and how it is opened again."""

    mark: str
    info: str


class PostSpace(NamedTuple):
    """How much fits into one post, and how that is counted. No sign counts less than one."""

    size_max: int
    size: Callable[[str], int]


class PostStretch(NamedTuple):
    """What one post shows: the bytes [start, end) of a text, as words."""

    start: int
    end: int
    shown: str


def fence_at(text: str, end: int, start: int = 0, fence: PostFence | None = None) -> PostFence | None:
    """Return the code fence that is open at a place of a text, in characters; `fence` is open at `start`."""
    for line in FENCE.finditer(text, start, end):
        if line.end() < len(text) and line.end() == end and text[end] != "\n":
            continue  # the place is inside of this line
        mark, info = line["mark"], line["info"].strip()
        if len(mark) > MARK_CHARACTERS_MAX:
            continue
        if fence is None:
            if mark[0] not in info:
                fence = PostFence(mark, info[:INFO_CHARACTERS_MAX])
        elif mark[0] == fence.mark[0] and len(mark) >= len(fence.mark) and not info:
            fence = None
    return fence


class TextRest(NamedTuple):
    """A text from a place on, in characters, and the code fence that is open there."""

    text: str
    start: int
    fence: PostFence | None

    def show(self, end: int) -> str:
        """Return what a post shows from the place up to `end`: the words, within whole code fences.

        At the end of the text nothing is added: what is shown last is what was said.
        """
        words = self.text[self.start : end]
        if self.fence is not None:
            words = f"{self.fence.mark}{self.fence.info}\n{words}"
        if end < len(self.text):
            words = words.rstrip()
            if (after := self.fence_at(end)) is not None:
                words = f"{words}\n{after.mark}"
        return words

    def fence_at(self, end: int) -> PostFence | None:
        return fence_at(self.text, end, self.start, self.fence)

    def fits(self, end: int, room: PostSpace) -> bool:
        return room.size(self.show(end)) <= room.size_max


def text_from(text: str, start_bytes: int) -> TextRest:
    start = len(text.encode()[:start_bytes].decode(errors="ignore"))
    return TextRest(text, start, fence_at(text, start))


def show_bytes(text: str, start_bytes: int, end_bytes: int) -> str:
    """Return what a post shows of the UTF-8 bytes [start, end) of a text."""
    rest = text_from(text, start_bytes)
    words = text.encode()[start_bytes:end_bytes].decode(errors="ignore")
    return rest.show(rest.start + len(words))


def next_post(text: str, start_bytes: int, room: PostSpace) -> PostStretch:
    """Return the post that begins at a byte: all that is left, or as much as fits, up to a place to pause."""
    rest = text_from(text, start_bytes)
    end = len(text)
    if not rest.fits(end, room):
        end = cut(rest, room)
    return PostStretch(start_bytes, start_bytes + len(text[rest.start : end].encode()), rest.show(end))


def read_as(text: str, start_bytes: int, end_bytes: int) -> Reading:
    """Return how the post of the UTF-8 bytes [start, end) of a text is read, so that none of its signs is lost."""
    rest = text_from(text, start_bytes)
    end = rest.start + len(text.encode()[start_bytes:end_bytes].decode(errors="ignore"))
    places = [place for place in (rest.start, end) if 0 < place < len(text)]
    if any(Cut(text, place).loses_signs() for place in places if fence_at(text, place) is None):
        return Reading.LITERAL
    continues = rest.fence is None and is_within_line(text, rest.start)
    return Reading.CONTINUED if continues else Reading.MARKDOWN


def is_within_line(text: str, place: int) -> bool:
    return 0 < place < len(text) and "\n" not in text[place - 1 : place + 1]


class Cut(NamedTuple):
    """A place where a text is cut in two, outside of code fences."""

    text: str
    place: int

    def reads_alike(self) -> bool:
        """Return whether the two parts show the very signs that they show as one."""
        whole, parts = self._shown()
        return whole == parts

    def loses_signs(self) -> bool:
        """Return whether the two parts lack a sign that they show as one."""
        whole, parts = self._shown()
        left = iter(parts)
        return not all(sign in left for sign in whole)

    def _shown(self) -> tuple[str, str]:
        """Return what is seen of the paragraph around the place: of the whole, and of its parts together."""
        first = max(0, self.place - PARAGRAPH_CHARACTERS_MAX)
        last = min(len(self.text), self.place + PARAGRAPH_CHARACTERS_MAX)
        begin = max((found.end() for found in PARAGRAPH_END.finditer(self.text, first, self.place)), default=first)
        after = PARAGRAPH_END.search(self.text, self.place, last)
        end = after.start() if after else last
        if not SIGNS.search(self.text, begin, end):
            return "", ""
        left = parse(self.text[begin : self.place])
        right = parse(self.text[self.place : end], within_line=is_within_line(self.text, self.place))
        return visible(parse(self.text[begin:end])), visible(left) + visible(right)


def cut(rest: TextRest, room: PostSpace) -> int:
    """Return where a post ends, in characters: at the best pause in its second half, else wherever it must.

    A pause inside of what belongs together is taken only if there is no other.
    """
    last = longest(rest, room)
    least = rest.start + (last - rest.start) // 2
    fenced = rest.fence_at(last) is not None
    fences = [line.start() for line in FENCE.finditer(rest.text, rest.start, last)] if fenced else []
    if fences and fences[-1] > least:
        return fences[-1]
    worse = []
    for pause in (LINE_END, WORD_END) if fenced else (PARAGRAPH_END, LINE_END, SENTENCE_END, WORD_END):
        ends = reversed([found.end() for found in pause.finditer(rest.text, least, last)])
        for end in islice((each for each in ends if rest.fits(each, room)), CUTS_TRIED_MAX):
            if fenced or pause is PARAGRAPH_END or Cut(rest.text, end).reads_alike():
                return end
            worse.append(end)
    return worse[0] if worse else _before_cluster(rest.text, rest.start, last)


def longest(rest: TextRest, room: PostSpace) -> int:
    """Return the largest end so that what is shown fits; at least one character is taken."""
    low, high = rest.start + 1, min(len(rest.text), rest.start + room.size_max)
    while low < high:
        middle = (low + high + 1) // 2
        if rest.fits(middle, room):
            low = middle
        else:
            high = middle - 1
    return low


def _before_cluster(text: str, start: int, end: int) -> int:
    """Return the last end that does not cut a character as people see it."""
    place = end
    while place > start + 1 and end - place < GRAPHEME_CHARACTERS_MAX and joins(text, place):
        place -= 1
    return end if joins(text, place) else place


def joins(text: str, place: int) -> bool:
    """Return whether the characters before and at a place are seen as one."""
    if not 0 < place < len(text):
        return False
    before, here = text[place - 1], text[place]
    if before + here == "\r\n" or ZERO_WIDTH_JOINER in {before, here} or _extends(here):
        return True
    if REGIONAL_FIRST <= here <= REGIONAL_LAST:
        return _regionals_before(text, place) % 2 == 1
    return _hangul(before) <= _hangul(here) if _hangul(before) and _hangul(here) else False


def _extends(character: str) -> bool:
    """Return whether a character is seen as part of the one before: an accent, a variant, a colour of skin, a tag."""
    return (
        unicodedata.category(character) in {"Mn", "Me", "Mc"}
        or "\ufe00" <= character <= "\ufe0f"
        or SKIN_FIRST <= character <= SKIN_LAST
        or "\U000e0020" <= character <= "\U000e007f"
    )


def _regionals_before(text: str, place: int) -> int:
    count = 0
    while place - count > 0 and REGIONAL_FIRST <= text[place - count - 1] <= REGIONAL_LAST:
        count += 1
    return count


def _hangul(character: str) -> int:
    """Return whether a character is a leading, middle or final part of a Korean syllable: 1, 2, 3; else 0."""
    return next((kind for kind, (first, last) in enumerate(HANGUL, 1) if first <= ord(character) <= last), 0)


MARK = "↻"
"""Above words which may be shown twice; once more for each further time. It needs no translation."""

MARKS_MAX = 5
"""Each try of which nobody knows the end may be one more copy. After so many a person decides."""


def with_mark(markdown: str, mark: str) -> str:
    """Return what is shown of words with a mark: it has a line of its own, so that they stay what they are."""
    return f"{mark}\n\n{markdown}" if mark and markdown else mark or markdown


def marked_reading(reading: Reading, mark: str) -> Reading:
    """Return how words with a mark are read: below it, what begins in the middle of a line would begin a line."""
    return Reading.LITERAL if mark and reading is Reading.CONTINUED else reading


def room_of(capabilities: Capabilities) -> PostSpace:
    """Return how much of a message fits into one post: where a mark may be needed, there is room for it."""
    kept = 0 if is_recognised(capabilities) else capabilities.size(with_mark("-", MARK * MARKS_MAX)) - 1
    return PostSpace(capabilities.text_bytes_max - kept, capabilities.size)


def is_recognised(capabilities: Capabilities) -> bool:
    """Return whether the platform can tell that a post is there: by its key, or from its timeline."""
    return capabilities.repeat_seconds > 0 or capabilities.timeline
