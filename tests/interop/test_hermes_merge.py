"""Merging two sources of one session: order, multiplicity, richness; nothing is lost and nothing is doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.messages import Reasoning, ToolCall
from hansard.interop.hermes_merge import Merged, align, enrich, merge
from hansard.interop.hermes_parts import Copy, key_of

LETTERS = st.lists(st.sampled_from("abcdx"), max_size=14)


def copies(text: Iterable[str], *, at: int = 0) -> list[Copy]:
    """Return a message a letter, a second apart when the time is given."""
    return [
        Copy(role="user", content=letter, at_microseconds=(at + place) * 1_000_000 if at else 0)
        for place, letter in enumerate(text)
    ]


def words(merged: Merged) -> str:
    """Return the letters of the result."""
    return "".join(copy.words for copy in merged.messages)


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of a longest common subsequence, by the table that every textbook has."""
    row = [0] * (len(second) + 1)
    for left in first:
        before = row[:]
        for place, right in enumerate(second, 1):
            row[place] = before[place - 1] + 1 if left == right else max(before[place], row[place - 1])
    return row[-1]


def is_subsequence(short: Iterable[str], long: Iterable[str]) -> bool:
    """Return whether one is the other with letters left out."""
    rest = iter(long)
    return all(letter in rest for letter in short)


@given(LETTERS, LETTERS)
def test_alignment_is_longest(first: list[str], second: list[str]) -> None:
    """The pairs are equal, grow on both sides, and are as many as there can be."""
    pairs = align(first, second)
    assert all(first[left] == second[right] for left, right in pairs)
    assert pairs == sorted(set(pairs))
    assert len({left for left, _ in pairs}) == len({right for _, right in pairs}) == len(pairs)
    assert len(pairs) == longest_common(first, second)


@given(LETTERS, LETTERS)
def test_multiplicity_is_the_larger_one(first: list[str], second: list[str]) -> None:
    """Each message occurs max(k, m) times, the first source keeps its order, and so does the second unless reported."""
    merged = merge(copies(first), copies(second))
    found = words(merged)
    assert Counter(found) == Counter(first) | Counter(second)
    assert is_subsequence(first, found)
    assert is_subsequence(second, found) or merged.ambiguities


@given(LETTERS)
def test_a_source_merged_with_itself_is_itself(source: list[str]) -> None:
    """Two equal sources give the same again, without a doubt."""
    merged = merge(copies(source), copies(source))
    assert (words(merged), merged.ambiguities) == ("".join(source), [])


@given(LETTERS, st.data())
def test_a_part_adds_nothing(source: list[str], data: st.DataObject) -> None:
    """A source with lines missing adds nothing, whichever comes first."""
    kept = data.draw(st.lists(st.booleans(), min_size=len(source), max_size=len(source)))
    part = [letter for letter, keep in zip(source, kept, strict=True) if keep]
    for merged in (merge(copies(source), copies(part)), merge(copies(part), copies(source))):
        assert (words(merged), merged.ambiguities) == ("".join(source), [])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param("abcd", "cdef", "abcdef", id="overlap"),
        pytest.param("ad", "abcd", "abcd", id="hole"),
        pytest.param("abxd", "axcd", "abxcd", id="a-hole-in-each"),
        pytest.param("xaxbx", "xxx", "xaxbx", id="repeated-lines"),
        pytest.param("xxx", "xxxxx", "xxxxx", id="three-and-five"),
        pytest.param("ababcd", "abcd", "ababcd", id="doubled-turn"),
        pytest.param("", "ab", "ab", id="empty-first"),
        pytest.param("ab", "", "ab", id="empty-second"),
    ],
)
def test_merged(first: str, second: str, expected: str) -> None:
    """What follows from the order alone is merged without a doubt."""
    merged = merge(copies(first), copies(second))
    assert (words(merged), merged.ambiguities) == (expected, [])


def test_times_decide_between_runs() -> None:
    """Of two runs that no common line separates, the earlier one comes first, whichever source it is in."""
    late, early = copies("ab", at=100), copies("cd", at=1)
    assert merge(late, early) == Merged(early + late, [])
    assert merge(early, late) == Merged(early + late, [])


def test_a_doubtful_place_is_reported() -> None:
    """Without times nothing says which run came first: both are kept, and it is reported."""
    merged = merge(copies("aby"), copies("acy"))
    assert Counter(words(merged)) == Counter("abcy")
    (doubt,) = merged.ambiguities
    assert "'c'" in doubt
    assert "'b'" in doubt


def test_runs_whose_times_overlap_are_interleaved_and_reported() -> None:
    """Overlapping times place each message, and still are reported: clocks are no order."""
    first = [Copy(role="user", content=letter, at_microseconds=at) for letter, at in (("a", 10), ("c", 30))]
    second = [Copy(role="user", content=letter, at_microseconds=at) for letter, at in (("b", 20), ("d", 40))]
    merged = merge(first, second)
    assert words(merged) == "abcd"
    assert len(merged.ambiguities) == 1


def test_lines_that_changed_places_are_one_each_and_reported() -> None:
    """A message that both sources have at different places is not doubled; the first source's place is kept."""
    merged = merge(copies("ab"), copies("ba"))
    assert words(merged) == "ab"
    assert len(merged.ambiguities) == 1


def test_the_richer_field_wins_field_by_field() -> None:
    """Each copy gives what the other lacks; where both have something, the longer one stays."""
    call = ToolCall(id="c1", name="terminal", arguments='{"command": "ls"}')
    one = Copy(role="assistant", content="Here  it is.", calls=(call,), at_microseconds=5)
    other = Copy(
        role="assistant",
        content="Here it is.",
        calls=(ToolCall(id="c1", name="terminal", arguments="{}"),),
        thoughts=(Reasoning("Let me look.", signature="s"),),
        finish_reason="tool_calls",
        platform_id="77",
        at_microseconds=9,
    )
    for rich in (enrich(one, other), enrich(other, one)):
        assert rich.content == "Here  it is."
        assert rich.calls == (call,)
        assert rich.thoughts == other.thoughts
        assert (rich.finish_reason, rich.platform_id) == ("tool_calls", "77")
    assert enrich(one, other).at_microseconds == 5


def test_a_copy_that_lost_its_tool_ids_is_the_same_message() -> None:
    """A result without its call's id is recognised by its words, and takes the id from the other copy."""
    whole = [Copy(role="tool", content="42", tool_call_id="c1"), Copy(role="tool", content="42", tool_call_id="c2")]
    poor = [Copy(role="tool", content="42")]
    merged = merge(whole, poor)
    assert [copy.tool_call_id for copy in merged.messages] == ["c1", "c2"]
    assert [key_of(copy) for copy in merge(poor, whole[:1]).messages] == [key_of(whole[0])]


def test_equal_words_for_different_calls_stay_apart() -> None:
    """Two results that read alike and answer different calls are two messages."""
    merged = merge(
        [Copy(role="tool", content="ok", tool_call_id="a")], [Copy(role="tool", content="ok", tool_call_id="b")]
    )
    assert sorted(copy.tool_call_id for copy in merged.messages) == ["a", "b"]


def test_many_repeated_lines_take_no_quadratic_time() -> None:
    """Ten thousand equal lines on both sides, with different ends, are merged within the time of a test."""
    merged = merge(copies("b" + "a" * 10_000 + "c"), copies("d" + "a" * 9_000 + "e"))
    assert Counter(words(merged)) == Counter({"a": 10_000, "b": 1, "c": 1, "d": 1, "e": 1})
