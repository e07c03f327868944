"""What the input may become: commands by their name, sessions by their title or id."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.completion import Completion as Candidate
from prompt_toolkit.document import Document

from hansard.cli.terminal.text import safe_line
from hansard.errors import HansardError

CANDIDATES_MAX: Final = 50
"""More than this is no help to anyone."""


WORDS_CHARACTERS_MAX: Final = 40
"""Words of a session in the menu: what 80 columns leave beside its time."""


class Completion(NamedTuple):
    """One way to go on: the whole text before the cursor becomes `text`."""

    text: str
    display: str = ""
    about: str = ""


class SessionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A session as one line of a list. `text` is how it began; `when` is a time as a person reads it."""

    id: str
    title: str = ""
    text: str = ""
    when: str = ""
    messages: int = 0
    source: str = ""


def complete(text: str, *, commands: Mapping[str, str], sessions: Sequence[SessionChoice] = ()) -> list[Completion]:
    """Return how a command that is being typed may go on. `commands` maps names, with their stroke, to what they do."""
    command, space, argument = text.partition(" ")
    if not text.startswith("/") or "\n" in text:
        return []
    if not space:
        named = [Completion(name, name, about) for name, about in commands.items() if name.startswith(command)]
        return named[:CANDIDATES_MAX]
    if command != "/resume":
        return []
    return list(islice(_named(command, argument.strip().casefold(), sessions), CANDIDATES_MAX))


def _named(command: str, sought: str, sessions: Sequence[SessionChoice]) -> Iterator[Completion]:
    """Give the sessions whose id begins with what is sought, or whose title has it. The id is what is filled in."""
    for session in sessions:
        if session.id.startswith(sought) or sought in session.title.casefold():
            words = session.title or session.text
            words = words if len(words) <= WORDS_CHARACTERS_MAX else f"{words[: WORDS_CHARACTERS_MAX - 1]}…"
            about = " · ".join(filter(None, (session.when, session.id if words else "")))
            yield Completion(f"{command} {session.id}", words or session.id, about)


class Suggestions(Completer):
    """Completions that are looked up while somebody types."""

    def __init__(self, ask: Callable[[str], Awaitable[list[Completion]]]) -> None:
        """`ask` gets the text before the cursor."""
        self._ask = ask

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Candidate]:
        """Give none: they are always looked up asynchronously."""
        del document, complete_event
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Candidate, None]:
        """Give what the text before the cursor may become; where the record cannot be read, nothing."""
        del complete_event
        before = document.text_before_cursor
        try:
            found = await self._ask(before)
        except HansardError:
            return
        for each in found:
            display = safe_line(each.display or each.text)
            yield Candidate(each.text, -len(before), display=display, display_meta=safe_line(each.about))
