"""The conformance suite for record backends: what every backend promises, as code that tries to break it.

With pytest, one test for each contract:

    @pytest.mark.parametrize("name", CONTRACTS)
    async def test_contract(name, tmp_path):
        await CONTRACTS[name].check(RecordUnderTest(open_record=partial(MyRecord.open, tmp_path / "home")))

Without pytest, all of them on one storage (no contract needs an empty one):

    results = await run_record_conformance(RecordUnderTest(open_record=…, elsewhere=elsewhere(…)))
    assert all(result.outcome != "broken" for result in results), results

A contract that needs what a backend does not have (other processes, a clock that can be moved) is skipped by name.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hansard.testing import (  # noqa: F401 - importing them enters their contracts into the table
    conformance_chats,
    conformance_content,
    conformance_follow,
    conformance_identity,
    conformance_outbox,
    conformance_processes,
    conformance_sessions,
    conformance_turns,
)
from hansard.testing.conformance_kit import CONTRACT_SECONDS_MAX, CONTRACTS, Contract, ContractBroken, RecordUnderTest
from hansard.testing.conformance_processes import elsewhere

__all__ = [
    "CONTRACTS",
    "Contract",
    "ContractBroken",
    "RecordUnderTest",
    "Result",
    "elsewhere",
    "run_record_conformance",
]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of one contract: `kept`, `broken` or `skipped`, and why."""

    contract: Contract
    outcome: str
    reason: str = ""
    error: BaseException | None = None


async def run_record_conformance(backend: RecordUnderTest) -> list[Result]:
    """Try every contract on a backend, one after the other, and return what became of each."""
    return [await _try(contract, backend) for contract in CONTRACTS.values()]


async def _try(contract: Contract, backend: RecordUnderTest) -> Result:
    if missing := contract.missing(backend):
        return Result(contract=contract, outcome="skipped", reason=f"the backend offers no {missing}")
    try:
        async with asyncio.timeout(CONTRACT_SECONDS_MAX):
            await contract.check(backend)
    except Exception as error:  # noqa: BLE001  # boundary: process edge
        return Result(contract=contract, outcome="broken", reason=f"{type(error).__name__}: {error}", error=error)
    return Result(contract=contract, outcome="kept")
