"""Which text of a request is untrusted: what none of those who asked wrote.

Words of people count by who said them, results of other servers' tools and imports never. What Hansard's own tools
quote is as trusted as whoever said it. A summary is as trusted as what it sums up, so what is summed up still counts.

A **source** is a short text: the owner of a person's words, or a word and what it came from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from hansard.domain.messages import Message, Role, ToolCall, ToolOutcome, ToolResult, is_forwarded, is_quoted
from hansard.domain.people import asker_owner, called

IMPORT: Final = "import"
UNKNOWN: Final = "unknown"
QUOTE: Final = "quote"
FORWARD: Final = "forward"
TOOL: Final = "tool:"

WORDS: Final = {
    IMPORT: "imported text",
    UNKNOWN: "words whose author is not recorded",
    QUOTE: "words that somebody quoted",
    FORWARD: "words that somebody passed on",
}

OWN_TOOLS: Final = frozenset({"current_time", "memory", "session_search"})
"""Tools of Hansard's own: what they give is as trusted as what they quote."""

SOURCES_TOLD_MAX: Final = 3
"""Sources that a question names; how many more there are is said."""


def source_of(message: Message) -> str:
    """Return whose words a message is; empty for the model's own, and for what the program says."""
    if message.is_imported:
        return IMPORT
    if message.role != Role.USER:
        return ""
    return asker_owner(message.author, message.chat) if message.author else UNKNOWN


def result_sources(result: ToolResult, tool: str) -> tuple[str, ...]:
    if result.outcome is ToolOutcome.NOT_STARTED:
        return ()  # the program itself says so
    if tool not in OWN_TOOLS:
        return (f"{TOOL}{tool}",)
    if result.sources is None:
        return (f"{TOOL}{tool}",) if tool == "session_search" else ()
    return result.sources


def sources_of(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return whose text a conversation holds, each once, the latest first."""
    tools: dict[str, str] = {}
    found: list[str] = []
    for message in messages:
        if message.is_retracted:
            continue
        if source := source_of(message):
            found.append(source)
        for part in message.parts:
            if isinstance(part, ToolCall):
                tools[part.id] = part.name
            elif isinstance(part, ToolResult):
                found += result_sources(part, tools.get(part.call_id, "an unknown tool"))
            elif is_quoted(part) and message.role == Role.USER:
                found.append(QUOTE)
            elif is_forwarded(part):
                found.append(FORWARD)
    return tuple(dict.fromkeys(reversed(found)))


def untrusted_text(sources: Iterable[str], trusted: Collection[str]) -> str:
    """Return which untrusted text there is, for people; empty when there is none. `trusted`: owners who asked."""
    found = [describe_source(each) for each in sources if each not in trusted]
    more = f" and {len(found) - SOURCES_TOLD_MAX} more" if len(found) > SOURCES_TOLD_MAX else ""
    return ", ".join(found[:SOURCES_TOLD_MAX]) + more


def describe_source(source: str) -> str:
    if source.startswith(TOOL):
        return f"the result of {source.removeprefix(TOOL)}"
    return WORDS.get(source) or f"words of {called(source)}"
