"""The checks can fail: each is shown a record that is sound, and something seen that it does not bear out."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import msgspec
import pytest

from hansard import Message, Record, Status, TurnState
from hansard.domain.messages import Text
from tests.acceptance.shown.checks import Picture, check_picture, take_picture
from tests.acceptance.shown.evidence import Asked, Evidence, Played, Shown
from tests.acceptance.shown.runs import Fault, Run, Surface, events_of
from tests.acceptance.shown.words import letters
from tests.models.providers.behaviour import Behaviour, Exchange

FIRST, SECOND = "first question", "second question"
BROKEN, WHOLE = "a broken answer", "a whole answer"
NOTE = "[Hansard: your reply above was interrupted; the person saw it as far as it goes.]\n\n"


def exchange(text: str, events: int, *said: tuple[str, str]) -> Exchange:
    """Return a request with what was sent for it."""
    body = {"messages": [{"role": role, "content": content} for role, content in said]}
    made = Exchange("POST", "/v1/chat/completions", {}, body)
    made.status, made.sent_text, made.events_count = 200, text, events
    return made


def played(question: str, fault: Fault, behaviour: Behaviour, seen: Exchange, surface: Surface) -> Played:
    """Return a run that was asked once."""
    run = Run(surface=surface, style="openai", fault=fault, question=question, behaviours=(behaviour,))
    return Played(run=run, asked=[Asked(exchange=seen, behaviour=behaviour)])


@pytest.fixture
async def seen(home: Path) -> tuple[Picture, Evidence]:
    """A conversation of an answer that was cut by a signal and one that came whole, and all that was seen of it."""
    async with Record.open(home) as record:
        session = await record.create_session(source="cli")
        for question, text, fails in ((FIRST, BROKEN, True), (SECOND, WHOLE, False)):
            await record.accept([(session.id, Message.user(question))], queue_turn=True)
            async with record.turn(session.id) as turn:
                reply = turn.reply()
                await reply.__aenter__()
                await reply.write(text)
                if fails:
                    turn.abandon(reply.id)
                    turn.interrupt("SIGINT")
                else:
                    await reply.__aexit__(None, None, None)
            await record.append(session.id, Message.notice(f"a notice after {question}"))
    broken = Behaviour(pieces=(BROKEN, " that goes on"))
    whole = Behaviour(pieces=(WHOLE,))
    count = len(events_of("openai", whole))
    one = played(FIRST, Fault.INTERRUPT, broken, exchange(BROKEN, 2, ("user", FIRST)), Surface.ONCE)
    history = (("user", FIRST), ("assistant", BROKEN), ("user", NOTE + SECOND))
    two = played(SECOND, Fault.NONE, whole, exchange(WHOLE, count, *history), Surface.ONCE)
    shown = [
        Shown(surface=Surface.ONCE, played=[one], output=BROKEN.encode(), code=130),
        Shown(
            surface=Surface.ONCE, played=[two], output=WHOLE.encode() + b"\n", errors="a notice after first question"
        ),
    ]
    return await take_picture(home), Evidence(seed=0, shown=shown)


async def test_what_is_sound_is_found_sound(seen: tuple[Picture, Evidence]) -> None:
    """Nothing is wrong with what really happened."""
    assert check_picture(*seen) == []


def show(index: int, **changes: object) -> Callable[[Picture, Evidence], None]:
    """Return a lie about what a process showed."""

    def lie(_picture: Picture, evidence: Evidence) -> None:
        for name, value in changes.items():
            setattr(evidence.shown[index], name, value)

    return lie


def send(index: int, **changes: object) -> Callable[[Picture, Evidence], None]:
    """Return a lie about what a provider was asked and sent."""

    def lie(_picture: Picture, evidence: Evidence) -> None:
        for name, value in changes.items():
            setattr(evidence.played[index].asked[0].exchange, name, value)

    return lie


def ask(*said: tuple[str, str]) -> Callable[[Picture, Evidence], None]:
    """Return a lie about what the second request said."""

    def lie(_picture: Picture, evidence: Evidence) -> None:
        body = evidence.played[1].asked[0].exchange.body
        body["messages"] = [{"role": role, "content": content} for role, content in said]

    return lie


def on_screen(*lines: str) -> Callable[[Picture, Evidence], None]:
    """Return a lie about what stood on a screen."""

    def lie(_picture: Picture, evidence: Evidence) -> None:
        evidence.shown[0].surface = Surface.TERMINAL
        evidence.shown[0].lines = frozenset(lines)

    return lie


def replace(index: int, **changes: object) -> Callable[[Picture, Evidence], None]:
    """Return a lie about what is recorded: a message is another than it is."""

    def lie(picture: Picture, _evidence: Evidence) -> None:
        old = picture.placed[index].message
        new = msgspec.structs.replace(old, **changes)
        picture.placed[index] = picture.placed[index]._replace(message=new)
        picture.transcript = [new if message.id == old.id else message for message in picture.transcript]

    return lie


def forget(index: int) -> Callable[[Picture, Evidence], None]:
    """Return a lie about what is recorded: a message is not there."""

    def lie(picture: Picture, _evidence: Evidence) -> None:
        gone = picture.placed.pop(index).message
        picture.transcript.remove(gone)

    return lie


def end_as(state: TurnState) -> Callable[[Picture, Evidence], None]:
    """Return a lie about how the first turn ended."""

    def lie(picture: Picture, _evidence: Evidence) -> None:
        picture.turns[next(iter(picture.turns))] = state

    return lie


LIES: dict[str, tuple[Callable[[Picture, Evidence], None], str]] = {
    "a byte more was printed": (show(0, output=BROKEN.encode() + b"!"), "printed and not recorded"),
    "another byte was printed": (show(0, output=b"A broken"), "printed and not recorded"),
    "half a character was printed": (show(0, output=BROKEN.encode() + b"\xc3"), "printed and not recorded"),
    "a word was printed by a process that was killed": (show(0, output=b"lost", code=-9), "printed and not recorded"),
    "less was printed by one that ended": (show(1, output=WHOLE.encode()), "printed and not recorded"),
    "something was told": (show(1, errors="a secret\n"), "told and not recorded"),
    "another exit code": (show(0, code=0), "exit code 0"),
    "a failure that was none": (show(1, code=1), "exit code 1"),
    "a word stood on the screen": (on_screen("a broken answer", "a brokem"), "on the screen and not recorded"),
    "a word at the end of a line": (on_screen("a broken answer tha"), "on the screen and not recorded"),
    "the answer was forgotten": (forget(1), "printed and not recorded"),
    "the answer is shorter": (replace(1, parts=(Text(BROKEN[:-1]),)), "printed and not recorded"),
    "the question was forgotten": (forget(0), "recorded 0 times"),
    "the question is another": (replace(0, parts=(Text("other"),)), "recorded 0 times"),
    "the question is there twice": (replace(2, parts=(Text(FIRST),)), "recorded 2 times"),
    "what was cut is complete": (replace(1, status=Status.COMPLETE), "complete, and the provider sent"),
    "what was whole is not": (replace(3, status=Status.INTERRUPTED), "its answer is not"),
    "a message is open": (replace(3, status=Status.OPEN), "still open"),
    "the turn completed": (end_as(TurnState.COMPLETED), "its answer is not"),
    "the turn was lost": (end_as(TurnState.LOST), "the turn is lost"),
    "the turn runs": (end_as(TurnState.RUNNING), "is running"),
    "words came that nobody kept": (send(1, sent_text=WHOLE + " more"), "came and was not recorded"),
    "nobody sent it": (send(1, sent_text="else"), "nobody sent"),
    "the end never came": (send(1, events_count=2), "complete, and the provider sent"),
    "the request was refused": (send(1, error="roles must alternate"), "refused the request"),
    "the next request forgot a question": (ask(("assistant", BROKEN), ("user", NOTE + SECOND)), "not in the next"),
    "the next request forgot an answer": (ask(("user", FIRST), ("user", NOTE + SECOND)), "not in the next"),
    "the next request does not say what happened": (
        ask(("user", FIRST), ("assistant", BROKEN), ("user", SECOND)),
        "does not say that",
    ),
}


@pytest.mark.parametrize("lie", LIES)
async def test_what_is_not_borne_out_is_found(seen: tuple[Picture, Evidence], lie: str) -> None:
    """Each lie, told about a sound conversation, is found for what it is."""
    picture, evidence = deepcopy(seen[0]), seen[1]
    tell, expected = LIES[lie]
    tell(picture, evidence)
    found = check_picture(picture, evidence)
    assert any(expected in each for each in found), found


async def test_findings_and_second_sessions_are_found(seen: tuple[Picture, Evidence]) -> None:
    """What verify finds, and a conversation that was torn in two, is a violation."""
    picture, evidence = seen
    picture.findings.append("the chain is broken")
    picture.sessions = 2
    found = check_picture(picture, evidence)
    assert "verify: the chain is broken" in found
    assert "one conversation is in 2 sessions" in found


def test_letters_are_what_no_rendering_changes() -> None:
    """Styling, marks and white space go; every letter and digit of any script stays, in its order."""
    assert letters("**a b**\n- ä1\t漢字 🙂 `c_d`") == "abä1漢字cd"
