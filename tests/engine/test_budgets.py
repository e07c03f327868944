"""Limits of a day: exact for turns, held under concurrency for tokens and cost, told politely, and recorded."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from hansard.domain.budgets import (
    Allowance,
    Budget,
    BudgetState,
    Spent,
    Usage,
    budget_of,
    day_end,
    day_start,
    reached,
    standing,
)
from hansard.domain.messages import Message, Role
from hansard.domain.people import By, How
from hansard.domain.policy import Policy, policy_of
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Person, Settings, TurnLimits
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.intake.commands.registry import run_command
from hansard.intake.commands.scene import CommandScene
from hansard.intake.speak import parse
from hansard.journal.store import Wiring
from hansard.record.api import Record
from hansard.testing.fakes import Echo, FakeClock, tools_by_name
from tests.engine.stage import QUICK, Answer, PlayedModel, call, fixed

HOUR = 3_600_000_000
WAIT_SECONDS = 120.0


class Day:
    """Sessions of several people, and one runner for all of them."""

    def __init__(self, record: Record, agent: Agent) -> None:
        """Nobody has spoken."""
        self.record = record
        self.agent = agent
        self.reports: list[BaseException] = []
        self.runner = Runner(agent, lambda _session_id, error: self.reports.append(error))

    async def session(self, owner: str = "person:ann") -> str:
        """Begin a session."""
        return (await self.record.create_session(source="test", owner=owner)).id

    async def say(self, session_id: str, text: str = "go", author: str = "", chat: str = "") -> None:
        """Say something."""
        said = Message.user(text, author=author, chat=chat)
        accepted = await self.record.accept([(session_id, said)], queue_turn=True)
        self.runner.wake(session_id, accepted.turns[0].id)

    async def ask(self, session_id: str, author: str = "", chat: str = "") -> TurnState:
        """Say something, and wait for what becomes of it."""
        await self.say(session_id, author=author, chat=chat)
        await self.idle()
        return (await self.record.turns.list(session_id))[-1].state

    async def idle(self) -> None:
        """Wait until nothing is left to run."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self.runner.idle()

    async def told(self, session_id: str) -> str:
        """The last notice of a session."""
        notices = [each for each in await self.record.load_transcript(session_id) if each.role == Role.NOTICE]
        return notices[-1].text if notices else ""


def agent_of(record: Record, budget: Budget | None, *answers: Answer) -> Agent:
    """An agent with a budget; its answers take 100 tokens and a cent each."""
    used = Usage(input_tokens=60, output_tokens=40, cost_micros=10_000)
    played: list[Answer] = [[*answer, used] for answer in answers or (["ok"],)]
    model = PlayedModel(*played)
    return Agent(
        record=record, models=fixed([model]), tools=tools_by_name(Echo()), limits=QUICK, policy=Policy(budget=budget)
    )


@pytest.mark.parametrize(
    ("allowance", "turns", "words"),
    [
        (Allowance(turns=3), 3, "3 turns"),
        (Allowance(tokens=250), 3, "250 tokens"),
        (Allowance(cost_micros=20_000), 2, "$0.02"),
    ],
)
async def test_a_person_reaches_the_limit(home: Path, allowance: Allowance, turns: int, words: str) -> None:
    """So many turns run; the next is refused in words that say which limit and until when; nothing is lost."""
    async with Record.open(home) as record:
        day = Day(record, agent_of(record, Budget(person=allowance)))
        session_id = await day.session()
        states = [await day.ask(session_id) for _ in range(turns + 2)]
        assert states == [TurnState.COMPLETED] * turns + [TurnState.FAILED] * 2
        told = await day.told(session_id)
        assert words in told
        assert "UTC" in told
        said = [each for each in await record.load_transcript(session_id) if each.role == Role.USER]
        assert len(said) == turns + 2
        other = await day.session("person:ben")
        assert await day.ask(other) is TurnState.COMPLETED
        assert (await record.verify()).ok
        assert day.reports == []
        await day.runner.close()


async def test_who_is_linked_is_one_person(home: Path) -> None:
    """A limit of a person holds for all the names that they joined; parted, each is counted alone again."""
    async with Record.open(home) as record:
        day = Day(record, agent_of(record, Budget(person=Allowance(turns=2))))
        ann, ben = await day.session("person:ann"), await day.session("person:ben")
        assert [await day.ask(each) for each in (ann, ben)] == [TurnState.COMPLETED] * 2
        await record.people.link("person:ann", "person:ben")
        assert [await day.ask(each) for each in (ann, ben)] == [TurnState.FAILED] * 2
        await record.people.unlink("person:ann")
        assert [await day.ask(each) for each in (ann, ben)] == [TurnState.COMPLETED] * 2
        assert await day.ask(ann) is TurnState.FAILED
        await day.runner.close()


async def test_everybody_together(home: Path) -> None:
    """A limit for all holds whoever asks."""
    async with Record.open(home) as record:
        day = Day(record, agent_of(record, Budget(together=Allowance(turns=2))))
        states = [await day.ask(await day.session(f"person:{name}")) for name in ("ann", "ben", "cam")]
        assert states == [TurnState.COMPLETED, TurnState.COMPLETED, TurnState.FAILED]
        await day.runner.close()


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("budget", "ran_max"),
    [
        (Budget(person=Allowance(turns=5)), 5),
        (Budget(together=Allowance(turns=5)), 5),
        (Budget(person=Allowance(tokens=500)), 5),
        (Budget(together=Allowance(cost_micros=50_000)), 5),
    ],
)
async def test_limits_hold_under_concurrency(home: Path, budget: Budget, ran_max: int) -> None:
    """Twenty sessions ask at once: exactly as many turns run as one after the other would."""
    async with Record.open(home) as record:
        day = Day(record, agent_of(record, budget))
        sessions = [await day.session() for _ in range(20)]
        await asyncio.gather(*(day.say(session_id) for session_id in sessions))
        await day.idle()
        states = [(await record.turns.list(session_id))[-1].state for session_id in sessions]
        assert states.count(TurnState.COMPLETED) == ran_max
        assert states.count(TurnState.FAILED) == len(sessions) - ran_max
        assert (await record.verify()).ok
        assert day.reports == []
        await day.runner.close()


async def test_a_new_day_begins_anew(home: Path) -> None:
    """At midnight of the zone that is set, not of another, the count begins at nothing."""
    start = round(datetime(2026, 11, 16, 21, 30, tzinfo=UTC).timestamp() * 1_000_000)
    clock = FakeClock(start)
    budget = Budget(person=Allowance(turns=1), time_zone="Europe/Berlin")
    async with Record.open(home, wiring=Wiring(clock=clock)) as record:
        day = Day(record, agent_of(record, budget))
        session_id = await day.session()
        assert await day.ask(session_id) is TurnState.COMPLETED
        assert await day.ask(session_id) is TurnState.FAILED
        clock.advance(2 * 3600)
        assert await day.ask(session_id) is TurnState.COMPLETED
        await day.runner.close()


def test_days_of_a_zone() -> None:
    """A day is from midnight to midnight on its clock, on the days when clocks change, too."""
    at = round(datetime(2026, 10, 25, 12, 0, tzinfo=UTC).timestamp() * 1_000_000)
    assert day_start(at, "Europe/Berlin") == round(datetime(2026, 10, 24, 22, 0, tzinfo=UTC).timestamp() * 1_000_000)
    assert day_end(at, "Europe/Berlin").astimezone(UTC) == datetime(2026, 10, 25, 23, 0, tzinfo=UTC)
    assert day_start(at, "Asia/Kolkata") == round(datetime(2026, 10, 24, 18, 30, tzinfo=UTC).timestamp() * 1_000_000)


async def test_members_of_a_room_are_counted_one_by_one(home: Path) -> None:
    """In a shared session the turn counts to who spoke, under all names of theirs; a second try counts to them, too."""
    settings = Settings(
        people={"ann": Person(matrix=("@ann:x.org", "@ann:y.org"))}, limits=TurnLimits(person_turns_day_max=2)
    )
    chat = "matrix:room:!den:x.org"
    async with Record.open(home) as record:
        await record.people.declare(settings.people)
        day = Day(record, agent_of(record, policy_of(settings).budget))
        room = await day.session("room:matrix:!den:x.org")
        assert await day.ask(room, "@ann:x.org", chat) is TurnState.COMPLETED
        assert await day.ask(room, "@ben:x.org", chat) is TurnState.COMPLETED
        assert await day.ask(room, "@ann:y.org", chat) is TurnState.COMPLETED
        assert await day.ask(room, "@ann:x.org", chat) is TurnState.FAILED
        assert await day.ask(await day.session("person:ann")) is TurnState.FAILED
        by = [By(person="@ann:y.org", chat=chat, how=How.RETRY)]
        queued = await record.turns.queue(room, chat=chat, by=by)
        day.runner.wake(room, queued.id)
        await day.idle()
        assert (await record.turns.list(room))[-1].state is TurnState.FAILED
        assert await day.ask(room, "@ben:x.org", chat) is TurnState.COMPLETED
        assert await day.ask(room, "@ben:x.org", chat) is TurnState.FAILED
        await day.runner.close()


async def test_a_turn_ends_when_the_day_does(home: Path) -> None:
    """A turn that uses up the day while it runs ends before its next step, and says so."""
    async with Record.open(home) as record:
        agent = agent_of(record, Budget(person=Allowance(tokens=150)), [call()])
        day = Day(record, agent)
        session_id = await day.session()
        assert await day.ask(session_id) is TurnState.FAILED
        assert "150 tokens today" in await day.told(session_id)
        await day.runner.close()


async def test_usage_shows_what_is_left(home: Path) -> None:
    """/usage adds up what requests took, and says what is left for the person and for all."""
    budget = Budget(person=Allowance(turns=10, tokens=1000), together=Allowance(cost_micros=1_000_000))
    async with Record.open(home) as record:
        day = Day(record, agent_of(record, budget))
        session_id = await day.session()
        await day.ask(session_id)
        await day.ask(session_id)
        parsed = parse("/usage")
        assert parsed is not None
        scene = CommandScene(record=record, session_id=session_id, owner="person:ann", budget=budget)
        text = (await run_command(scene, "/usage", parsed)).text
        assert "120 tokens in, 80 out, $0.0200" in text
        assert "left today: 8 of 10 turns, 800 of 1,000 tokens" in text
        assert "left today for all: $0.98 of $1.00" in text
        plain = await run_command(msgspec.structs.replace(scene, budget=None), "/usage", parsed)
        assert "left" not in plain.text
        await day.runner.close()


async def test_a_scripted_day_adds_up(home: Path) -> None:
    """What the provider said of each request, over sessions, people, tools and failures, is what the day counts."""
    figures = [Usage(input_tokens=7 * n, output_tokens=3 * n, cost_micros=11 * n) for n in range(1, 13)]
    answers: list[Answer] = [[call() if n % 3 == 0 else "ok", usage] for n, usage in enumerate(figures, 1)]
    model = PlayedModel(*answers)
    async with Record.open(home) as record:
        budget = Budget(person=Allowance(turns=1000))
        agent = Agent(
            record=record,
            models=fixed([model]),
            tools=tools_by_name(Echo()),
            limits=QUICK,
            policy=Policy(budget=budget),
        )
        day = Day(record, agent)
        sessions = {owner: await day.session(owner) for owner in ("person:ann", "person:ben")}
        turns = 0
        while len(model.requests) < len(figures):
            await day.ask(sessions["person:ann" if turns % 2 else "person:ben"])
            turns += 1
        given = [figures[min(n, len(figures) - 1)] for n in range(len(model.requests))]
        ann = await record.budgets.day("person:ann", budget)
        ben = await record.budgets.day("person:ben", budget)
        tokens = sum(usage.input_tokens + usage.output_tokens for usage in given)
        cost = sum(usage.cost_micros or 0 for usage in given)
        assert (ann.together.tokens, ann.together.cost_micros, ann.together.turns) == (tokens, cost, turns)
        assert ann.person.tokens + ben.person.tokens == tokens
        assert ann.person.turns + ben.person.turns == turns
        shown = [used for each in sessions.values() for used in (await record.conversation(each)).usage.values()]
        assert sum(used.input_tokens + used.output_tokens for used in shown) == tokens
        assert (await record.verify()).ok
        await day.runner.close()


def test_when_to_wait() -> None:
    """A further turn waits when what runs could reach the limit, or when nobody knows yet what a turn takes."""
    tokens = Allowance(tokens=100)
    assert standing(tokens, Spent(tokens=100)) is BudgetState.REACHED
    assert standing(tokens, Spent(tokens=10, running=1)) is BudgetState.NEAR
    assert standing(tokens, Spent(tokens=10, running=1, largest_tokens=10)) is BudgetState.FREE
    assert standing(tokens, Spent(tokens=80, running=2, largest_tokens=10)) is BudgetState.NEAR
    assert standing(Allowance(turns=3), Spent(turns=2, running=2)) is BudgetState.FREE
    assert standing(Allowance(), Spent(turns=2**40, running=3)) is BudgetState.FREE
    assert reached(Allowance(turns=1), Spent(turns=1)) == "1 turn"


def test_settings_become_a_budget() -> None:
    """What config.toml says in dollars is counted in millionths."""
    limits = TurnLimits(person_dollars_day_max=1.5, turns_day_max=7, day_time_zone="Asia/Tokyo")
    assert budget_of(limits) == Budget(Allowance(cost_micros=1_500_000), Allowance(turns=7), "Asia/Tokyo")
    assert budget_of(TurnLimits()) is None
