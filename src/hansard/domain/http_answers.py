"""Which answers of servers are taken, over HTTP: where they lead, how they are packed, how much they say.

| rule | because |
|---|---|
| a redirect is followed on the same host only | conversation and key were meant for that host |
| packed bodies are refused, and none is asked for | a few bytes unpack to gigabytes |
| an event of a stream, or a whole body, has a bound | libraries hold it in memory until its end |
| an answer has a bound | libraries keep all of it |

Reads and writes nothing: adapters ask these rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

from hansard.domain.limits import MIB

EVENT_BYTES_MAX: Final = 16 * MIB
"""One event of a stream, or a body that is none: an answer with pictures fits."""

ANSWER_BYTES_MAX: Final = 128 * MIB
"""All bytes of one answer. A model's longest answers, a few hundred bytes for each word, have less than half of it."""

ANSWER_CHARACTERS_MAX: Final = 8 * MIB
"""Text, reasoning and arguments of tools in one answer. The record takes less."""

UNPACKED: Final = {"accept-encoding": "identity"}
"""The header that asks for bodies as they are."""

BLANK_LINES: Final = (b"\n\n", b"\r\r", b"\r\n\r\n")
BLANK_LINE_BYTES_MAX: Final = 4

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class AnswerRefused(Exception):
    """A server answered in a way that is not taken. The words are our own: they name hosts and sizes, nothing else."""


def check_answer(url: str, status: int, headers: Mapping[str, str]) -> None:
    """Raise AnswerRefused when an answer leads to another host, or is packed."""
    if status in REDIRECTS and headers.get("location"):
        check_redirect(url, headers["location"])
    packing = headers.get("content-encoding", "").strip().lower()
    if packing not in {"", "identity"}:
        host = host_of(url)
        raise AnswerRefused(f"{host} sent a packed answer, although it was asked not to; such answers are not read")


def check_redirect(url: str, location: str) -> None:
    """Raise AnswerRefused when a redirect leaves the host. From http to https on one host is no leaving."""
    try:
        target = urljoin(url, location)
        before, after = origin_of(url), origin_of(target)
    except ValueError:
        raise AnswerRefused(f"{host_of(url)} redirects to an address that cannot be read") from None
    upgraded = ("https", before[1], DEFAULT_PORTS["https"])
    if after != before and not (before[0] == "http" and before[2] == DEFAULT_PORTS["http"] and after == upgraded):
        raise AnswerRefused(f"{host_of(url)} redirects to {host_of(target)}, and redirects to others are not followed")


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an address. Raises ValueError."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme)


def host_of(url: str) -> str:
    """Return the host of an address, and its port where it has one, for people: no more than that."""
    try:
        host = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    return "".join(sign for sign in host if sign.isprintable())[:253] or "the server"


class AnswerMeter:
    """How much came of one answer."""

    def __init__(self) -> None:
        self._event_bytes = 0
        self._answer_bytes = 0
        self._tail = b""

    def count_bytes(self, data: bytes) -> None:
        """Take a piece in. Raises AnswerRefused when there is more than is taken."""
        seen = self._tail + data
        last = max(seen.rfind(each) for each in BLANK_LINES)
        self._event_bytes = len(seen) - last if last >= 0 else self._event_bytes + len(data)
        self._answer_bytes += len(data)
        self._tail = seen[-BLANK_LINE_BYTES_MAX + 1 :]
        if self._event_bytes > EVENT_BYTES_MAX:
            raise AnswerRefused(f"it sent more than {EVENT_BYTES_MAX // MIB} MiB at once, without an end")
        if self._answer_bytes > ANSWER_BYTES_MAX:
            raise AnswerRefused(f"its answer has more than {ANSWER_BYTES_MAX // MIB} MiB")
