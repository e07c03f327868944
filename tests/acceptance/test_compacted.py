"""A session that was summed up, at the command line: every word is shown, found and carried."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hansard.engine.compaction import CompactionRequest, compact
from tests.acceptance.commands import run
from tests.engine.stage import stage
from tests.engine.summing import MANUAL, SUMMARY, Summing, talk


async def sum_up(home: Path) -> tuple[str, list[str]]:
    """Talk, sum up, talk on, five times; return the session and all that was said in it."""
    async with stage(home, Summing(), compaction=MANUAL) as on:
        for number in range(5):
            await talk(on, 4, number * 4)
            await compact(on.agent, on.session_id, CompactionRequest())
        assert len((await on.conversation()).compactions) == 5
        return on.session_id, await on.texts()


@pytest.mark.loss("G8", "D19")
def test_every_word_is_shown_and_found(home: Path) -> None:
    """`show`, `show --full`, `search` and `export` have what was summed up five times over."""
    session_id, texts = asyncio.run(sum_up(home))
    for arguments in (["sessions", "show", session_id], ["sessions", "show", session_id, "--full"]):
        shown = " ".join(run(home, *arguments)[0].split())
        assert all(f"marker-{number} " in shown for number in range(20))
        assert shown.count("Ingeborg the keeper") >= len(texts)
        assert SUMMARY not in shown
    assert "marker-0" in run(home, "search", "marker-0")[0]
    assert "marker-7" in run(home, "export", session_id, "--format", "markdown")[0]
