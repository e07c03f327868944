"""Resuming by name never picks a session that was not meant."""

from __future__ import annotations

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
