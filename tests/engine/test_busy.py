"""Rapid messages while an answer runs, in each mode: all recorded, in order, each answered or marked, none twice."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path

import pytest

from hansard.domain.messages import Role, Status, ToolOutcome
from hansard.domain.requests import Request, ToolsSaid, UserSaid
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.intake.commands.registry import run_command
from hansard.intake.commands.scene import CommandScene
from hansard.intake.speak import parse
from hansard.record.messages.entries import MessageAdded
from hansard.record.turns.entries import TurnStarted
from hansard.testing.fakes import Echo, Slow, tools_by_name
from tests.engine.stage import WAIT_SECONDS_MAX, Answer, Gate, PlayedModel, Stage, answer_last, call, stage
from tests.engine.validator import assert_begins, assert_valid

RAPID = [f"[{number:02}]" for number in range(20)]


def new_words(requests: list[Request]) -> list[list[str]]:
    """For each request, which of the rapid messages it holds that the request before did not."""
    found, before = [], 0
    for request in requests:
        assert_valid(request.messages)
        said = [said.text for said in request.messages[before:] if isinstance(said, UserSaid)]
        found.append([text for text in RAPID if text in "\n".join(said)])
        before = len(request.messages)
    for earlier, later in itertools.pairwise(requests):
        assert_begins(earlier.messages, later.messages)
    return found


def count_in(request: Request, text: str) -> int:
    """How often a request holds a text."""
    return sum(said.text.count(text) for said in request.messages if isinstance(said, UserSaid))


async def expect_all(on: Stage, model: PlayedModel) -> None:
    """All twenty are recorded in order, and the model was told each once, in that order."""
    assert [text for text in await on.texts(Role.USER) if text in RAPID] == RAPID
    assert [text for told in new_words(model.requests) for text in told] == RAPID
    assert [count_in(model.requests[-1], text) for text in RAPID] == [1] * len(RAPID)
    await on.check()


@pytest.mark.loss("F1", "F3", "F5", "F6", "I1", "D17")
async def test_interrupt_takes_a_burst_together(home: Path) -> None:
    """The first of them ends the answer that runs; all twenty are answered by one turn."""
    gate = Gate()
    model = PlayedModel(["One ", gate, "never"], [answer_last])
    async with stage(home, model) as on:
        await on.speak("start")
        await gate.reached()
        await asyncio.gather(*(on.speak(text, Busy.INTERRUPT) for text in RAPID))  # in few commits: no gap between them
        await on.settled()
        assert len(model.requests) == 2
        assert await on.states() == [TurnState.INTERRUPTED, TurnState.COMPLETED]
        first, second = await on.transcript(Role.ASSISTANT)
        assert (first.status, first.text) == (Status.INTERRUPTED, "One ")
        assert [text for text in RAPID if text in second.text] == RAPID
        await expect_all(on, model)


@pytest.mark.loss("F5", "F6", "I1")
async def test_interrupt_at_any_pace_loses_nothing(home: Path, seed: int) -> None:
    """Twenty messages at random moments, some of which interrupt the answer to the ones before: each is told once."""
    chance = random.Random(seed)
    model = PlayedModel(["Hm ", answer_last])
    async with stage(home, model) as on:
        await on.speak("start")
        for text in RAPID:
            await asyncio.sleep(chance.choice([0, 0, 0.002, 0.01, 0.03]))
            await on.speak(text, Busy.INTERRUPT)
        await on.settled()
        states = await on.states()
        assert states[-1] is TurnState.COMPLETED
        assert set(states) <= {TurnState.COMPLETED, TurnState.INTERRUPTED}
        await expect_all(on, model)


@pytest.mark.loss("F1", "F3", "F6", "I1")
async def test_queue_answers_them_together_afterwards(home: Path) -> None:
    """The answer that runs is finished; then all twenty are answered by one turn."""
    gate = Gate()
    model = PlayedModel(["One ", gate, "two."], [answer_last])
    async with stage(home, model) as on:
        await on.speak("start")
        await gate.reached()
        for text in RAPID:
            await on.speak(text, Busy.QUEUE)
        assert await on.texts(Role.USER) == ["start", *RAPID]
        gate.open()
        await on.settled()
        assert (await on.texts(Role.ASSISTANT))[0] == "One two."
        assert new_words(model.requests) == [[], RAPID]
        assert await on.states() == [TurnState.COMPLETED] * 2
        await expect_all(on, model)


@pytest.mark.loss("F1", "F3", "F5", "F6")
async def test_steer_without_tools_waits_for_the_answer(home: Path) -> None:
    """An answer that calls no tool has no step to be steered at: it is finished, and all are answered afterwards."""
    gate = Gate()
    model = PlayedModel(["One ", gate, "two."], [answer_last])
    async with stage(home, model) as on:
        await on.speak("start")
        await gate.reached()
        for text in RAPID:
            await on.speak(text, Busy.STEER)
        gate.open()
        await on.settled()
        assert new_words(model.requests) == [[], RAPID]
        assert await on.states() == [TurnState.COMPLETED] * 2
        await expect_all(on, model)


@pytest.mark.loss("F1", "F5", "F6", "I1")
async def test_steer_takes_effect_at_the_next_step(home: Path) -> None:
    """Ten while a tool runs, ten while the model calls another: each ten is told with the results that come next."""
    slow, gate = Slow(), Gate()
    model = PlayedModel([call("slow", id="c1")], ["Next ", gate, call(id="c2")], ["All done."])
    async with stage(home, model, tools=tools_by_name(slow, Echo())) as on:
        await on.speak("start")
        await asyncio.wait_for(slow.begun.wait(), WAIT_SECONDS_MAX)
        for text in RAPID[:10]:
            await on.speak(text, Busy.STEER)
        slow.release.set()
        await gate.reached()
        for text in RAPID[10:]:
            await on.speak(text, Busy.STEER)
        gate.open()
        await on.settled()
        assert new_words(model.requests) == [[], RAPID[:10], RAPID[10:]]
        for request in model.requests[1:]:
            assert [type(said) for said in request.messages[-2:]] == [ToolsSaid, UserSaid]
        assert await on.texts(Role.ASSISTANT) == ["", "Next ", "All done."]
        assert await on.states() == [TurnState.COMPLETED] * 2
        assert await on.outcomes() == {"c1": ToolOutcome.OK, "c2": ToolOutcome.OK}
        await expect_all(on, model)


@pytest.mark.loss("F1", "F5")
async def test_what_steers_a_turn_that_is_stopped_is_answered_next(home: Path) -> None:
    """Steered into a tool loop that is stopped before its next step: the messages are answered by the turn after."""
    slow = Slow()
    model = PlayedModel([call("slow")], [answer_last])
    async with stage(home, model, tools=tools_by_name(slow)) as on:
        await on.speak("start")
        await asyncio.wait_for(slow.begun.wait(), WAIT_SECONDS_MAX)
        for text in RAPID:
            await on.speak(text, Busy.STEER)
        await on.stop()
        await on.settled()
        assert await on.states() == [TurnState.INTERRUPTED, TurnState.COMPLETED]
        assert [text for text in RAPID if text in (await on.texts(Role.ASSISTANT))[-1]] == RAPID
        await expect_all(on, model)


@pytest.mark.loss("F1", "F5", "F6", "I1")
async def test_all_modes_at_once(home: Path, seed: int) -> None:
    """Twenty messages in random modes, several at a time, over turns with tools: each is told once, in some order."""
    chance = random.Random(seed)
    steps: list[Answer] = [["Hm ", call(id=f"c{n}")] if chance.random() < 0.5 else [answer_last] for n in range(60)]
    model = PlayedModel(*steps, [answer_last])
    async with stage(home, model, tools=tools_by_name(Echo())) as on:
        await on.speak("start")
        for start in range(0, len(RAPID), 4):
            texts = RAPID[start : start + 4]
            await asyncio.gather(*(on.speak(text, chance.choice(list(Busy))) for text in texts))
            await asyncio.sleep(chance.choice([0, 0.005, 0.02]))
        await on.settled()
        assert sorted(await on.texts(Role.USER)) == sorted(["start", *RAPID])
        told = [text for words in new_words(model.requests) for text in words]
        assert sorted(told) == RAPID
        assert [count_in(model.requests[-1], text) for text in RAPID] == [1] * len(RAPID)
        await on.check()


@pytest.mark.loss("A1", "F1", "F16")
async def test_a_queue_survives_a_restart(home: Path) -> None:
    """Twenty wait while the process leaves: the next one finds them in the record and answers them together."""
    gate = Gate()
    first, second = PlayedModel(["One ", gate]), PlayedModel([answer_last])
    async with stage(home, first, session_id="kept") as on:
        await on.speak("start")
        await gate.reached()
        for text in RAPID:
            await on.speak(text, Busy.QUEUE)
    async with stage(home, second, session_id="kept") as on:
        for turn in await on.record.turns.list_queued():
            on.runner.wake(turn.session_id)
        await on.settled()
        assert await on.states() == [TurnState.INTERRUPTED, TurnState.COMPLETED]
        await expect_all(on, second)
        assert len(second.requests) == 1


@pytest.mark.loss("F1", "A14")
async def test_stop_drops_the_queue_and_says_so(home: Path) -> None:
    """/stop ends the running turn and the waiting one, both marked; nothing is answered until somebody speaks."""
    gate = Gate()
    model = PlayedModel(["One ", gate], [answer_last])
    async with stage(home, model) as on:
        await on.speak("start")
        await gate.reached()
        for text in RAPID:
            await on.speak(text, Busy.QUEUE)
        parsed = parse("/stop")
        assert parsed is not None
        outcome = await run_command(CommandScene(record=on.record, session_id=on.session_id), "/stop", parsed)
        await on.settled()
        assert outcome.text == "Stopped."
        assert len(model.requests) == 1
        assert sorted(await on.ends()) == [(TurnState.INTERRUPTED, "stopped by the person")] * 2
        assert await on.texts(Role.USER) == ["start", *RAPID]
        await on.ask("now")
        assert new_words(model.requests) == [[], RAPID]
        assert (await on.texts(Role.ASSISTANT))[-1].endswith("now>")
        await on.check()


@pytest.mark.loss("I1", "I2")
async def test_the_same_message_twice_is_one_message(home: Path) -> None:
    """A message that is sent again under its id, while it is answered and afterwards, is recorded and told once."""
    gate = Gate()
    model = PlayedModel([gate, answer_last])
    async with stage(home, model) as on:
        await on.speak("[00]", id="same")
        await gate.reached()
        await on.speak("[00]", Busy.QUEUE, id="same")
        gate.open()
        await on.settled()
        await on.ask("[01]")
        assert await on.texts() == ["[00]", "<[00]>", "[01]", "<[01]>"]
        assert count_in(model.requests[-1], "[00]") == 1


@pytest.mark.loss("A2", "F6")
async def test_a_message_is_durable_when_speaking_returns(home: Path) -> None:
    """Whoever was told that a message was taken finds it, and the turn that is to answer it, in the record."""
    async with stage(home, PlayedModel(["ok"])) as on:
        spoken = await on.queue("hello")
        assert await on.texts() == ["hello"]
        (turn,) = await on.record.turns.list_queued()
        assert (turn.id, turn.session_id) == (spoken.turn_id, on.session_id)
        kinds = [entry.kind for entry in await on.entries() if entry.seq > int(spoken.after)]
        assert kinds == ["message.added", "turn.queued"]
        await on.run_turn()


@pytest.mark.loss("D4", "D5", "I14")
async def test_every_request_holds_the_whole_conversation(home: Path) -> None:
    """Thirty turns with a restart in the middle: request n holds all that was said before it, in its roles."""
    said: list[str] = []
    for _ in range(2):
        model = PlayedModel([lambda request: f"answer {len(request.messages)}"])
        async with stage(home, model, session_id="kept") as on:
            for _ in range(15):
                said.append(f"question {len(said)}")
                await on.run(said[-1])
                request = model.requests[-1]
                users = [each.text for each in request.messages if isinstance(each, UserSaid)]
                assert users == said
                assert len(request.messages) == 2 * len(said) - 1
            for earlier, later in itertools.pairwise(model.requests):
                assert_begins(earlier.messages, later.messages)


async def test_several_messages_before_a_turn_are_one_side_of_it(home: Path) -> None:
    """What was said before the turn began is one message to the model, in order, with who said it."""
    model = PlayedModel(["ok"])
    async with stage(home, model) as on:
        for text in ("a", "b", "c"):
            await on.queue(text)
        await on.run_turn()
        assert model.requests[0].messages == (UserSaid("a\n\nb\n\nc"),)
        assert len([entry for entry in await on.entries() if isinstance(entry.body, TurnStarted)]) == 1
        assert len([entry for entry in await on.entries() if isinstance(entry.body, MessageAdded)]) == 3
