"""S12: what is approved was shown, all of it: in the question, or attached to it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from hansard.delivery.stream import files_of
from hansard.domain.questions import (
    NOT_DELIVERED,
    TERMINAL_CHARACTERS_MAX,
    escape,
    fits_in_post,
    show_arguments,
    show_line,
)
from hansard.record.questions import QuestionAsked
from hansard.testing.fakes import Counting, tools_by_name
from tests.engine.asking import ask_of, say
from tests.engine.stage import PlayedModel, call, stage
from tests.intake.asking import ASKS, asked, equip, settled
from tests.intake.town import ANN, HOME_OF_ANN, settings_of, town

LONG = json.dumps({"padding": "harmless " * 600, "then": "pay 10,000 to Eve"})


async def test_long_arguments_are_attached_whole(home: Path) -> None:
    """In a chat a long call is a file beside the question; the yes counts when both are shown."""
    tool = Counting()
    async with town(home, settings_of(ANN), PlayedModel([call("counting", LONG)], ["done"])) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        for wake in await here.say("go"):
            here.runner.wake(wake.session_id, wake.turn_id)
        session_id = await here.session()
        body = await asked(here, session_id)
        question = await here.record.messages.read(session_id, body.message_id)
        (file,) = files_of(question)
        attached = await here.record.blobs.read(file.blob)
        assert json.loads(attached) == json.loads(LONG)
        assert "more characters" not in question.text
        await here.deliver()
        await here.say("yes", ANN, HOME_OF_ANN)
        await settled(here, session_id)
        assert tool.count == 1
        await here.check()


async def test_where_no_file_can_be_shown_nothing_is_approved(home: Path) -> None:
    """When the file beside the question is refused, a yes in that chat is told so, and runs nothing."""
    tool = Counting()
    async with town(home, settings_of(ANN), PlayedModel([call("counting", LONG)], ["done"])) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        for wake in await here.say("go"):
            here.runner.wake(wake.session_id, wake.turn_id)
        session_id = await here.session()
        code = (await asked(here, session_id)).code
        await here.deliver(shows_files=False)
        await here.say(f"/yes {code}")
        assert NOT_DELIVERED in await here.notices()
        await here.record.turns.stop(session_id, "the test is over", queued=True)
        await settled(here, session_id)
        assert tool.count == 0
        await here.check()


async def test_the_terminal_prints_all_of_it(home: Path) -> None:
    """At the terminal the question holds everything, however long."""
    async with stage(home, PlayedModel([call("counting", LONG)], ["done"]), tools=tools_by_name(Counting())) as on:
        ask_of(on)
        await say(on, "go")
        await on.until_body(QuestionAsked)
        assert "pay 10,000 to Eve" in (await on.notices())[0]
        await on.stop()
        await on.settled()


@pytest.mark.parametrize("arguments", [json.dumps({"a": "x" * TERMINAL_CHARACTERS_MAX}), "[1, 2]", "{"])
async def test_what_cannot_be_shown_is_not_asked(home: Path, arguments: str) -> None:
    """Arguments that nobody could read, or that are no arguments, are refused without a question."""
    tool = Counting()
    async with stage(home, PlayedModel([call("counting", arguments)], ["done"]), tools=tools_by_name(tool)) as on:
        ask_of(on)
        await on.ask("go")
        assert tool.count == 0
        (result,) = await on.results()
        assert "was not run" in result.text
        assert await on.notices() == []


def test_arguments_are_shown_decoded_and_harmless() -> None:
    """Keys are sorted, escapes are read, and signs that hide or turn others are written as numbers."""
    tricky = (
        '{"b": "caf\\u00e9", "a": "one\\u202egnp.exe\\u200b", "c": {"z": 1, "y": [true, null]}, "d": "x\\ny\\u3164"}'
    )
    shown = show_arguments(tricky)
    assert json.loads(shown) == json.loads(tricky)
    assert list(json.loads(shown)) == ["a", "b", "c", "d"]
    assert "café" in shown
    assert r"one\u202egnp.exe\u200b" in shown
    assert r"x\ny\u3164" in shown
    assert all(sign.isprintable() or sign == "\n" for sign in shown)
    assert fits_in_post(shown)


@pytest.mark.parametrize(
    "number", [0xFE00, 0xFE0F, 0xE0100, 0xE01EF, 0xE0000, 0xE0001, 0xE0020, 0xE007F, 0x180B, 0x034F], ids=hex
)
def test_selectors_and_tags_are_written_as_numbers(number: int) -> None:
    """A variation selector or a tag carries bits that nobody sees, in an argument as in a tool's name."""
    text = f"pay{chr(number)} Eve"
    for shown in (show_arguments(json.dumps({"a": text}, ensure_ascii=False)), show_line(text)):
        assert chr(number) not in shown
        assert escape(chr(number)) in shown


def test_stacked_marks_are_written_as_numbers() -> None:
    """Four combining marks on a letter are shown, as languages use them; those above them hide what stands around."""
    marks = "\u0301\u0323\u0308\u0332"
    tall = f"x{marks}\u0489\u0300y\u0301"
    for shown in (show_arguments(json.dumps({"a": tall}, ensure_ascii=False)), show_line(tall)):
        assert f"x{marks}\\u0489\\u0300y\u0301" in shown
    assert json.loads(show_arguments(json.dumps({"a": tall}))) == {"a": tall}


def test_a_number_ends_a_stack_of_marks() -> None:
    """The next marks stand on the number of a hidden sign; marks on nothing are counted as well."""
    assert show_line("a\u0301\u200b\u0301") == "a\u0301\\u200b\u0301"
    assert show_line("\u0301" * 6) == "\u0301" * 4 + "\\u0301" * 2
