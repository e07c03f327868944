"""S13: a changed identity is listed, and the admin confirms it; who did is recorded."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from hansard.channels.matrix.keeping import Keeping, Pin
from hansard.channels.matrix.pins import Device, Pins, Trust
from hansard.record.api import Record
from tests.acceptance.shown.program import run_forked

ANN = "@ann:example.org"
BOT = "@bot:example.org"


def hansard(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as the admin does."""
    return run_forked("--home", home, "people", *arguments, variables=os.environ)


async def is_whole(home: Path) -> bool:
    """Make the record, or prove that both legs of it agree."""
    async with Record.open(home) as record:
        return (await record.verify()).ok


def home_with(home: Path, seen: str) -> Keeping:
    """A home that pinned Ann's identity `first`, and was told of another since."""
    assert asyncio.run(is_whole(home))
    keeping = Keeping(home)
    keeping.prepare()
    keeping.keep_pins({ANN: Pin(master="first", since_seconds=0.0, seen=seen, seen_seconds=60.0)})
    return keeping


@pytest.mark.parametrize("seen", ["second", ""])
def test_a_change_is_listed_and_confirmed(home: Path, seen: str) -> None:
    """A running gateway's pins go by it at once; the entry says who confirmed which key."""
    keeping = home_with(home, seen)
    running = Pins(keeping, BOT)
    assert running.trust(ANN) is Trust.CHANGED
    assert not running.vouches(ANN, Device("a", "b"))
    assert ANN in running.note
    listed = hansard(home, "identities")
    assert f"CHANGED 1970-01-01T00:01+00:00 to {seen or 'none'}, not confirmed" in listed.stdout
    refused = hansard(home, "confirm", ANN, "another")
    assert (refused.returncode, running.trust(ANN)) == (1, Trust.CHANGED)
    confirmed = hansard(home, "confirm", ANN)
    assert confirmed.returncode == 0, confirmed.stderr
    assert running.trust(ANN) is (Trust.PINNED if seen else Trust.OPEN)
    assert Pins(Keeping(home), BOT).trust(ANN) is (Trust.PINNED if seen else Trust.OPEN), "it is durable"
    entries = [json.loads(line) for line in (home / "home.jsonl").read_text().splitlines()]
    bodies = [entry["body"] for entry in entries if entry["kind"] == "identity.confirmed"]
    assert [(body["identity"], body["key"], body["by"]) for body in bodies] == [(ANN, seen, "admin")]
    assert asyncio.run(is_whole(home))


def test_nothing_to_confirm(home: Path) -> None:
    """An identity that did not change, and one that was never seen, are refused; nothing is recorded."""
    home_with(home, "first")
    for who in (ANN, "@eve:example.org"):
        assert hansard(home, "confirm", who).returncode == 1
    assert hansard(home, "confirm", "12345").returncode == 2
    assert "identity.confirmed" not in (home / "home.jsonl").read_text()
    listed = json.loads(hansard(home, "identities", "--json").stdout)
    assert [(each["identity"], each["changed_to"]) for each in listed["identities"]] == [(ANN, None)]


def test_a_later_change_needs_its_own_yes(home: Path) -> None:
    """What was confirmed was one key: the next change is a change again, and so is going back."""
    keeping = home_with(home, "second")
    assert hansard(home, "confirm", ANN, "second").returncode == 0
    running = Pins(keeping, BOT)
    assert running.trust(ANN) is Trust.PINNED
    for master in ("third", "first"):
        document = {"user_id": ANN, "usage": ["master"], "keys": {f"ed25519:{master}": master}}
        running.take_keys([ANN], {"master_keys": {ANN: document}})
        assert running.trust(ANN) is Trust.CHANGED
