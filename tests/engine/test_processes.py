"""Two processes on one session: whoever runs a turn, it is run once, stopped by anybody, and survives a kill."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from hansard.domain.messages import Role, Status
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.record.turns.entries import TurnStarted
from tests.engine.stage import Gate, PlayedModel, answer_last, stage
from tests.engine.worker import worker

EACH = 12


@pytest.mark.loss("D15", "F16", "I1", "I7")
async def test_two_runners_answer_every_message_once(home: Path) -> None:
    """Both processes speak and run turns in one session at the same time: each message is in exactly one answer."""
    model = PlayedModel([answer_last])
    async with stage(home, model, session_id="shared") as on, worker(home, "shared") as other:
        theirs = [f"[b{number}]" for number in range(EACH)]
        ours = [f"[a{number}]" for number in range(EACH)]
        await on.ask(ours[0])
        await other.ask("speak", text=theirs[0])
        await other.ask("settled")
        speaking = asyncio.create_task(other.ask("many", texts=theirs[1:], pause_seconds=0.004))
        for text in ours[1:]:
            await on.speak(text, Busy.QUEUE)
            await asyncio.sleep(0.004)
        assert await speaking == []
        await on.settled()
        assert await other.ask("settled") == []
        await on.settled()
        said = await on.texts(Role.USER)
        assert sorted(said) == sorted(ours + theirs)
        answered = re.findall(r"\[[ab]\d+\]", "".join(await on.texts(Role.ASSISTANT)))
        assert answered == said
        owners = {entry.body.owner for entry in await on.entries() if isinstance(entry.body, TurnStarted)}
        assert len(owners) == 2
        assert set(await on.states()) == {TurnState.COMPLETED}
        await on.check()


@pytest.mark.loss("A5", "A13", "D15")
async def test_a_turn_is_stopped_from_another_process(home: Path) -> None:
    """This process asks; the one that runs the turn stops, keeps its words, and ends it; the next turn runs here."""
    model = PlayedModel([answer_last])
    async with stage(home, model, session_id="shared") as on, worker(home, "shared", "hangs") as other:
        await other.ask("speak", text="hello")
        await on.until_text("I begin ")
        await on.stop("from elsewhere")
        assert await other.ask("settled") == []
        (said,) = await on.transcript(Role.ASSISTANT)
        assert (said.status, said.text) == (Status.INTERRUPTED, "I begin ")
        assert await on.ends() == [(TurnState.INTERRUPTED, "from elsewhere")]
        await on.ask("again")
        assert (await on.states())[-1] is TurnState.COMPLETED
        assert "your reply above was interrupted (from elsewhere)" in (await on.texts(Role.ASSISTANT))[-1]


@pytest.mark.loss("D15", "F5")
async def test_a_message_interrupts_a_turn_of_another_process(home: Path) -> None:
    """Spoken here in the mode `interrupt`: the turn there ends with its words kept, and the message is answered."""
    model = PlayedModel([answer_last])
    async with stage(home, model, session_id="shared") as on, worker(home, "shared", "hangs") as other:
        await other.ask("speak", text="hello")
        await on.until_text("I begin ")
        await on.speak("now", Busy.INTERRUPT)
        await on.until_body(TurnStarted, 2)
        await on.stop("so that it ends, whoever runs it")
        await on.settled()
        assert await other.ask("settled") == []
        assert (await on.ends())[0] == (TurnState.INTERRUPTED, "a new message came")
        assert (await on.texts())[:3] == ["hello", "I begin ", "now"]
        await on.check()


@pytest.mark.loss("A1", "A13", "F5")
async def test_a_message_after_a_kill_is_answered(home: Path) -> None:
    """The process that ran the turn was killed: the turn is lost, its words stay, the next message is answered."""
    model = PlayedModel([answer_last])
    async with stage(home, model, session_id="shared") as on, worker(home, "shared", "hangs") as other:
        await other.ask("speak", text="hello")
        await on.until_text("I begin ")
        await other.kill()
        await on.ask("now", Busy.INTERRUPT)
        assert await on.states() == [TurnState.LOST, TurnState.COMPLETED]
        assert [(m.text, m.status) for m in (await on.transcript())[:3]] == [
            ("hello", Status.COMPLETE),
            ("I begin ", Status.INTERRUPTED),
            ("now", Status.COMPLETE),
        ]
        await on.check()


@pytest.mark.loss("A1", "A13", "F16")
async def test_what_waits_behind_a_killed_process_is_answered(home: Path) -> None:
    """A turn runs there and a message was queued here; that process is killed: this one answers within a moment."""
    model = PlayedModel([answer_last])
    async with stage(home, model, session_id="shared") as on, worker(home, "shared", "hangs") as other:
        await other.ask("speak", text="hello")
        await on.until_text("I begin ")
        await on.speak("and me", Busy.QUEUE)
        await asyncio.sleep(0.05)
        assert model.requests == []
        await other.kill()
        await on.settled()
        assert await on.states() == [TurnState.LOST, TurnState.COMPLETED]
        assert (await on.texts(Role.ASSISTANT))[0] == "I begin "
        assert (await on.texts(Role.ASSISTANT))[1].endswith("and me>")


@pytest.mark.loss("D15")
async def test_only_one_process_runs_a_turn_that_both_are_woken_for(home: Path) -> None:
    """Both look at the same queued turn: one runs it, the other waits and then finds nothing to do."""
    gate = Gate()
    model = PlayedModel([gate, answer_last])
    async with stage(home, model, session_id="shared") as on, worker(home, "shared") as other:
        await on.speak("hello")
        await gate.reached()
        await other.ask("wake")
        gate.open()
        await on.settled()
        assert await other.ask("settled") == []
        assert await on.texts() == ["hello", "<hello>"]
        assert len(await on.states()) == 1
