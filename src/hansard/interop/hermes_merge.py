"""Merging the copies of a session that Hermes' sources hold: by order and content, never by which one is longer.

Each message of the result stands for its copies. Of a message that occurs k times in one source and m times in the
other, the result has max(k, m). Every source keeps its own order; where the sources do not say which of two messages
came first, their times do; where these do not either, it is reported.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from hansard.interop.hermes_parts import Copy, content_text, key_of, short_words

PAIRS_MAX: Final = 2_000_000
"""Pairs of equal lines that are weighed against one another; beyond, the n-th copy is paired with the n-th."""


class Merged(NamedTuple):
    """The messages of all sources, and what could not be decided."""

    messages: list[Copy]
    ambiguities: list[str]


def align(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the pairs of a longest common subsequence, in order."""
    start = 0
    shorter = min(len(first), len(second))
    while start < shorter and first[start] == second[start]:
        start += 1
    end = 0
    while end < shorter - start and first[-1 - end] == second[-1 - end]:
        end += 1
    middle = _align_middle(first[start : len(first) - end], second[start : len(second) - end])
    head = [(place, place) for place in range(start)]
    tail = [(len(first) - back, len(second) - back) for back in range(end, 0, -1)]
    return [*head, *((left + start, right + start) for left, right in middle), *tail]


def _align_middle(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Find the longest chain of pairs that grows on both sides (Hunt and Szymanski)."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(second):
        places[key].append(place)
    candidates = [places.get(key, []) for key in first]
    if sum(map(len, candidates)) > PAIRS_MAX:
        candidates = _nth_with_nth(first, places)
    ends: list[int] = []
    last: list[int] = []
    links: list[tuple[int, int, int]] = []
    for left, rights in enumerate(candidates):
        for right in reversed(rights):
            length = bisect_left(ends, right)
            links.append((left, right, last[length - 1] if length else -1))
            if length == len(ends):
                ends.append(right)
                last.append(len(links) - 1)
            else:
                ends[length] = right
                last[length] = len(links) - 1
    pairs = []
    link = last[-1] if last else -1
    while link >= 0:
        left, right, link = links[link]
        pairs.append((left, right))
    return pairs[::-1]


def _nth_with_nth(first: Sequence[Hashable], places: dict[Hashable, list[int]]) -> list[list[int]]:
    unpaired = {key: deque(found) for key, found in places.items()}
    return [[unpaired[key].popleft()] if unpaired.get(key) else [] for key in first]


def merge(first: Sequence[Copy], second: Sequence[Copy], *, in_writing_order: bool = False) -> Merged:
    """Merge two sources. `in_writing_order`: what only the first has was written before what only the second has."""
    pairs = align([key_of(copy) for copy in first], [key_of(copy) for copy in second])
    pairs = _with_poorer_copies(first, second, pairs)
    moved = _moved_copies(first, second, pairs)
    ambiguities = [f"the sources differ on where this belongs: {_show(second[place])}" for place in moved.values()]
    placed_elsewhere = set(moved.values())
    messages: list[Copy] = []
    gap_first = gap_second = 0
    for left, right in [*pairs, (len(first), len(second))]:
        mine = [
            enrich(first[place], second[moved[place]]) if place in moved else first[place]
            for place in range(gap_first, left)
        ]
        theirs = [second[place] for place in range(gap_second, right) if place not in placed_elsewhere]
        filled, in_doubt = _fill_gap(mine, theirs, in_writing_order=in_writing_order)
        messages += filled
        ambiguities += in_doubt
        if left < len(first):
            messages.append(enrich(first[left], second[right]))
        gap_first, gap_second = left + 1, right + 1
    return Merged(messages, ambiguities)


def _with_poorer_copies(
    first: Sequence[Copy], second: Sequence[Copy], pairs: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Add pairs of equal words between the others, where one of the two copies lost its tool ids."""
    found: list[tuple[int, int]] = []
    gap_first = gap_second = 0
    for left, right in [*pairs, (len(first), len(second))]:
        ours, theirs = range(gap_first, left), range(gap_second, right)
        if ours and theirs:
            loose = align(
                [(first[place].role, first[place].words) for place in ours],
                [(second[place].role, second[place].words) for place in theirs],
            )
            for our, their in loose:
                one, other = first[ours[our]], second[theirs[their]]
                if one.words and not (one.tool_ids and other.tool_ids):
                    found.append((ours[our], theirs[their]))
        if left < len(first):
            found.append((left, right))
        gap_first, gap_second = left + 1, right + 1
    return found


def _moved_copies(first: Sequence[Copy], second: Sequence[Copy], pairs: list[tuple[int, int]]) -> dict[int, int]:
    """Return which left-over of the first is which left-over of the second: equal, and at another place."""
    ours, theirs = {left for left, _ in pairs}, {right for _, right in pairs}
    left_over: dict[Hashable, deque[int]] = defaultdict(deque)
    for place, copy in enumerate(second):
        if place not in theirs:
            left_over[key_of(copy)].append(place)
    moved = {}
    for place, copy in enumerate(first):
        if place not in ours and (same := left_over.get(key_of(copy))):
            moved[place] = same.popleft()
    return moved


def _fill_gap(mine: list[Copy], theirs: list[Copy], *, in_writing_order: bool) -> tuple[list[Copy], list[str]]:
    """Return both runs as one, and what is not certain about their order."""
    if not mine or not theirs or in_writing_order:
        return mine + theirs, []
    times = [[copy.at_microseconds for copy in run] for run in (mine, theirs)]
    if all(map(all, times)):
        if max(times[0]) <= min(times[1]):
            return mine + theirs, []
        if max(times[1]) < min(times[0]):
            return theirs + mine, []
    doubt = (
        f"{len(theirs)} before {len(mine)}, or after, or between: no source has both "
        f"({_show(theirs[0])} … and {_show(mine[0])} …)"
    )
    return _zip_by_time(mine, theirs), [doubt]


def _zip_by_time(mine: list[Copy], theirs: list[Copy]) -> list[Copy]:
    """Interleave two runs by their times, each in its own order; a message without a time follows its predecessor."""
    result = []
    ours = deque(mine)
    for copy in theirs:
        while copy.at_microseconds and ours and 0 < ours[0].at_microseconds < copy.at_microseconds:
            result.append(ours.popleft())
        result.append(copy)
    return [*result, *ours]


def enrich(one: Copy, other: Copy) -> Copy:
    """Return one message of two copies: of each field the richer one, and the first copy's where they are alike."""
    return Copy(
        role=one.role,
        content=_richer_content(one.content, other.content),
        tool_call_id=one.tool_call_id or other.tool_call_id,
        tool_name=one.tool_name or other.tool_name,
        calls=max(one.calls, other.calls, key=lambda calls: sum(len(call.arguments) + 1 for call in calls)),
        thoughts=max(
            one.thoughts, other.thoughts, key=lambda all_: sum(len(each.text) + len(each.signature) for each in all_)
        ),
        at_microseconds=one.at_microseconds or other.at_microseconds,
        finish_reason=one.finish_reason or other.finish_reason,
        platform_id=one.platform_id or other.platform_id,
        undone=other.undone if one.undone is None else one.undone and other.undone is not False,
    )


def _richer_content(one: object, other: object) -> object:
    """Return structured content before text, and of two texts the longer one."""
    if isinstance(one, list) != isinstance(other, list):
        return one if isinstance(one, list) else other
    return other if len(content_text(other)) > len(content_text(one)) else one


def _show(copy: Copy) -> str:
    words = copy.words or ", ".join(call.name for call in copy.calls) or copy.tool_call_id
    return f"{copy.role} {short_words(words)!r}"
