"""What a model is asked, and what it answers: values that engine and model adapters share."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from hansard.domain.messages import ToolCall, ToolResult


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as a model sees it. `parameters` is its JSON schema, kept as text: what is frozen stays the same bytes."""

    name: str
    description: str
    parameters: str = '{"type":"object","properties":{}}'


class UserSaid(msgspec.Struct, frozen=True):
    """What people said, and what they and the model have to know about what happened."""

    text: str


class AssistantSaid(msgspec.Struct, frozen=True):
    """What the model said and the tools that it called. Each call has its result in the message that follows."""

    text: str
    calls: tuple[ToolCall, ...] = ()


class ToolsSaid(msgspec.Struct, frozen=True):
    """The results of the calls of the message before, all of them, in their order."""

    results: tuple[ToolResult, ...]


Said = UserSaid | AssistantSaid | ToolsSaid


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a model. Messages alternate: people or results, then the model."""

    system: str
    tools: tuple[ToolSpec, ...] = ()
    messages: tuple[Said, ...] = ()
    output_tokens_max: int | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one request took. The cost is in millionths of a US dollar; None when no price is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_micros: int | None = None


class FailureKind(StrEnum):
    """Why a model did not answer, or not to the end."""

    BUSY = "busy"
    """429 or 529: too many requests; waiting helps."""
    UNAVAILABLE = "unavailable"
    """5xx, or no connection; waiting may help."""
    CUT = "cut"
    """The stream broke, or ended without its end."""
    STALLED = "stalled"
    """Nothing came for too long."""
    GARBLED = "garbled"
    """What came could not be understood."""
    UNAUTHORISED = "unauthorised"
    """401 or 403: the key."""
    REFUSED = "refused"
    """Any other 4xx: the request."""
    MISSING = "missing"
    """The model, or what it needs on this machine, is not there."""


RETRYABLE = frozenset(
    {FailureKind.BUSY, FailureKind.UNAVAILABLE, FailureKind.CUT, FailureKind.STALLED, FailureKind.GARBLED}
)
"""Failures after which the same request may succeed, as long as nothing of an answer has been seen."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A model's failure, as a value. The text is for people and holds no key."""

    kind: FailureKind
    text: str
    retry_after_seconds: float | None = None

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE


class Delta(msgspec.Struct, frozen=True):
    """A piece of the answer."""

    text: str
    part: str = "text"
    """`text` or `reasoning`."""


class Called(msgspec.Struct, frozen=True):
    """A tool call, once it is whole. A call that was cut in its arguments is never given."""

    call: ToolCall


class FinishReason(StrEnum):
    """Why a model stopped."""

    STOP = "stop"
    TOOLS = "tools"
    LENGTH = "length"
    FILTER = "filter"


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The answer is whole. The last event of a stream that did not fail."""

    reason: FinishReason = FinishReason.STOP
    usage: Usage = Usage()


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The stream failed. The last event of it; `usage` is what is known to have been used all the same."""

    failure: Failure
    usage: Usage = Usage()


ModelEvent = Delta | Called | Finished | Failed
