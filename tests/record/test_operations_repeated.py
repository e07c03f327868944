"""Every operation first looks whether it was done before: run again, it gives the first result.

The contracts of the conformance suite go through a caller that runs each operation twice, as the writer does with a
batch in doubt. So every operation that a contract uses is repeated, with the arguments and in the states of real use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from hansard.domain.arrivals import Arrival, ArrivalKind, Origin
from hansard.domain.messages import Message
from hansard.domain.notices import ENGLISH
from hansard.domain.people import Code
from hansard.errors import NotFound
from hansard.journal.calls import Caller
from hansard.journal.store import Wiring
from hansard.journal.transaction import Transaction
from hansard.record.api import Record
from hansard.record.intake.arrivals import RecordIntake
from hansard.record.intake.events import Accepted, Received
from hansard.record.memory import Memory
from hansard.record.people import Parted
from hansard.testing.conformance import CONTRACTS, RecordUnderTest
from hansard.testing.fakes import FakeClock


class RepeatingCaller:
    """Runs each operation twice, in two commits, and compares what they give."""

    def __init__(self, caller: Caller) -> None:
        """Do everything else as this one."""
        self._caller = caller

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a caller has
        """Give what the caller has."""
        return getattr(self._caller, name)

    async def write(self, operation: Callable[[Transaction], object], **options: Any) -> object:  # noqa: ANN401
        """Run an operation, and run it again as if nobody knew whether it was done."""
        first = await self._caller.write(operation, **options)
        again = await self._caller.write(operation, **options)
        assert essence(again) == essence(first), f"the first time {first!r}, again {again!r}"
        return again if isinstance(again, Code) else first  # a new code takes the place of the one before


def essence(result: object) -> object:
    """Return what a caller relies on: not whether this very call did it, nor what there is left to do."""
    if isinstance(result, Received):
        return result.turn_id
    if isinstance(result, Accepted):
        return [entry.id for entry in result.entries], [turn.id for turn in result.turns]
    if isinstance(result, Code):
        return result.owner
    return None if isinstance(result, bool | list | Parted) else result


async def test_memory_is_changed_once(home: Path) -> None:
    """A note that is added, changed and forgotten, each of it twice, is given as it was the first time."""
    async with Record.open(home) as record:
        memory = Memory(cast("Caller", RepeatingCaller(record._caller)))  # noqa: SLF001 - the very seam
        note = await memory.add("person:admin", "likes tea")
        changed = await memory.edit(note.id, "likes coffee")
        assert await memory.forget(note.id) == changed
        assert await memory.list() == []
        with pytest.raises(NotFound):
            await memory.forget(note.id)
        assert (await record.verify()).ok


async def test_a_session_is_begun_once(home: Path) -> None:
    """`/new` at the terminal, run twice: one session ends, one begins, and the person is told once."""
    async with Record.open(home) as record:
        old = (await record.create_session(source="cli")).id
        intake = RecordIntake(cast("Caller", RepeatingCaller(record._caller)), lambda: ENGLISH)  # noqa: SLF001
        origin = Origin(channel="cli", owner="person:admin")
        said = ((old, Message.notice("/new")),)
        received = await intake.receive(
            Arrival(origin=origin, said=said, kind=ArrivalKind.NEW, told="{new} after {old}")
        )
        sessions = {session.id: (session.state, session.head_seq) for session in await record.sessions()}
        assert sessions == {old: ("ended", 3), received.session_id: ("open", 2)}
        (told,) = await record.load_transcript(received.session_id)
        assert told.text == f"{received.session_id} after {old}"
        assert (await record.verify()).ok


@pytest.mark.drawn(34)
@pytest.mark.loss("I2", "I1")
@pytest.mark.parametrize("name", [name for name, contract in CONTRACTS.items() if "elsewhere" not in contract.needs])
async def test_an_operation_that_is_run_again_gives_its_first_result(name: str, home: Path) -> None:
    """Each contract holds although each of its operations is run twice."""
    clock = FakeClock() if "clock" in CONTRACTS[name].needs else None

    @asynccontextmanager
    async def open_repeating() -> AsyncIterator[Record]:
        async with Record.open(home, wiring=Wiring(clock=clock) if clock is not None else None) as record:
            yield Record(cast("Caller", RepeatingCaller(record._caller)))  # noqa: SLF001 - the very seam

    await CONTRACTS[name].check(RecordUnderTest(open_record=open_repeating, clock=clock))
