"""Questions to people about tool calls: how a call is shown, what may be answered, codes, and what people are told.

An answer is a yes for this once, for the session, or always; or a no, maybe with a reason. `Given` is what somebody
said. What counts as a plain yes, and when an answer counts, is decided in `record/questions.py`.

A call is shown decoded, sorted, complete, and as nothing else. A sign that changes how others are shown, or that nobody
sees, is written as its number. What is shown is read from the bytes that the tool is given, by the same reader, so
nothing that is run is missing from it.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from enum import StrEnum
from typing import Final

import msgspec

from hansard.domain.ids import random_letters
from hansard.domain.text import utf16_units

CODE_CHARACTERS: Final = 4
"""Of a question's code. It only tells a person's own questions apart, so it may be short."""


class Scope(StrEnum):
    """What somebody answers."""

    ONCE = "once"
    """Yes, this call."""
    SESSION = "session"
    """Yes, and this tool needs no further yes of this person in this session."""
    ALWAYS = "always"
    """Yes, and from now on this person's calls of this tool need none in this place."""
    NO = "no"


CHOICES: Final = {"yes": Scope.ONCE, "session": Scope.SESSION, "always": Scope.ALWAYS, "no": Scope.NO}
"""What the choices beside a question are called, on every channel."""

LABELS: Final = {
    Scope.ONCE: "👍 Yes",
    Scope.SESSION: "Yes, for this session",
    Scope.ALWAYS: "Always",
    Scope.NO: "👎 No",
}
"""What stands on a choice."""

CHOOSING: Final = {"matrix": "by 👍 or 👎 on it unless the room is encrypted", "telegram": "by a button below it"}
CHOOSING_ELSEWHERE: Final = "by a choice beside it, if there is one"
"""How people of a channel choose beside a question, as the question says it in a room."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody answers, and to which question, as far as they say so."""

    scope: Scope
    reason: str = ""
    code: str = ""
    about: str = ""
    """The receipt of the post that is answered, by a reply, a reaction or a button."""
    is_plain: bool = True
    """Whether it was said in ordinary words, which may mean something else; a command or a choice cannot."""

    @property
    def yes(self) -> bool:
        return self.scope is not Scope.NO


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """How a question ended. `by` is who answered; empty when time was over, or the turn."""

    yes: bool
    by: str = ""
    reason: str = ""
    call_hash: str = ""
    """Of the call that was shown; empty when nobody answered."""


def hash_call(tool: str, arguments: str) -> str:
    """Return what tells a call from every other: a hash of the tool's name and the exact bytes of its arguments."""
    hashed = hashlib.sha256()
    for text in (tool, arguments):
        data = text.encode(errors="surrogatepass")
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed.hexdigest()


def new_question_code() -> str:
    """Return a code for a question: letters and at least one digit, so that no word of a reason is one."""
    while True:
        code = random_letters(CODE_CHARACTERS)
        if is_code(code):
            return code


def is_code(text: str) -> bool:
    return len(text) == CODE_CHARACTERS and not text.isalpha() and not text.isdigit() and text.isalnum()


NOTHING_WAITS: Final = "Nothing waits for your answer here."
NO_SUCH_QUESTION: Final = "No question with that code waits for your answer here."
TOO_MANY_GUESSES: Final = "Too many wrong codes were given. Answer by a reply to the question, or wait an hour."
WHICH_IN_ROOM: Final = "In a room, say which question you mean: /yes CODE or /no CODE, or reply to the question."
WHICH_OF_TWO: Final = "Several questions wait for your answer, so this answers none: /yes CODE or /no CODE says which."
NOT_DELIVERED: Final = "The question was not shown here in full when you answered, so it cannot be approved here yet."
SAID_BEFORE: Final = (
    "This was said before the question was shown here, so it does not answer it. Say it again, or with the question's "
    "code: /yes CODE or /no CODE."
)
NOT_OFFERED: Final = {
    Scope.SESSION: "A yes for the whole session is not offered for this question. Say yes for this call, or no.",
    Scope.ALWAYS: "Always is not offered for this question. Say yes for this call, or no.",
}
TAKEN: Final = {
    Scope.ONCE: "It is run.",
    Scope.SESSION: "It is run, and needs no further yes of yours in this session.",
    Scope.ALWAYS: "It is run, and needs no yes of yours here from now on. `hansard permissions` lists that.",
    Scope.NO: "It is not run.",
}
"""What people are told about their answers."""

TEXT_UNITS_MAX: Final = 2500
"""Arguments that stand in the question itself, in units of UTF-16: with the words around them they are one post."""

FILE_BYTES_MAX: Final = 1_000_000
"""Arguments that are attached as a file. Nobody reads more than that before saying yes."""

TERMINAL_CHARACTERS_MAX: Final = 100_000
"""Arguments that are printed at a terminal."""

UNSEEN: Final = frozenset(
    [
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
        *range(0x180B, 0x1810),
        *range(0xFE00, 0xFE10),
        *range(0xE0000, 0xE0080),
        *range(0xE0100, 0xE01F0),
    ]
)
"""Signs that nobody sees, whatever Unicode calls them: fillers, blanks, variation selectors and tags."""

MARKS_MAX: Final = 4
"""Combining marks on one sign that are shown. No language needs more; a tower of them covers other lines."""


def show_arguments(arguments: str) -> str:
    """Return the arguments of a call as people read them. ValueError: they are no JSON object, so no tool takes them.

    It is JSON again, so that nothing in a text can be taken for another argument.
    """
    try:
        decoded = msgspec.json.decode(arguments or "{}", type=dict[str, object])
        text = json.dumps(decoded, indent=2, sort_keys=True, ensure_ascii=False)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return "\n".join(map(show_line, text.split("\n")))


def show_line(text: str) -> str:
    """Return a text in one line, such as a tool's name. Signs that nobody sees, or that hide others, are numbers."""
    shown, marks = [], 0
    for sign in text:
        is_mark = unicodedata.category(sign) in {"Mn", "Me"}  # drawn over, under or around the sign before it
        marks = marks + 1 if is_mark else 0
        is_shown = is_plain(sign) and marks <= MARKS_MAX
        shown.append(sign if is_shown else escape(sign))
    return "".join(shown)


def is_plain(sign: str) -> bool:
    """Return whether people see a sign, and it turns no others."""
    return sign.isprintable() and ord(sign) not in UNSEEN


def escape(sign: str) -> str:
    data = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[place]:02x}{data[place + 1]:02x}" for place in range(0, len(data), 2))


def fits_in_post(shown: str) -> bool:
    return utf16_units(shown) + 4 * shown.count("\n") <= TEXT_UNITS_MAX
