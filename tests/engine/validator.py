"""A second opinion on requests: the strictest rules that providers have, written without a look at the engine's own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from hansard.domain.requests import AssistantSaid, Said, ToolsSaid, UserSaid

CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

MAY_FOLLOW: dict[type[Said], tuple[type[Said], ...]] = {
    UserSaid: (AssistantSaid,),
    AssistantSaid: (UserSaid, ToolsSaid),
    ToolsSaid: (AssistantSaid, UserSaid),
}
"""Results and what people add to them make one side of the conversation, in this order."""


def problems(messages: Sequence[Said]) -> Iterator[str]:
    """What a strict provider would refuse, one line each."""
    if not messages:
        yield "no message at all"
        return
    if not isinstance(messages[0], UserSaid):
        yield f"begins with {type(messages[0]).__name__}"
    if isinstance(messages[-1], AssistantSaid):
        yield "ends with the model's own words"
    for before, after in itertools.pairwise(messages):
        if not isinstance(after, MAY_FOLLOW[type(before)]):
            yield f"{type(after).__name__} after {type(before).__name__}"
    yield from pair_problems(messages)
    for position, said in enumerate(messages):
        yield from (f"{what} in message {position}: {said!r:.300}" for what in text_problems(said))


def pair_problems(messages: Sequence[Said]) -> Iterator[str]:
    """Calls without their results, results without their calls, ids that are not right."""
    used: set[str] = set()
    for position, said in enumerate(messages):
        after = messages[position + 1] if position + 1 < len(messages) else None
        calls = [call.id for call in said.calls] if isinstance(said, AssistantSaid) else []
        results = [result.call_id for result in after.results] if isinstance(after, ToolsSaid) else []
        if calls != results:
            yield f"calls {calls} of message {position} are followed by results {results}"
        for id in calls:
            if not CALL_ID.match(id):
                yield f"the id {id!r} of a call in message {position}"
            if id in used:
                yield f"the id {id!r} a second time in message {position}"
            used.add(id)


def text_problems(said: Said) -> Iterator[str]:
    """Texts that are blank, or that JSON over HTTP cannot carry."""
    if isinstance(said, ToolsSaid):
        texts = [result.text for result in said.results]
        others = [result.call_id for result in said.results]
    else:
        calls = said.calls if isinstance(said, AssistantSaid) else ()
        texts = [*([said.text] if said.text or not calls else []), *(call.name for call in calls)]
        others = [call.arguments for call in calls]
    for text in texts:
        if not text.strip():
            yield f"a blank text {text!r}"
    for text in texts + others:
        if "\0" in text or text.encode(errors="replace").decode() != text:
            yield f"a text that cannot be sent: {text!r}"


def assert_valid(messages: Sequence[Said]) -> None:
    """Every rule holds."""
    found = list(problems(messages))
    assert not found, found


def assert_begins(earlier: Sequence[Said], later: Sequence[Said]) -> None:
    """What was sent once is sent again, the same, at the beginning of what is sent next."""
    assert list(later[: len(earlier)]) == list(earlier), first_difference(earlier, later)


def first_difference(earlier: Sequence[Said], later: Sequence[Said]) -> str:
    """Where two requests part, for whoever reads the failure."""
    for position, said in enumerate(earlier):
        other = later[position] if position < len(later) else None
        if said != other:
            return f"message {position} was {said!r} and is {other!r}"
    return ""
