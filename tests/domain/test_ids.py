"""Ids: what is accepted, what is refused, and where a journal's log lies."""

from __future__ import annotations

import string
from datetime import UTC, datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hansard.domain.ids import (
    ALPHABET,
    HOME_JOURNAL,
    SESSION_ID,
    check_entry_id,
    check_session_id,
    log_stem,
    new_id,
    new_session_id,
)
from hansard.domain.limits import ID_CHARACTERS_MAX
from hansard.errors import InvalidInput, TooLarge

MOMENT = datetime(2026, 11, 15, 20, 12, 33, tzinfo=UTC)


def test_a_session_id_tells_its_time_and_can_be_typed() -> None:
    """A generated id is date, time and six letters that nobody confuses; it is a valid id."""
    session_id = new_session_id(round(MOMENT.timestamp() * 1_000_000))
    assert session_id.startswith("20261115-201233-")
    assert set(session_id.rpartition("-")[2]) <= set(ALPHABET)
    assert check_session_id(session_id) == session_id
    assert not set("0o1liu") & set(ALPHABET)


def test_generated_ids_do_not_meet() -> None:
    """Ten thousand ids of one second and ten thousand entry ids are all different."""
    assert len({new_session_id(0) for _ in range(10_000)}) > 9_990
    assert len({new_id() for _ in range(10_000)}) == 10_000
    assert check_entry_id(new_id())


def test_session_ids_sort_by_time() -> None:
    """A later second gives a greater id."""
    ids = [new_session_id(second * 1_000_000) for second in (0, 1, 60, 3600, 86_400, 31_536_000)]
    assert ids == sorted(ids)


@pytest.mark.parametrize("session_id", ["a", "0", "a-", "abc-123", "a" * 64, "20261115-201233-k3v9qd"])
def test_good_session_ids(session_id: str) -> None:
    """Letters, digits and hyphens, from one to 64 of them."""
    assert check_session_id(session_id) == session_id


@pytest.mark.parametrize(
    "session_id", ["", "-a", "A", "a_b", "a.b", "a/b", "..", "a" * 65, "a\n", "é", "a b", HOME_JOURNAL]
)
def test_bad_session_ids(session_id: str) -> None:
    """Anything that could leave the folder, or be another file's name, is refused."""
    with pytest.raises(InvalidInput):
        check_session_id(session_id)


@pytest.mark.parametrize("value", [None, 5, b"a", ["a"]])
def test_an_id_is_text(value: object) -> None:
    """Anything but text is refused with our own error."""
    with pytest.raises(InvalidInput):
        check_session_id(value)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        check_entry_id(value)  # type: ignore[arg-type]


@given(st.text(alphabet=string.ascii_lowercase + string.digits + "-./\\\0_A ", max_size=70))
def test_a_log_stays_in_its_folder(session_id: str) -> None:
    """Whatever id is accepted, its log lies below sessions/, under its own name, and nowhere else."""
    if not SESSION_ID.match(session_id):
        return
    parts = log_stem(session_id).split("/")
    assert parts[0] == "sessions"
    assert ".." not in parts
    assert parts[-1] == session_id


@given(st.text(min_size=1, max_size=300))
def test_an_accepted_entry_id_is_kept_as_it_is(entry_id: str) -> None:
    """An entry id is either taken to the letter or refused; never changed, never one of the record's own."""
    try:
        kept = check_entry_id(entry_id)
    except InvalidInput:
        assert (
            not entry_id.isprintable()
            or entry_id.startswith("~")
            or len(entry_id) > ID_CHARACTERS_MAX
            or "\0" in entry_id
        )
    else:
        assert kept == entry_id
        assert entry_id.encode().decode() == entry_id


def test_long_entry_ids_are_too_large() -> None:
    """The limit is exact."""
    assert check_entry_id("x" * ID_CHARACTERS_MAX)
    with pytest.raises(TooLarge):
        check_entry_id("x" * (ID_CHARACTERS_MAX + 1))


@pytest.mark.parametrize(
    ("journal_id", "stem"),
    [
        (HOME_JOURNAL, "home"),
        ("20261115-201233-k3v9qd", "sessions/2026/11/20261115-201233-k3v9qd"),
        ("20261315-201233-k3v9qd", "sessions/other/20261315-201233-k3v9qd"),
        ("20261115", "sessions/other/20261115"),
        ("s1", "sessions/other/s1"),
    ],
)
def test_the_path_is_a_function_of_the_id(journal_id: str, stem: str) -> None:
    """Dated ids lie in their month, all others in `other` (rule 15)."""
    assert log_stem(journal_id) == stem
