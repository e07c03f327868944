"""The suite for channels: what every channel promises, as code that tries to break it.

With pytest, one test for each contract, all on one stage (no contract needs an empty one):

    @pytest.mark.parametrize("name", CHANNEL_CONTRACTS)
    async def test_contract(name, my_stage):
        result = await try_contract(CHANNEL_CONTRACTS[name], my_stage)
        if result.outcome == "skipped":
            pytest.skip(result.reason)

Without pytest:

    results = await run_channel_suite(my_stage)
    assert all(result.outcome != "broken" for result in results), results

A stage (`ChannelStage`) is what the adapter's tests write: people, the platform and the network, by other means than
the channel itself. A contract that needs what the stage cannot do, or what the channel says its platform cannot, is
skipped with that as its reason.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from hansard.testing import channel_suite_receive, channel_suite_send  # noqa: F401 - they enter their contracts
from hansard.testing.channel_suite_kit import (
    CHANNEL_CONTRACTS,
    Ability,
    ChannelContract,
    ChannelStage,
    Scene,
    Seen,
    opened,
)
from hansard.testing.conformance_kit import CONTRACT_SECONDS_MAX

__all__ = [
    "CHANNEL_CONTRACTS",
    "Ability",
    "ChannelContract",
    "ChannelResult",
    "ChannelStage",
    "Seen",
    "run_channel_suite",
    "try_contract",
]


@dataclass(frozen=True, kw_only=True)
class ChannelResult:
    """What became of one contract: `kept`, `broken` or `skipped`, and why."""

    contract: ChannelContract
    outcome: str
    reason: str = ""
    error: BaseException | None = None
    seconds: float = 0.0


async def run_channel_suite(stage: ChannelStage) -> list[ChannelResult]:
    """Try every contract on a stage, one after the other, on one channel; return what became of each."""
    async with opened(stage) as scene:
        return [await _try(contract, scene) for contract in CHANNEL_CONTRACTS.values()]


async def try_contract(contract: ChannelContract, stage: ChannelStage) -> ChannelResult:
    """Try one contract on a stage; a broken one raises what broke it."""
    async with opened(stage) as scene:
        result = await _try(contract, scene)
    if result.error is not None:
        raise result.error
    return result


async def _try(contract: ChannelContract, scene: Scene) -> ChannelResult:
    if missing := contract.missing(scene):
        return ChannelResult(contract=contract, outcome="skipped", reason=f"there is no {missing}")
    began = time.monotonic()
    try:
        async with asyncio.timeout(CONTRACT_SECONDS_MAX):
            await contract.run(scene)
    except Exception as error:  # noqa: BLE001  # boundary: channel call
        seconds = time.monotonic() - began
        return ChannelResult(contract=contract, outcome="broken", reason=repr(error), error=error, seconds=seconds)
    return ChannelResult(contract=contract, outcome="kept", seconds=time.monotonic() - began)
