"""What can go wrong with a provider, as values. Texts are short, for people, and hold no key and no header."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, TypeVar

from hansard.domain.http_answers import AnswerRefused
from hansard.domain.requests import Failure, FailureKind

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

    from hansard.models.clients import ModelAccess
    from hansard.models.endings import AnswerWire

Caught = TypeVar("Caught", bound=BaseException)

TEXT_CHARACTERS_MAX: Final = 300
"""A provider's own words: a sentence or two, not a page of HTML."""

SECRET_CHARACTERS_MIN: Final = 4
"""A shorter header value is no secret, and blotting it out would make a text unreadable."""

SECRETS: Final = re.compile(
    r"\b(?:sk|pk|key|xai|gsk)-[\w*.-]{6,}|\bAIza[\w*.-]{6,}|\bBearer\s+\S+|\S*(?:\*{3,}|•{3,})\S*|\w{3,}(?:…|\.{3})\w{3,}",
    re.IGNORECASE,
)
"""What looks like a key, of any owner: providers echo keys, sometimes in part, with stars for the rest."""

STATUS_BUSY = frozenset({429, 529})
STATUS_KEY_WRONG = 401
STATUS_UNKNOWN = 404
STATUS_UNAUTHORISED = {
    STATUS_KEY_WRONG: "The provider did not accept the key (401)",
    403: "The provider does not allow this (403)",
}
"""The key is wrong; or it is right, and may not do what was asked: a model, a region, an account."""
STATUS_TIMEOUT = 408
STATUS_INVALID = frozenset({400, 422})
STATUS_SERVER_MIN = 500


def missing_key(variable: str) -> Failure:
    return Failure(kind=FailureKind.UNAUTHORISED, text=f"There is no key for this model: set {variable}.")


def missing_package(package: str) -> Failure:
    text = f"The package for this provider's protocol is not installed: pip install {package}"
    return Failure(kind=FailureKind.MISSING, text=text)


def cut_off(wire: AnswerWire) -> Failure:
    text = "The answer was cut off." if wire.size_bytes else "The connection was closed before an answer came."
    return Failure(kind=FailureKind.CUT, text=text)


def garbled(access: ModelAccess) -> Failure:
    text = f"The provider sent something that could not be understood. The address is {access.host}."
    return Failure(kind=FailureKind.GARBLED, text=text)


def failure_of(error: Exception, wire: AnswerWire, access: ModelAccess) -> Failure:
    """Say what an exception of the model library, the provider's library or the transport means."""
    if (own := own_failure(error)) is not None:
        return own
    import httpx2
    from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior

    if isinstance(error, ModelHTTPError):
        return status_failure(error, error.status_code, access)
    if isinstance(error, ModelAPIError) and error.in_stream:
        text = said("The provider broke off with an error", error.body, access)
        return Failure(kind=FailureKind.UNAVAILABLE, text=text)
    if (transport := cause_of(error, httpx2.TransportError)) is not None:
        return transport_failure(transport, wire, access)
    if not wire.is_answered:
        # Nobody was asked, or not in words that could be sent. To repeat that would not help.
        return Failure(kind=FailureKind.REFUSED, text=f"The request could not be made ({type(error).__name__}).")
    is_empty = isinstance(error, UnexpectedModelBehavior) and not wire.size_bytes
    # An event that stops in its middle where only the closing of the connection marks the end was cut there.
    is_cut = wire.ended and not wire.delimited
    return cut_off(wire) if is_empty or is_cut else garbled(access)


def own_failure(error: Exception) -> Failure | None:
    """Say what Hansard itself found: a library that is missing, an answer that is not taken. None: neither."""
    if isinstance(error, ModuleNotFoundError):
        return Failure(kind=FailureKind.MISSING, text=f"A library for this model is not installed: {error.name}.")
    if refused := cause_of(error, AnswerRefused):
        return Failure(kind=FailureKind.REFUSED, text=f"The answer was not taken: {refused}.")
    return None


def status_failure(error: ModelAPIError, status: int, access: ModelAccess) -> Failure:
    """Say what an HTTP status means, or the status that an error within a stream stands for."""
    from pydantic_ai.exceptions import ModelQuotaExceededError

    if status in STATUS_UNAUTHORISED:
        text = advised(said(STATUS_UNAUTHORISED[status], error.body, access), key_advice(status, access))
        return Failure(kind=FailureKind.UNAUTHORISED, text=text)
    if isinstance(error, ModelQuotaExceededError):
        text = said(f"The provider's account has nothing left ({status})", error.body, access)
        return Failure(kind=FailureKind.REFUSED, text=text)
    if status in STATUS_BUSY:
        text = said(f"The provider is busy ({status})", error.body, access)
        return Failure(kind=FailureKind.BUSY, text=text, retry_after_seconds=retry_after(error))
    if status >= STATUS_SERVER_MIN or status == STATUS_TIMEOUT:
        text = said(f"The provider failed ({status})", error.body, access)
        return Failure(kind=FailureKind.UNAVAILABLE, text=text, retry_after_seconds=retry_after(error))
    text = said(f"The provider refused the request ({status})", error.body, access)
    if status == STATUS_UNKNOWN:
        text = advised(text, f"The model is {access.model!r} at {access.host}: check its name and the address.")
    return Failure(kind=FailureKind.REFUSED, text=text, status=status)


def key_advice(status: int, access: ModelAccess) -> str:
    """Return where the key came from, for people: asking again with the same one does not help."""
    if not access.key_source:
        return f"No key was given, and {access.host} wants one."
    helps = "correct it" if status == STATUS_KEY_WRONG else "use one that may, or another model"
    return f"The key for {access.host} is from {access.key_source}: {helps}, and start Hansard again."


def advised(text: str, advice: str) -> str:
    return f"{text.rstrip('.')}. {advice}"


def retry_after(error: ModelAPIError) -> float | None:
    """Return when the provider wants to be asked again. Fractions of seconds are not in the standard, but are sent."""
    if error.retry_after is not None:
        return error.retry_after
    headers = getattr(error, "headers", None) or {}
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None


def transport_failure(error: Exception, wire: AnswerWire, access: ModelAccess) -> Failure:
    import httpx2

    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError | httpx2.UnsupportedProtocol):
        return Failure(kind=FailureKind.UNAVAILABLE, text=f"No connection to {access.host}.")
    if isinstance(error, httpx2.TimeoutException):
        text = f"Nothing came from the provider for {access.stall_seconds:g} seconds."
        return Failure(kind=FailureKind.STALLED, text=text)
    if isinstance(error, httpx2.RemoteProtocolError) and not wire.size_bytes and not cut_by_peer(error):
        return garbled(access)
    return cut_off(wire)


def cut_by_peer(error: Exception) -> bool:
    """Whether a protocol error is a connection that closed too early, and not nonsense in place of HTTP."""
    text = str(error).lower()
    return "disconnected" in text or "closed" in text or "incomplete" in text


def cause_of(error: BaseException, kind: type[Caught]) -> Caught | None:
    """Return the first of a kind among an exception and those that it was raised from."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, kind):
            return current
        seen.add(id(current))
        current = current.__cause__ or current.__context__
    return None


def refuses_figures(error: ModelHTTPError) -> bool:
    return error.status_code in STATUS_INVALID and "stream_options" in str(error.body)


def said(what: str, body: object, access: ModelAccess) -> str:
    """Return what happened with the provider's own words about it, on one line and without secrets."""
    words = " ".join(blotted(own_words(body), access.secrets).split())
    if len(words) > TEXT_CHARACTERS_MAX:
        words = words[: TEXT_CHARACTERS_MAX - 1] + "…"
    return f"{what}: {words}" if words else f"{what}. The address is {access.host}."


def own_words(body: object) -> str:
    """Return the message in the body of an error, wherever it stands; nothing when it is a page."""
    if isinstance(body, dict):
        message = body.get("message")
        return message if isinstance(message, str) else own_words(body.get("error"))
    return body if isinstance(body, str) and not body.lstrip().startswith("<") else ""


def blotted(text: str, secrets: tuple[str, ...]) -> str:
    """Return the text without secrets, and without characters that a terminal would obey."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SECRET_CHARACTERS_MIN:
            text = text.replace(secret, "…")
    text = SECRETS.sub("…", text)
    return "".join(character if character.isprintable() else " " for character in text)
