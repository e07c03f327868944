"""The SQLite record keeps every contract of the conformance suite that ships in `hansard.testing`."""

from __future__ import annotations

import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hansard.errors import NotFound
from hansard.journal.store import Wiring
from hansard.record.api import Record
from hansard.testing.conformance import CONTRACTS, RecordUnderTest, elsewhere, run_record_conformance
from hansard.testing.conformance_kit import Contract, ContractBroken, refusal
from hansard.testing.fakes import FakeClock
from tests.counts import only_long

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOSSES = {
    "identity": ("I1", "I2", "I13", "A10"),
    "order": ("I4", "I5", "C6", "D4"),
    "duplicates": ("F11", "F12", "F13", "F14", "I1"),
    "talk": ("D3", "D19", "A13", "I7"),
    "chats": ("F8", "F11", "F13", "F18", "F19", "H2", "H7", "H8", "J6"),
    "outbox": ("E1", "E3", "E6", "E11"),
    "fencing": ("A7", "A13", "I7", "I9", "B5", "F16"),
    "follow": ("D18", "A5", "A6"),
    "concurrency": ("B7", "B20", "D15", "D16", "I10"),
    "crash": ("A1", "A2", "A13", "B6", "E1"),
    "sessions": ("D11", "D13", "D14", "H10"),
    "routes": ("H3", "H4", "H8", "H10"),
    "deliveries": ("E3", "E4", "E5"),
    "blobs": ("N4", "J9"),
    "content": ("N3",),
    "limits": ("B3",),
    "text": ("C11",),
    "people": ("J6",),
}
"""What each group of contracts covers of docs/proof/losses.md."""


def sqlite_backend(home: Path, clock: FakeClock | None = None) -> RecordUnderTest:
    """Return the SQLite record on a home, with other processes."""
    here = partial(Record.open, home, wiring=Wiring(clock=clock)) if clock is not None else partial(Record.open, home)
    return RecordUnderTest(open_record=here, elsewhere=elsewhere(partial(Record.open, home)), clock=clock)


def parameters() -> list[object]:
    """Return each contract's name, marked with the losses that its group covers."""
    return [pytest.param(name, marks=pytest.mark.loss(*LOSSES[name.partition(".")[0]])) for name in CONTRACTS]


@pytest.mark.parametrize("name", parameters())
async def test_sqlite_keeps_the_contract(name: str, home: Path) -> None:
    """The SQLite record keeps each contract; its docstring states the claim."""
    clock = FakeClock() if "clock" in CONTRACTS[name].needs else None
    await CONTRACTS[name].check(sqlite_backend(home, clock))


def test_every_contract_states_its_claim() -> None:
    """Each contract has a claim of its own, and there is one in each group."""
    claims = [contract.claim for contract in CONTRACTS.values()]
    assert all(len(claim) > 20 for claim in claims)
    assert len(set(claims)) == len(claims)
    assert {name.partition(".")[0] for name in CONTRACTS} == set(LOSSES)


def test_the_suite_needs_no_pytest() -> None:
    """Whoever writes a backend can run the suite without the tools of this repository."""
    code = "import sys, hansard.testing.conformance; sys.exit(any(m in sys.modules for m in ('pytest', 'hypothesis')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@only_long
async def test_a_broken_backend_is_found_out(home: Path) -> None:
    """A backend that forgets everything when it is closed breaks contracts; what it lacks is skipped by name."""

    @asynccontextmanager
    async def open_forgetful() -> AsyncIterator[Record]:
        opened.append(home.with_name(f"home-{len(opened)}"))
        async with Record.open(opened[-1]) as record:
            yield record

    opened: list[Path] = []
    chosen = {
        "identity.identity_outlives_closing": "broken",
        "identity.same_id_is_a_no_op": "kept",
        "crash.a_queued_turn_survives": "skipped",
    }
    results = {
        result.contract.name: result
        for result in await run_record_conformance(RecordUnderTest(open_record=open_forgetful))
    }
    assert set(results) == set(CONTRACTS)
    assert {name: results[name].outcome for name in chosen} == chosen
    assert "elsewhere" in results["crash.a_queued_turn_survives"].reason
    assert results["identity.identity_outlives_closing"].error is not None


async def test_a_contract_that_should_fail_fails(home: Path) -> None:
    """The checks themselves can fail: a wrong expectation of an error breaks the contract."""

    async def run(backend: RecordUnderTest) -> None:
        async with backend.open_record() as record:
            await refusal(NotFound, "a session that exists", record.create_session(source="x"))

    contract = Contract(name="x.y", claim="", run=run)
    with pytest.raises(ContractBroken, match="expected NotFound"):
        await contract.check(sqlite_backend(home))
