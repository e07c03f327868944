"""Which model to use when nobody chose one: keys in the environment, then servers on this machine, then the demo.

It runs while the program starts, so it imports nothing slow: one HTTP GET is written here in full, on asyncio's
streams. Only addresses of this machine are ever asked; whatever else answers, nobody's network hears of a start.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
from asyncio import LimitOverrunError
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.models.clients import STYLES
from hansard.models.demo_files import demo_folder, find_demo

OPENAI_DEFAULT: Final = "gpt-6.1-terra"
ANTHROPIC_DEFAULT: Final = "claude-sonnet-5-5"
GOOGLE_DEFAULT: Final = "gemini-3.8-flash"
"""Of each provider's current models, the one in the middle of the prices."""

PREFIXES: Final = ("openai:", "openai-responses:", "anthropic:", "google:", "scripted:")
"""How the full name of a model begins; `demo` is one by itself."""

PROBE_SECONDS_MAX: Final = 0.15
"""A server on this machine answers within a few milliseconds; a person waits for the rest."""

CONFIGURED_SECONDS_MAX: Final = 1.0
"""A server that the environment names is waited for longer: without its answer the model's name is a guess."""

ANSWER_BYTES_MAX: Final = 1024 * 1024
"""A list of models is a few kilobytes."""

NOT_FOR_CHAT: Final = ("embed", "bge-", "bge:", "minilm", "rerank", "whisper", "tts")
"""Parts of names that say that a model does not chat."""

NOT_LOCAL: Final = ("-cloud", ":cloud")
"""Ends of names by which Ollama marks models that run elsewhere. Nothing leaves this machine unasked."""


class Discovered(NamedTuple):
    """A model to use, where it is, and why it was chosen, for people to read."""

    name: str
    base_url: str | None
    reason: str


class LocalServer(NamedTuple):
    """A program on this machine that may serve models, and where it listens by default."""

    title: str
    port: int
    host: str = "127.0.0.1"

    @property
    def base_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/v1"


class FoundServer(NamedTuple):
    """What a server offers: None when it does not answer, and a name for each model that can chat."""

    server: LocalServer
    models: tuple[str, ...] | None


OLLAMA: Final = LocalServer("Ollama", 11434)
LM_STUDIO: Final = LocalServer("LM Studio", 1234)
SERVERS: Final = (OLLAMA, LM_STUDIO)


async def discover(
    environment: Mapping[str, str],
    *,
    servers: Sequence[LocalServer] = SERVERS,
    search: Sequence[str] | None = None,
    probe_seconds_max: float = PROBE_SECONDS_MAX,
) -> Discovered | None:
    """Return the model to use when none is configured; None when there is none.

    Of several `servers` the first that offers a model is taken; `search` is where the demo model's packages are looked
    for, sys.path by default.
    """
    chosen = environment.get("HANSARD_MODEL", "")
    if chosen == "demo" or chosen.startswith(PREFIXES):
        return Discovered(chosen, None, "HANSARD_MODEL names it")
    if environment.get("OPENAI_API_KEY") or environment.get("OPENAI_BASE_URL"):
        return await from_openai(environment)
    if (keyed := from_keys(environment, chosen)) is not None:
        return keyed
    for found in await find_local(environment, servers=servers, probe_seconds_max=probe_seconds_max):
        if found.models:
            name = chosen if chosen in found.models else found.models[0]
            reason = f"{found.server.title} runs on this machine"
            return Discovered(f"openai:{name}", found.server.base_url, reason)
    if find_demo(demo_folder(environment), search):
        return Discovered("demo", None, "the demo model is installed, and nothing larger was found")
    return None


def from_keys(environment: Mapping[str, str], chosen: str) -> Discovered | None:
    """Choose a model at Anthropic or at Google, where there is a key for it; None when there is none."""
    for variable in STYLES["anthropic"].key_variables:
        if environment.get(variable):
            name = environment.get("ANTHROPIC_MODEL") or chosen or ANTHROPIC_DEFAULT
            base_url = environment.get("ANTHROPIC_BASE_URL") or None
            return Discovered(f"anthropic:{name}", base_url, f"{variable} is set")
    for variable in STYLES["google"].key_variables:
        if environment.get(variable):
            base_url = environment.get("GOOGLE_GEMINI_BASE_URL") or None
            return Discovered(f"google:{chosen or GOOGLE_DEFAULT}", base_url, f"{variable} is set")
    return None


async def from_openai(environment: Mapping[str, str]) -> Discovered:
    """Choose a model at OpenAI, or at whichever server OPENAI_BASE_URL names; one on this machine is asked for it."""
    key, base_url = environment.get("OPENAI_API_KEY") or None, environment.get("OPENAI_BASE_URL") or None
    reason = "OPENAI_BASE_URL is set" if base_url else "OPENAI_API_KEY is set"
    name = environment.get("OPENAI_MODEL") or environment.get("HANSARD_MODEL")
    if not name and base_url is not None:
        models = await ask_models(base_url, key=key, seconds_max=CONFIGURED_SECONDS_MAX)
        if models:
            name = models[0]
        else:
            reason += "; its models are not known, so OPENAI_MODEL should name one"
    return Discovered(f"openai:{name or OPENAI_DEFAULT}", base_url, reason)


async def find_local(
    environment: Mapping[str, str],
    *,
    servers: Sequence[LocalServer] = SERVERS,
    probe_seconds_max: float = PROBE_SECONDS_MAX,
) -> list[FoundServer]:
    """Ask every server at once. OLLAMA_HOST moves Ollama, as long as it stays on this machine."""
    asked = [ollama_of(environment.get("OLLAMA_HOST", ""), server) for server in servers]
    answers = await asyncio.gather(*(ask_models(server.base_url, seconds_max=probe_seconds_max) for server in asked))
    return [FoundServer(server, models) for server, models in zip(asked, answers, strict=True)]


def ollama_of(address: str, server: LocalServer) -> LocalServer:
    """Return where Ollama is, by its own variable: `host`, `host:port`, `:port` or an address. Others stay put."""
    if server.title != OLLAMA.title or not address:
        return server
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host, port = parts.hostname or server.host, parts.port or server.port
    except ValueError:
        return server
    # A server that listens everywhere listens here.
    return server._replace(host=server.host if host in {"0.0.0.0", "::"} else host, port=port)  # noqa: S104


async def ask_models(base_url: str, *, key: str | None = None, seconds_max: float) -> tuple[str, ...] | None:
    """Return the models that a server on this machine offers for chat; None when it does not answer as it should."""
    parts = urlsplit(base_url)
    try:
        host, port = loopback_of(parts.hostname or ""), parts.port or 80
        if host is None or parts.scheme != "http":
            return None
        async with asyncio.timeout(seconds_max):
            answer = await get(host, port, f"{parts.path.rstrip('/')}/models", key)
        listed = json.loads(answer)["data"]
        names = [str(model["id"]) for model in listed]
    except (OSError, TimeoutError, ValueError, LookupError, TypeError, EOFError, RecursionError, LimitOverrunError):
        return None
    return tuple(name for name in names if can_chat(name))


def loopback_of(host: str) -> str | None:
    """Return the address to connect to when a host is this machine's own; None for any other, unasked."""
    if host == "localhost":
        return "127.0.0.1"
    with contextlib.suppress(ValueError):
        return host if ipaddress.ip_address(host).is_loopback else None
    return None


def can_chat(name: str) -> bool:
    """Whether a model's name can be shown, and speaks for a model that chats, on this machine."""
    if not name.isprintable() or not 0 < len(name) <= NAME_CHARACTERS_MAX:
        return False
    lower = name.lower()
    return not lower.endswith(NOT_LOCAL) and not any(part in lower for part in NOT_FOR_CHAT)


async def get(host: str, port: int, path: str, key: str | None) -> bytes:
    """Make one GET and return the body. Raises ValueError or EOFError when the answer is none."""
    reader, writer = await asyncio.open_connection(host, port, limit=ANSWER_BYTES_MAX)
    try:
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "Accept: application/json", "Connection: close"]
        if key:
            lines.append(f"Authorization: Bearer {key}")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        if head[0].split(maxsplit=2)[1] != "200":
            raise ValueError(f"the server answered {head[0]!r}")
        headers = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        return await read_body(reader, headers)
    finally:
        writer.transport.abort()


async def read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b""
        while size := int((await reader.readline()).partition(b";")[0], 16):
            if len(body) + size > ANSWER_BYTES_MAX:
                raise ValueError("the answer is too long")
            body += await reader.readexactly(size)
            await reader.readline()
        return body
    if "content-length" in headers:
        return await reader.readexactly(min(int(headers["content-length"]), ANSWER_BYTES_MAX))
    body = b""
    while len(body) < ANSWER_BYTES_MAX and (piece := await reader.read(ANSWER_BYTES_MAX)):
        body += piece
    return body
