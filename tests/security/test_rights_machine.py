"""Random people of random rank, in any order: an oracle that knows nothing of Hansard's code finds nothing wrong."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.counts import PROVE, times
from tests.security.cast import TOOLS
from tests.security.oracle import judge
from tests.security.world import ACCOUNTS, Setup, World

NAMES = st.sampled_from(list(ACCOUNTS))
SPEAKERS = st.sampled_from(["ann", "carl", "carl", "gus", "bob", *ACCOUNTS])
WHERE = st.sampled_from(["room", "room", "room", "direct", "direct", "thread", "den"])
TAGS = st.lists(st.sampled_from([*TOOLS, "pay", "note"]), max_size=2)
COMMANDS = st.sampled_from(
    [
        *("/retry", "/undo", "/fork", "/new", "/sessions", "/search harbour", "/title mine"),
        *("/memory add {token}", "/memory", "/stop", "/status", "/queue {token} #pay", "/steer {token} #note"),
        *("/busy steer", "/busy queue", "/busy interrupt", "/unlink", "/why", "/model", "/usage"),
    ]
)
YES = st.sampled_from([*["{yes}"] * 5, "{yes} always", "{yes} session", "yes", "yes", "ok", "/yes", "/no", "always"])
OWNERS = st.sampled_from(
    ["person:ann", "person:matrix:@bob:example.org", "person:admin", "room:matrix:!room9:example.org"]
)
AUTHORS = st.sampled_from(["", ACCOUNTS["carl"], ACCOUNTS["ann"], "person:carl", "person:admin", "carl"])
RESUMERS = {
    "person:ann": ("ann2", "direct"),
    "person:matrix:@bob:example.org": ("bob", "direct"),
    "person:admin": ("carl", "direct"),
    "room:matrix:!room9:example.org": ("gus", "room"),
}
OTHERS = st.sampled_from([*[""] * 6, "ann", "carl", "gus", "bob", "mal"])
PICK = st.integers(0, 40)


class RightsMachine(RuleBasedStateMachine):
    """Everybody does whatever they can, in any order; at the end the oracle is asked."""

    steps = 0

    def __init__(self) -> None:
        """A home of its own."""
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.left = asyncio.Event()
        self.world: World
        self.main: asyncio.Task[None]

    @initialize(
        rooms=st.sampled_from(["shared", "per_person"]), busy=st.sampled_from(["queue", "queue", "steer", "interrupt"])
    )
    def begin(self, rooms: str, busy: str) -> None:
        """Hansard is started."""
        ready = self.loop.create_future()

        async def live() -> None:
            async with self.world.alive():
                ready.set_result(None)
                await self.left.wait()

        async def start() -> None:
            self.world = World(self.folder / "home", Setup(rooms=rooms, busy=busy))
            self.main = asyncio.create_task(live())
            await asyncio.wait({self.main, ready}, return_when=asyncio.FIRST_COMPLETED)

        self.loop.run_until_complete(start())

    def step(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something, and count it."""
        type(self).steps += 1
        self.loop.run_until_complete(work)

    def stop(self, name: str, place: str) -> None:
        """Somebody stops what waits for an answer there, so that something new can begin."""
        self.step(self.world.say(name if place == "direct" else "carl", place, "/stop"))

    @rule(name=SPEAKERS, place=WHERE, tags=TAGS)
    def ask(self, name: str, place: str, tags: list[str]) -> None:
        """Somebody asks for something."""
        self.step(self.world.ask(name, place, *tags))

    @rule(name=SPEAKERS, place=WHERE, tags=TAGS)
    def ask_in_a_hurry(self, name: str, place: str, tags: list[str]) -> None:
        """Somebody asks for something, and others do not wait."""
        self.step(self.world.ask(name, place, *tags, calm=False))

    @rule(name=SPEAKERS, place=WHERE, command=COMMANDS)
    def command(self, name: str, place: str, command: str) -> None:
        """Somebody gives a command."""
        self.step(self.world.say(name, place, command.format(token=self.world.token())))

    @rule(name=SPEAKERS, place=WHERE, text=YES)
    def answer(self, name: str, place: str, text: str) -> None:
        """Somebody says yes or no, to whatever."""
        self.step(self.world.answer(name, place, text))

    @rule(name=SPEAKERS, place=WHERE, tags=TAGS, answers=st.lists(st.tuples(OTHERS, YES), min_size=2, max_size=3))
    def ask_and_answer(self, name: str, place: str, tags: list[str], answers: list[tuple[str, str]]) -> None:
        """Somebody asks, and those who are there say yes or no; maybe before they can have seen the question."""
        self.stop(name, place)
        self.step(self.world.ask(name, place, *(tags or ["note"])))
        for other, text in answers:
            is_there = other and place != "direct"
            self.step(self.world.answer(other if is_there else name, place, text))

    @rule(name=SPEAKERS, place=WHERE, choice=st.sampled_from(["yes", "yes", "always", "session", "no"]))
    def choose(self, name: str, place: str, choice: str) -> None:
        """Somebody presses a button beside the last question."""
        self.step(self.world.choose(name, place, choice))

    @rule(name=SPEAKERS, other=SPEAKERS, place=WHERE, tags=TAGS)
    def ask_and_retry(self, name: str, other: str, place: str, tags: list[str]) -> None:
        """Somebody asks, and somebody else wants it done again."""
        self.stop(name, place)
        self.step(self.world.ask(name, place, *tags))
        self.step(self.world.say(other if place != "direct" else name, place, "/retry"))

    @rule(owner=OWNERS, author=AUTHORS, tags=TAGS, again=st.booleans())
    def forge_and_retry(self, owner: str, author: str, tags: list[str], again: bool) -> None:  # noqa: FBT001
        """Somebody goes on in what was forged, and wants it done."""
        name, place = RESUMERS[owner]
        self.stop(name, place)
        self.step(self.world.forge(owner, author, *tags))
        self.step(self.world.say(name, place, f"/resume {self.world.forged}"))
        self.step(self.world.say(name, place, "/retry") if again else self.world.ask(name, place))

    @rule()
    def dam(self) -> None:
        """The platform shows nothing for a while, or again."""
        self.step(self.world.dam())

    @rule(name=SPEAKERS, place=WHERE, pick=PICK)
    def resume(self, name: str, place: str, pick: int) -> None:
        """Somebody wants to go on in a session, whosever it is."""
        self.step(self.world.resume(name, place, pick))

    @rule(pick=PICK, tags=TAGS)
    def edit(self, pick: int, tags: list[str]) -> None:
        """Somebody edits their words, or somebody else's."""
        self.step(self.world.edit(pick, *tags))

    @rule(tags=TAGS, text=st.sampled_from(["", "", "/retry", "/undo", "yes", "/no", "/sessions", "/new", "/fork"]))
    def terminal(self, tags: list[str], text: str) -> None:
        """The person at the terminal types something."""
        words = " ".join(["harbour", self.world.token(), *(f"#{tag}" for tag in tags)])
        self.step(self.world.type(text or words))

    @rule(name=NAMES, what=st.sampled_from(["revoke", "allow", "pair", "leave"]))
    def admit(self, name: str, what: str) -> None:
        """Somebody is barred, allowed, paired, or leaves the room."""
        self.step(getattr(self.world, what)(name))

    @rule(pair=st.sampled_from([("bob", "bob2"), ("bob", "gus"), ("ann", "sam"), ("carl", "bob")]))
    def link(self, pair: tuple[str, str]) -> None:
        """Two accounts become one person."""
        self.step(self.world.link(*pair))

    @rule()
    def carry_over(self) -> None:
        """The admin imports an export of this home."""
        self.step(self.world.carry_over())

    def teardown(self) -> None:
        """Ask the oracle."""
        try:
            evidence = self.loop.run_until_complete(self.world.evidence())
            self.left.set()
            self.loop.run_until_complete(self.main)
            findings = judge(*evidence)
            assert not findings, "\n".join(f"{each.rule}: {each.what}" for each in findings)
        finally:
            self.loop.close()
            shutil.rmtree(self.folder)


@pytest.mark.timeout(3600 if PROVE else 600)
def test_the_oracle_finds_nothing() -> None:
    """Whatever people do, each call was allowed to each who asked for it, and each word stays where it belongs."""
    RightsMachine.steps = 0
    wanted = times(test=90, long=600, prove=20_000)
    while RightsMachine.steps < wanted:
        run_state_machine_as_test(
            RightsMachine,
            settings=settings(
                max_examples=max(1, (wanted - RightsMachine.steps) // 30),
                stateful_step_count=30,
                deadline=None,
                phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
            ),
        )
