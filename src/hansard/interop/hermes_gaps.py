"""The gap report: what Hermes lost, as far as its own files show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hansard.interop.hermes_values import HermesFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hansard.interop.hermes_values import Copy, Facts, HermesSource

WORDS_SHOWN_MAX: Final = 60


def find_gaps(facts: Facts, messages: Sequence[Copy], kinds: set[HermesSource]) -> list[HermesFinding]:
    """Return what is missing in a session: replies, rows, results, whole messages, or a copy of it all."""
    found = [*_empty(facts, messages), *_one_source(facts, kinds)]
    standing = [message for message in messages if not message.undone]
    return [*found, *_unanswered(facts, standing), *_loose_tools(facts, standing)]


def _empty(facts: Facts, messages: Sequence[Copy]) -> Iterator[HermesFinding]:
    if not messages:
        claimed = f"Hermes counted {facts.claimed}" if facts.claimed else "Hermes counted none either"
        yield HermesFinding(kind="empty session", session=facts.id, detail=f"no message in any source; {claimed}")
    elif facts.claimed > len(messages):
        detail = f"Hermes counted {facts.claimed}, and {len(messages)} are in its files"
        yield HermesFinding(kind="missing messages", session=facts.id, detail=detail)


def _one_source(facts: Facts, kinds: set[HermesSource]) -> Iterator[HermesFinding]:
    """Say that a session is in one source only, where Hermes kept several."""
    if len(kinds) > 1 and len(facts.sources) == 1:
        missing = ", ".join(sorted(kinds - set(facts.sources)))
        detail = f"only in {facts.sources[0]}, not in {missing}"
        yield HermesFinding(kind="one source only", session=facts.id, detail=detail)


def _unanswered(facts: Facts, messages: Sequence[Copy]) -> Iterator[HermesFinding]:
    """Find runs of what people said that no row replies to: between two messages of theirs, or at the end."""
    run: list[tuple[int, Copy]] = []
    for number, message in enumerate(messages, 1):
        if message.role == "user":
            run.append((number, message))
        elif message.role in {"assistant", "tool"}:
            if len(run) > 1:
                yield _describe_run(facts, run[:-1], "before the next message")
            run = []
    if run:
        yield _describe_run(facts, run, "up to the end")


def _describe_run(facts: Facts, run: list[tuple[int, Copy]], until: str) -> HermesFinding:
    first, last = run[0][0], run[-1][0]
    words = run[0][1].words
    short = words if len(words) <= WORDS_SHOWN_MAX else f"{words[:WORDS_SHOWN_MAX]}…"
    where = f"message {first}" if first == last else f"messages {first} to {last}"
    detail = f"{len(run)} without a reply {until}: {short!r}"
    return HermesFinding(kind="no reply", session=facts.id, where=where, detail=detail)


def _loose_tools(facts: Facts, messages: Sequence[Copy]) -> Iterator[HermesFinding]:
    """Find results whose call is not there, and calls whose result is not."""
    waiting: dict[str, int] = {}
    for number, message in enumerate(messages, 1):
        for call in message.calls:
            waiting[call.id] = number
        if message.role == "tool" and waiting.pop(message.tool_call_id, None) is None:
            named = f"{message.tool_name or 'a tool'}, call {message.tool_call_id or 'without an id'}"
            yield HermesFinding(kind="result without a call", session=facts.id, where=f"message {number}", detail=named)
    for call_id, number in waiting.items():
        yield HermesFinding(kind="call without a result", session=facts.id, where=f"message {number}", detail=call_id)
