"""Questions to people about tool calls: how a call is shown, and which words answer.

An answer is a yes for this once, for the session, or always; or a no, maybe with a reason. `Given` is what somebody
said; whether it counts is decided by the record, in the commit that takes it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from enum import StrEnum
from functools import cache
from typing import Final

import msgspec

from hansard.domain.access import HOUR_MICROSECONDS, Pace, read_code
from hansard.domain.ids import ALPHABET

YES: Final = frozenset({"yes", "y", "yes please", "ok", "okay", "allow", "ja", "oui", "si", "sí", "👍", "once"})
NO: Final = frozenset({"no", "n", "no thanks", "deny", "nein", "non", "nope", "👎"})
SESSION: Final = frozenset({"session", "yes session", "for this session", "yes for this session"})
ALWAYS: Final = frozenset({"always", "yes always"})
"""Words that answer, on their own, whatever their case and the point after them. Anything else is something else."""

WORDS_CHARACTERS_MAX: Final = 24
"""A longer text is not looked at: it says something else."""

NO_AND_WHY: Final = re.compile(r"\s*(?:no|nein|non)\s*[,:;]\s*(?P<reason>\S.*)", re.IGNORECASE | re.DOTALL)
"""A no with a reason: `no, use the other file`."""

REASON_CHARACTERS_MAX: Final = 2000
"""Of a reason that the model is given."""

CODE_CHARACTERS: Final = 4
"""Of a question's code. It only tells a person's own questions apart, so it may be short."""

GUESSES_PER_HOUR_MAX: Final = 10
"""Codes that fit no question, by one person in an hour; after them no code of that person is looked at."""


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
        """Whether the call may be run."""
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
        code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARACTERS))
        if is_code(code):
            return code


def is_code(text: str) -> bool:
    """Return whether a word may be a question's code."""
    return len(text) == CODE_CHARACTERS and not text.isalpha() and not text.isdigit() and text.isalnum()


def may_guess(tried: Pace, now: int) -> bool:
    """Return whether another code of a person is looked at: only so many wrong ones an hour."""
    return tried.within(now, HOUR_MICROSECONDS) < GUESSES_PER_HOUR_MAX


def is_said_before(said_at: int, shown_at: int) -> bool:
    """Return whether something was said before a question was shown; both in microseconds, 0 where nobody knows.

    Platforms count in milliseconds, some in whole seconds: it may have been said at the end of that time. Their clock
    is not this machine's. Where the two differ, an answer has to be given once more, or with its code.
    """
    unit = 1_000_000 if said_at % 1_000_000 == 0 else 1_000
    return said_at > 0 and said_at + unit <= shown_at


def guess_name(person: str) -> str:
    """Return under which name a person's wrong codes are counted."""
    return f"question guessed {person}"


@cache
def address_of(account: str) -> re.Pattern[str]:
    """Return how a message begins that names the agent: by its account, or by the first part of it."""
    name = account.removeprefix("@")
    names = {name, name.partition(":")[0]}
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"\s*@?(?:{either})(?:\s*[:,]\s*|\s+)", re.IGNORECASE)


def read_words(text: str, account: str = "") -> Given | None:
    """Return the answer that a text is, maybe to the agent by its name; None when it says something else."""
    if account:
        text = address_of(account).sub("", text, count=1) if address_of(account).match(text) else text
    why = NO_AND_WHY.fullmatch(text)
    if why is not None:
        return Given(scope=Scope.NO, reason=why["reason"].strip()[:REASON_CHARACTERS_MAX])
    if len(text) > WORDS_CHARACTERS_MAX:
        return None
    words = " ".join(text.lower().replace(",", " ").split()).strip(" .!")
    meant = ((YES, Scope.ONCE), (NO, Scope.NO), (SESSION, Scope.SESSION), (ALWAYS, Scope.ALWAYS))
    return next((Given(scope=scope) for known, scope in meant if words in known), None)


def read_command(argument: str, *, yes: bool) -> Given:
    """Return the answer of `/yes [CODE] [session|always]` or `/no [CODE] [reason]`."""
    first, _, rest = argument.strip().partition(" ")
    code = read_code(first) if is_code(read_code(first)) else ""
    words = (rest if code else argument).strip()
    if not yes:
        return Given(scope=Scope.NO, reason=words[:REASON_CHARACTERS_MAX], code=code, is_plain=False)
    asked = words.lower().strip(" .!")
    scope = Scope.SESSION if asked in SESSION else Scope.ALWAYS if asked in ALWAYS else Scope.ONCE
    # What stands in the place of a code and is none is taken for a wrong one, never for a plain yes.
    wrong = "" if asked in {"", "once"} or scope is not Scope.ONCE else read_code(words) or "?"
    return Given(scope=scope, code=code or wrong, is_plain=False)


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
