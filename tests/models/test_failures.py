"""Failures are values: the right kind, when to come back, and a text for people that gives nothing away."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from urllib.parse import urlsplit

import pytest

from hansard.domain.requests import Delta, FailureKind, FinishReason, ModelEvent
from hansard.models import clients
from hansard.models.endings import AnswerWire
from hansard.models.failures import TEXT_CHARACTERS_MAX, blotted, failure_of, said
from hansard.models.pydantic import ProviderModel, open_provider
from tests.clock import leap
from tests.models.helpers import HELLO, KEY, STALL_SECONDS, STYLES, Answer, ask, asking
from tests.models.providers.behaviour import Behaviour
from tests.models.providers.server import Provider

STATUSES = [
    (429, FailureKind.BUSY),
    (529, FailureKind.BUSY),
    (500, FailureKind.UNAVAILABLE),
    (502, FailureKind.UNAVAILABLE),
    (503, FailureKind.UNAVAILABLE),
    (504, FailureKind.UNAVAILABLE),
    (408, FailureKind.UNAVAILABLE),
    (401, FailureKind.UNAUTHORISED),
    (403, FailureKind.UNAUTHORISED),
    (400, FailureKind.REFUSED),
    (402, FailureKind.REFUSED),
    (404, FailureKind.REFUSED),
    (413, FailureKind.REFUSED),
    (422, FailureKind.REFUSED),
]


@pytest.mark.parametrize(("status", "kind"), STATUSES)
async def test_statuses(style: str, status: int, kind: FailureKind) -> None:
    """Each status is the failure that it means, after one request and no more."""
    async with Provider(style, [Behaviour(status=status)]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert answer.failure.kind is kind
    assert str(status) in answer.failure.text
    assert len(provider.answers) == 1


@pytest.mark.parametrize("body", ["<html><body>Bad gateway</body></html>", "upstream error", "", "null", "[]", '"no"'])
async def test_bodies_that_are_no_error_of_the_api(style: str, body: str) -> None:
    """Gateways answer with pages and odd JSON; the status counts, and a page is not read out."""
    async with Provider(style, [Behaviour(status=502, body=body)]) as provider, asking(provider) as model:
        failure = (await ask(model)).failure
    assert failure.kind is FailureKind.UNAVAILABLE
    assert "<" not in failure.text


def in_future(seconds: float) -> str:
    """Return a time to come as HTTP writes it."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "7"}, 7.0, 7.0),
        ({"Retry-After": "0.5"}, 0.5, 0.5),
        ({"retry-after-ms": "1500"}, 1.5, 1.5),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25, 0.25),
        ({"Retry-After": in_future(86_400)}, 80_000.0, 86_400.0),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_when_to_come_back(style: str, status: int, headers: dict[str, str], least: float, most: float) -> None:
    """The provider's word on when to come back is kept, in each of its forms."""
    async with Provider(style, [Behaviour(status=status, headers=headers)]) as provider, asking(provider) as model:
        failure = (await ask(model)).failure
    assert failure.retry_after_seconds is not None
    assert least <= failure.retry_after_seconds <= most


async def test_nonsense_about_when_to_come_back(style: str) -> None:
    """A time that is none is no failure of ours."""
    behaviour = Behaviour(status=429, headers={"Retry-After": "soon"})
    async with Provider(style, [behaviour]) as provider, asking(provider) as model:
        assert (await ask(model)).failure.retry_after_seconds is None


async def test_account_that_is_empty_is_not_busy() -> None:
    """OpenAI says 429 for an empty account as well: waiting does not help, so it is a refusal."""
    behaviour = Behaviour(status=429, code="insufficient_quota")
    async with Provider("openai", [behaviour]) as provider, asking(provider) as model:
        assert (await ask(model)).failure.kind is FailureKind.REFUSED


@pytest.mark.parametrize(
    ("style", "code", "kind"),
    [
        ("openai", "server_error", FailureKind.UNAVAILABLE),
        ("openai", "rate_limit_exceeded", FailureKind.BUSY),
        ("openai", "never_heard_of", FailureKind.UNAVAILABLE),
        ("anthropic", "overloaded_error", FailureKind.BUSY),
        ("anthropic", "api_error", FailureKind.UNAVAILABLE),
        ("anthropic", "rate_limit_error", FailureKind.BUSY),
        ("anthropic", "never_heard_of", FailureKind.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("after", [1, 5])
@pytest.mark.loss("A6")
async def test_errors_within_a_stream(style: str, code: str, kind: FailureKind, after: int) -> None:
    """An error among the events is the failure that it would have been before them; the words so far are kept."""
    behaviour = Behaviour(error_after_events=after, code=code)
    async with Provider(style, [behaviour]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert answer.failure.kind is kind
    assert answer.text == provider.answers[0].sent_text
    assert len(provider.answers) == 1


GARBAGE = {
    "openai": ["data: {nonsense\n\n", "data: \xff\xfe\n\n", "data: 7\n\n", 'data: {"choices": 3}\n\n'],
    "anthropic": [
        "event: content_block_delta\ndata: {nonsense\n\n",
        "event: content_block_delta\ndata: \xff\xfe\n\n",
        "event: content_block_delta\ndata: \n\ndata: {\n\nevent: message_delta\ndata: {\n\n",
    ],
}


@pytest.mark.parametrize(("style", "garbage"), [(style, text) for style in STYLES for text in GARBAGE[style]])
@pytest.mark.parametrize("after", [1, 4])
@pytest.mark.loss("A6")
async def test_garbage(style: str, garbage: str, after: int) -> None:
    """Bytes that mean nothing end the answer as garbled; the words before them are kept."""
    behaviour = Behaviour(garbage=garbage, garbage_after_events=after)
    async with Provider(style, [behaviour]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert answer.failure.kind is FailureKind.GARBLED
    assert "Hello, world.".startswith(answer.text)
    assert bool(answer.text) is (after == 4)


@pytest.mark.parametrize(
    "body", ["<html>Sign in to the hotel's network</html>", '{"choices": []}', "hello", "\x00\x01"]
)
async def test_success_that_is_no_stream(style: str, body: str) -> None:
    """A status of success with something else in it is garbled."""
    async with Provider(style, [Behaviour(body=body)]) as provider, asking(provider) as model:
        assert (await ask(model)).failure.kind is FailureKind.GARBLED


async def test_something_else_in_place_of_http(style: str) -> None:
    """A port where no web server listens is garbled too."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}]")
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    model = open_provider(f"{style}:m", key=KEY, base_url=f"http://127.0.0.1:{port}", stall_seconds=STALL_SECONDS)
    failure = (await ask(model)).failure
    await model.close()
    server.close()
    assert failure.kind is FailureKind.GARBLED


async def ask_in_leaps(model: ProviderModel, provider: Provider, seconds: float) -> Answer:
    """Ask, and let so many seconds pass at once whenever the server pauses and its words so far have been read."""
    events: list[ModelEvent] = []

    async def read() -> None:
        async for event in model.stream(HELLO):
            events.append(event)  # noqa: PERF401 - they are looked at meanwhile

    reading = asyncio.create_task(read())
    exchange = await provider.asked(1)
    if provider.behaviours[0].stall_after_events is not None:
        await exchange.stalled.wait()
    while not reading.done():
        if "".join(event.text for event in events if isinstance(event, Delta)) == exchange.sent_text:
            leap(seconds)
        await asyncio.sleep(0.01)
    await reading
    return Answer(events)


@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.loss("A6")
async def test_silence(style: str, after: int) -> None:
    """Silence longer than the patience is a stall, before the first event and between events; the words are kept."""
    behaviour = Behaviour(stall_after_events=after)
    async with Provider(style, [behaviour]) as provider, asking(provider, stall_seconds=STALL_SECONDS) as model:
        answer = await ask_in_leaps(model, provider, STALL_SECONDS)
    assert answer.failure.kind is FailureKind.STALLED
    assert answer.text == provider.answers[0].sent_text


async def test_silence_before_the_headers(style: str) -> None:
    """A server that takes the request and says nothing stalls as well."""
    behaviour = Behaviour(head_delay_seconds=1000 * STALL_SECONDS)
    async with Provider(style, [behaviour]) as provider, asking(provider, stall_seconds=STALL_SECONDS) as model:
        assert (await ask_in_leaps(model, provider, STALL_SECONDS)).failure.kind is FailureKind.STALLED


async def test_slow_is_not_silent(style: str) -> None:
    """The patience is for each wait, not for the whole answer."""
    pause_seconds = STALL_SECONDS / 4
    behaviour = Behaviour(pieces=("a",) * 8, delay_seconds=pause_seconds)
    async with Provider(style, [behaviour]) as provider, asking(provider, stall_seconds=STALL_SECONDS) as model:
        started = asyncio.get_running_loop().time()
        answer = await ask_in_leaps(model, provider, pause_seconds)
    assert answer.finished.reason is FinishReason.STOP
    assert answer.text == "aaaaaaaa"
    assert asyncio.get_running_loop().time() - started > STALL_SECONDS


async def test_nobody_there(style: str) -> None:
    """A port where nobody listens is unavailable, and the text names the place."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        model = open_provider(
            f"{style}:m", key=KEY, base_url=f"http://user:hush@{place}/v1", stall_seconds=STALL_SECONDS
        )
        failure = (await ask(model)).failure
        await model.close()
    assert (failure.kind, failure.text) == (FailureKind.UNAVAILABLE, f"No connection to {place}.")


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(status=401, message=f"Incorrect API key provided: {KEY}"),
        Behaviour(status=403, message=f"key {KEY} may not"),
        Behaviour(status=400, message=f"bad request with {KEY} and header-value-1234"),
        Behaviour(status=500, message=f"Traceback: authorization: Bearer {KEY}"),
        Behaviour(status=429, body=f"slow down, {KEY}"),
        Behaviour(status=400, message=f"{'x' * (TEXT_CHARACTERS_MAX - 10)}{KEY}"),
        Behaviour(error_after_events=2, message=f"lost {KEY}"),
        Behaviour(garbage_after_events=2, garbage=f"data: {{{KEY}\n\nevent: message_delta\ndata: {{{KEY}\n\n"),
        Behaviour(body=KEY),
    ],
)
async def test_no_key_in_any_text(style: str, behaviour: Behaviour) -> None:
    """Whatever a server echoes, neither the key nor a part of it gets into a text."""
    async with Provider(style, [behaviour]) as provider:
        model = open_provider(f"{style}:m", key=KEY, base_url=provider.base_url, stall_seconds=STALL_SECONDS)
        text = (await ask(model)).failure.text
        await model.close()
    assert KEY in provider.answers[0].headers["authorization"]
    assert not any(part in text for part in (KEY, KEY[:12], KEY[-12:], "Bearer"))
    assert len(text) < TEXT_CHARACTERS_MAX + 100


@pytest.mark.parametrize(
    ("status", "says"),
    [(401, "The provider did not accept the key (401): "), (403, "The provider does not allow this (403): ")],
)
async def test_a_refusal_is_told_in_the_providers_words(style: str, status: int, says: str) -> None:
    """That a key is wrong and that it may not do something are told apart, and why stands behind it, without keys."""
    message = f"Model m is not for your region; key sk-proj-ab***********cdef and AIzaSyD-1234567890 and {KEY}."
    async with Provider(style, [Behaviour(status=status, message=message)]) as provider:
        model = open_provider(f"{style}:m", key=KEY, base_url=provider.base_url, stall_seconds=STALL_SECONDS)
        failure = (await ask(model)).failure
        await model.close()
    assert failure.kind is FailureKind.UNAUTHORISED
    assert failure.text.startswith(f"{says}Model m is not for your region; key … and … and …")


@pytest.mark.parametrize(
    ("behaviour", "key_source", "advice"),
    [
        (
            Behaviour(status=401, message="no."),
            "keys.toml",
            ": no. The key for {host} is from keys.toml: correct it, and start Hansard again.",
        ),
        (
            Behaviour(status=403, message="no"),
            "environment X_KEY",
            "is from environment X_KEY: use one that may, or another model, and start Hansard again.",
        ),
        (
            Behaviour(status=404, message="no"),
            "keys.toml",
            ": no. The model is 'm' at {host}: check its name and the address.",
        ),
        (Behaviour(status=502, body="<html>Bad gateway</html>"), "", "(502). The address is {host}."),
        (Behaviour(body="<html>Sign in</html>"), "", "could not be understood. The address is {host}."),
    ],
    ids=["401", "403", "404", "502 with a page", "200 with a page"],
)
async def test_who_is_meant_and_what_helps(style: str, behaviour: Behaviour, key_source: str, advice: str) -> None:
    """A text names the host, where the key came from or which model was asked for, and never the key itself."""
    async with Provider(style, [behaviour]) as provider:
        model = open_provider(
            f"{style}:m", key=KEY, base_url=provider.base_url, stall_seconds=STALL_SECONDS, key_source=key_source
        )
        text = (await ask(model)).failure.text
        await model.close()
    assert text.endswith(advice.format(host=urlsplit(provider.base_url).netloc))
    assert KEY not in text


def test_texts_are_one_plain_line() -> None:
    """What a provider says is shown on one line, shortened, and without characters that a terminal obeys."""
    access = clients.find_access(clients.STYLES["openai"], "m", key="hush-hush", base_url="http://h", stall_seconds=1)
    text = said("It failed", {"error": {"message": "a\n\x1b[31mb\thush-hush " + "c" * 1000}}, access)
    assert text.startswith("It failed: a [31mb … cc")
    assert text.isprintable()
    assert len(text) == len("It failed: ") + TEXT_CHARACTERS_MAX


def test_longer_secrets_go_first() -> None:
    """A secret that begins another one leaves nothing of the longer one behind."""
    assert blotted("x abcd-efgh y", ("abcd", "abcd-efgh")) == "x … y"


def test_library_that_is_not_there() -> None:
    """A library that cannot be imported is missing, by its name."""
    access = clients.find_access(clients.STYLES["openai"], "m", key=None, base_url="http://h", stall_seconds=1)
    failure = failure_of(ModuleNotFoundError("no", name="anthropic"), AnswerWire(), access)
    assert (failure.kind, "anthropic" in failure.text) == (FailureKind.MISSING, True)
