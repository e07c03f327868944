"""What the bytes of one answer tell: whether the transport says where it ends, and whether it did end.

A model library reports a body that stops early as an ordinary end when nothing but the closing of the connection marks
it. The observer stands between the two and remembers the few facts that tell a whole answer from a cut one.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

from hansard.domain.http_answers import AnswerMeter, check_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

TAIL_BYTES_MAX: Final = 64
"""The last bytes of a body that are remembered: the closing marker of a stream and some white space."""

DONE = re.compile(rb"[\r\n]data: ?\[DONE\]")
EVENT_END = re.compile(rb"(?:\n\n|\r\n\r\n|\r\r)[\r\n]*$")


class AnswerWire:
    """The state of one answer on the wire."""

    def __init__(self) -> None:
        self.is_answered = False
        """Headers came."""
        self.delimited = False
        """The transport marks the end: a body that stops before it is an error by itself."""
        self._begin()

    def _begin(self) -> None:
        """Nothing of a body has come yet."""
        self.ended = False
        """The body was read to its end."""
        self.size_bytes = 0
        self._meter = AnswerMeter()
        # As if a line had ended before the first one: a marker stands at the beginning of a line.
        self._tail = b"\n"

    def answered(self, response: httpx2.Response) -> None:
        """Take the headers in. Those of a second response, after a redirection, begin anew."""
        self._begin()
        self.is_answered = True
        headers = response.headers
        chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self.delimited = chunked or "content-length" in headers or response.http_version.startswith("HTTP/2")

    def came(self, data: bytes) -> None:
        """Take a piece of the body in. Raises AnswerRefused when there is more than is taken."""
        self._meter.count_bytes(data)
        self.size_bytes += len(data)
        self._tail = (self._tail + data)[-TAIL_BYTES_MAX:]

    @property
    def marked_done(self) -> bool:
        """Whether the stream closed with the marker of OpenAI's format. Text cannot forge it: its lines are escaped."""
        return DONE.search(self._tail) is not None

    @property
    def ends_between_events(self) -> bool:
        """Whether the last event that came is a whole one."""
        return EVENT_END.search(self._tail) is not None


OBSERVER: ContextVar[AnswerWire] = ContextVar("hansard_model_wire")
"""The wire of the request that the present task is opening. Set and reset without a yield in between."""


async def observe(response: httpx2.Response) -> None:
    """Put the observer of the present task between the transport and the library. A response hook of the client.

    What leads to another host or is packed is refused here, and what comes is measured, whoever asked.
    """
    wire = OBSERVER.get(None) or AnswerWire()
    wire.answered(response)
    check_answer(str(response.request.url), response.status_code, response.headers)
    response.stream = observed(cast("httpx2.AsyncByteStream", response.stream), wire)


def observed(stream: httpx2.AsyncByteStream, wire: AnswerWire) -> httpx2.AsyncByteStream:
    import httpx2

    class Observed(httpx2.AsyncByteStream):
        """The same bytes, counted."""

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for data in stream:
                wire.came(data)
                yield data
            wire.ended = True

        async def aclose(self) -> None:
            await stream.aclose()

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            return getattr(stream, name)

    return Observed()
