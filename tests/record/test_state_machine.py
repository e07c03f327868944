"""A machine of random calls, crashes and losses: whatever happens, the record equals a plain model of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hansard.errors import OutcomeUnknown, RecordUnavailable
from hansard.record.messages.entries import Chunk, Entry
from hansard.testing.crash import CRASH_POINTS
from tests.counts import times
from tests.record.state_driver import KEYS, Driver, Killed, outcome
from tests.record.state_model import Model, Refused
from tests.record.state_steps import ANYTHING, OPERATIONS, PICK, SHARED, SPEECH, TEXT, TEXTS, Step, Steps

PROVE = bool(os.environ.get("HANSARD_PROVE"))
UNANSWERED = (OutcomeUnknown, RecordUnavailable)
ENDING = {"end", "move_delivery", "leave", "settle"}
"""Calls that are carried out although their caller was cancelled: they end something."""

DAMAGES = ("none", "none", "none", "database", "database file", "logs")

Drawn = tuple[str, dict[str, Any]]


class Kept(NamedTuple):
    """A follower's position, and what it had been given by then."""

    position: str | int
    seq: int
    spoken: dict[str, int]


class RecordMachine(RuleBasedStateMachine):
    """Calls in any order, alone and together; crashes at every step of a commit; each leg lost in turn."""

    def __init__(self) -> None:
        """Begin with an empty record and an empty model."""
        super().__init__()
        self.driver = Driver()
        self.steps = Steps(self.driver)
        self.kept: dict[str, list[Kept]] = {}

    @property
    def model(self) -> Model:
        """What the record must equal."""
        return self.steps.model

    def bind(self, drawn: list[Drawn], *, generated: bool) -> list[Step]:
        """Return the steps that can be made now, at most one for each turn that is held."""
        steps: list[Step] = []
        for name, arguments in drawn:
            if not generated and name == "generate":
                continue
            if name in {"open_reply", "write", "seal", "break_reply", "say", "leave"}:
                held = self.steps.speaker(arguments["pick"])
                if held is None or any(step.holder == held[0] for step in steps):
                    continue
            step = getattr(self.steps, name)(**arguments)
            if step is not None:
                steps.append(step)
        return steps

    def expect(self, step: Step, found: object) -> None:
        """Do on the model what was done on the record, and compare what they answer."""
        try:
            expected = step.apply(self.model, found)
        except Refused as refused:
            expected = refused.error
        assert found == expected, f"the record answers {found!r}, the model {expected!r}"

    def settle(self, candidates: list[Model]) -> None:
        """Find the one of several possible outcomes that the record shows, and go on from there."""
        shown = self.driver.observe()
        fitting = [candidate for candidate in candidates if candidate.snapshot() == shown]
        if not fitting:
            assert shown == candidates[-1].snapshot(), f"none of {len(candidates)} possible outcomes"
        self.steps.model = fitting[0]
        # An event that left nothing to be seen may or may not have been taken in: it is not used again.
        self.steps.retired |= {event for each in fitting for event in each.intakes} - {
            event for event in fitting[0].intakes if all(event in each.intakes for each in fitting)
        }

    # Calls.

    @initialize(texts=st.lists(TEXT, min_size=1, max_size=3))
    def begin(self, texts: list[str]) -> None:
        """Two sessions with a few words, one of them routed."""
        for name in ("s0", "s1"):
            self.one_by_one([("create", {"name": name, "title": None})])
            last = len(self.model.sessions) - 1
            self.one_by_one([("append", {"pick": last, "message": "m0", "text": "a", "role": "user"})])
            self.one_by_one([("append_new", {"pick": last, "text": text}) for text in texts])
        self.one_by_one([("move_route", {"key": KEYS[0], "pick": 0, "expect": 0})])

    @rule(drawn=st.lists(OPERATIONS, min_size=1, max_size=6))
    def one_by_one(self, drawn: list[Drawn]) -> None:
        """Calls, one after the other."""
        for each in drawn:
            self.together([each])

    @rule(drawn=st.lists(SPEECH, min_size=1, max_size=8))
    @precondition(lambda self: self.driver.speakers)
    def speak(self, drawn: list[Drawn]) -> None:
        """What turns do that are held open."""
        self.one_by_one(drawn)

    @rule(pick=PICK, texts=st.lists(TEXT, max_size=3))
    def start_speaking(self, pick: int, texts: list[str]) -> None:
        """Hold a turn and begin to say something."""
        self.together([("begin", {"pick": pick})])
        last = len(self.driver.speakers) - 1
        self.one_by_one([("open_reply", {"pick": last, "taken": False})] if last >= 0 else [])
        self.one_by_one([("write", {"pick": last, "text": text}) for text in texts])

    @rule(pick=PICK, back=st.integers(0, 4), texts=st.tuples(TEXT, TEXT))
    def diverge(self, pick: int, back: int, texts: tuple[str, str]) -> None:
        """Fork a session, and say something in both under the same id."""
        known = len(self.model.sessions)
        self.one_by_one([("fork", {"pick": pick, "back": back, "name": None})])
        child = known if len(self.model.sessions) > known else pick
        for target, text in zip((pick, child), texts, strict=True):
            drawn = ("append", {"pick": target, "message": f"b{known}", "text": text, "role": "user"})
            self.one_by_one([drawn])

    @rule(drawn=st.lists(ANYTHING, min_size=2, max_size=5))
    def together(self, drawn: list[Drawn]) -> None:
        """Several calls in one group commit: each succeeds or fails as if it were alone, in order (rule 6)."""
        steps = self.bind(drawn, generated=True)
        tasks = self.driver.start(*(outcome(step.call()) for step in steps))
        self.driver.finish(tasks)
        for step, task in zip(steps, tasks, strict=True):
            self.expect(step, task.result())

    @rule(drawn=ANYTHING)
    def withdraw(self, drawn: Drawn) -> None:
        """A call that is cancelled before the writer took it is not written, or, if it ends something, is."""
        for step in self.bind([drawn], generated=False):
            (task,) = self.driver.start(outcome(step.call()))
            task.cancel()
            self.driver.finish([task])
            done = self.model.copy()
            try:
                step.apply(done, None)
            except Refused:
                done = self.model.copy()
            surely_not = step.answered and drawn[0] not in ENDING
            self.settle([self.model] if surely_not else [self.model, done])
            if step.holder or drawn[0] == "begin":
                self.come_back("none")

    @rule(pick=PICK, text=TEXT, moves=st.integers(0, 12))
    def cancel(self, pick: int, text: str, moves: int) -> None:
        """A turn that is cancelled at any moment ends as interrupted, with what it had said."""
        target, message = self.steps.session(pick), f"c{next(self.steps.numbers)}"

        async def speak() -> None:
            async with self.driver.record.turn(target) as turn, turn.reply(id=message) as reply:
                await reply.write(text)
                await asyncio.Event().wait()

        (task,) = self.driver.start(outcome(speak()))
        for move in range(moves):
            if move % 2 and self.driver.record.store.writer.queue.items:
                self.driver.record.store.writer.step()
            self.driver.loop.spin()
        task.cancel()
        self.driver.finish([task])
        self.settle([self.model, *cancelled_turns(self.model, target, message, TEXTS[text])])

    # Losing the process, and either leg.

    @rule(
        drawn=st.lists(ANYTHING, min_size=1, max_size=4) | st.lists(SHARED, min_size=1, max_size=3),
        point=st.sampled_from([*CRASH_POINTS[:-2], "logging", "logging"]),
        occurrence=st.sampled_from([1, 1, 1, 2]),
        damage=st.sampled_from(DAMAGES),
        again=st.sampled_from(["", "", "reconciling", "reconciled", "logged", "committed"]),
    )
    def crash(self, drawn: list[Drawn], point: str, occurrence: int, damage: str, again: str) -> None:
        """A kill: what was answered is there, each other call is there whole or not at all, turns are lost."""
        steps = self.bind(drawn, generated=False)
        tasks = self.driver.start(*(outcome(step.call()) for step in steps))
        self.driver.kill_at, self.driver.kill_after = point, occurrence
        with contextlib.suppress(Killed):
            self.driver.finish(tasks)
        self.driver.crash()
        self.damage(damage)
        self.driver.kill_at, self.driver.kill_after = again, 1
        try:
            self.driver.open()
        except Killed:
            self.driver.open()
        self.driver.kill_at = ""
        answers = [task.result() if step.answered else OutcomeUnknown for step, task in zip(steps, tasks, strict=True)]
        self.settle(self.possible(steps, answers))
        self.driver.verify()

    def possible(self, steps: list[Step], answers: list[object]) -> list[Model]:
        """Return what the record may be after a crash: any of the unanswered calls, all of the answered ones."""
        models = []
        for chosen in itertools.product([True, False], repeat=len(steps)):
            if any(answer not in UNANSWERED and not taken for answer, taken in zip(answers, chosen, strict=True)):
                continue
            model = self.model.copy()
            for step, taken in zip(steps, chosen, strict=True):
                if taken:
                    try:
                        step.apply(model, None)
                    except Refused:
                        continue
            model.recover()
            models.append(model)
        return models

    @rule(damage=st.sampled_from(DAMAGES))
    def come_back(self, damage: str) -> None:
        """Close and open; meanwhile either leg may be lost. Turns that were held are lost, nothing else is."""
        self.driver.close()
        self.damage(damage)
        self.driver.open()
        self.model.recover()
        self.check()
        self.driver.verify()

    def damage(self, which: str) -> None:
        """Lose the database (with or without its WAL) or the logs."""
        home = self.driver.home
        if which == "database":
            for path in home.glob("state.db*"):
                path.unlink()
        elif which == "database file":
            (home / "state.db").unlink()
        elif which == "logs":
            shutil.rmtree(home / "sessions")
            (home / "home.jsonl").unlink()

    # Followers, the keeper, the clock.

    @rule(pick=PICK, which=PICK)
    @precondition(lambda self: self.model.sessions)
    def follow(self, pick: int, which: int) -> None:
        """A follower that comes back at any position it ever kept is given exactly what it has not seen."""
        self.watch(list(self.model.sessions)[pick % len(self.model.sessions)], which)

    @rule(pick=PICK, texts=st.lists(TEXT, min_size=1, max_size=3), which=st.integers(-4, -1))
    @precondition(lambda self: self.driver.speakers)
    def speak_to_followers(self, pick: int, texts: list[str], which: int) -> None:
        """While something is said, a follower leaves and comes back after each piece."""
        held = self.steps.speaker(pick)
        assert held is not None
        for text in texts:
            self.watch(held[0], which)
            self.one_by_one([("write", {"pick": pick, "text": text})])
        self.watch(held[0], which)

    def watch(self, target: str, which: int) -> None:
        """Follow a session from one of the positions that were kept, and keep those that it gives."""
        kept = self.kept.setdefault(target, [Kept(0, 0, {})])
        start = kept[which % len(kept)]
        session = self.model.sessions[target]
        items = self.driver.follow(target, start.position)
        said = {line[0]: line[2] for line in session.transcript()}
        streamed = {fact[1] for fact in session.facts if fact[0] == "message.opened"}
        found: dict[str, str] = {}
        seq, spoken = start.seq, dict(start.spoken)
        for item in items:
            if isinstance(item, Chunk):
                found[item.message_id] = found.get(item.message_id, "") + item.text
                spoken[item.message_id] = spoken.get(item.message_id, 0) + len(item.text)
            else:
                seq = item.seq
            kept.append(Kept(item.position, seq, dict(spoken)))
        expected = {message: said[message][start.spoken.get(message, 0) :] for message in streamed}
        assert found == {message: text for message, text in expected.items() if text}
        seqs = [item.seq for item in items if isinstance(item, Entry)]
        assert seqs == list(range(start.seq + 1, len(session.facts) + 1))

    @rule()
    def keep(self) -> None:
        """The keeper puts the logs on the disk; nobody can tell."""
        self.driver.record.store.backend.upkeep.step()
        self.driver.finish([])

    @rule(seconds=st.integers(-100_000, 100_000))
    def jump(self, seconds: int) -> None:
        """The clock jumps; nobody can tell either."""
        self.driver.clock.jump(seconds)

    @invariant()
    def check(self) -> None:
        """The record shows what the model says."""
        assert self.driver.observe() == self.model.snapshot()

    def teardown(self) -> None:
        """In the end both legs agree, whichever is lost."""
        try:
            for damage in ("none", "database", "logs"):
                self.come_back(damage)
            self.driver.close()
        finally:
            self.driver.end()


def cancelled_turns(model: Model, target: str, message: str, text: str) -> list[Model]:
    """Return how a turn may look that was cancelled: before it spoke, before its words were written, or after."""
    begun = model.copy()
    try:
        begun.begin(target)
    except Refused:
        return []
    opened = begun.copy()
    opened.open_reply(target, message)
    spoken = opened.copy()
    spoken.sessions[target].open_text = text
    for each in (begun, opened, spoken):
        each.sessions[target].end_turn("interrupted")
    return [begun, opened, spoken]


@pytest.mark.loss("A1", "A6", "A7", "A13", "B2", "D4", "D7", "D16", "H4", "H8", "I1", "I2", "I10", "I13", "L5")
@pytest.mark.timeout(3000 if PROVE else 600)
def test_the_record_equals_its_model() -> None:
    """Whatever is called, cancelled, killed and lost, in whatever order, the record equals a plain model of it."""
    run_state_machine_as_test(
        RecordMachine,
        settings=settings(
            max_examples=times(test=9, long=30, prove=250),
            stateful_step_count=50 if PROVE else 30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
