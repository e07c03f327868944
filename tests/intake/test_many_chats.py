"""A message costs the same with 5,000 chats as with 10."""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from pathlib import Path

import apsw
import pytest

from hansard.domain.access import Standing
from hansard.domain.arrivals import Arrival, ArrivalKind, IntakeRules, Origin
from hansard.domain.chats import message_id_of
from hansard.domain.messages import Message
from hansard.journal.sqlite.migrations import create_schema
from hansard.journal.transaction import SQL as JOURNAL
from hansard.record.access import ACCESS
from hansard.record.api import Record
from hansard.record.intake.events import INTAKE
from hansard.record.people import PACE
from hansard.record.routes import ROUTES
from hansard.record.schema import SCHEMA
from hansard.record.sessions import SESSIONS
from hansard.record.turns.entries import TURNS
from tests.counts import only_long
from tests.intake.town import AGENT, ANN, Town, town

MANY = 5_000
FEW = 10
ROUNDS = 40
COMPARISONS_MAX = 10
"""Comparisons on a busy machine; on a quiet one the first is enough."""

READ_FOR_A_MESSAGE = {
    "busy_session": ROUTES.queries.find_busy_session,
    "intake": INTAKE.queries.find_intake,
    "access": ACCESS.queries.find_access,
    "held": INTAKE.queries.find_held,
    "route": ROUTES.queries.find_route,
    "route's age": ROUTES.queries.find_route_age,
    "journal": JOURNAL.read_journal,
    "session": SESSIONS.queries.read_session,
    "turn": TURNS.queries.find_turn_in_state,
    "last turn": TURNS.queries.last_fence,
    "cursor": INTAKE.queries.find_cursor,
    "code": ACCESS.queries.find_access_by_code,
    "pace": PACE.queries.find_pace,
    "event in an entry": JOURNAL.entry_by_key,
}


def chat(number: int) -> str:
    """One of many."""
    return f"matrix:room:!chat{number}:example.org"


async def fill(record: Record, count: int) -> None:
    """Let every chat have a session in which something was said."""

    async def first(number: int) -> None:
        event_id = f"$first{number}"
        origin = Origin(
            channel="matrix",
            account=AGENT,
            event_id=event_id,
            key=chat(number),
            chat=chat(number),
            owner=f"person:matrix:{ANN}",
            identity=ANN,
            standing=Standing.LISTED,
        )
        message = Message.user("hello", id=message_id_of("matrix", AGENT, event_id), author=ANN, chat=chat(number))
        arrival = Arrival(origin=origin, said=(("", message),), kind=ArrivalKind.OBSERVED)
        await record.intake.receive(arrival, IntakeRules())

    for start in range(0, count, 500):
        await asyncio.gather(*(first(number) for number in range(start, min(start + 500, count))))


async def seconds_a_message(here: Town, count: int) -> float:
    """Processor time of a message, in the middle of some, each in another chat."""
    taken = []
    for number in range(ROUNDS):
        event = here.event("more", ANN, chat(number * 7919 % count))
        before = time.process_time()
        await here.take(event)
        taken.append(time.process_time() - before)
    return statistics.median(taken)


@only_long
@pytest.mark.slow
async def test_five_thousand_chats(tmp_path: Path) -> None:
    """A message costs with many chats about the processor time that it costs with few."""
    async with town(tmp_path / "few") as few, town(tmp_path / "many") as many:
        await fill(few.record, FEW)
        await fill(many.record, MANY)
        ratios: list[float] = []
        while not ratios or (ratios[-1] >= 2 and len(ratios) < COMPARISONS_MAX):
            ratios.append(await seconds_a_message(many, MANY) / await seconds_a_message(few, FEW))
        assert ratios[-1] < 2, ratios


@pytest.mark.parametrize("name", READ_FOR_A_MESSAGE)
def test_no_query_looks_at_every_chat(name: str) -> None:
    """Each query that a message needs finds its rows by a key or an index."""
    database = apsw.Connection(":memory:")
    create_schema(database, SCHEMA)
    query = READ_FOR_A_MESSAGE[name]
    plan = database.execute(f"EXPLAIN QUERY PLAN {query}", (None,) * query.count("?")).fetchall()
    assert [row[3] for row in plan if re.match(r"SCAN(?! CONSTANT)", str(row[3]))] == []
    database.close()
