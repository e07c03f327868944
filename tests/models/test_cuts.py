"""A stream that breaks wherever it can: what came is kept, and a cut answer is never taken for a whole one."""

from __future__ import annotations

import msgspec
import pytest

from hansard.domain.requests import FailureKind, Finished
from tests.counts import times
from tests.models.helpers import Answer, ask, asking
from tests.models.providers.behaviour import Behaviour, Call, Exchange
from tests.models.providers.server import Provider

SHORT = Behaviour(
    pieces=("\n", "Gr\N{GRINNING FACE}\N{GRINNING FACE}", "ß e"),
    calls=(Call(id="a", name="clock", arguments='{"zone": "UTC"}', piece_characters=8),),
)
"""About 2 kB on the wire in either protocol, with everything in it that can be cut."""

FRAMINGS = ("chunked", "close")


async def size_of(style: str, behaviour: Behaviour) -> Exchange:
    """Ask once without a fault, and return how much was sent."""
    async with Provider(style, [behaviour]) as provider, asking(provider) as model:
        answer = await ask(model)
        await provider.answers[0].over.wait()
    assert len(answer.calls) == len(behaviour.calls)
    return provider.answers[0]


async def ask_each(style: str, behaviours: list[Behaviour]) -> list[tuple[Behaviour, Exchange, Answer]]:
    """Ask once for each behaviour. More requests than answers would be a retry that nobody asked for."""
    asked = []
    async with Provider(style, behaviours) as provider, asking(provider) as model:
        for behaviour in behaviours:
            answer = await ask(model)
            await provider.answers[-1].over.wait()
            asked.append((behaviour, provider.answers[-1], answer))
    assert len(provider.answers) == len(behaviours)
    return asked


def check_cut(exchange: Exchange, answer: Answer, finished_at: int) -> None:
    """Nothing that came is missing, nothing is invented, and only an answer with its reason is whole."""
    if exchange.events_count > finished_at:
        assert isinstance(answer.ending, Finished)
        assert len(answer.calls) == 1
    else:
        assert answer.failure.kind is FailureKind.CUT
        assert answer.calls == []


@pytest.mark.loss("A6", "A7", "C2")
@pytest.mark.slow
@pytest.mark.parametrize("framing", FRAMINGS)
async def test_cut_at_every_byte(style: str, framing: str, seed: int) -> None:
    """Cut after each byte of the body: the text is what was sent in whole events, and the end is told as it was.

    A proof makes every cut; a test run makes a few, from a place that the seed chooses.
    """
    step = times(test=23, long=11, prove=1)
    whole = msgspec.structs.replace(SHORT, framing=framing)
    full = await size_of(style, whole)
    finished_at = await finish_event(style, whole)
    cuts = [
        msgspec.structs.replace(whole, cut_after_bytes=count) for count in range(seed % step, full.sent_bytes, step)
    ]
    for behaviour, exchange, answer in await ask_each(style, cuts):
        assert answer.text == exchange.sent_text, behaviour.cut_after_bytes
        check_cut(exchange, answer, finished_at)
    assert 1_000 < full.sent_bytes < 4_000


async def finish_event(style: str, behaviour: Behaviour) -> int:
    """Return the number of the event with the reason: the first whose absence is the absence of a reason."""
    with_reason = await size_of(style, msgspec.structs.replace(behaviour, done=False, figures=None))
    return with_reason.events_count - 1


@pytest.mark.loss("A6", "A7", "C2")
@pytest.mark.parametrize("cut", ["fin", "rst"])
@pytest.mark.parametrize("framing", FRAMINGS)
async def test_cut_at_every_event(style: str, framing: str, cut: str) -> None:
    """Cut between events, politely or by a reset: a prefix of what was sent is kept, after a polite cut all of it."""
    whole = msgspec.structs.replace(SHORT, framing=framing, cut=cut)
    full = await size_of(style, whole)
    finished_at = await finish_event(style, whole)
    cuts = [msgspec.structs.replace(whole, cut_after_events=count) for count in range(full.events_count)]
    for behaviour, exchange, answer in await ask_each(style, cuts):
        assert exchange.sent_text.startswith(answer.text)
        if cut == "fin":
            assert answer.text == exchange.sent_text
            check_cut(exchange, answer, finished_at)
        elif behaviour.cut_after_events is not None and behaviour.cut_after_events <= finished_at:
            assert answer.failure.kind is FailureKind.CUT
            assert answer.calls == []


async def test_cut_in_the_headers(style: str) -> None:
    """A connection that closes before or within the headers is a cut; nothing came."""
    cuts = [Behaviour(cut_after_head_bytes=count) for count in (0, 1, 12, 20, 60)]
    for _, _, answer in await ask_each(style, cuts):
        assert (answer.failure.kind, answer.text) == (FailureKind.CUT, "")


@pytest.mark.loss("A8")
@pytest.mark.parametrize("framing", ["chunked", "length"])
@pytest.mark.parametrize("done", [True, False])
async def test_clean_end_without_a_reason_is_an_end(framing: str, done: bool) -> None:  # noqa: FBT001
    """A server that never gives a reason, and whose transport says that all came, has answered."""
    behaviour = msgspec.structs.replace(Behaviour(), finish=None, done=done, framing=framing)
    async with Provider("openai", [behaviour]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert isinstance(answer.ending, Finished)
    assert answer.text == "Hello, world."


@pytest.mark.loss("A8")
async def test_marker_without_a_reason_is_an_end() -> None:
    """Where only the closing of the connection ends the body, the closing marker is enough."""
    behaviour = Behaviour(finish=None, framing="close")
    async with Provider("openai", [behaviour]) as provider, asking(provider) as model:
        assert isinstance((await ask(model)).ending, Finished)


@pytest.mark.loss("A7")
async def test_closing_without_a_reason_is_a_cut() -> None:
    """Where only the closing of the connection ends the body, neither a reason nor the marker means cut."""
    behaviour = Behaviour(finish=None, done=False, framing="close")
    async with Provider("openai", [behaviour]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert answer.failure.kind is FailureKind.CUT
    assert answer.text == "Hello, world."


@pytest.mark.loss("A7")
async def test_marker_in_the_words_does_not_count() -> None:
    """A model that writes the marker into its answer does not end it."""
    behaviour = Behaviour(pieces=("\n\ndata: [DONE]\n\n",), finish=None, done=False, framing="close")
    async with Provider("openai", [behaviour]) as provider, asking(provider) as model:
        assert (await ask(model)).failure.kind is FailureKind.CUT


@pytest.mark.loss("A7")
@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
async def test_anthropic_always_gives_a_reason(framing: str) -> None:
    """Anthropic's protocol always says why it ends; where it does not, the answer was cut."""
    behaviour = msgspec.structs.replace(Behaviour(), finish=None, done=False, framing=framing)
    async with Provider("anthropic", [behaviour]) as provider, asking(provider) as model:
        assert (await ask(model)).failure.kind is FailureKind.CUT


@pytest.mark.loss("A7", "C2")
async def test_clean_end_within_a_call_is_a_cut() -> None:
    """A clean end without a reason in the middle of arguments is no end, and gives no call."""
    behaviour = Behaviour(calls=(Call(id="a", name="clock", arguments='{"zone": "U'),), finish=None, done=False)
    async with Provider("openai", [behaviour]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert answer.failure.kind is FailureKind.CUT
    assert answer.calls == []


@pytest.mark.loss("A7")
async def test_clean_end_within_an_event_is_a_cut() -> None:
    """A body that a gateway closes properly in the middle of an event was cut behind the gateway."""
    whole = Behaviour(finish=None, done=False)
    async with Provider("openai", [whole]) as provider:
        events = list(provider.events(whole, Exchange("POST", "", {}, {"model": "m"})))
    data = b"".join(event.data for event in events)[:-20].decode()
    async with Provider("openai", [Behaviour(body=data)]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert answer.failure.kind is FailureKind.CUT
    assert answer.text == "Hello, world"


@pytest.mark.loss("A7")
async def test_nothing_at_all_is_a_cut(style: str) -> None:
    """A stream that ends cleanly before it says anything has not answered."""
    async with Provider(style, [Behaviour(body="")]) as provider, asking(provider) as model:
        assert (await ask(model)).failure.kind is FailureKind.CUT


@pytest.mark.loss("A7")
async def test_greeting_without_words_is_a_cut() -> None:
    """A stream that names the speaker and then ends cleanly, without words, reason or marker, has not answered."""
    behaviour = Behaviour(pieces=(), finish=None, done=False)
    async with Provider("openai", [behaviour]) as provider, asking(provider) as model:
        assert (await ask(model)).failure.kind is FailureKind.CUT


@pytest.mark.loss("A6")
async def test_cut_within_a_character(style: str) -> None:
    """A connection that closes between the bytes of one character is a cut, not garbage; the words before are kept."""
    whole = Behaviour(pieces=("a", "\N{GRINNING FACE}"), framing="close")
    async with Provider(style, [whole]) as provider:
        events = provider.events(whole, Exchange("POST", "", {}, {"model": "test-model"}))
        place = b"".join(event.data for event in events).index("\N{GRINNING FACE}".encode())
    cuts = [msgspec.structs.replace(whole, cut_after_bytes=place + count) for count in range(5)]
    for _, exchange, answer in await ask_each(style, cuts):
        assert (answer.failure.kind, answer.text) == (FailureKind.CUT, "a")
        assert exchange.sent_bytes >= place


async def test_connection_lost_after_the_reason_is_an_end(style: str) -> None:
    """After the reason only figures can be missing: the answer is whole and its calls are given."""
    behaviour = Behaviour(calls=(Call(id="a", name="clock"),))
    finished_at = await finish_event(style, behaviour)
    cut = msgspec.structs.replace(behaviour, cut_after_events=finished_at + 1)
    async with Provider(style, [cut]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert isinstance(answer.ending, Finished)
    assert [call.id for call in answer.calls] == ["a"]


async def test_broken_off_by_the_provider() -> None:
    """Gateways give `error` as the reason when the model behind them failed: that is no end."""
    async with Provider("openai", [Behaviour(finish="error")]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert answer.failure.kind is FailureKind.CUT
    assert answer.text == "Hello, world."
