"""What the input may become: commands by their name, sessions by their title or id."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from hansard.cli.terminal.text import safe_line
from hansard.domain.text import shorten
from hansard.errors import HansardError

CANDIDATES_MAX: Final = 50
"""More than this is no help to anyone."""

WORDS_CHARACTERS_MAX: Final = 40
"""Words of a session in the menu: what 80 columns leave beside its time."""


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
        found = [(name, name, about) for name, about in commands.items() if name.startswith(command)]
    else:
        found = list(_named(argument.strip().casefold(), sessions)) if command == "/resume" else []
    return [
        Completion(whole, -len(text), display=safe_line(display), display_meta=safe_line(about))
        for whole, display, about in found[:CANDIDATES_MAX]
    ]


def _named(sought: str, sessions: Sequence[SessionChoice]) -> Iterator[tuple[str, str, str]]:
    """Give the sessions whose id begins with what is sought, or whose title has it. The id is what is filled in."""
    for session in sessions:
        if session.id.startswith(sought) or sought in session.title.casefold():
            words = shorten(session.title or session.text, WORDS_CHARACTERS_MAX)
            about = " · ".join(filter(None, (session.when, session.id if words else "")))
            yield f"/resume {session.id}", words or session.id, about


class Suggestions(Completer):
    """Completions that are looked up while somebody types."""

    def __init__(self, ask: Callable[[str], Awaitable[list[Completion]]]) -> None:
        """`ask` gets the text before the cursor."""
        self._ask = ask

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Give none: they are always looked up asynchronously."""
        del document, complete_event
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Give what the text before the cursor may become; where the record cannot be read, nothing."""
        del complete_event
        try:
            found = await self._ask(document.text_before_cursor)
        except HansardError:
            return
        for each in found:
            yield each
