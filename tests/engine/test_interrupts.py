"""Interrupts at every point of a turn: what was said stays, every call has a result, the turn ends, in one commit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hansard.domain.messages import Message, Role, Status, ToolCall, ToolOutcome
from hansard.domain.requests import AssistantSaid, FailureKind, Request, ToolsSaid, UserSaid
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy, TurnLimits
from hansard.engine import prompts
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.intake.speak import speak
from hansard.record.api import Record
from hansard.record.messages.entries import Chunk
from hansard.record.turns.entries import TurnStarted, TurnStopping
from hansard.testing import Wiring
from hansard.testing.fakes import Counting, Echo, Slow, tools_by_name
from tests.engine.stage import WAIT_SECONDS_MAX, Gate, PlayedModel, Stage, call, failure, fixed, stage
from tests.engine.validator import assert_begins, assert_valid


async def by_record(on: Stage) -> str:
    """Stop the turn through the record, as /stop, Ctrl-C and a new message do."""
    await on.stop("enough")
    await on.settled()
    return "enough"


async def by_leaving(on: Stage) -> str:
    """Stop the turn because its process leaves."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await on.runner.close()
    return ""


WAYS = pytest.mark.parametrize("interrupt", [by_record, by_leaving])
Way = Callable[[Stage], Awaitable[str]]


async def expect_interrupted(on: Stage, reason: str) -> None:
    """One turn, which ended as interrupted, with the reason that was given."""
    ((state, why),) = await on.ends()
    assert state is TurnState.INTERRUPTED
    assert reason in why
    await on.check()


async def next_turn(on: Stage, model: PlayedModel) -> Request:
    """Speak again; the turn is completed, and its request begins as the ones before."""
    await on.run("next")
    assert (await on.states())[-1] is TurnState.COMPLETED
    for request in model.requests[:-1]:
        assert_begins(request.messages, model.requests[-1].messages)
    assert_valid(model.requests[-1].messages)
    return model.requests[-1]


@WAYS
@pytest.mark.loss("A2", "A13", "A14")
async def test_before_the_first_word(home: Path, interrupt: Way) -> None:
    """Nothing was said: no message of the model is in the record; the next context says that there was no reply."""
    gate = Gate()
    model = PlayedModel([gate, "never"], ["Hello."])
    async with stage(home, model) as on:
        await on.speak("hi")
        await gate.reached()
        reason = await interrupt(on)
        assert await on.texts() == ["hi"]
        await expect_interrupted(on, reason)
        request = await next_turn(on, model)
        assert request.messages[:2] == (UserSaid("hi"), AssistantSaid(prompts.NO_REPLY))
        assert "was interrupted before you replied" in str(request.messages[2])


@WAYS
@pytest.mark.loss("A5", "A6", "A7", "A13", "A14")
async def test_in_the_middle_of_the_words(home: Path, interrupt: Way) -> None:
    """What was said is kept as interrupted, in the commit that ends the turn; the next context says so."""
    gate = Gate()
    model = PlayedModel(["One ", "two ", gate, "never"], ["Hello."])
    async with stage(home, model) as on:
        await on.speak("count")
        await gate.reached()
        reason = await interrupt(on)
        (said,) = await on.transcript(Role.ASSISTANT)
        assert (said.status, said.text) == (Status.INTERRUPTED, "One two ")
        assert await on.together("turn.ended") == ["message.sealed", "turn.ended"]
        await expect_interrupted(on, reason)
        request = await next_turn(on, model)
        assert request.messages[1] == AssistantSaid("One two ")
        assert "your reply above was interrupted" in str(request.messages[2])
        assert reason in str(request.messages[2])


@pytest.mark.loss("A5", "A6")
async def test_at_every_piece(home: Path) -> None:
    """Stopped after k pieces that a follower has seen, for every k: the record keeps at least those, in order."""
    pieces = [f"{number} " for number in range(6)]
    for count in range(1, len(pieces) + 1):
        gate = Gate()
        model = PlayedModel([*pieces[:count], gate, *pieces[count:]])
        async with stage(home, model) as on:
            turn = asyncio.create_task(on.run("count"))
            await on.until_text(pieces[count - 1])
            await on.stop()
            await asyncio.wait_for(turn, WAIT_SECONDS_MAX)
            assert await on.texts(Role.ASSISTANT) == ["".join(pieces[:count])]


@WAYS
@pytest.mark.loss("A3", "A13", "C1", "C5")
async def test_while_tools_run(home: Path, interrupt: Way) -> None:
    """One call is done, eight run, a tenth waits for a place: its own result, unknown, not started, in one commit."""
    running = [Slow(f"slow{number}") for number in range(8)]
    waiting = Counting()
    calls = [call(id="done"), *(call(f"slow{n}", id=f"runs{n}") for n in range(8)), call("counting", id="waits")]
    model = PlayedModel(["Working. ", *calls], ["Hello."])
    async with stage(home, model, tools=tools_by_name(Echo(), *running, waiting)) as on:
        await on.speak("work")
        await asyncio.wait_for(asyncio.gather(*(tool.begun.wait() for tool in running)), WAIT_SECONDS_MAX)
        reason = await interrupt(on)
        outcomes = await on.outcomes()
        assert outcomes.pop("done") is ToolOutcome.OK
        assert outcomes.pop("waits") is ToolOutcome.NOT_STARTED
        assert list(outcomes.values()) == [ToolOutcome.UNKNOWN] * 8
        assert ([tool.finished for tool in running], waiting.count) == ([0] * 8, 0)
        assert await on.together("turn.ended") == ["message.added"] * 9 + ["turn.ended"]
        await expect_interrupted(on, reason)
        request = await next_turn(on, model)
        results = next(said for said in request.messages if isinstance(said, ToolsSaid)).results
        assert [result.call_id for result in results] == [each.id for each in calls]
        assert [result.text for result in results] == [
            "hello",
            *[prompts.RESULT_UNKNOWN] * 8,
            prompts.RESULT_NOT_STARTED,
        ]
        assert "was interrupted before you replied" in str(request.messages[-1])


@WAYS
@pytest.mark.loss("A3", "C1")
async def test_between_two_steps(home: Path, interrupt: Way) -> None:
    """The results are there and the model is asked again, but says nothing yet: they stay, with their outcome."""
    gate = Gate()
    counting = Counting()
    model = PlayedModel([call("counting")], [gate, "never"], ["Hello."])
    async with stage(home, model, tools=tools_by_name(counting)) as on:
        await on.speak("work")
        await gate.reached()
        reason = await interrupt(on)
        assert await on.outcomes() == {"c1": ToolOutcome.OK}
        await expect_interrupted(on, reason)
        await next_turn(on, model)
        assert counting.count == 1


@WAYS
@pytest.mark.loss("A6")
async def test_a_continuation_that_says_nothing_stays_in_what_was_sent(home: Path, interrupt: Way) -> None:
    """Interrupted while the model is asked to go on: the words stay, and the next request begins with that one."""
    gate = Gate()
    model = PlayedModel(["One ", failure(FailureKind.CUT)], [gate, "never"], ["Hello."])
    async with stage(home, model) as on:
        await on.speak("count")
        await gate.reached()
        reason = await interrupt(on)
        assert [(m.status, m.text) for m in await on.transcript(Role.ASSISTANT)] == [(Status.INTERRUPTED, "One ")]
        await expect_interrupted(on, reason)
        await next_turn(on, model)


@WAYS
async def test_while_models_are_looked_for(home: Path, interrupt: Way) -> None:
    """Before any model is there: the turn ends, nothing is lost."""
    gate = Gate()

    async def never() -> list[PlayedModel]:
        await gate.stand()
        return []

    async with stage(home, found=never) as on:
        await on.speak("hi")
        await gate.reached()
        reason = await interrupt(on)
        assert await on.texts() == ["hi"]
        await expect_interrupted(on, reason)


@pytest.mark.loss("A5", "C1")
async def test_while_the_seal_of_a_call_is_written(home: Path) -> None:
    """Cancelled in the very commit that seals a message with calls: each call that is recorded has a result."""
    armed, landed = threading.Event(), threading.Event()
    tasks: list[asyncio.Task[None]] = []

    def reach(step: str) -> None:
        if step == "applied" and armed.is_set() and not landed.is_set():
            loop.call_soon_threadsafe(lambda: (tasks[0].cancel(), loop.call_soon(landed.set)))
            landed.wait(WAIT_SECONDS_MAX)

    def arm(_request: Request) -> ToolCall:
        armed.set()
        return call("counting")

    loop = asyncio.get_running_loop()
    async with Record.open(home, wiring=Wiring(reach=reach)) as record:
        session = await record.create_session(source="test")
        model, counting = PlayedModel([call(id="first"), arm]), Counting()
        agent = Agent(record=record, models=fixed([model]), tools=tools_by_name(counting, Echo()), limits=TurnLimits())
        on = Stage(agent, session.id)
        await on.queue("work")
        tasks.append(asyncio.create_task(ignore(on.run_turn())))
        await asyncio.wait(tasks, timeout=WAIT_SECONDS_MAX)
        assert landed.is_set()
        called = [part.id for m in await on.transcript() for part in m.parts if isinstance(part, ToolCall)]
        assert sorted(await on.outcomes()) == sorted(called)
        assert counting.count == 0
        assert await on.states() == [TurnState.INTERRUPTED]
        await on.check()


async def ignore(turn: Awaitable[object]) -> None:
    """Run a turn for what it leaves behind."""
    await turn


@pytest.mark.loss("A1", "A13", "F5", "D17")
async def test_a_new_message_interrupts_and_is_answered(home: Path) -> None:
    """In the mode `interrupt`: message, stop and queued turn are one commit, and the runner answers it by itself."""
    gate = Gate()
    model = PlayedModel(["One ", gate], ["Two."])
    async with stage(home, model) as on:
        await on.speak("first")
        await gate.reached()
        await on.speak("second", Busy.INTERRUPT)
        await on.settled()
        assert await on.texts() == ["first", "One ", "second", "Two."]
        assert await on.ends() == [(TurnState.INTERRUPTED, "a new message came"), (TurnState.COMPLETED, "")]
        assert await on.together("turn.stopping") == ["message.added", "turn.stopping", "turn.queued"]


@pytest.mark.loss("A13")
async def test_a_stop_that_comes_while_the_turn_is_claimed_is_heard(home: Path) -> None:
    """Stopped as soon as it has started, before anything else of it runs: it ends as interrupted."""
    gate = Gate()
    model = PlayedModel([gate, "never"])
    async with stage(home, model) as on:
        await on.queue("hi")
        turn = asyncio.create_task(on.run_turn())
        await on.until_body(TurnStarted)
        await on.stop("at once")
        await asyncio.wait_for(turn, WAIT_SECONDS_MAX)
        assert await on.ends() == [(TurnState.INTERRUPTED, "at once")]


async def test_a_stop_is_for_one_turn_only(home: Path) -> None:
    """Asked twice, a turn stops once; the next turn knows nothing of it."""
    gate = Gate()
    model = PlayedModel(["One ", gate], ["Two."])
    async with stage(home, model) as on:
        await on.speak("first")
        await gate.reached()
        await asyncio.gather(on.stop("a"), on.stop("b"), on.stop("c"))
        await on.settled()
        assert len([entry for entry in await on.entries() if isinstance(entry.body, TurnStopping)]) == 1
        await on.stop("nothing runs")
        await on.ask("second")
        assert await on.states() == [TurnState.INTERRUPTED, TurnState.COMPLETED]


@pytest.mark.loss("A13", "F16")
async def test_a_turn_that_waits_survives_the_process_that_leaves(home: Path) -> None:
    """The runner is closed while one turn runs and another waits: the next process answers what waits, once."""
    gate = Gate()
    first, second = PlayedModel(["One ", gate]), PlayedModel(["Two."])
    async with stage(home, first, session_id="kept") as on:
        await on.speak("first")
        await gate.reached()
        await on.speak("second", Busy.QUEUE)
        await on.runner.close()
        assert await on.states() == [TurnState.INTERRUPTED]
    async with stage(home, second, session_id="kept") as on:
        assert [turn.session_id for turn in await on.record.turns.list_queued()] == ["kept"]
        on.runner.wake("kept")
        await on.settled()
        assert await on.texts() == ["first", "One ", "second", "Two."]
        assert await on.states() == [TurnState.INTERRUPTED, TurnState.COMPLETED]
        assert [type(said) for said in second.requests[0].messages] == [UserSaid, AssistantSaid, UserSaid]


async def test_closing_a_runner_ends_every_session(home: Path) -> None:
    """Five sessions answer at once: closing interrupts each where it is, and keeps what each said."""
    gates = [Gate() for _ in range(5)]
    async with Record.open(home) as record:
        by_text = {f"s{number}": PlayedModel([f"I am {number} ", gate]) for number, gate in enumerate(gates)}
        runners = []
        for text, model in by_text.items():
            session = await record.create_session(id=text, source="test")
            runner = Runner(
                Agent(record=record, models=fixed([model]), tools={}, limits=TurnLimits()),
                lambda _id, error: reports.append(error),
            )
            await speak(record, session.id, [Message.user(text)], Busy.QUEUE)
            runner.wake(session.id)
            runners.append(runner)
        reports: list[BaseException] = []
        for gate in gates:
            await gate.reached()
        assert all(runner.busy for runner in runners)
        await asyncio.gather(*(runner.close() for runner in runners))
        assert not any(runner.busy for runner in runners)
        for number, text in enumerate(by_text):
            said = await record.load_transcript(text)
            assert [(m.status, m.text) for m in said] == [
                (Status.COMPLETE, text),
                (Status.INTERRUPTED, f"I am {number} "),
            ]
        assert reports == []
        assert (await record.verify()).ok


@pytest.mark.loss("A5")
async def test_whoever_watches_may_leave(home: Path) -> None:
    """A follower that goes away in the middle ends nothing: the answer is recorded to its end."""
    gate = Gate()
    model = PlayedModel(["One ", gate, "two."])
    async with stage(home, model) as on:
        await on.speak("count")
        seen = await on.until(lambda item: isinstance(item, Chunk))
        assert seen.text == "One "
        gate.open()
        await on.settled()
        assert await on.texts(Role.ASSISTANT) == ["One two."]
        assert await on.states() == [TurnState.COMPLETED]
