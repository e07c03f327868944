"""A real model's server, on this machine, accepts a sample of what the rules call valid, in three protocols."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from hansard.domain.requests import Failed, ModelRules, Request
from hansard.engine.requests import build_request
from hansard.errors import ModelMissing
from hansard.models.demo_files import DemoFiles, demo_folder, find_demo, install_demo
from hansard.models.pydantic import open_provider
from hansard.record.conversation import Conversation
from hansard.record.sessions import SessionFrozen
from tests.counts import times
from tests.models.validity.bodies import TOOLS
from tests.models.validity.inventor import invent

PROVE = bool(os.environ.get("HANSARD_PROVE"))
SAMPLE = times(test=2, long=4, prove=40)
START_SECONDS_MAX = 120.0
ANSWER_SECONDS_MAX = 300.0
KEY = "sample"
KEPT = Path(__file__).parents[3] / ".pytest_cache" / "demo"
"""Where other tests keep the demo model."""
RULES = ModelRules(window_tokens=400)
"""Words alone, and no more than so small a model reads."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoFiles]:
    """The demo model: where it is already, or fetched as a person would, and gone afterwards."""
    found = find_demo(demo_folder(os.environ)) or find_demo(KEPT)
    if found is not None:
        yield found
        return
    folder = tmp_path_factory.mktemp("demo")
    try:
        yield install_demo(folder, lambda _line: None)
    except ModelMissing as error:
        pytest.skip(f"the demo model cannot be fetched here: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def serving(demo: DemoFiles) -> AsyncIterator[str]:
    """The server, and its address; gone at the end."""
    command = [sys.executable, "-m", "hansard.models.demo_server", "--model", str(demo.model)]
    if demo.library is not None:
        command += ["--library", str(demo.library)]
    process = await create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=asyncio.subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{KEY}\n".encode())
        async with asyncio.timeout(START_SECONDS_MAX):
            port = json.loads(await process.stdout.readline())["port"]
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), START_SECONDS_MAX)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def requests(seed: int) -> Iterator[Request]:
    """Requests of invented journals, at a moment of each. Every other one is told of tools in words."""
    for number in range(SAMPLE):
        chance = random.Random(f"{seed}/{number}")
        entries = invent(chance)
        conversation = Conversation()
        for entry in entries[: chance.randrange(len(entries) // 2, len(entries) + 1)]:
            conversation.add(entry)
        frozen = SessionFrozen(system="Be brief.", tools=TOOLS if number % 2 else ())
        yield msgspec.structs.replace(build_request(conversation, frozen, 1, RULES), output_tokens_max=1)


@pytest.mark.drawn(1, "demo server")
@pytest.mark.timeout(900)
async def test_a_real_server_accepts_a_sample(demo: DemoFiles, seed: int) -> None:
    """Chat Completions, Responses and Messages: nothing is refused."""
    async with serving(demo) as address:
        for style, base_url in (
            ("openai", f"{address}/v1"),
            ("openai-responses", f"{address}/v1"),
            ("anthropic", address),
        ):
            model = open_provider(f"{style}:demo", key=KEY, base_url=base_url, stall_seconds=ANSWER_SECONDS_MAX)
            try:
                for request in requests(seed):
                    async with asyncio.timeout(ANSWER_SECONDS_MAX):
                        events = [event async for event in model.stream(request)]
                    refused = [event.failure for event in events if isinstance(event, Failed) and event.failure.status]
                    assert not refused, (style, refused, request)
            finally:
                await model.close()
