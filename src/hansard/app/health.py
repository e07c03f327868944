"""How a gateway is: told over HTTP on this machine only, and found by a file in the home."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.app.toml_file import closed_folder
from hansard.errors import StatusUnusable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "127.0.0.1"
STATUS_FILE = "gateway.json"
REQUEST_BYTES_MAX = 8192
REQUEST_SECONDS_MAX = 5.0

LIMIT = "limit"
"""The reason of turns that reached a limit of theirs: that says nothing of the model."""


class ChannelHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How one channel does."""

    name: str
    account: str
    trouble: str = ""
    """What is wrong; empty when nothing is."""
    note: str = ""
    """What people should know although nothing is wrong."""
    waiting: int = 0
    """Messages that are not shown yet."""
    lag_seconds: float = 0.0
    """How long the oldest of them has waited."""
    quiet_seconds: float = 0.0
    """How long ago the platform last answered."""
    deliveries: dict[str, int] = {}
    """Posts and edits that are not sent, by state."""
    events: int = 0
    """What was received since the start, some of it maybe twice."""
    sent: int = 0
    """Posts and edits that the platform took since the start."""


class ConfigHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the configuration stands."""

    taken_up_at: str = ""
    """When the one that counts was read."""
    readings: int = 0
    """How often it was read again since the start."""
    refused: str = ""
    """Everything that was wrong the last time; empty when nothing was. What counted before goes on to."""
    fixed: tuple[str, ...] = ()
    """Settings that changed and count from the next start on."""


class TurnsHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the turns ended that this gateway ran. Reasons are classes, and quote nobody."""

    completed: int = 0
    failed: dict[str, int] = {}
    """Since the start, by reason."""
    failing: int = 0
    """How many failed, one after another, since a model last answered. Turns that a limit ended do not count."""
    reason: str = ""
    """Why the last one of them did; empty when none."""
    model: str = ""
    """The model that it asked."""
    failing_since: str = ""

    def after(self, failed: str, model: str, now: str) -> TurnsHealth:
        """Return how they stand after one more has ended; `failed` is empty when it did not fail."""
        if not failed:
            return TurnsHealth(completed=self.completed + 1, failed=self.failed)
        counts = {**self.failed, failed: self.failed.get(failed, 0) + 1}
        if failed == LIMIT:
            return msgspec.structs.replace(self, failed=counts)
        return TurnsHealth(
            completed=self.completed,
            failed=counts,
            failing=self.failing + 1,
            reason=failed,
            model=model,
            failing_since=self.failing_since or now,
        )


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a gateway does."""

    status: str
    """`ok`, `degraded` or `stopping`."""
    pid: int
    started_at: str
    record: str = ""
    """Why the record cannot be written; empty when it can."""
    channels: tuple[ChannelHealth, ...] = ()
    config: ConfigHealth = ConfigHealth()
    turns: TurnsHealth = TurnsHealth()


class Page(NamedTuple):
    """What is answered to somebody who asks."""

    body: bytes
    media_type: str
    status: str = "200 OK"

    @classmethod
    def of_health(cls, health: Health) -> Page:
        """Return the page that tells how a gateway does: 200 when all is well, else 503."""
        status = "200 OK" if health.status == "ok" else "503 Service Unavailable"
        return cls(msgspec.json.encode(health) + b"\n", "application/json", status)


Pages = Mapping[str, Callable[[], Awaitable[Page]]]
"""By path."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """Where a gateway that runs tells about itself."""

    pid: int
    port: int


def write_status(home: Path, running: Running) -> None:
    """Say where to ask; replaced at once, so that nobody reads half of it."""
    target = home / STATUS_FILE
    draft = home / f"{STATUS_FILE}.{running.pid}"
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(running))
        draft.replace(target)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise StatusUnusable(f"{target} cannot be written: {error.strerror}") from error


def remove_status(home: Path, running: Running) -> None:
    """Take the file away, unless another gateway wrote it meanwhile."""
    with suppress(OSError, StatusUnusable):
        if read_status(home) == running:
            (home / STATUS_FILE).unlink(missing_ok=True)


def read_status(home: Path) -> Running | None:
    """Return where to ask, if a gateway ever said so."""
    path = home / STATUS_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Running)
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = StatusUnusable(f"{path} cannot be read: {error.strerror}")
        if isinstance(error, PermissionError):
            problem = StatusUnusable(f"{closed_folder(path) or path} cannot be read: {error.strerror}")
            problem.hint = "Run the command as the user who owns the home."
        raise problem from error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise StatusUnusable(f"{path} is not what a gateway wrote there") from None


@asynccontextmanager
async def health_served(home: Path, port: int, pages: Pages) -> AsyncIterator[None]:
    """Answer `GET` of each page on this machine, for as long as this lasts."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await respond(head, pages))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, HOST, port, limit=REQUEST_BYTES_MAX)
    running = Running(pid=os.getpid(), port=server.sockets[0].getsockname()[1])
    write_status(home, running)
    try:
        yield
    finally:
        remove_status(home, running)
        server.close()


async def respond(head: bytes, pages: Pages) -> bytes:
    """Return the answer to a request."""
    method, path = [*head.split(b"\r\n", 1)[0].split(b" "), b"", b""][:2]
    asked = pages.get(path.partition(b"?")[0].decode("latin-1"))
    if method not in {b"GET", b"HEAD"} or asked is None:
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    page = await asked()
    lines = (f"HTTP/1.1 {page.status}", f"Content-Type: {page.media_type}", f"Content-Length: {len(page.body)}")
    head = "\r\n".join((*lines, "Connection: close", "", "")).encode()
    return head if method == b"HEAD" else head + page.body


async def ask_health(home: Path) -> Health | None:
    """Return how the gateway of a home does; None when none runs."""
    running = read_status(home)
    if running is None:
        return None
    try:
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(HOST, running.port)
            try:
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
                del head
                found = msgspec.json.decode(await reader.read(), type=Health)
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, msgspec.MsgspecError):
        return None
    return found if found.pid == running.pid else None
