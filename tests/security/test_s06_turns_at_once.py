"""S6: one person's turns do not hold up another's. So many run at once, so many of one person, in fair order."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hansard.domain.sessions import TurnState
from hansard.domain.settings import Person, TurnLimits
from hansard.engine.turns import Agent
from hansard.journal.store import Wiring
from hansard.testing import Platform
from hansard.testing.fakes import FakeClock
from tests.security.crowd import GUEST, OTHER, OWNER, Crowd, crowd, crowd_settings

THREADS = 12


async def flood(here: Crowd, count: int = THREADS, *, waiting: int | None = None) -> list[str]:
    """Let the guest ask in many threads, and wait until the gateway has them all."""
    threads = here.threads(here.chat(GUEST), count)
    for number, thread in enumerate(threads):
        here.platform.say(thread, GUEST, f"guest {number}")
    waits = count - 2 if waiting is None else waiting
    await here.until_queued(waits)
    await here.until(lambda: len(here.model.begun) == count - waits)
    return threads


async def test_one_person_has_two_turns_at_once(home: Path) -> None:
    """A guest with many threads has two turns running; the owner's turn begins although none of them ends."""
    async with crowd(home) as here:
        await flood(here)
        here.platform.say(here.chat(OWNER), OWNER, "owner")
        await here.until(lambda: "owner" in here.model.begun)
        assert len(here.model.begun) == 3
        await here.answered()
        assert here.model.most["guest"] == 2
        assert len(here.model.begun) == THREADS + 1


async def test_with_all_places_taken_the_owner_is_next(home: Path) -> None:
    """Where one turn runs at once, the owner's begins after the guest's that runs, however many of theirs wait."""
    limits = TurnLimits(turns_running_max=1)
    async with crowd(home, crowd_settings(limits)) as here:
        await flood(here, waiting=THREADS - 1)
        owner, other = here.chat(OWNER), here.chat(OTHER)
        here.platform.say(owner, OWNER, "owner 1")
        here.platform.say(other, OTHER, "other 1")
        await here.until_queued(THREADS + 1)
        here.model.let(2)
        await here.until(lambda: len(here.model.begun) == 3)
        assert sorted(here.model.begun[1:]) == ["other 1", "owner 1"]
        here.model.let()
        await here.until(lambda: len(here.model.begun) == 4)
        here.platform.say(owner, OWNER, "owner 2")
        await here.until_queued(THREADS - 1)
        here.model.let()
        await here.until(lambda: len(here.model.begun) == 5)
        assert here.model.begun[4] == "owner 2"
        await here.answered()
        assert here.model.most[""] == 1


async def test_linked_accounts_are_one_person(home: Path) -> None:
    """Who has two accounts, and is one person by the settings, has two turns at once with both."""
    people = {"guest": Person(matrix=(GUEST, OTHER))}
    async with crowd(home, crowd_settings(people=people)) as here:
        for person in (GUEST, OTHER):
            for thread in here.threads(here.chat(person), 3):
                here.platform.say(thread, person, "guest")
        await here.until_queued(4)
        await here.until(lambda: len(here.model.begun) == 2)
        await here.answered()
        assert here.model.most["guest"] == 2


async def test_a_turn_of_two_people_counts_for_both_and_waits_for_neither(home: Path) -> None:
    """The owner asks in a room where the guest asks, too: it runs by the owner's place."""
    async with crowd(home) as here:
        await flood(here)
        room = here.chat(OWNER, GUEST)
        here.platform.say(room, GUEST, "both 1", to="agent")
        await here.until_queued(THREADS - 1)
        assert len(here.model.begun) == 2
        here.platform.say(room, OWNER, "both 2", to="agent")
        await here.until(lambda: len(here.model.begun) == 3)
        assert "both 2" in here.model.begun[-1]
        here.model.let()
        await here.until(lambda: here.model.running.total() == 2)
        await here.until_queued(THREADS - 2)
        assert len(here.model.begun) == 3
        await here.answered()
        assert len(here.model.begun) == THREADS + 1


async def test_commands_do_not_wait(home: Path) -> None:
    """What waits for its place can be looked at and stopped at once; what runs as well."""
    async with crowd(home) as here:
        threads = await flood(here, 4)
        begun = {int(said.split()[1]) for said in here.model.begun}
        last = next(threads[number] for number in reversed(range(4)) if number not in begun)
        here.platform.say(last, GUEST, "/stop")
        here.platform.say(last, GUEST, "/status")
        await here.until(lambda: any("Session" in text for text in here.play.texts(last)))
        assert len(await here.record.turns.list_queued()) == 1
        await here.answered()
        assert len(here.model.begun) == 3


async def test_status_tells_that_an_answer_waits(home: Path) -> None:
    """Whose answer has waited for longer than a moment is told so, and for how long."""
    clock = FakeClock()
    async with crowd(home, wiring=Wiring(clock=clock)) as here:
        threads = await flood(here, 3)
        (waits,) = [thread for number, thread in enumerate(threads) if f"guest {number}" not in here.model.begun]
        here.platform.say(waits, GUEST, "/status")
        await here.until(lambda: len(here.play.texts(waits)) == 1)
        clock.advance(75)
        here.platform.say(waits, GUEST, "/status")
        await here.until(lambda: len(here.play.texts(waits)) == 2)
        soon, later = here.play.texts(waits)
        assert "waited" not in soon
        assert "an answer has waited 75 s to begin, because others run first" in later
        await here.answered()


async def test_what_waits_is_left_to_the_next_gateway(home: Path) -> None:
    """A gateway that is told to stop ends what runs and leaves what waits; the next one runs all of it."""
    platform = Platform()
    async with crowd(home, platform=platform) as here:
        await flood(here)
        here.play.stop.set()
        here.model.let(2)
        await here.until(lambda: not here.play.app.runner.busy)
        assert len(here.model.begun) == 2
        assert len(await here.record.turns.list_queued()) == THREADS - 2
    async with crowd(home, platform=platform) as here:
        await here.answered()
        assert len(here.model.begun) == THREADS - 2
        turns = [turn for each in await here.record.sessions() for turn in await here.record.turns.list(each.id)]
        assert [turn.state for turn in turns] == [TurnState.COMPLETED] * THREADS


async def test_new_limits_count_at_once(home: Path) -> None:
    """Taken up while turns wait, a higher limit begins more of them; what is closed with the old one waits for none."""
    async with crowd(home) as here:
        await flood(here)
        runner = here.play.app.runner
        old = asyncio.create_task(runner.outlived())
        await asyncio.sleep(0)
        runner.use_agent(
            Agent(
                record=here.record, models=here.play.app.models, tools={}, limits=TurnLimits(person_turns_running_max=5)
            )
        )
        await here.until(lambda: len(here.model.begun) == 5)
        here.model.let(2)
        async with asyncio.timeout(120):
            await old
        await here.until(lambda: len(here.model.begun) == 7)
        await here.answered()
        assert here.model.most["guest"] == 5


async def test_who_asked_last_is_who_is_shown_the_answer(home: Path) -> None:
    """In a room the person who asks counts, not the room: before the turn, while it runs, and after it."""
    async with crowd(home) as here:
        room = here.chat(OWNER, GUEST)
        here.platform.say(room, GUEST, "guest", to="agent")
        await here.until(lambda: here.model.begun != [])
        route = await here.record.routes.read(room)
        assert route is not None
        asked = here.record.turns.list_askers
        assert await asked(route.session_id) == (f"person:matrix:{GUEST}",)
        await here.answered()
        assert await asked(route.session_id) == (f"person:matrix:{GUEST}",)
        here.platform.say(room, OWNER, "owner", to="agent")
        await here.answered()
        assert await asked(route.session_id) == (f"person:matrix:{OWNER}",)
