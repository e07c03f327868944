"""A provider that cannot read the conversation: caught, answered by a safer view, told; and never a session lost."""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import File, Message, Part, Reasoning, Role, Text
from hansard.domain.requests import (
    AssistantSaid,
    Delta,
    Failed,
    Failure,
    FailureKind,
    Finished,
    ModelEvent,
    ModelRules,
    Request,
    ToolsSaid,
    UserSaid,
)
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.engine.requests import Remedy, diagnose
from hansard.intake.speak import speak
from hansard.testing.fakes import Echo, tools_by_name
from tests.engine.stage import PlayedModel, Stage, call, stage
from tests.engine.validator import assert_valid

NAME = "anthropic:claude-sonnet-5"
RULES = ModelRules(family=NAME, images_max=5, image_bytes_max=1000)
TOOLS = tools_by_name(Echo())


class Strict:
    """A model that refuses what a rule finds fault with, with the words of that fault, and answers anything else."""

    name = NAME
    uses_tools = True
    rules = RULES

    def __init__(self, fault: Callable[[Request], str], status: int = 400) -> None:
        """Nothing was asked yet."""
        self.requests: list[Request] = []
        self._fault = fault
        self._status = status

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Refuse, or answer."""
        self.requests.append(request)
        assert_valid(request.messages)
        if text := self._fault(request):
            yield Failed(failure=Failure(kind=FailureKind.REFUSED, text=text, status=self._status))
            return
        yield Delta("Fine.")
        yield Finished()

    async def close(self) -> None:
        """Nothing is held."""


def thinks(request: Request) -> str:
    """Refuse reasoning."""
    found = any(isinstance(said, AssistantSaid) and said.thought for said in request.messages)
    return "messages.1.content.0: Invalid `signature` in `thinking` block" if found else ""


def calls(request: Request) -> str:
    """Refuse tool calls."""
    found = any(isinstance(said, ToolsSaid) for said in request.messages)
    return "unexpected `tool_use_id` found in `tool_result` blocks" if found else ""


def pictures(request: Request) -> str:
    """Refuse pictures."""
    found = any(isinstance(said, UserSaid) and said.images for said in request.messages)
    return "Could not process image" if found else ""


def long(request: Request) -> str:
    """Refuse more than a few messages."""
    return "prompt is too long: 250000 tokens > 200000 maximum" if len(request.messages) > 9 else ""


def longest(request: Request) -> str:
    """Refuse more than one exchange."""
    return "This model's maximum context length is 8 tokens" if len(request.messages) > 3 else ""


async def fill(home: Path) -> str:
    """A session that has everything: reasoning, calls, a picture, and five exchanges."""
    async with stage(home, PlayedModel([call(id="c1")], ["It says hello."], ["Yes."]), tools=TOOLS) as on:
        await on.ask("call the tool")
        thought: list[Part] = [Reasoning(text="I think.", signature="sig", model=NAME), Text("A thought answer.")]
        await on.record.append(on.session_id, Message.user("think"))
        await on.record.append(on.session_id, Message.assistant(thought))
        picture = File(blob=await on.record.blobs.put(b"png"), media_type="image/png", size_bytes=3, name="p.png")
        await speak(on.record, on.session_id, [Message.user([Text("look"), picture])], Busy.QUEUE)
        await on.run_turn()
        for number in range(3):
            await on.ask(f"more {number}")
        return on.session_id


@pytest.mark.loss("C1", "C3", "C7", "C9", "C13")
@pytest.mark.parametrize(
    ("fault", "told", "asked"),
    [
        (thinks, "without its reasoning", 2),
        (calls, "in words alone", 2),
        (pictures, "in words alone", 2),
        (long, "without the older half", 2),
        (longest, "with the last exchange alone", 3),
    ],
)
async def test_a_refused_history_is_asked_again(
    home: Path, fault: Callable[[Request], str], told: str, asked: int
) -> None:
    """The person gets an answer and is told; the record is as it was; the next turn begins with what was accepted."""
    session_id = await fill(home)
    model = Strict(fault)
    async with stage(home, model, tools=TOOLS, session_id=session_id) as on:
        before = await on.transcript()
        await on.ask("go on")
        assert len(model.requests) == asked
        notices = [notice for notice in await on.notices() if "could not read the conversation" in notice]
        assert len(notices) == asked - 1
        assert told in notices[-1]
        assert (await on.states())[-1] is TurnState.COMPLETED
        assert (await on.transcript())[: len(before)] == before
        await on.ask("and again")
        assert len(model.requests) == asked + 1
        assert "go on" in str(model.requests[-1].messages)
        assert (await on.states())[-1] is TurnState.COMPLETED
        await on.check()


async def test_what_comes_after_is_said_as_ever(home: Path) -> None:
    """A safer view is of what was refused: calls that are made later are calls again."""
    session_id = await fill(home)
    async with stage(home, Strict(calls), tools=TOOLS, session_id=session_id) as on:
        await on.ask("go on")
    model = PlayedModel([call(id="c9")], ["Done."], name=NAME)
    async with stage(home, model, tools=TOOLS, session_id=session_id) as on:
        await on.ask("call it again")
        said = model.requests[-1].messages
        assert [[each.id for each in one.calls] for one in said if isinstance(one, AssistantSaid) and one.calls] == [
            ["c9"]
        ]
        assert "the tool echo was called with" in str(said)
        await on.check()


@pytest.mark.loss("C13")
async def test_a_provider_that_refuses_everything(home: Path) -> None:
    """It is asked a few times and no more; the turn fails and says why; another model goes on with all of it."""
    session_id = await fill(home)
    model = Strict(lambda _: "messages: something is wrong")
    async with stage(home, model, tools=TOOLS, session_id=session_id) as on:
        await on.ask("go on")
        assert len(model.requests) == 1 + len([Remedy.PLAIN, Remedy.HALF, Remedy.LAST])
        assert (await on.states())[-1] is TurnState.FAILED
        assert any("The model could not answer" in notice for notice in await on.notices())
    other = PlayedModel(["Here."])
    async with stage(home, other, tools=TOOLS, session_id=session_id) as on:
        await on.ask("and you?")
        assert (await on.texts(Role.ASSISTANT))[-1] == "Here."
        assert "call the tool" in str(other.requests[0].messages[0])
        await on.check()


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("Your credit balance is too low to access the Anthropic API.", None),
        ("Unsupported parameter: 'max_tokens' is not supported with this model.", None),
        ("The model `gpt-9` does not exist", None),
        ("Invalid schema for function 'x'", None),
        ("messages.3: `thinking` blocks cannot be modified", Remedy.UNSIGNED),
        ("Function call is missing a thought_signature in functionCall parts.", Remedy.UNSIGNED),
        ("Item 'rs_1' of type 'reasoning' was provided without its required following item.", Remedy.UNSIGNED),
        ("An assistant message with 'tool_calls' must be followed by tool messages", Remedy.PLAIN),
        ("messages: roles must alternate", Remedy.PLAIN),
        ("image exceeds 5 MB maximum", Remedy.PLAIN),
        ("messages.0.content.1.image.source: image dimensions exceed max allowed size: 8000 pixels", Remedy.PLAIN),
        ("messages.3.content: does not match the schema", Remedy.PLAIN),
        ("Request contains an invalid argument.", Remedy.PLAIN),
        ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", None),
        ("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024", None),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", Remedy.HALF),
        ("This model's maximum context length is 8192 tokens", Remedy.HALF),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed", Remedy.HALF),
    ],
)
def test_diagnosis(text: str, remedy: Remedy | None) -> None:
    """The words of a refusal tell what to do about it; what is not about the conversation is left alone."""
    assert diagnose(Failure(kind=FailureKind.REFUSED, text=text, status=400)) is remedy


def test_other_failures_are_no_refusals() -> None:
    """A key that is not accepted, a busy provider, an unknown model: the view has nothing to do with it."""
    for kind, status in ((FailureKind.UNAUTHORISED, 401), (FailureKind.BUSY, 429), (FailureKind.REFUSED, 404)):
        assert diagnose(Failure(kind=kind, text="tool_use", status=status)) is None
    assert diagnose(Failure(kind=FailureKind.REFUSED, text="", status=413)) is Remedy.HALF


async def test_the_next_model_is_told_everything(home: Path) -> None:
    """What one model refuses to read is no reason to tell the one that stands in for it less."""
    session_id = await fill(home)
    first, second = Strict(lambda _: "messages: something is wrong"), PlayedModel(["Here."])
    async with stage(home, first, second, tools=TOOLS, session_id=session_id) as on:
        await on.ask("go on")
        assert (await on.texts(Role.ASSISTANT))[-1] == "Here."
        assert "call the tool" in str(second.requests[0].messages[0])
        assert any(isinstance(said, ToolsSaid) for said in second.requests[0].messages)
        await on.check()


async def test_a_refusal_that_is_not_about_the_history(home: Path) -> None:
    """The model is asked once, and the person is told what it said."""
    model = Strict(lambda _: "Your credit balance is too low")
    async with stage(home, model) as on:
        await on.ask("hello")
        assert len(model.requests) == 1
        assert not any("could not read" in notice for notice in await on.notices())


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Request contains an invalid argument.", 2),
        ("Something that nobody has thought of", 2),
        ("`thinking` is not available in your plan", 3),
        ("messages.1.content: blocked by our usage policy", 2),
        ("Your credit balance is too low", 1),
        ("Unsupported parameter: 'reasoning.effort'", 1),
    ],
)
async def test_an_unclear_refusal_is_answered_once(home: Path, text: str, asked: int) -> None:
    """What may not be about the conversation is asked once more, or not at all, and reported as what it is."""
    session_id = await fill(home)
    model = Strict(lambda _: text)
    async with stage(home, model, tools=TOOLS, session_id=session_id) as on:
        before = await on.transcript()
        await on.ask("go on")
        assert len(model.requests) == asked
        assert (await on.states())[-1] is TurnState.FAILED
        notices = await on.notices()
        assert text.rstrip(".") in notices[-1]
        assert "The model could not answer" in notices[-1]
        assert (await on.transcript())[: len(before)] == before
        assert not [name for name in (await on.conversation()).settings if name.startswith("view.")]
        await on.check()


@pytest.mark.loss("C13")
async def test_an_unclear_refusal_does_not_lose_a_session(home: Path) -> None:
    """Where only the length of what was said is at fault, and nobody says so, the second turn is answered."""
    session_id = await fill(home)
    model = Strict(lambda request: "Request contains an invalid argument." if len(request.messages) > 7 else "")
    async with stage(home, model, tools=TOOLS, session_id=session_id) as on:
        await on.ask("go on")
        assert (await on.states())[-1] is TurnState.FAILED
        await on.ask("please")
        assert (await on.states())[-1] is TurnState.COMPLETED
        assert any("It may be the conversation" in notice for notice in await on.notices())
        await on.ask("and more")
        assert (await on.states())[-1] is TurnState.COMPLETED
        await on.check()


@pytest.mark.loss("C7")
async def test_what_one_model_refused_another_is_told(home: Path) -> None:
    """The safer view is remembered for the model that needs it; after a switch everything is told, and back again."""
    session_id = await fill(home)
    strict, other = Strict(longest), PlayedModel(["Here."])
    async with stage(home, strict, tools=TOOLS, session_id=session_id) as on:
        await on.ask("go on")
    async with stage(home, other, tools=TOOLS, session_id=session_id) as on:
        await on.ask("and you?")
        assert "call the tool" in str(other.requests[0].messages[0])
        assert any(isinstance(said, ToolsSaid) for said in other.requests[0].messages)
    strict.requests.clear()
    async with stage(home, strict, tools=TOOLS, session_id=session_id) as on:
        await on.ask("again")
        assert not any("call the tool" in str(request.messages) for request in strict.requests)
        assert (await on.states())[-1] is TurnState.COMPLETED
        await on.check()


@pytest.mark.loss("C9")
async def test_pictures_that_cannot_be_shown_are_named(home: Path) -> None:
    """One too large, one of a kind nobody reads, one that is gone: each is said, and the turn runs."""
    model = Strict(lambda _: "")
    async with stage(home, model) as on:
        record = on.record
        good, large = await record.blobs.put(b"good"), await record.blobs.put(b"x" * 2000)
        files = [
            File(blob=good, media_type="image/png", size_bytes=4, name="good.png"),
            File(blob=large, media_type="image/png", size_bytes=2000, name="large.png"),
            File(blob=good, media_type="image/tiff", size_bytes=4, name="odd.tiff"),
            File(blob=good, media_type="image/png", size_bytes=5, name="wrong.png"),
        ]
        await speak(record, on.session_id, [Message.user([Text("look"), *files])], Busy.QUEUE)
        await on.run_turn()
        said = model.requests[0].messages[0]
        assert isinstance(said, UserSaid)
        assert [(image.name, image.data) for image in said.images] == [("good.png", b"good")]
        for name, why in (("large.png", "too large"), ("odd.tiff", "of its kind"), ("wrong.png", "cannot be read")):
            assert any(name in line and why in line for line in said.text.splitlines()), said.text
        assert await record.blobs.read(large) == b"x" * 2000
        await on.check()


def png(width: int, height: int) -> bytes:
    """The beginning of a picture of that size."""
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02\0\0\0"


@pytest.mark.loss("C9")
async def test_pictures_are_what_their_bytes_say(home: Path) -> None:
    """One that is called by another kind is sent as what it is; one of too many pixels is left out, which is said."""
    model = Strict(lambda _: "")
    model.rules = msgspec.structs.replace(RULES, image_side_max=8000, image_types=("image/png", "image/jpeg"))
    async with stage(home, model) as on:
        files = []
        for name, media_type, data in (
            ("misnamed", "image/jpg", png(10, 10)),
            ("wide", "image/png", png(8001, 1)),
            ("moving", "image/png", b"GIF89a" + struct.pack("<HH", 5, 5)),
        ):
            blob = await on.record.blobs.put(data)
            files.append(File(blob=blob, media_type=media_type, size_bytes=len(data), name=name))
        await speak(on.record, on.session_id, [Message.user([Text("look"), *files])], Busy.QUEUE)
        await on.run_turn()
        said = model.requests[0].messages[0]
        assert isinstance(said, UserSaid)
        assert [(image.name, image.media_type) for image in said.images] == [("misnamed", "image/png")]
        for name, why in (("wide", "too large"), ("moving", "of its kind")):
            assert any(name in line and why in line for line in said.text.splitlines()), said.text


async def test_the_model_of_a_session(home: Path) -> None:
    """A session's own model is asked in place of the configured one, from the next turn on, and back again."""
    first, second = PlayedModel(["one"], name="first"), PlayedModel(["two"], name="second")

    async def choose(name: str) -> PlayedModel:
        assert name == "second"
        return second

    async with stage(home, first) as ready:
        on = Stage(msgspec.structs.replace(ready.agent, choose=choose), ready.session_id)
        await on.ask("a")
        await on.record.sessions.set_setting(on.session_id, "model", "second")
        await on.ask("b")
        await on.record.sessions.set_setting(on.session_id, "model", "default")
        await on.ask("c")
        assert await on.texts(Role.ASSISTANT) == ["one", "two", "one"]
        await on.runner.close()
