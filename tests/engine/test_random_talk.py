"""Talk at random and be killed, again and again: what was acknowledged or shown is there, and nothing is twice."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hansard.domain.messages import Role
from hansard.domain.requests import UserSaid
from hansard.record.messages.entries import Entry, MessageSealed, MessagesUndone, streamed_pieces
from hansard.record.turns.entries import TurnEnded, TurnStarted
from tests.counts import times
from tests.engine.journals import contexts
from tests.engine.stage import PlayedModel, Stage, answer_last, stage
from tests.engine.validator import assert_valid
from tests.engine.worker import ROOT

SESSION = "babel"
ROUNDS = times(test=2, long=4, prove=30)
TALK_SECONDS = (0.5, 1.5)
"""How long a process talks before it is killed."""

Fact = dict[str, Any]


async def babble_and_kill(home: Path, seed: int, seconds: float) -> list[Fact]:
    """Let a process talk for a while, kill it, and return what it told."""
    command = [sys.executable, "-m", "tests.engine.babbler", str(home), SESSION, str(seed)]
    process = await create_subprocess_exec(*command, stdout=PIPE, cwd=ROOT)
    assert process.stdout is not None
    try:
        first = await asyncio.wait_for(process.stdout.readline(), 120)
        reading = asyncio.create_task(process.stdout.read())
        await asyncio.sleep(seconds)
    finally:
        process.kill()
        await process.wait()
    lines = (first + await reading).split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


def check_requests(facts: list[Fact]) -> None:
    """Each request begins with the one before it, unless something was undone between them: nothing is told twice."""
    before: list[str] = []
    for fact in facts:
        if fact["kind"] in {"undoing", "undone"}:
            before = []
        elif fact["kind"] == "asked":
            assert fact["marks"][: len(before)] == before
            before = fact["marks"]


def check_shown(facts: list[Fact], entries: list[Entry]) -> None:
    """What a follower was shown is what the record holds, byte for byte, at its place."""
    sealed = {
        entry.body.message_id: "".join(text for _, text in streamed_pieces(entry.body.parts)).encode()
        for entry in entries
        if isinstance(entry.body, MessageSealed)
    }
    for fact in facts:
        if fact["kind"] == "shown":
            data = fact["text"].encode()
            assert sealed[fact["message"]][fact["offset"] : fact["offset"] + len(data)] == data


async def check_said(facts: list[Fact], on: Stage, entries: list[Entry]) -> None:
    """What was acknowledged is in the journal once, and in the transcript and the context once unless it was undone."""
    said = [fact["text"] for fact in facts if fact["kind"] == "said"]
    ids = {fact["text"]: fact["id"] for fact in facts if fact["kind"] == "said"}
    undone = {id for entry in entries if isinstance(entry.body, MessagesUndone) for id in entry.body.message_ids}
    journal = [entry.text for entry in entries if entry.kind == "message.added"]
    assert [text for text in journal if text in ids] == said
    kept = [text for text in said if ids[text] not in undone]
    assert [text for text in await on.texts(Role.USER) if text in ids] == kept
    *_, context = contexts(entries)
    told = "\n".join(message.text for message in context if isinstance(message, UserSaid))
    assert [told.count(text) for text in kept] == [1] * len(kept)


@pytest.mark.loss("A1", "A2", "A3", "A5", "A6", "A7", "A10", "A13", "A14", "C1", "C3", "D5", "D19", "F1", "F5", "I1")
async def test_nothing_is_lost_and_nothing_is_twice(home: Path, seed: int) -> None:
    """Messages in every mode, stops, undos, retries, tools, failures, and kills at any moment; then all is checked."""
    chance = random.Random(seed)
    facts: list[Fact] = []
    number = 0
    counts: Counter[str] = Counter()
    # A slow process, or a model that says nothing, may show nothing in so short a life: then it lives again.
    while number < ROUNDS or (number < ROUNDS + 20 and not min(counts[kind] for kind in ("said", "asked", "shown"))):
        facts += await babble_and_kill(home, seed + number, chance.uniform(*TALK_SECONDS))
        counts = Counter(fact["kind"] for fact in facts)
        number += 1
    assert min(counts["said"], counts["asked"], counts["shown"]) > 0, counts
    assert [fact["error"] for fact in facts if fact["kind"] == "reported"] == []
    async with stage(home, PlayedModel([answer_last]), session_id=SESSION) as on:
        on.runner.wake(SESSION)
        await on.settled()
        await on.ask("[last]")
        assert "[last]" in (await on.texts(Role.ASSISTANT))[-1]
        entries = await on.entries()
        check_requests(facts)
        check_shown(facts, entries)
        await check_said(facts, on, entries)
        for context in contexts(entries):
            assert_valid(context)
        started = [entry.body.turn_id for entry in entries if isinstance(entry.body, TurnStarted)]
        ended = [entry.body.turn_id for entry in entries if isinstance(entry.body, TurnEnded)]
        assert len(set(started)) == len(started)
        assert len(set(ended)) == len(ended)
        assert set(started) <= set(ended)
        await on.check()
