"""Stories of people, engines and kills in a real record: valid contexts at every entry, requests that only grow."""

from __future__ import annotations

import os

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.counts import times
from tests.engine.teller import Teller
from tests.record.state_driver import Driver

PROVE = bool(os.environ.get("HANSARD_PROVE"))
EXAMPLES = times(test=15, long=30, prove=400)

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""A story is made of real commits: to shorten one that fails would take longer than to read it."""

PICKS = st.integers(0, 1000)

Step = tuple[str, int]


def steps(*names: str) -> st.SearchStrategy[list[Step]]:
    """One step by name, with something to pick by."""
    return st.tuples(st.sampled_from(names), PICKS).map(lambda step: [step])


def turns(*middle: str) -> st.SearchStrategy[list[Step]]:
    """A turn that comes as far as its request, then anything of these."""
    begun = st.just([("say", 1), ("start", 0), ("ask", 0)])
    more = st.lists(st.tuples(st.sampled_from(middle), PICKS), min_size=1, max_size=8)
    return st.tuples(begun, more).map(lambda found: [*found[0], *found[1]])


STORIES = st.lists(
    st.one_of(
        turns("answer", "result", "result", "ask", "say", "cut", "end_turn"),
        turns("answer", "result", "result", "result", "ask", "say", "set_clock"),
        turns("cut", "ask", "answer", "end_turn", "crash"),
        steps("say", "undo", "restore", "fork", "bring_in", "end_turn", "crash", "set_clock", "compact", "compact"),
    ),
    min_size=2,
    max_size=8,
).map(lambda found: [step for steps in found for step in steps])


def tell(story: list[Step]) -> Teller:
    """Tell a story, and check what must hold at its end."""
    driver = Driver()
    try:
        teller = Teller(driver)
        for name, pick in story:
            getattr(teller, name)(pick)
        teller.check()
        teller.end_turn(0)
        return teller
    finally:
        driver.close()
        driver.end()


@pytest.mark.loss("A1", "A3", "C1", "C3", "C6", "D5", "D19")
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow], phases=PHASES)
@given(STORIES)
def test_any_story_can_be_gone_on_with(story: list[Step]) -> None:
    """Each beginning of the journal gives a valid context; each request begins with the last one, but for an undo."""
    tell(story)


def test_a_story_with_everything_in_it() -> None:
    """The steps do what they are for: one long story reaches requests, calls, cuts, steering, forks and kills."""
    story = [
        *[("say", 0), ("start", 0), ("ask", 0), ("answer", 2), ("say", 2), ("result", 0), ("result", 0), ("ask", 0)],
        *[("answer", 0), ("end_turn", 0), ("say", 1), ("start", 0), ("ask", 0), ("cut", 1), ("ask", 0), ("answer", 0)],
        *[("end_turn", 1), ("say", 0), ("start", 0), ("ask", 0), ("answer", 3), ("result", 1), ("crash", 0)],
        *[("bring_in", 2), ("say", 0), ("start", 0), ("ask", 0)],
    ]
    asked = len(tell(story).asked)
    assert asked == 6
    teller = tell(
        [*story, ("answer", 0), ("fork", 1), ("say", 0), ("start", 0), ("ask", 0), ("end_turn", 0), ("undo", 1)]
    )
    assert (len(teller.sessions), teller.asked) == (2, [])


def test_a_story_whose_model_gives_two_calls_one_id() -> None:
    """What steers the turn enters with the last of the results, also when an answer names two calls alike."""
    tell(
        [
            *[("say", 0), ("start", 0), ("ask", 0), ("answer", 15), ("result", 0), ("say", 2), ("result", 1)],
            *[("result", 0), ("ask", 0), ("end_turn", 0), ("say", 0), ("start", 0), ("ask", 0)],
        ]
    )


@pytest.mark.loss("D19")
def test_a_story_that_takes_back_its_undo() -> None:
    """After an undo and its restoring, the model is asked as if nothing had been undone, and the record is whole."""
    talk = [("say", 0), ("start", 0), ("ask", 0), ("answer", 0), ("end_turn", 0)]
    again = [("say", 0), ("start", 0), ("ask", 0)]
    plain = tell([*talk, *talk, *again]).asked[-1]
    assert tell([*talk, *talk, ("undo", 1), *again]).asked[-1] != plain
    restored = tell([*talk, *talk, ("undo", 1), ("restore", 1), *again]).asked[-1]
    assert str(restored) == str(plain)
