"""The scripted model does what its file says, and says what is wrong with the file."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import ToolCall, ToolResult
from hansard.domain.requests import (
    AssistantSaid,
    Delta,
    FailureKind,
    Finished,
    FinishReason,
    Request,
    ToolsSaid,
    UserSaid,
)
from hansard.domain.sessions import TurnState
from hansard.engine import prompts
from hansard.errors import InvalidInput
from hansard.models import scripted as scripted_module
from hansard.models.scripted import (
    Script,
    ScriptedAnswer,
    ScriptedCall,
    ScriptedFailure,
    ScriptedModel,
    ScriptedStall,
    ScriptedUsage,
)
from tests.models.helpers import HELLO, WAIT_SECONDS_MAX, ask


def scripted(folder: Path, text: str) -> ScriptedModel:
    """Return a model that reads a script."""
    path = folder / "script.toml"
    path.write_text(text, encoding="utf-8")
    return ScriptedModel(path)


def after(*answers: str) -> Request:
    """Return a conversation in which the model has said so much already."""
    said = [part for answer in answers for part in (UserSaid("go on"), AssistantSaid(answer))]
    return Request(system="", messages=(*said, UserSaid("hello")))


async def test_answers_go_by_the_conversation(tmp_path: Path) -> None:
    """The request itself says which answer is next: whoever asks, in whatever order; the last one repeats."""
    script = '[[answers]]\ntext = "one"\n[[answers]]\ntext = "two"\n[[answers]]\ntext = "last"\n'
    model = scripted(tmp_path, script)
    said = ["one", "two", "last", "last", "last"]
    for count in (4, 0, 2, 1, 3, 0):
        assert (await ask(model, after(*said[:count]))).text == said[count]
    assert (await ask(ScriptedModel(tmp_path / "script.toml"), after("one"))).text == "two"


@pytest.mark.parametrize("text", ["You said: {last}!", " a  b\n\nc ", "", " ", "\n\nx", "ünï \N{GRINNING FACE}"])
@pytest.mark.parametrize("pieces", ["words", "characters", "whole"])
async def test_pieces_are_the_text(tmp_path: Path, text: str, pieces: str) -> None:
    """However a text is split, its pieces together are the text."""
    quoted = msgspec.json.encode(text).decode()
    answer = await ask(scripted(tmp_path, f'[[answers]]\ntext = {quoted}\npieces = "{pieces}"\n'))
    expected = text.replace("{last}", "hello")
    assert answer.text == expected
    count = {"words": len(expected.split()), "characters": len(expected), "whole": 1}[pieces]
    assert sum(isinstance(event, Delta) for event in answer.events) == (count if expected.strip() else len(expected))


async def test_pieces_as_a_list(tmp_path: Path) -> None:
    """Pieces can be given one by one."""
    answer = await ask(scripted(tmp_path, '[[answers]]\npieces = ["He", "l", "{last}"]\n'))
    assert [event.text for event in answer.events if isinstance(event, Delta)] == ["He", "l", "hello"]


async def test_places_are_filled_once(tmp_path: Path) -> None:
    """What a person or a tool said is not read for places in turn."""
    call = ToolCall(id="a", name="x")
    said = (UserSaid("{result} {x}"), AssistantSaid("", (call,)), ToolsSaid((ToolResult(call_id="a", text="{last}"),)))
    model = scripted(tmp_path, '[[answers]]\ntext = "{last}|{result}|{other}"\n')
    assert (await ask(model, Request(system="", messages=said))).text == "{result} {x}|{last}|{other}"


async def test_reasoning_calls_and_figures(tmp_path: Path) -> None:
    """An answer can think, call tools and report figures."""
    script = """
        [[answers]]
        reasoning = "A tool would know."
        text = "Let me see."
        usage = { input_tokens = 10, output_tokens = 5, cost_micros = 7 }
        calls = [
            { name = "clock", arguments = { zone = "UTC" } },
            { name = "clock", arguments = '{"zone": ', id = "mine" },
        ]
    """
    answer = await ask(scripted(tmp_path, script))
    assert (answer.reasoning, answer.text) == ("A tool would know.", "Let me see.")
    assert answer.calls == [
        ToolCall(id="call-1-1", name="clock", arguments='{"zone":"UTC"}'),
        ToolCall(id="mine", name="clock", arguments='{"zone": '),
    ]
    assert answer.finished.reason is FinishReason.TOOLS
    usage = answer.finished.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost_micros) == (10, 5, 7)


@pytest.mark.parametrize("kind", list(FailureKind))
@pytest.mark.parametrize(("place", "text"), [(0, ""), (2, "a b"), (9, "a b c")])
async def test_failures(tmp_path: Path, kind: FailureKind, place: int, text: str) -> None:
    """Any failure can come anywhere: before the first piece, after some, after all."""
    script = (
        '[[answers]]\ntext = "a b c"\ncalls = [{ name = "x" }]\n'
        f'failures = [{{ kind = "{kind}", after_pieces = {place}, text = "oh", retry_after_seconds = 1.5 }}]\n'
    )
    answer = await ask(scripted(tmp_path, script))
    assert (answer.text, answer.calls) == (text, [])
    assert (answer.failure.kind, answer.failure.text, answer.failure.retry_after_seconds) == (kind, "oh", 1.5)


async def test_failures_of_some_attempts(tmp_path: Path) -> None:
    """A failure can be kept for certain attempts; each answer counts its own."""
    script = """
        [[answers]]
        text = "a b"
        failures = [{ kind = "busy", attempts = [1] }, { kind = "cut", attempts = [2, 4], after_pieces = 1 }]
        [[answers]]
        text = "c"
        failures = [{ kind = "stalled", attempts = [1] }]
    """
    model = scripted(tmp_path, script)
    assert (await ask(model)).failure.kind is FailureKind.BUSY
    assert (await ask(model, after("a b"))).failure.kind is FailureKind.STALLED
    second = await ask(model)
    assert (second.failure.kind, second.text) == (FailureKind.CUT, "a")
    assert (await ask(model)).text == "a b"
    assert (await ask(model, after("a b"))).text == "c"


async def test_delays_and_stalls(tmp_path: Path) -> None:
    """Pieces come one by one with a pause before each, and a stall lasts until somebody leaves."""
    script = '[[answers]]\ntext = "a b c"\ndelay_seconds = 0.02\nstall = { after_pieces = 2 }\n'
    model = scripted(tmp_path, script)
    started = asyncio.get_running_loop().time()
    async with aclosing(model.stream(HELLO)) as events, asyncio.timeout(WAIT_SECONDS_MAX):
        assert [await anext(events), await anext(events)] == [Delta("a"), Delta(" b")]
        assert asyncio.get_running_loop().time() - started >= 0.04
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await anext(events)


async def test_stall_for_a_time(tmp_path: Path) -> None:
    """A stall with an end is followed by the rest."""
    model = scripted(tmp_path, '[[answers]]\ntext = "a b"\nstall = { after_pieces = 1, seconds = 0.05 }\n')
    started = asyncio.get_running_loop().time()
    assert (await ask(model)).text == "a b"
    assert asyncio.get_running_loop().time() - started >= 0.05


def test_name_and_tools(tmp_path: Path) -> None:
    """It is called by its file, and takes tools unless the script says otherwise."""
    model = scripted(tmp_path, '[[answers]]\ntext = "a"\n')
    assert model.name == f"scripted:{tmp_path / 'script.toml'}"
    assert model.uses_tools
    assert not scripted(tmp_path, 'uses_tools = false\n[[answers]]\ntext = "a"\n').uses_tools


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ('[[answers]]\ntxt = "a"\n', "unknown field `txt` - at `\\$.answers"),
        ('[[answers]]\nfailures = [{ kind = "busy", after = 1 }]\n', "unknown field `after` - at `\\$.answers"),
        ("[[answers]]\nusage = { tokens = 1 }\n", "unknown field `tokens`"),
        ('[[answers]]\nfailures = [{ kind = "tired" }]\n', "tired"),
        ("[[answers]]\ntext = 3\n", "Expected `str`, got `int`"),
        ('[[answers]]\ntext = "a"\npieces = ["b"]\n', "not both"),
        ("answers = []\n", "at least one"),
        ("", "missing required field `answers`"),
        ("[[answers]\n", "line 1"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, script: str, message: str) -> None:
    """A mistake in a script is an error that says which and where."""
    with pytest.raises(InvalidInput, match=message):
        scripted(tmp_path, script)


def test_script_that_is_not_there(tmp_path: Path) -> None:
    """A file that cannot be read is named."""
    with pytest.raises(InvalidInput, match=r"nothing\.toml cannot be read"):
        ScriptedModel(tmp_path / "nothing.toml")


async def test_example_of_the_documentation_works(tmp_path: Path) -> None:
    """The script in the module's own description can be used as it stands."""
    description = scripted_module.__doc__ or ""
    lines = [line.removeprefix("    ") for line in description.splitlines() if line.startswith("    ")]
    model = scripted(tmp_path, "\n".join(lines))
    assert (await ask(model)).text == "You said: hello"
    assert (await ask(model, after("x"))).failure.kind is FailureKind.BUSY
    assert [call.name for call in (await ask(model, after("x"))).calls] == ["clock"]


def examples() -> list[str]:
    """Every script that the documentation shows."""
    page = Path(__file__).parents[2] / "docs" / "build" / "scripted.md"
    return re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("script", examples())
async def test_scripts_of_the_documentation_work(tmp_path: Path, script: str) -> None:
    """A script that the documentation shows can be used as it stands."""
    model = scripted(tmp_path, script)
    for count in range(3):
        answers = [await ask(model, after(*["x"] * count)) for _ in range(3)]
        assert isinstance(answers[-1].ending, Finished)
        assert answers[-1].text or answers[-1].calls


def test_every_key_is_documented() -> None:
    """The page on scripts names every key and every kind of failure."""
    page = (Path(__file__).parents[2] / "docs" / "build" / "scripted.md").read_text(encoding="utf-8")
    parts = [Script, ScriptedAnswer, ScriptedCall, ScriptedFailure, ScriptedStall, ScriptedUsage]
    keys = {name for part in parts for name in part.__struct_fields__} | set(FailureKind)
    assert [key for key in sorted(keys) if f"`{key}" not in page and key != "answers"] == []


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("hello", "hello"),
        (f"{prompts.reply_interrupted('interrupted by the person')}\n\nhello", "hello"),
        (f"{prompts.turn_without_reply(TurnState.FAILED, 'a reason')}\n\nhello\n\n  there", "hello\n\n  there"),
        (f"one\n\n{prompts.EDITED}\ntwo", "one\n\ntwo"),
        (f"{prompts.summed_up(3, 'old things')}\n\nhello", "hello"),
        (f"{prompts.orphan_result('a result')}\n\nhello", "hello"),
        (prompts.GO_ON, ""),
        ("not [Hansard: a note]", "not [Hansard: a note]"),
    ],
)
async def test_last_is_what_the_person_said(tmp_path: Path, text: str, last: str) -> None:
    """`{last}` leaves out Hansard's own notes to the model, such as after an interrupt; `{told}` has them."""
    model = scripted(tmp_path, '[[answers]]\ntext = "<{last}|{told}>"\npieces = "whole"\n')
    request = Request(system="", messages=(UserSaid("before"), AssistantSaid("cut"), UserSaid(text)))
    assert (await ask(model, request)).text == f"<{last}|{text}>"
