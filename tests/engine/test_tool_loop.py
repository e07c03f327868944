"""The tool loop: a call is recorded before it runs, its result before the model sees it; any outcome is a result."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import Role, ToolCall, ToolOutcome
from hansard.domain.requests import AssistantSaid, Request, ToolsSaid
from hansard.domain.sessions import TurnState
from hansard.domain.settings import TurnLimits
from hansard.models.scripted import ScriptedModel
from hansard.record.messages.entries import MessageAdded, MessageSealed
from hansard.testing.fakes import (
    Counting,
    Echo,
    Failing,
    LargeOutput,
    RecordingModel,
    Slow,
    tools_by_name,
)
from tests.engine.stage import PlayedModel, call, stage
from tests.engine.validator import assert_begins, assert_valid

RANDOM_OUTPUTS = 12


def last_results(request: Request) -> ToolsSaid:
    """What a request ends with, when tools were called."""
    last = request.messages[-1]
    assert isinstance(last, ToolsSaid)
    return last


@pytest.mark.loss("A3")
async def test_results_go_back_to_the_model_until_it_calls_no_more(home: Path) -> None:
    """Two steps of tools, then an answer: each request holds all that came before, and the turn is completed."""
    model = PlayedModel(
        ["Looking. ", call(id="c1"), call(arguments='{"text":"again"}', id="c2")],
        [call(arguments='{"text":"third"}', id="c3")],
        ["Done."],
    )
    async with stage(home, model, tools=tools_by_name(Echo())) as on:
        await on.run("go")
        assert [[result.text for result in last_results(request).results] for request in model.requests[1:]] == [
            ["hello", "again"],
            ["third"],
        ]
        for earlier, later in itertools.pairwise(model.requests):
            assert_begins(earlier.messages, later.messages)
            assert_valid(later.messages)
        assert await on.texts() == ["go", "Looking. ", "hello", "again", "", "third", "Done."]
        assert await on.states() == [TurnState.COMPLETED]
        await on.check()


@pytest.mark.loss("A3", "C5")
async def test_a_call_is_recorded_before_it_runs(home: Path) -> None:
    """While the tool runs, the message that calls it is sealed in the record, and no result is."""
    slow = Slow()
    model = PlayedModel([call("slow")], ["Done."])
    async with stage(home, model, tools=tools_by_name(slow)) as on:
        turn = asyncio.create_task(on.run("go"))
        await asyncio.wait_for(slow.begun.wait(), 120)
        kinds = [type(entry.body) for entry in await on.entries()]
        assert kinds.count(MessageSealed) == 1
        assert not await on.results()
        assert len(model.requests) == 1
        slow.release.set()
        await asyncio.wait_for(turn, 120)
        assert await on.outcomes() == {"c1": ToolOutcome.OK}
        assert slow.finished == 1


@pytest.mark.loss("A3", "I12")
async def test_a_result_is_recorded_as_soon_as_it_is_there(home: Path) -> None:
    """Of two calls, the quick one's result is durable while the other still runs; the model gets both, in order."""
    slow = Slow(output="late")
    model = PlayedModel([call("slow", id="first"), call(id="second")], ["Done."])
    async with stage(home, model, tools=tools_by_name(slow, Echo())) as on:
        turn = asyncio.create_task(on.run("go"))
        await on.until_body(MessageAdded, 2)
        assert await on.outcomes() == {"second": ToolOutcome.OK}
        slow.release.set()
        await asyncio.wait_for(turn, 120)
        assert [result.call_id for result in await on.results()] == ["second", "first"]
        assert [result.text for result in last_results(model.requests[1]).results] == ["late", "hello"]
        await on.check()


async def test_tools_of_one_step_run_side_by_side_but_not_without_limit(home: Path) -> None:
    """Twelve calls: eight begin, four wait; all twelve end with a result."""
    tools = [Slow(f"slow{number}", output=str(number)) for number in range(12)]
    model = PlayedModel([call(f"slow{number}", id=f"c{number}") for number in range(12)], ["Done."])
    async with stage(home, model, tools=tools_by_name(*tools)) as on:
        turn = asyncio.create_task(on.run("go"))
        await asyncio.wait_for(asyncio.gather(*(tool.begun.wait() for tool in tools[:8])), 120)
        await asyncio.sleep(0.02)
        assert [tool.begun.is_set() for tool in tools] == [True] * 8 + [False] * 4
        for tool in tools:
            tool.release.set()
        await asyncio.wait_for(turn, 120)
        assert [result.text for result in last_results(model.requests[1]).results] == [str(n) for n in range(12)]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (call("absent"), "There is no tool 'absent'. There are: counting, echo."),
        (call("counting", "{"), "The arguments are not a JSON object"),
        (call("counting", "[1]"), "The arguments are not a JSON object"),
        (call("counting", '"text"'), "The arguments are not a JSON object"),
        (call("counting", '{"a":' + "[" * 100_000), "The arguments are not a JSON object"),
    ],
    ids=["unknown tool", "cut", "list", "text", "too deep"],
)
async def test_a_call_that_cannot_be_run_is_told_to_the_model(home: Path, asked: ToolCall, told: str) -> None:
    """An unknown tool and arguments that are no object give a result of the kind error; no tool runs; it goes on."""
    counting = Counting()
    model = PlayedModel([asked], ["I see."])
    async with stage(home, model, tools=tools_by_name(counting, Echo())) as on:
        await on.run("go")
        (result,) = await on.results()
        assert (result.outcome, counting.count) == (ToolOutcome.ERROR, 0)
        assert result.text.startswith(told)
        assert last_results(model.requests[1]).results[0].text == result.text
        assert await on.states() == [TurnState.COMPLETED]


async def test_arguments_that_cannot_be_recorded_do_not_end_the_turn(home: Path) -> None:
    """A lone surrogate in arguments is recorded as its replacement; the call has a result and the model goes on."""
    model = PlayedModel([call(arguments='{"text": "\ud800"}')], ["I see."])
    async with stage(home, model, tools=tools_by_name(Echo())) as on:
        await on.run("go")
        assert len(await on.results()) == 1
        assert await on.states() == [TurnState.COMPLETED]
        assert_valid(model.requests[1].messages)


async def test_empty_arguments_are_an_empty_object(home: Path) -> None:
    """Some providers send nothing for a tool without parameters: it runs."""
    counting = Counting()
    async with stage(home, PlayedModel([call("counting", "")], ["ok"]), tools=tools_by_name(counting)) as on:
        await on.run("go")
        assert counting.calls == [{}]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("out of order"), "RuntimeError: out of order"),
        (TimeoutError("the tool's own"), "TimeoutError: the tool's own"),
        (KeyError(), "KeyError: "),
    ],
    ids=["runtime error", "timeout of its own", "without a text"],
)
async def test_what_a_tool_raises_is_its_result(home: Path, error: Exception, told: str) -> None:
    """An exception of a tool ends neither the turn nor the other calls; the model is told what it was."""
    model = PlayedModel([call("failing", id="bad"), call(id="good")], ["I see."])
    async with stage(home, model, tools=tools_by_name(Failing(error=error), Echo())) as on:
        await on.run("go")
        assert await on.outcomes() == {"bad": ToolOutcome.ERROR, "good": ToolOutcome.OK}
        assert {result.text for result in await on.results()} == {told, "hello"}
        assert await on.states() == [TurnState.COMPLETED]


@pytest.mark.loss("C1")
async def test_a_tool_that_cancels_itself_has_a_result_all_the_same(home: Path) -> None:
    """A tool whose inner work was cancelled raises CancelledError: its call gets a result, and the turn goes on."""
    model = PlayedModel([call("failing", id="bad"), call(id="good")], ["I see."])
    async with stage(home, model, tools=tools_by_name(Failing(error=asyncio.CancelledError()), Echo())) as on:
        await on.run("go")
        outcomes = await on.outcomes()
        assert outcomes.keys() == {"bad", "good"}
        assert outcomes["bad"] in {ToolOutcome.ERROR, ToolOutcome.UNKNOWN}
        assert await on.states() == [TurnState.COMPLETED]


async def test_a_tool_that_hangs_is_given_up(home: Path) -> None:
    """After its time a call has the result "unknown", which says that it may have had an effect; the turn goes on."""
    slow = Slow()
    limits = TurnLimits(tool_seconds_max=0.05)
    model = PlayedModel([call("slow")], ["Too slow."])
    async with stage(home, model, tools=tools_by_name(slow), limits=limits) as on:
        await on.run("go")
        (result,) = await on.results()
        assert result.outcome is ToolOutcome.UNKNOWN
        assert result.text == "No result within 0.05 s; it may still have had an effect."
        assert await on.texts(Role.ASSISTANT) == ["", "Too slow."]


async def test_a_large_output_is_kept_whole_and_shown_in_part(home: Path) -> None:
    """All of it is a readable blob; the model gets beginning and end, with a mark that says how much is left out."""
    large = LargeOutput(lines=2_000)
    limits = TurnLimits(tool_output_bytes_max=1024)
    model = PlayedModel([call("large")], ["A lot."])
    async with stage(home, model, tools=tools_by_name(large), limits=limits) as on:
        await on.run("go")
        (result,) = await on.results()
        assert (await on.record.blobs.read(result.blob)).decode() == large.output
        head, mark, tail = result.text.split("\n[… ")[0], result.text, result.text.rsplit("]\n", 1)[1]
        assert large.output.startswith(head)
        assert large.output.endswith(tail)
        left_out = len(large.output) - len(head) - len(tail)
        assert f"[… {left_out} of {len(large.output)} bytes left out here; all of it is kept as {result.blob} …]" in (
            mark
        )
        assert len(head) + len(tail) <= 1024
        assert last_results(model.requests[1]).results[0].text == result.text
        await on.check()


async def test_an_output_is_cut_between_characters(home: Path) -> None:
    """At every limit in a row the excerpt of an output of wide characters stays within it, and is text."""
    output = "\N{GRINNING FACE}é漢" * 400
    asked = call(arguments='{"text":"' + output + '"}')
    model = PlayedModel(*([asked], ["ok"]) * 13)
    async with stage(home, model, tools=tools_by_name(Echo())) as on:
        for bytes_max in range(1024, 1037):
            on.agent = msgspec.structs.replace(on.agent, limits=TurnLimits(tool_output_bytes_max=bytes_max))
            await on.run("go")
            shown = (await on.results())[-1].text
            head, tail = shown.split("\n[… ")[0], shown.rsplit("]\n", 1)[1]
            assert output.startswith(head)
            assert output.endswith(tail)
            assert bytes_max - 8 <= len((head + tail).encode()) <= bytes_max


async def test_an_output_of_just_the_limit_is_not_cut(home: Path) -> None:
    """The limit itself is within the limit, counted in bytes."""
    limits = TurnLimits(tool_output_bytes_max=1024)
    model = PlayedModel(
        [
            call(arguments='{"text":"' + "é" * 512 + '"}', id="fits"),
            call(arguments='{"text":"' + "é" * 512 + 'x"}', id="over"),
        ],
        ["ok"],
    )
    async with stage(home, model, tools=tools_by_name(Echo()), limits=limits) as on:
        await on.run("go")
        assert {result.call_id: bool(result.blob) for result in await on.results()} == {"fits": False, "over": True}


@pytest.mark.loss("C11")
async def test_binary_output_never_poisons_a_request(home: Path, seed: int) -> None:
    """Random bytes, NULs and lone surrogates in outputs: every later request can be sent."""
    chance = random.Random(seed)
    outputs = ["\0", "\ud83d", "", " ", "\n"] + [
        "".join(chr(chance.choice([0, 9, 27, 65, 0xD800, 0xDFFF, 0xFFFF, 0x1F600])) for _ in range(40))
        for _ in range(RANDOM_OUTPUTS)
    ]
    tools = tools_by_name(*(Given(f"given{number}", output) for number, output in enumerate(outputs)))
    calls = [call(f"given{number}", id=f"c{number}") for number in range(len(outputs))]
    model = PlayedModel(calls, ["ok"])
    async with stage(home, model, tools=tools) as on:
        await on.run("go")
        await on.run("and")
        assert len(last_results_of(model.requests[-1])) == len(outputs)
        for request in model.requests:
            assert_valid(request.messages)
        await on.check()


class Given(Echo):
    """A tool that gives one output."""

    def __init__(self, name: str, output: str) -> None:
        """Give this."""
        super().__init__(name)
        self._output = output

    async def run(self, arguments: dict[str, object]) -> str:
        """Give it."""
        del arguments
        return self._output


def last_results_of(request: Request) -> list[str]:
    """The texts of the last results anywhere in a request."""
    said = [said for said in request.messages if isinstance(said, ToolsSaid)]
    return [result.text for result in said[-1].results]


@pytest.mark.loss("C1")
async def test_two_calls_with_one_id_keep_their_results(home: Path) -> None:
    """Some providers give every call the same id, or none: the model is told each result, with its own call."""
    for id in ("same", ""):
        one, two = (call(arguments=f'{{"text":"{text}"}}', id=id) for text in ("one", "two"))
        model = PlayedModel([one, two], [one], ["ok"])
        async with stage(home, model, tools=tools_by_name(Echo())) as on:
            await on.run("go")
            for request in model.requests:
                assert_valid(request.messages)
            assert [result.text for result in last_results(model.requests[1]).results] == ["one", "two"]
            assert [result.text for result in last_results(model.requests[2]).results] == ["one"]
            await on.check()


@pytest.mark.loss("C1")
async def test_two_calls_with_one_id_that_end_in_another_order(home: Path) -> None:
    """The second of two calls with one id is done first: each result still stands with its own call."""
    slow = Slow(output="of the slow one")
    model = PlayedModel([call("slow", id="same"), call(id="same")], ["ok"])
    async with stage(home, model, tools=tools_by_name(slow, Echo())) as on:
        turn = asyncio.create_task(on.run("go"))
        await on.until_body(MessageAdded, 2)
        slow.release.set()
        await asyncio.wait_for(turn, 120)
        assert [result.text for result in last_results(model.requests[1]).results] == ["of the slow one", "hello"]


async def test_a_model_without_tools_is_offered_none(home: Path) -> None:
    """What the session froze is offered to models that can use it, and to no other."""
    for uses_tools in (True, False):
        model = PlayedModel(["ok"], uses_tools=uses_tools)
        async with stage(home, model, tools=tools_by_name(Echo())) as on:
            await on.run("go")
            assert [tool.name for tool in model.requests[0].tools] == ["echo"] * uses_tools


async def test_system_prompt_and_tools_stay_as_they_were_first(home: Path) -> None:
    """A session goes on with what it began with, although tools and instructions changed meanwhile."""
    first, second = PlayedModel(["ok"]), PlayedModel(["ok"])
    async with stage(home, first, tools=tools_by_name(Echo()), session_id="kept") as on:
        await on.run("go")
    async with stage(home, second, tools=tools_by_name(Counting()), session_id="kept") as on:
        on.agent = msgspec.structs.replace(on.agent, instructions="Speak like a pirate.")
        await on.run("go on")
    assert second.requests[0].system == first.requests[0].system
    assert second.requests[0].tools == first.requests[0].tools


@pytest.mark.loss("A3", "D5")
async def test_a_script_from_a_file_runs_the_same_loop(home: Path, tmp_path: Path) -> None:
    """The scripted model, as people use it, through tools and back, with what it was asked kept beside it."""
    script = tmp_path / "script.toml"
    script.write_text(
        """
        [[answers]]
        text = "Let me see. "
        calls = [{ name = "echo", arguments = { text = "from the tool" } }]
        [[answers]]
        text = "It says: {result}"
        [[answers]]
        text = "You said: {last}"
        """
    )
    model = RecordingModel(ScriptedModel(script))
    async with stage(home, model, tools=tools_by_name(Echo())) as on:
        await on.ask("what does it say?")
        await on.ask("thanks")
        assert await on.texts(Role.ASSISTANT) == ["Let me see. ", "It says: from the tool", "You said: thanks"]
        assert model.name == f"scripted:{script}"
        assert [sum(isinstance(said, AssistantSaid) for said in request.messages) for request in model.requests] == [
            0,
            1,
            2,
        ]
        await model.close()
