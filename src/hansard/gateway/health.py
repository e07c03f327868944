"""How a gateway does: told over HTTP on this machine only, and found by a file in the home.

Two pages: the health as JSON, and the numbers in the text format of Prometheus (0.0.4).
Reads: what the gateway and its channels say, and what the process knows of itself. Writes: `gateway.json` in the home.
Invariants: no words of anybody in either page. Labels of numbers are channels, states and classes of reasons, never
names of people or chats.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hansard import __version__
from hansard.app.home_files import closed_folder
from hansard.domain.deliveries import DeliveryState
from hansard.errors import ConfigInvalid, GatewaySilent, StatusUnusable
from hansard.journal.causes import look_at_process
from hansard.journal.queue import BOUNDS_SECONDS, Latency

HOST = "127.0.0.1"
STATUS_FILE = "gateway.json"
REQUEST_BYTES_MAX = 8192
REQUEST_SECONDS_MAX = 30.0
"""A gateway on a busy machine takes seconds to answer."""

KIB: Final = 1024


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
    except PermissionError as error:
        hint = "Run the command as the user who owns the home."
        raise StatusUnusable(f"{closed_folder(path) or path} cannot be read: {error.strerror}", hint) from error
    except OSError as error:
        raise StatusUnusable(f"{path} cannot be read: {error.strerror}") from error
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

    try:
        server = await asyncio.start_server(answer, HOST, port, limit=REQUEST_BYTES_MAX)
    except OSError as error:
        why = f"gateway.health_port: port {port} of {HOST} cannot be listened on: {os.strerror(error.errno or 0)}"
        raise ConfigInvalid(why, "Choose another port; 0 lets the system choose one.") from error
    running = Running(pid=os.getpid(), port=server.sockets[0].getsockname()[1])
    write_status(home, running)
    try:
        yield
    finally:
        remove_status(home, running)
        server.close()


async def respond(head: bytes, pages: Pages) -> bytes:
    method, path = [*head.split(b"\r\n", 1)[0].split(b" "), b"", b""][:2]
    asked = pages.get(path.partition(b"?")[0].decode("latin-1"))
    if method not in {b"GET", b"HEAD"} or asked is None:
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    page = await asked()
    lines = (f"HTTP/1.1 {page.status}", f"Content-Type: {page.media_type}", f"Content-Length: {len(page.body)}")
    head = "\r\n".join((*lines, "Connection: close", "", "")).encode()
    return head if method == b"HEAD" else head + page.body


async def ask_health(home: Path, seconds_max: float = REQUEST_SECONDS_MAX) -> Health | None:
    """Return how the gateway of a home does; None when none runs, GatewaySilent when one does and does not answer."""
    running = read_status(home)
    if running is None:
        return None
    try:
        async with asyncio.timeout(seconds_max):
            reader, writer = await asyncio.open_connection(HOST, running.port)
            try:
                if look_at_process(running.pid).is_stopped:  # somebody listens there: the file is not an old one
                    raise TimeoutError
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await writer.drain()
                await reader.readuntil(b"\r\n\r\n")
                found = msgspec.json.decode(await reader.read(), type=Health)
            finally:
                writer.close()
    except TimeoutError as error:
        raise silence_of(running.pid, seconds_max) from error
    except (OSError, asyncio.IncompleteReadError, msgspec.MsgspecError):
        return None
    return found if found.pid == running.pid else None


def silence_of(pid: int, seconds: float) -> GatewaySilent:
    """Return the error of a gateway that did not answer for so long, or is stopped and cannot."""
    if look_at_process(pid).is_stopped:
        hint = f"Let it go on: kill -CONT {pid}"
        return GatewaySilent(f"the gateway is stopped (process {pid})", hint, pid=pid, is_stopped=True)
    return GatewaySilent(f"the gateway (process {pid}) did not answer within {seconds:g} s", pid=pid)


# Numbers.


class Readings(NamedTuple):
    """What health does not tell."""

    running_turns: int
    queued_turns: int | None
    """None while the record cannot be read."""
    latency: Latency


class Sample(NamedTuple):
    """One number, with its labels."""

    value: float
    labels: tuple[tuple[str, str], ...] = ()
    suffix: str = ""


def metrics_text(health: Health, readings: Readings) -> bytes:
    metrics = *of_turns(health, readings), *of_channels(health), *of_record(health, readings), *of_process(health)
    return "".join(f"{line}\n" for lines in metrics for line in lines).encode()


def gauge(name: str, meaning: str, *samples: Sample) -> list[str]:
    return metric("gauge", name, meaning, *samples)


def counter(name: str, meaning: str, *samples: Sample) -> list[str]:
    return metric("counter", name, meaning, *samples)


def metric(kind: str, name: str, meaning: str, *samples: Sample) -> list[str]:
    """Return the lines of a metric; none without numbers."""
    head = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"] if samples else []
    return [*head, *(line_of(name, sample) for sample in samples)]


def line_of(name: str, sample: Sample) -> str:
    labels = ",".join(f'{label}="{escaped(value)}"' for label, value in sample.labels)
    number = f"{sample.value:.10g}" if sample.value != int(sample.value) else str(int(sample.value))
    return f"{name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {number}"


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def of_turns(health: Health, readings: Readings) -> Iterator[list[str]]:
    turns, queued = health.turns, readings.queued_turns
    waiting = () if queued is None else (Sample(queued),)
    failed = [Sample(count, (("reason", reason),)) for reason, count in sorted(turns.failed.items())]
    meaning = "How many turns failed, one after another, since a model last answered."
    yield gauge("hansard_turns_running", "Turns that this process runs.", Sample(readings.running_turns))
    yield gauge("hansard_turns_queued", "Turns that wait to run, in every session.", *waiting)
    yield counter("hansard_turns_completed_total", "Turns of this process that were answered.", Sample(turns.completed))
    yield counter("hansard_turns_failed_total", "Turns of this process that failed, by reason.", *failed)
    yield gauge("hansard_turns_failing", meaning, Sample(turns.failing))


def of_channels(health: Health) -> Iterator[list[str]]:
    def each(number: Callable[[ChannelHealth], float]) -> list[Sample]:
        return [Sample(number(channel), (("channel", channel.name),)) for channel in health.channels]

    deliveries = [
        Sample(channel.deliveries.get(state, 0), (("channel", channel.name), ("state", state)))
        for channel in health.channels
        for state in DeliveryState
        if state is not DeliveryState.SENT
    ]
    meaning = "How long ago the platform last answered."
    yield gauge("hansard_channel_up", "1 when the channel has no trouble.", *each(lambda channel: not channel.trouble))
    yield counter("hansard_events_received_total", "Events that came from the platform.", *each(lambda one: one.events))
    yield gauge("hansard_receive_quiet_seconds", meaning, *each(lambda one: one.quiet_seconds))
    yield gauge("hansard_messages_waiting", "Messages that are not shown yet.", *each(lambda one: one.waiting))
    meaning = "How long the oldest of them has waited."
    yield gauge("hansard_delivery_lag_seconds", meaning, *each(lambda one: one.lag_seconds))
    yield gauge("hansard_deliveries", "Posts and edits that are not sent, by state.", *deliveries)
    meaning = "Posts and edits that the platform took."
    yield counter("hansard_deliveries_sent_total", meaning, *each(lambda one: one.sent))


def of_record(health: Health, readings: Readings) -> Iterator[list[str]]:
    counted = readings.latency.read()
    buckets = [
        Sample(count, (("le", f"{bound:g}"),), "_bucket")
        for bound, count in zip(BOUNDS_SECONDS, counted.within, strict=True)
    ]
    yield gauge("hansard_record_up", "1 when the record can be written.", Sample(not health.record))
    yield metric(
        "histogram",
        "hansard_record_commit_seconds",
        "How long group commits took, once the write lock was held.",
        *buckets,
        Sample(counted.commits, (("le", "+Inf"),), "_bucket"),
        Sample(counted.seconds, suffix="_sum"),
        Sample(counted.commits, suffix="_count"),
    )


def of_process(health: Health) -> Iterator[list[str]]:
    config = health.config
    yield gauge("hansard_stopping", "1 while the gateway drains.", Sample(health.status == "stopping"))
    meaning = "1 when the configuration was right the last time that it was read."
    yield gauge("hansard_config_valid", meaning, Sample(not config.refused))
    meaning = "How often the configuration was read again."
    yield counter("hansard_config_readings_total", meaning, Sample(config.readings))
    yield gauge("process_resident_memory_bytes", "Memory that is really there.", Sample(resident_bytes()))
    yield gauge("process_open_fds", "Open files and connections.", *map(Sample, open_files()))
    yield gauge("hansard_build_info", "Which Hansard this is.", Sample(1, (("version", __version__),)))


def resident_bytes() -> int:
    """Return how much memory the process takes; where the system does not tell, the most that it ever took."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * KIB
    return pages * resource.getpagesize()


def open_files() -> Iterator[int]:
    """Yield how many files and connections are open, where the system tells."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            yield len(list(Path(folder).iterdir()))
        except OSError:
            continue
        return
