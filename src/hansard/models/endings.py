"""How an answer ended: whole, or not. The rules that keep a cut answer from being taken for a whole one.

a finish reason came                                    whole, whatever happens to the connection afterwards
none, and an exception                                  what the exception says
none, and the stream was closed with its marker         whole
none, Anthropic, Google, Responses                      cut: those protocols always give a reason
none, and the transport marks the end between events    whole: some servers never give a reason
none, and anything else                                 cut

A model library reports a body that stops early as an ordinary end when only the closing of the connection marks it.
`AnswerWire` stands between the library and the transport, and remembers the facts that tell a whole answer from a cut
one.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from hansard.domain.budgets import Usage
from hansard.domain.http_answers import AnswerMeter, check_answer
from hansard.domain.messages import SIGNS_TEXT, Part, Reasoning, Text, ToolCall
from hansard.domain.requests import Failure, FailureKind, FinishReason
from hansard.models.bodies import decode_object
from hansard.models.failures import cut_off

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.models import StreamedResponse
    from pydantic_ai.usage import RequestUsage


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
        return EVENT_END.search(self._tail) is not None


OBSERVER: ContextVar[AnswerWire] = ContextVar("hansard_model_wire")
"""The wire of the request that the present task is opening. Set and reset without a yield in between."""


async def observe(response: httpx2.Response) -> None:
    """Put the observer of the present task between the transport and the library. A response hook of the client.

    Redirections to other hosts and packed answers are refused. The size of every answer is measured.
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


REASONS: Final = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.FILTER,
    "tool_call": FinishReason.TOOLS,
}


class WholeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer ended that is whole."""

    reason: FinishReason
    calls: tuple[ToolCall, ...]
    refusal: str
    """The words in which a model declines to answer: the library keeps them back until the end."""


def ending_of(
    answer: StreamedResponse | None, wire: AnswerWire, style: str, failure: Failure | None = None
) -> WholeAnswer | Failure:
    """Return how an answer ended. `failure`: what an exception says that ended it; None: the library saw an end."""
    given = raw_reason(answer) if answer is not None else ""
    if answer is None or not (given or (failure is None and is_whole(answer, wire, style))):
        return failure or cut_off(wire)
    if given == "error":
        return Failure(kind=FailureKind.CUT, text="The provider broke the answer off.")
    reason = REASONS.get(answer.finish_reason or "stop", FinishReason.STOP)
    calls = tool_calls(answer)
    if reason is FinishReason.LENGTH:
        # The limit may have fallen into the arguments of the last call.
        calls = [call for call in calls if decode_object(written_arguments(call)) is not None]
    return WholeAnswer(
        reason=FinishReason.TOOLS if calls and reason is FinishReason.STOP else reason,
        calls=tuple(
            ToolCall(id=call.tool_call_id, name=call.tool_name, arguments=written_arguments(call) or "{}")
            for call in calls
        ),
        refusal=str((answer.provider_details or {}).get("refusal") or ""),
    )


def is_whole(answer: StreamedResponse, wire: AnswerWire, style: str) -> bool:
    """Whether an answer without a finish reason is whole all the same."""
    if style != "openai":
        return False
    if wire.marked_done:
        return True
    whole_calls = all(decode_object(written_arguments(call)) is not None for call in tool_calls(answer))
    return bool(answer.get().parts) and whole_calls and wire.delimited and wire.ends_between_events


def signed_parts(answer: StreamedResponse, model: str) -> tuple[Part, ...]:
    """Return a whole answer in the parts that the provider gave it; none when it signed nothing."""
    found: list[Part] = []
    carried: dict[str, str] = {}
    for part in answer.get().parts:
        signature = str((getattr(part, "provider_details", None) or {}).get("thought_signature") or "")
        if part.part_kind == "text":
            found.append(Text(part.content))
            if signature:
                found.append(Reasoning(text="", signature=signature, model=model, id=SIGNS_TEXT))
        elif part.part_kind == "thinking":
            own = part.signature or signature or carried.get(part.id or "", "")
            if part.id:
                carried[part.id] = own
            found.append(Reasoning(text=part.content, signature=own, model=model if own else "", id=part.id or ""))
        elif part.part_kind == "tool-call":
            found.append(
                ToolCall(
                    id=part.tool_call_id,
                    name=part.tool_name,
                    arguments=written_arguments(part) or "{}",
                    signature=signature,
                    model=model if signature else "",
                )
            )
    return tuple(found) if any(getattr(part, "signature", "") for part in found) else ()


def raw_reason(answer: StreamedResponse) -> str:
    """Return the finish reason as the provider wrote it; empty when none came."""
    return str((answer.provider_details or {}).get("finish_reason") or "")


def tool_calls(answer: StreamedResponse) -> list[ToolCallPart]:
    from pydantic_ai.messages import ToolCallPart

    return [part for part in answer.get().parts if isinstance(part, ToolCallPart)]


def written_arguments(call: ToolCallPart) -> str:
    """Return the arguments as the model wrote them; empty when it wrote none."""
    return msgspec.json.encode(call.args).decode() if isinstance(call.args, dict) else call.args or ""


def known_usage(answer: StreamedResponse | None, base_url: str) -> Usage:
    if answer is None:
        return Usage()
    usage = answer.usage
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_micros=cost_micros(usage, answer.model_name, base_url),
    )


def cost_micros(usage: RequestUsage, model: str, base_url: str) -> int | None:
    """Return the price in millionths of a dollar; None when none is known for that model at that address."""
    from genai_prices import calc_price

    if not usage.input_tokens and not usage.output_tokens:
        return None
    try:
        price = calc_price(usage, model, provider_api_url=base_url)
        return int((price.total_price * 1_000_000).to_integral_value())
    except Exception:  # noqa: BLE001  # boundary: model call
        # A price is a courtesy: no answer is lost for the want of one.
        return None
