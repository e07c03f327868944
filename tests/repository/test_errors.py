"""Errors carry what a caller needs to go on."""

from __future__ import annotations

import pickle

import pytest

import hansard
from hansard import errors
from hansard.errors import (
    Ambiguous,
    ChannelBusy,
    ChannelDown,
    HansardError,
    IdConflict,
    InvalidInput,
    LeaseHeld,
    LogUnwritable,
    NotFound,
    OutcomeUnknown,
    PostUnknown,
    RecordRefused,
    RecordTooNew,
    RecordUnavailable,
    SessionEnded,
    StaleLease,
    TooLarge,
    WrongState,
)


def every_error() -> list[type[HansardError]]:
    """Return every class of the tree that is public: a channel may have its own below them."""
    found = [HansardError]
    for each in found:
        found += [below for below in each.__subclasses__() if below.__module__ == errors.__name__]
    return found


def test_what_can_be_retried() -> None:
    """Exactly the errors after which the same call can succeed say so."""
    assert {each for each in every_error() if each.retryable} == {
        LeaseHeld,
        RecordUnavailable,
        LogUnwritable,
        OutcomeUnknown,
        ChannelBusy,
        ChannelDown,
        PostUnknown,
    }


def test_a_caller_can_tell_input_from_weather() -> None:
    """A wrong value is never taken for a store that is not available, nor a refusal of the record for either."""
    assert issubclass(TooLarge, InvalidInput)
    assert issubclass(RecordTooNew, RecordRefused)
    for each in (IdConflict, NotFound, SessionEnded, WrongState, RecordUnavailable, OutcomeUnknown, RecordRefused):
        assert not issubclass(each, InvalidInput)


def test_details_are_kept() -> None:
    """Candidates and holders can be read from the error."""
    assert Ambiguous("several", ["a", "b"]).candidates == ("a", "b")
    assert LeaseHeld("held", "host-1-abc").holder == "host-1-abc"
    assert StaleLease("stale").holder == ""


@pytest.mark.parametrize("error", every_error())
def test_errors_are_public_and_cross_processes(error: type[HansardError]) -> None:
    """Each class can be imported from the package, and survives the way to another process."""
    assert getattr(hansard, error.__name__) is error
    copy = pickle.loads(pickle.dumps(error("what happened")))  # noqa: S301 - our own bytes
    assert (type(copy), str(copy)) == (error, "what happened")


def test_every_error_of_the_design_is_there() -> None:
    """The names that others rely on exist."""
    names = "IdConflict LeaseHeld StaleLease SessionEnded NotFound Ambiguous TooLarge OutcomeUnknown RecordUnavailable"
    assert all(hasattr(errors, name) for name in names.split())
