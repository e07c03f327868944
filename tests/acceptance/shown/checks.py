"""What must hold of a record, given what was seen from outside. Each check returns what is wrong, in words."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hansard import Message, Record, Role, Status, TurnState
from hansard.cli import chat, once
from hansard.domain.messages import ToolCall, ToolResult
from hansard.domain.sessions import TURN_ENDS
from hansard.domain.text import clean_text
from hansard.engine import prompts
from hansard.journal.causes import WORDS
from hansard.record.messages.entries import Placed
from tests.acceptance.shown.evidence import Asked, Evidence, Played, Shown
from tests.acceptance.shown.runs import FAILING, Fault, Run, Surface, events_of, finish_count
from tests.acceptance.shown.words import letters

WAITING = tuple(
    f"hansard: waiting for the record: {words.says} (process, {name})."
    for words in WORDS.values()
    for name in ("python", "hansard")
)

FIXED_NOTICES = (*WAITING, once.DEMO_ANSWERED, chat.WELCOME, chat.DEMO, chat.NOT_TAKEN)
"""The closed list of what may be shown without being recorded: it says nothing of a conversation."""

MARKS = re.compile(
    r"⎯ interrupted|⎯ session reopened|⎯ session ended.*|⎯ \d+ messages? undone|thinking…|\S+ -c goes on with this\."
)
"""Whole lines by which the screen shows a state of the record, and what it says when somebody leaves."""

TROUBLE = re.compile(r"hansard: (waiting for the record: .*|the record is in order again)\.")
"""What is told of a record that others hold."""


@dataclass(kw_only=True)
class Picture:
    """A conversation as the record has it."""

    transcript: list[Message]
    placed: list[Placed]
    waiting: list[Placed]
    turns: dict[str, TurnState]
    ends: dict[str, str]
    sessions: int
    findings: list[str]

    def turn_of(self, question: str) -> str:
        """Return the turn that a question was part of; empty when it is in none."""
        return next((placed.turn_id for placed in self.placed if placed.message.text == question), "")

    def said_in(self, turn_id: str) -> list[Message]:
        """Return what the model said in a turn."""
        return [
            placed.message
            for placed in self.placed
            if placed.turn_id == turn_id and turn_id and placed.message.role == Role.ASSISTANT
        ]

    def texts(self, role: Role) -> list[str]:
        """Return what one role said."""
        return [message.text for message in self.transcript if message.role == role]


async def take_picture(home: Path) -> Picture:
    """Open the record, which recovers what a crash left, and look at its conversation."""
    async with Record.open(home) as record:
        sessions = await record.sessions()
        findings = [str(finding) for finding in (await record.verify()).findings]
        if not sessions:
            return Picture(transcript=[], placed=[], waiting=[], turns={}, ends={}, sessions=0, findings=findings)
        session_id = sessions[0].id
        conversation = await record.conversation(session_id)
        turns = await record.turns.list(session_id)
        return Picture(
            transcript=await record.load_transcript(session_id),
            placed=list(conversation.placed),
            waiting=list(conversation.waiting),
            turns={turn.id: turn.state for turn in turns},
            ends={turn.id: turn.reason for turn in turns},
            sessions=len(sessions),
            findings=findings,
        )


async def check_look(home: Path, run: Run, *, running: bool) -> list[str]:
    """Check a record between two runs, beside the program or after it: no turn runs any more, and it verifies."""
    if not home.exists():
        return []
    picture = await take_picture(home)
    if running:
        return [f"after {run.where}: verify: {finding}" for finding in picture.findings]
    left = [turn for turn, state in picture.turns.items() if state is TurnState.RUNNING]
    wrong = [f"turn {turn} still runs although nobody does" for turn in left]
    wrong += [f"verify: {finding}" for finding in picture.findings]
    wrong += [f"left open: {message.text!r}" for message in picture.transcript if message.status is Status.OPEN]
    return [f"after {run.where}: {each}" for each in wrong]


async def check_evidence(home: Path, evidence: Evidence) -> list[str]:
    """Check a conversation at its end."""
    return check_picture(await take_picture(home), evidence)


def check_picture(picture: Picture, evidence: Evidence) -> list[str]:
    """Compare a conversation with everything that was seen of it."""
    wrong = [f"verify: {finding}" for finding in picture.findings]
    if picture.sessions != 1:
        wrong.append(f"one conversation is in {picture.sessions} sessions")
    wrong += [f"turn {turn} is {state}" for turn, state in picture.turns.items() if state not in TURN_ENDS]
    wrong += [f"never answered: {placed.message.text!r}" for placed in picture.waiting]
    for shown in evidence.shown:
        where = "; ".join(played.run.where for played in shown.played)
        wrong += [f"{where}: {each}" for each in check_shown(picture, shown)]
        for played in shown.played:
            found = [*check_question(picture, shown, played), *check_requests(picture, played)]
            wrong += [f"{played.run.where}: {each}" for each in found]
    for turn_id in picture.turns:
        wrong += check_turn(picture, evidence, turn_id)
    return wrong


# What was shown.


def check_shown(picture: Picture, shown: Shown) -> Iterator[str]:
    """Everything that was printed is in the transcript, and a process that ended by itself printed all of it."""
    if shown.surface is Surface.TERMINAL:
        yield from check_lines(picture, shown)
        return
    expected = [printed(messages) for messages in starts(picture, shown)]
    whole = shown.code >= 0 and shown.code < 128
    fitting = [each for each in expected if (each == shown.output if whole else each.startswith(shown.output))]
    if not fitting:
        yield f"printed and not recorded: {shown.output!r} is not {'' if whole else 'how it begins '}in {expected!r}"
    yield from check_errors(picture, shown)


def starts(picture: Picture, shown: Shown) -> list[list[Message]]:
    """Return what may have been printed. A conversation that is continued in lines begins with its last exchange."""
    turn_ids = list(dict.fromkeys(picture.turn_of(played.run.question) for played in shown.played))
    own = [message for turn_id in turn_ids for message in picture.said_in(turn_id)]
    if shown.surface is Surface.ONCE:
        return [own]
    questions = [played.run.question for played in shown.played]
    first = [index for index, placed in enumerate(picture.placed) if placed.message.text in questions][:1]
    before = picture.placed[: first[0]] if first else picture.placed
    earlier = [placed.message for placed in before if placed.message.role == Role.ASSISTANT]
    return [earlier[index:] + own for index in range(len(earlier) + 1)]


def printed(messages: list[Message]) -> bytes:
    """Return messages as a pipe is given them."""
    return b"".join(message.text.encode() + b"\n" for message in messages if message.text)


def check_errors(picture: Picture, shown: Shown) -> Iterator[str]:
    """What is told beside the answer is recorded too, apart from a closed list."""
    if shown.played[-1].run.moment.after == "start":
        return  # an interpreter that is struck while it starts speaks for itself
    recorded = {line for text in [*picture.texts(Role.NOTICE), *FIXED_NOTICES] for line in text.splitlines()}
    for line in shown.errors.splitlines():
        if line not in recorded and not TROUBLE.fullmatch(line):
            yield f"told and not recorded: {line!r}"


def check_lines(picture: Picture, shown: Shown) -> Iterator[str]:
    """Every line that ever stood on the screen is in the transcript, white space and styling aside."""
    recorded = letters("\n".join([*recorded_texts(picture), *FIXED_NOTICES]))
    for line in sorted(shown.lines):
        bare = letters(re.sub(r"process \d+", "process", line))
        if bare not in recorded and not MARKS.fullmatch(line.strip()):
            yield f"on the screen and not recorded: {line!r}"
    interrupted = any(message.status is Status.INTERRUPTED for message in picture.transcript)
    if any("⎯ interrupted" in line for line in shown.lines) and not interrupted:
        yield "marked as interrupted, and nothing was"


def recorded_texts(picture: Picture) -> Iterator[str]:
    """Yield everything that the transcript says, and how turns were lost."""
    for message in picture.transcript:
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield f"{part.name} {part.arguments}"
            elif isinstance(part, ToolResult):
                yield f"{part.outcome} {part.text}"
            else:
                yield getattr(part, "text", "")
    yield from (f"this turn was lost: {picture.ends[turn]}" for turn in picture.turns)


# What was asked and answered.


def check_question(picture: Picture, shown: Shown, played: Played) -> Iterator[str]:
    """The person's message is there, once, whenever the program had begun to act on it; its turn ended as it must."""
    run = played.run
    count = picture.texts(Role.USER).count(run.question)
    last = played is shown.played[-1]
    if count > 1 or (count == 0 and (played.asked or not last or shown.code in {0, 1})):
        yield f"the question is recorded {count} times"
    state = picture.turns.get(picture.turn_of(run.question))
    if state not in allowed_states(run):
        yield f"the turn is {state}"
    if last and shown.code not in allowed_codes(picture, shown, run, state):
        yield f"exit code {shown.code}, and the turn is {state}; {shown.errors}"


def allowed_states(run: Run) -> set[TurnState | None]:
    """Return how the turn of a run may have ended. One that was struck may have been faster than the blow."""
    if run.signal is None:
        return {TurnState.FAILED if run.fault in FAILING else TurnState.COMPLETED}
    if run.moment.after == "start":
        return {None, *TURN_ENDS}  # the question may not have been taken, or waited for the next process
    return {TurnState.LOST if run.fault is Fault.KILL else TurnState.INTERRUPTED, TurnState.COMPLETED}


def allowed_codes(picture: Picture, shown: Shown, run: Run, state: TurnState | None) -> set[int]:
    """Return how a process may have ended whose last run this is. Off a terminal, 1 tells that a turn failed."""
    states = {picture.turns.get(picture.turn_of(played.run.question)) for played in shown.played}
    done = 1 if states != {TurnState.COMPLETED} and shown.surface is not Surface.TERMINAL else 0
    if run.signal is None:
        return {done}
    codes = {128 + run.signal, -run.signal} if run.moment.after == "start" else {exit_code(run.signal)}
    if state is TurnState.COMPLETED:
        codes |= {done, -run.signal}  # it may have been on its way out
    elif shown.surface is Surface.TERMINAL:
        codes.add(0)
    return codes | ({1} if run.moment.after == "start" and run.fault is Fault.INTERRUPT else set())


def exit_code(number: signal.Signals) -> int:
    """Return how a process ends that is sent a signal: killed, or by itself as a shell would say it."""
    return -number if number == signal.SIGKILL else 128 + number


def check_turn(picture: Picture, evidence: Evidence, turn_id: str) -> list[str]:
    """Compare what a turn says with what its provider sent."""
    played = [each for each in evidence.played if picture.turn_of(each.run.question) == turn_id]
    where = "; ".join(each.run.where for each in played)
    messages = picture.said_in(turn_id)
    asked = [each for run in played for each in run.asked]
    wrong: list[str] = []
    signalled = bool(played) and played[-1].run.signal is not None
    place = 0
    for message in messages:
        while place < len(asked) and not fits(message, asked[place]):
            wrong += check_left_out(asked[place])
            place += 1
        if place == len(asked):
            wrong.append(f"nobody sent {message.text!r}")
            break
        survived = not signalled or place < len(asked) - 1
        wrong += check_message(message, asked[place], played[0].run.style, survived=survived)
        place += 1
    for each in asked[place : -1 if signalled else None]:
        wrong += check_left_out(each)
    if picture.turns[turn_id] is TurnState.COMPLETED and (not messages or messages[-1].status is not Status.COMPLETE):
        wrong.append("the turn is completed, and its answer is not")
    return [f"{where}: {each}" for each in wrong]


def fits(message: Message, asked: Asked) -> bool:
    """Whether a message may be what a request was answered with."""
    if asked.exchange.status != 200 or not clean_text(asked.exchange.sent_text).startswith(message.text):
        return False
    return bool(message.text or message.status is Status.INTERRUPTED or asked.behaviour.calls)


def check_left_out(asked: Asked) -> Iterator[str]:
    """Words that came from a provider have a message, unless the connection dropped them on their way."""
    if asked.exchange.sent_text and asked.behaviour.cut != "rst" and asked.behaviour.garbage_after_events is None:
        yield f"came and was not recorded: {asked.exchange.sent_text!r}"


def check_message(message: Message, asked: Asked, style: str, *, survived: bool) -> Iterator[str]:
    """Nothing that came is missing, and only what the provider ended is complete."""
    exchange, behaviour = asked.exchange, asked.behaviour
    sent = clean_text(exchange.sent_text)
    garbled = behaviour.garbage_after_events is not None
    finished = exchange.events_count >= finish_count(style, behaviour) + garbled
    if message.status is Status.COMPLETE and not (finished and message.text == clean_text("".join(behaviour.pieces))):
        yield f"complete, and the provider sent {exchange.events_count} events with {sent!r}: {message.text!r}"
    if message.status is Status.OPEN:
        yield f"still open: {message.text!r}"
    if survived and behaviour.cut != "rst" and message.text != sent:
        events = events_of(style, behaviour)[: behaviour.garbage_after_events]
        if not garbled or message.text != clean_text("".join(event.text for event in events)):
            yield f"came and was not recorded: {sent!r}, only {message.text!r}"


# What the next turn was told.


def check_requests(picture: Picture, played: Played) -> Iterator[str]:
    """Every request is valid for its provider, and the first has every earlier word, and says what was interrupted."""
    for asked in played.asked:
        if asked.exchange.error:
            yield f"the provider refused the request: {asked.exchange.error}"
    places = [index for index, placed in enumerate(picture.placed) if placed.message.text == played.run.question]
    if not played.asked or not places:
        return
    said = list(spoken(played.asked[0].exchange.body))
    for index, placed in enumerate(picture.placed[: places[0]]):
        message = placed.message
        if message.role not in {Role.USER, Role.ASSISTANT} or not message.text.strip():
            continue
        # Some words are a single letter, which stands in many others: whole messages come first.
        whole = [at for at, (role, text) in enumerate(said) if (role, text) == (message.role, message.text)]
        parts = [at for at, (role, text) in enumerate(said) if role == message.role and message.text in text]
        at = next(iter(whole + parts), None)
        if at is None:
            yield f"not in the next request: {message.text!r}"
        elif message.status is Status.INTERRUPTED and not tells(said[at + 1 : at + 2]):
            yield f"the next request does not say that {message.text!r} was interrupted: {said[at + 1 :][:2]}"
        elif message.role == Role.USER and unanswered(picture, index):
            following = said[at + 1 : at + 3]
            if following[:1] != [("assistant", prompts.NO_REPLY)] or not tells(following[1:]):
                yield f"the next request does not say that {message.text!r} got no reply: {following}"


def unanswered(picture: Picture, index: int) -> bool:
    """Whether a question was the last of a turn that ended without a word."""
    placed, following = picture.placed[index], picture.placed[index + 1 :]
    return not any(each.turn_id == placed.turn_id for each in following) and bool(following)


def tells(said: list[tuple[str, str]]) -> bool:
    """Whether what follows begins with a note of the program to the model."""
    return bool(said) and said[0][0] == "user" and said[0][1].startswith("[Hansard: ")


def spoken(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield who said what in a request, whichever protocol it is in."""
    for message in body["messages"]:
        content = message.get("content") or ""
        if isinstance(content, str):
            yield message["role"], content
        else:
            texts = [block["text"] for block in content if block["type"] == "text"]
            yield message["role"], "\n\n".join(texts)
