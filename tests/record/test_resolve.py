"""Resuming by name never picks a session that was not meant."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from hansard import Ambiguous, Record


@pytest.mark.loss("D13")
async def test_a_title_that_is_also_the_beginning_of_an_id_is_ambiguous(home: Path) -> None:
    """A text that is one session's title and the beginning of another's id names both; the full id names one."""
    async with Record.open(home) as record:
        await record.create_session(id="trip-one", source="cli")
        titled = await record.create_session(id="other", source="cli", title="trip")
        with pytest.raises(Ambiguous) as caught:
            await record.resolve("trip")
        assert set(caught.value.candidates) == {"trip-one", "other"}
        assert (await record.resolve("trip-")).id == "trip-one"
        assert (await record.resolve("Trip-one")).id == "trip-one"
        await record.set_title(titled.id, "trip-o")
        await record.set_title("trip-one", "trip-o")
        with pytest.raises(Ambiguous):
            await record.resolve("trip-o")


async def test_the_exact_title_is_preferred_to_one_that_differs_in_case(home: Path) -> None:
    """Two titles that differ in case only are told apart by typing them as they are."""
    async with Record.open(home) as record:
        await record.create_session(id="a", source="cli", title="Plan")
        await record.create_session(id="b", source="cli", title="plan")
        assert (await record.resolve("Plan")).id == "a"
        assert (await record.resolve("plan")).id == "b"
        with pytest.raises(Ambiguous):
            await record.resolve("PLAN")


@pytest.mark.skipif(not os.environ.get("HANSARD_PROVE"), reason="takes half a minute: a part of `make prove`")
async def test_all_sessions_are_listed(home: Path) -> None:
    """More sessions than any page holds: all of them, each once, latest first."""
    count = 10_050
    async with Record.open(home) as record:
        for start in range(0, count, 500):
            numbers = range(start, min(start + 500, count))
            await asyncio.gather(*(record.create_session(id=f"s{number}", source="test") for number in numbers))
        listed = await record.sessions()
        assert len({session.id for session in listed}) == len(listed) == count
        assert [session.id for session in await record.sessions(limit=3)] == [session.id for session in listed[:3]]
