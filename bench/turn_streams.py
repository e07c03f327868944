"""Streams: the first token, a token a hundredth of a second, and a hundred turns at once.

The first token is interleaved ask by ask, with everything open. Processor time is measured with nothing else open in
the process: a record has threads of its own, which would be counted as the floor's.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from harness.figures import percentile
from turn_hansard import FIRST_DELTA, MODEL_ASKED, SPOKEN, HansardReader
from turn_readers import Heard, Past, RawReader, Reader
from turn_scene import Scene
from turn_threads import ran_seconds, waited_seconds
from turn_tokens import Wanted

FIRST = Wanted(tokens=3, tokens_per_second=100)
STREAM_TOKENS_PER_SECOND = 100
TURNS = 100
CROWD = Wanted(tokens=100, tokens_per_second=50)
IDLE_SECONDS = 1.0

PAST: Past = (("What is a record?", "What was said, as it was said, for those who were not there and those who were."),)
NEW = "hansard, new session"


async def measure_first(scene: Scene) -> dict[str, Any]:
    """How long the first token takes, and what each layer adds to the raw stream in the same round."""
    heard: dict[str, list[Heard]] = {}
    async with AsyncExitStack() as stack:
        makers = scene.readers(scene.new_home(), watched=True)
        readers = [await stack.enter_async_context(make()) for make in makers]
        for reader in readers:
            await reader.begin("warm", PAST)
            await reader.ask("warm", PAST, FIRST)
        for number in range(scene.settings.first_rounds):
            place = f"round-{number}"
            for reader in readers:
                if isinstance(reader, HansardReader):
                    await reader.begin(place, ())
                    heard.setdefault(NEW, []).append(await reader.ask(place, (), FIRST))
                heard.setdefault(reader.name, []).append(await reader.ask(place, PAST, FIRST))
                if isinstance(reader, HansardReader):
                    await reader.leave(place)
    floor = [each.first_us for each in heard[RawReader.name]]
    figures = {name: _first_figures([each.first_us for each in rounds], floor) for name, rounds in heard.items()}
    return {"readers": figures, "stages": _stages(heard["hansard"])}


def _first_figures(firsts_us: list[int], floor_us: list[int]) -> dict[str, Any]:
    """The middle and the tail, by themselves and over the floor of the same round."""
    added = [ours - raw for ours, raw in zip(firsts_us, floor_us, strict=True)]
    return {
        "ms": statistics.median(firsts_us) / 1000,
        "p95_ms": percentile(firsts_us, 0.95) / 1000,
        "added_p25_ms": percentile(added, 0.25) / 1000,
        "added_ms": statistics.median(added) / 1000,
        "added_p95_ms": percentile(added, 0.95) / 1000,
        "rounds_ms": [each / 1000 for each in firsts_us],
    }


def _stages(heard: list[Heard]) -> dict[str, float]:
    """How long each stage of a turn took, up to the first token: medians, so that they need not add up."""
    steps: dict[str, list[int]] = {}
    for each in heard:
        first = each.tokens[0]
        times = [
            ("the words are recorded (speak)", each.stages[SPOKEN]),
            ("claim, context, the model is asked", each.stages[MODEL_ASKED]),
            ("adapter and libraries, request at the server", first.arrived_us),
            ("the server sends the first token", first.sent_us),
            ("libraries and adapter give the first piece", each.stages[FIRST_DELTA]),
            ("message opened, piece recorded, follower sees it", first.seen_us),
        ]
        before = each.asked_us
        for name, at in times:
            steps.setdefault(name, []).append(at - before)
            before = at
    return {name: statistics.median(each) / 1000 for name, each in steps.items()}


async def measure_stream(scene: Scene) -> dict[str, Any]:
    """One answer at a hundred tokens a second: processor time, and how old each token is when it is seen."""
    wanted = Wanted(scene.settings.stream_tokens, STREAM_TOKENS_PER_SECOND)
    rounds: dict[str, list[dict[str, Any]]] = {}
    home = scene.new_home()
    for number in range(scene.settings.stream_rounds):
        for make in scene.readers(home):
            async with make() as reader:
                place = f"round-{number}"
                await reader.begin(place, PAST)
                await reader.ask(place, PAST, FIRST)
                rounds.setdefault(reader.name, []).append(await _stream_round(reader, place, wanted))
    return {name: _stream_figures(each) for name, each in rounds.items()}


async def _stream_round(reader: Reader, place: str, wanted: Wanted) -> dict[str, Any]:
    cpu_seconds, before = time.process_time(), ran_seconds()
    heard = await reader.ask(place, PAST, wanted)
    cpu_seconds, after = time.process_time() - cpu_seconds, ran_seconds()
    idle_seconds, idle_began = time.process_time(), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    idle_seconds = time.process_time() - idle_seconds
    return {
        "cpu": cpu_seconds / ((heard.over_us - heard.asked_us) / 1e6),
        "cpu_us_a_token": cpu_seconds / len(heard.tokens) * 1e6,
        "idle_cpu": idle_seconds / (time.monotonic() - idle_began),
        "threads_us": {name: (ran - before.get(name, 0.0)) / wanted.tokens * 1e6 for name, ran in after.items()},
        "delays_us": heard.delays_us,
        "missing": wanted.tokens - len(heard.tokens),
    }


def _stream_figures(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "cpus": [each["cpu"] for each in rounds],
        "cpu": statistics.median(each["cpu"] for each in rounds),
        "cpu_us_a_token": statistics.median(each["cpu_us_a_token"] for each in rounds),
        "idle_cpu": statistics.median(each["idle_cpu"] for each in rounds),
        "threads_us": {
            name: statistics.median(each["threads_us"].get(name, 0.0) for each in rounds)
            for name in rounds[0]["threads_us"]
        },
        **_delays(rounds),
    }


def _delays(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The middle and the tail over all tokens of all rounds."""
    delays_us = [delay for each in rounds for delay in each["delays_us"]]
    return {
        "p50_ms": percentile(delays_us, 0.50) / 1000,
        "p99_ms": percentile(delays_us, 0.99) / 1000,
        "worst_ms": max(delays_us) / 1000,
        "missing": sum(each["missing"] for each in rounds),
    }


async def measure_crowd(scene: Scene) -> dict[str, Any]:
    """A hundred turns at once in this process."""
    rounds: dict[str, list[dict[str, Any]]] = {}
    home = scene.new_home()
    for number in range(scene.settings.crowd_rounds):
        for make in scene.readers(home):
            async with make() as reader:
                places = [f"round-{number}-turn-{index}" for index in range(TURNS)]
                for place in places:
                    await reader.begin(place, PAST)
                # Connections are made and sessions frozen before the clock starts.
                await asyncio.gather(*(reader.ask(place, PAST, FIRST) for place in places))
                rounds.setdefault(reader.name, []).append(await _crowd_round(reader, places))
    return {name: _crowd_figures(each) for name, each in rounds.items()}


async def _crowd_round(reader: Reader, places: list[str]) -> dict[str, Any]:
    cpu_seconds, waited = time.process_time(), waited_seconds()
    heard = await asyncio.gather(*(reader.ask(place, PAST, CROWD) for place in places))
    cpu_seconds, waited = time.process_time() - cpu_seconds, waited_seconds() - waited
    wall_seconds = (max(each.over_us for each in heard) - min(each.asked_us for each in heard)) / 1e6
    served = [(each.tokens[-1].sent_us - each.tokens[0].sent_us) / 1e6 for each in heard]
    return {
        "wall": wall_seconds / CROWD.seconds,
        "waited": waited / CROWD.seconds,
        "cpu": cpu_seconds / wall_seconds,
        "cpu_us_a_token": cpu_seconds / sum(len(each.tokens) for each in heard) * 1e6,
        "first_ms": statistics.median(each.first_us for each in heard) / 1000,
        "server_late_ms": (max(served) - CROWD.seconds) * 1000,
        "delays_us": [delay for each in heard for delay in each.delays_us],
        "missing": sum(CROWD.tokens - len(each.tokens) for each in heard),
    }


def _crowd_figures(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    middles = ("wall", "waited", "cpu", "cpu_us_a_token", "first_ms", "server_late_ms")
    return {
        **{name: statistics.median(each[name] for each in rounds) for name in middles},
        "walls": [each["wall"] for each in rounds],
        **_delays(rounds),
    }
