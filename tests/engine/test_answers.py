"""Asking a model: attempts before the first word, none after it, other models, and endings that a person is told."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from hansard.domain.messages import Role, Status
from hansard.domain.requests import (
    RETRYABLE,
    AssistantSaid,
    Delta,
    FailureKind,
    FinishReason,
    UserSaid,
)
from hansard.domain.sessions import TurnState
from hansard.domain.settings import TurnLimits
from hansard.engine import prompts
from hansard.engine.turns import pause_seconds
from hansard.testing.fakes import Counting, Echo, tools_by_name
from tests.engine.stage import PlayedModel, call, failure, stage
from tests.engine.validator import assert_begins, assert_valid

FINAL = [kind for kind in FailureKind if kind not in RETRYABLE]


# Before the first word.


@pytest.mark.parametrize("kind", sorted(RETRYABLE))
async def test_a_failure_before_the_first_word_is_tried_again(home: Path, kind: FailureKind) -> None:
    """Two failures that may pass, then an answer: three attempts with the same request, one message, no notice."""
    model = PlayedModel([failure(kind)], [failure(kind)], ["There."])
    async with stage(home, model) as on:
        await on.run("hi")
        assert len(model.requests) == 3
        assert model.requests[0] == model.requests[1] == model.requests[2]
        assert await on.texts() == ["hi", "There."]
        assert await on.notices() == []
        assert await on.states() == [TurnState.COMPLETED]


@pytest.mark.parametrize("attempts_max", [1, 3])
@pytest.mark.loss("A2", "A14")
async def test_attempts_end_at_their_limit(home: Path, attempts_max: int) -> None:
    """A model that never answers is asked so often; the turn fails, the person is told, the question is there."""
    model = PlayedModel([failure(FailureKind.BUSY)])
    async with stage(home, model, limits=TurnLimits(attempts_max=attempts_max, retry_seconds_max=0.001)) as on:
        await on.run("hi")
        assert len(model.requests) == attempts_max
        assert await on.texts() == ["hi"]
        assert await on.notices() == [
            "The model could not answer: it is busy. Your message is recorded; /retry asks again."
        ]
        assert await on.ends() == [(TurnState.FAILED, "busy: it is busy")]
        await on.check()


@pytest.mark.parametrize("kind", FINAL)
async def test_a_failure_that_does_not_pass_is_not_tried_again(home: Path, kind: FailureKind) -> None:
    """A wrong key or a refused request fails at once."""
    model = PlayedModel([failure(kind)], ["never"])
    async with stage(home, model) as on:
        await on.run("hi")
        assert len(model.requests) == 1
        assert await on.states() == [TurnState.FAILED]


async def test_a_provider_that_says_when_is_asked_then(home: Path) -> None:
    """Retry-After is waited for, in full."""
    model = PlayedModel([failure(FailureKind.BUSY, retry_after_seconds=0.12)], ["There."])
    async with stage(home, model, limits=TurnLimits()) as on:
        start = time.monotonic()
        await on.run("hi")
        assert time.monotonic() - start >= 0.12
        assert await on.texts(Role.ASSISTANT) == ["There."]


def test_pauses_grow_and_are_bounded() -> None:
    """Each pause is about twice the one before; neither it nor what a provider asks for exceeds the limit."""
    limits = TurnLimits(retry_seconds_max=3.0)
    pauses = [pause_seconds(attempt, failure(), limits) for attempt in range(1, 9)]
    for attempt, seconds in enumerate(pauses[:3]):
        assert 0.5 * 2**attempt * 0.75 <= seconds <= 0.5 * 2**attempt * 1.25
    assert all(1.5 <= seconds <= 3.0 for seconds in pauses[4:])
    assert pause_seconds(1, failure(retry_after_seconds=2.5), limits) == 2.5
    assert pause_seconds(1, failure(retry_after_seconds=3600), limits) == 3.0
    assert pause_seconds(1, failure(retry_after_seconds=0), limits) == 0.0


@pytest.mark.loss("A14")
async def test_a_long_pause_is_told_and_can_be_stopped(home: Path) -> None:
    """Somebody who would wait for more than some seconds is told so, and a stop ends the wait."""
    model = PlayedModel([failure(FailureKind.BUSY, retry_after_seconds=20)])
    async with stage(home, model, limits=TurnLimits()) as on:
        turn = asyncio.create_task(on.run("hi"))
        await on.until(lambda item: "Trying again in 20 s." in item.text)
        await on.stop()
        await asyncio.wait_for(turn, 120)
        assert await on.notices() == ["played: it is busy. Trying again in 20 s."]
        assert await on.states() == [TurnState.INTERRUPTED]


# Other models.


async def test_the_next_model_is_asked_when_one_gives_nothing(home: Path) -> None:
    """Each model has its attempts; the change is told; the answer is the first that comes."""
    models = [
        PlayedModel([failure(FailureKind.UNAUTHORISED)], name="first"),
        PlayedModel([failure(FailureKind.BUSY)], name="second"),
        PlayedModel(["Here I am."], name="third"),
        PlayedModel(["never"], name="fourth"),
    ]
    async with stage(home, *models, limits=TurnLimits(attempts_max=2, retry_seconds_max=0.001)) as on:
        await on.run("hi")
        assert [len(model.requests) for model in models] == [1, 2, 1, 0]
        assert await on.notices() == [
            "first could not answer (it is unauthorised). Asking second.",
            "second could not answer (it is busy). Asking third.",
        ]
        assert await on.texts() == ["hi", "Here I am."]
        assert await on.states() == [TurnState.COMPLETED]


async def test_when_no_model_answers_the_last_failure_is_told(home: Path) -> None:
    """All fail: the turn fails with what the last one said."""
    models = [PlayedModel([failure(FailureKind.REFUSED)], name="first"), PlayedModel([failure()], name="second")]
    async with stage(home, *models) as on:
        await on.run("hi")
        assert (await on.notices())[-1].startswith("The model could not answer: it is unavailable.")
        assert await on.ends() == [(TurnState.FAILED, "unavailable: it is unavailable")]


async def test_a_fallback_without_tools_is_asked_without_them(home: Path) -> None:
    """The other model gets the same conversation, and tools only if it can use them."""
    first = PlayedModel([failure(FailureKind.REFUSED)], name="first")
    second = PlayedModel(["ok"], name="second", uses_tools=False)
    async with stage(home, first, second, tools=tools_by_name(Echo())) as on:
        await on.run("hi")
        assert (len(first.requests[0].tools), second.requests[0].tools) == (1, ())
        assert first.requests[0].messages == second.requests[0].messages


@pytest.mark.loss("A6")
async def test_after_the_first_word_no_other_model_is_asked(home: Path) -> None:
    """What was shown was said by one model; another one never answers over it."""
    first = PlayedModel(["I th", failure(FailureKind.CUT)], name="first")
    second = PlayedModel(["never"], name="second")
    async with stage(home, first, second, limits=TurnLimits(continuations_max=0)) as on:
        await on.run("hi")
        assert second.requests == []
        assert await on.texts() == ["hi", "I th"]
        assert await on.states() == [TurnState.FAILED]


# After the first word.


@pytest.mark.parametrize("kind", list(FailureKind))
@pytest.mark.loss("A6", "A7")
async def test_an_answer_that_is_cut_goes_on_once_in_a_new_message(home: Path, kind: FailureKind) -> None:
    """What was said stays, marked as interrupted; the person is told; the model is asked to go on where it stopped."""
    model = PlayedModel(["One two ", "three", failure(kind)], [" four five."])
    async with stage(home, model) as on:
        await on.run("count")
        said = [(message.status, message.text) for message in await on.transcript(Role.ASSISTANT)]
        assert said == [(Status.INTERRUPTED, "One two three"), (Status.COMPLETE, " four five.")]
        assert await on.notices() == [f"it is {kind}. The answer goes on in a new message."]
        assert model.requests[1].messages == (
            UserSaid("count"),
            AssistantSaid("One two three"),
            UserSaid(prompts.CONTINUE),
        )
        assert await on.states() == [TurnState.COMPLETED]
        await on.run("and then?")
        assert_begins(model.requests[1].messages, model.requests[2].messages)
        assert_valid(model.requests[2].messages)


@pytest.mark.loss("A6", "A14")
async def test_a_second_cut_ends_the_turn(home: Path) -> None:
    """The answer is continued once, not for ever: both pieces stay, the turn fails and says so."""
    model = PlayedModel(["One ", failure(FailureKind.CUT)], ["two ", failure(FailureKind.CUT)], ["never"])
    async with stage(home, model) as on:
        await on.run("count")
        assert len(model.requests) == 2
        assert [message.status for message in await on.transcript(Role.ASSISTANT)] == [Status.INTERRUPTED] * 2
        assert (await on.notices())[-1] == (
            "The model could not answer: it is cut. What was said is recorded; /retry asks again."
        )
        assert await on.states() == [TurnState.FAILED]
        await on.check()


@pytest.mark.loss("A6", "C13")
async def test_a_continuation_that_fails_before_its_first_word_is_tried_again(home: Path) -> None:
    """The continuation is a request like any other: attempts before its first word, then the turn fails."""
    model = PlayedModel(["One ", failure(FailureKind.CUT)], [failure()], ["two"])
    async with stage(home, model) as on:
        await on.run("count")
        assert await on.texts(Role.ASSISTANT) == ["One ", "two"]
        assert model.requests[1] == model.requests[2]


@pytest.mark.loss("A6")
async def test_without_continuations_a_cut_ends_the_turn(home: Path) -> None:
    """The setting at 0: what was said stays and the turn fails."""
    model = PlayedModel(["One ", failure(FailureKind.CUT)], ["never"])
    async with stage(home, model, limits=TurnLimits(continuations_max=0)) as on:
        await on.run("count")
        assert [(m.status, m.text) for m in await on.transcript(Role.ASSISTANT)] == [(Status.INTERRUPTED, "One ")]
        assert await on.ends() == [(TurnState.FAILED, "cut: it is cut")]
        assert len(model.requests) == 1


@pytest.mark.loss("C2", "C5")
async def test_calls_of_an_answer_that_failed_are_neither_run_nor_recorded(home: Path) -> None:
    """A stream that fails after a call was given: the call is not part of any message and no tool runs."""
    counting = Counting()
    model = PlayedModel(["Let me see. ", call("counting"), failure(FailureKind.GARBLED)], ["No tool needed."])
    async with stage(home, model, tools=tools_by_name(counting)) as on:
        await on.run("hi")
        assert counting.count == 0
        assert await on.results() == []
        assert await on.texts(Role.ASSISTANT) == ["Let me see. ", "No tool needed."]
        for request in model.requests:
            assert_valid(request.messages)


@pytest.mark.loss("A6", "A7")
async def test_a_cut_after_every_piece_keeps_what_came(home: Path) -> None:
    """Cut after k pieces, for every k: the record holds exactly those, and never calls them complete."""
    pieces = ["a", "\N{GRINNING FACE}", " ", "\n\n", "```", "é"]
    for count in range(1, len(pieces) + 1):
        model = PlayedModel([*pieces[:count], failure(FailureKind.CUT)])
        async with stage(home, model, limits=TurnLimits(continuations_max=0)) as on:
            await on.run("hi")
            (said,) = await on.transcript(Role.ASSISTANT)
            assert (said.status, said.text) == (Status.INTERRUPTED, "".join(pieces[:count]))


async def test_reasoning_counts_as_the_first_word(home: Path) -> None:
    """Reasoning may have been shown: a failure after it is not retried in secret, but continued in a new message."""
    model = PlayedModel([Delta("Hm. ", "reasoning"), failure(FailureKind.CUT)], ["There."])
    async with stage(home, model) as on:
        await on.run("hi")
        statuses = [message.status for message in await on.transcript(Role.ASSISTANT)]
        assert statuses == [Status.INTERRUPTED, Status.COMPLETE]
        assert_valid(model.requests[1].messages)
        assert len(await on.notices()) == 1


# Endings.


async def test_an_empty_answer_is_told(home: Path) -> None:
    """A model that finishes without a word: the turn fails, and the person is not left in silence."""
    model = PlayedModel([], ["Now."])
    async with stage(home, model) as on:
        await on.run("hi")
        assert await on.notices() == ["The model gave an empty answer. /retry asks again."]
        assert await on.ends() == [(TurnState.FAILED, "empty answer")]
        await on.run("hello?")
        assert_begins(model.requests[0].messages, model.requests[1].messages)
        assert_valid(model.requests[1].messages)


@pytest.mark.parametrize(
    "answer",
    [[Delta("Only thoughts.", "reasoning")], [" ", "\n"]],
    ids=["reasoning only", "blank"],
)
@pytest.mark.loss("A14")
async def test_an_answer_without_words_is_told(home: Path, answer: list[str]) -> None:
    """Reasoning alone, or blanks alone, show a person nothing: that is an empty answer too."""
    model = PlayedModel(answer, ["Now."])
    async with stage(home, model) as on:
        await on.run("hi")
        assert await on.notices() == ["The model gave an empty answer. /retry asks again."]
        await on.run("hello?")
        assert_begins(model.requests[0].messages, model.requests[1].messages)
        assert_valid(model.requests[1].messages)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (FinishReason.LENGTH, "The answer ended at its length limit. Say “go on” for more."),
        (FinishReason.FILTER, "The provider's content filter ended the answer."),
    ],
)
async def test_an_answer_that_was_ended_early_says_so(home: Path, reason: FinishReason, told: str) -> None:
    """Length and filter: the text stays, the person is told why it ends, the turn is completed."""
    async with stage(home, PlayedModel(["So far", reason])) as on:
        await on.run("hi")
        assert await on.texts() == ["hi", "So far"]
        assert await on.notices() == [told]
        assert await on.states() == [TurnState.COMPLETED]


async def test_pieces_are_recorded_byte_for_byte(home: Path) -> None:
    """The sealed text is the concatenation of the pieces, a character that came in two halves included."""
    pieces = ["a\r\n", "\ud83d", "\ude00", "", "é", "  ", "漢字", "\u2028", "end"]
    async with stage(home, PlayedModel(pieces)) as on:
        await on.run("hi")
        assert await on.texts(Role.ASSISTANT) == ["a\r\n\N{GRINNING FACE}é  漢字\u2028end"]
