"""Who asks the provider and sees its tokens: the raw stream, the libraries one above the other, and Hansard's adapter.

All ask the same server for the same answer with the same past, and note each token when they have it in their hands.
What is measured begins when the request is known: a library's own values for it are made before.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, NamedTuple, Protocol, Self

import httpx2
import msgspec
from openai import AsyncOpenAI
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from turn_tokens import Token, Tokens, Wanted, now_us

from hansard.domain.requests import AssistantSaid, Delta, Request, UserSaid
from hansard.engine.prompts import BASE_PROMPT
from hansard.models.pydantic import ProviderModel, open_provider

KEY = "bench"
MODEL = "bench"
STALL_SECONDS = 60.0

Past = Sequence[tuple[str, str]]
"""What was said before, and what was answered."""


class Heard(NamedTuple):
    """One answer as somebody saw it. Times in microseconds."""

    asked_us: int
    tokens: list[Token]
    over_us: int
    stages: dict[str, int]
    """When Hansard had got how far; empty for the others."""

    @property
    def first_us(self) -> int:
        """How long the first token took."""
        return self.tokens[0].seen_us - self.asked_us

    @property
    def request_us(self) -> int:
        """How long it took until the whole request was at the server."""
        return self.tokens[0].arrived_us - self.asked_us

    @property
    def delays_us(self) -> list[int]:
        """How old each token was when it was seen."""
        return [token.seen_us - token.sent_us for token in self.tokens]


class Reader(Protocol):
    """One way to ask. An async context; asking needs nothing but a place that was begun."""

    name: str

    async def __aenter__(self) -> Self:
        """Make the clients."""
        ...

    async def __aexit__(self, *error: object) -> None:
        """Let go of them."""
        ...

    async def begin(self, place: str, past: Past) -> None:
        """Begin a conversation that has a past."""
        ...

    async def ask(self, place: str, past: Past, wanted: Wanted) -> Heard:
        """Ask for an answer and see the whole of it."""
        ...


class Stateless:
    """What readers share that keep no conversation: clients."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Make the clients."""
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        timeout = httpx2.Timeout(STALL_SECONDS, pool=None)
        client = httpx2.AsyncClient(timeout=timeout, limits=limits, trust_env=False)
        self.use(await self.stack.enter_async_context(client))
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close them."""
        await self.stack.aclose()

    def use(self, client: httpx2.AsyncClient) -> None:
        """Take the client that every connection goes through."""
        raise NotImplementedError

    async def begin(self, place: str, past: Past) -> None:
        """Nothing is kept: every request brings its past along."""


class RawReader(Stateless):
    """The floor: the bytes of the stream, its lines, their JSON."""

    name = "raw"

    def use(self, client: httpx2.AsyncClient) -> None:
        """Nothing else is needed."""
        self._client = client

    async def ask(self, place: str, past: Past, wanted: Wanted) -> Heard:
        """Post, and read lines."""
        del place
        body = {
            "model": MODEL,
            "messages": messages_of(past, wanted),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        asked_us, tokens = now_us(), Tokens()
        content = msgspec.json.encode(body)
        address = f"{self.base_url}/chat/completions"
        async with self._client.stream("POST", address, content=content, headers=headers) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    choices = msgspec.json.decode(line[6:])["choices"]
                    if choices and (piece := choices[0]["delta"].get("content")):
                        tokens.take(piece)
        return Heard(asked_us, tokens.seen, now_us(), {})


class SdkReader(Stateless):
    """OpenAI's own library."""

    name = "sdk"

    def use(self, client: httpx2.AsyncClient) -> None:
        """Put the library above the client."""
        self._library = AsyncOpenAI(api_key=KEY, base_url=self.base_url, max_retries=0, http_client=client)

    async def ask(self, place: str, past: Past, wanted: Wanted) -> Heard:
        """Create a streamed completion."""
        del place
        messages: Any = messages_of(past, wanted)
        asked_us, tokens = now_us(), Tokens()
        stream = await self._library.chat.completions.create(
            model=MODEL, messages=messages, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                tokens.take(chunk.choices[0].delta.content)
        return Heard(asked_us, tokens.seen, now_us(), {})


class PydanticReader(Stateless):
    """pydantic-ai's direct stream, which Hansard's models stand on."""

    name = "pydantic-ai"

    def use(self, client: httpx2.AsyncClient) -> None:
        """Put both libraries above the client."""
        library = AsyncOpenAI(api_key=KEY, base_url=self.base_url, max_retries=0, http_client=client)
        self._model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=library))
        self._parameters = ModelRequestParameters(instruction_parts=[InstructionPart(content=BASE_PROMPT)])

    async def ask(self, place: str, past: Past, wanted: Wanted) -> Heard:
        """Open a direct stream."""
        del place
        messages: list[ModelMessage] = []
        for said, answered in past:
            messages.append(ModelRequest(parts=[UserPromptPart(content=said)]))
            messages.append(ModelResponse(parts=[TextPart(content=answered)]))
        messages.append(ModelRequest(parts=[UserPromptPart(content=wanted.words)]))
        asked_us, tokens = now_us(), Tokens()
        opening = model_request_stream(
            self._model, messages, model_request_parameters=self._parameters, instrument=False
        )
        async with opening as answer:
            async for event in answer:
                if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    tokens.take(event.delta.content_delta)
                elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    tokens.take(event.part.content)
        return Heard(asked_us, tokens.seen, now_us(), {})


class AdapterReader(Stateless):
    """Hansard's model adapter without a record: what `hansard.models.pydantic` adds."""

    name = "adapter"

    async def __aenter__(self) -> Self:
        """Make the model; it makes its own client."""
        self._model = provider_model(self.base_url)
        self.stack.push_async_callback(self._model.close)
        return self

    async def ask(self, place: str, past: Past, wanted: Wanted) -> Heard:
        """Read the adapter's stream."""
        del place
        messages: list[UserSaid | AssistantSaid] = []
        for said, answered in past:
            messages += [UserSaid(said), AssistantSaid(answered)]
        request = Request(system=BASE_PROMPT, messages=(*messages, UserSaid(wanted.words)))
        asked_us, tokens = now_us(), Tokens()
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    tokens.take(event.text)
        return Heard(asked_us, tokens.seen, now_us(), {})


FLOORS = (RawReader, SdkReader, PydanticReader, AdapterReader)
"""Each stands on the one before."""


def messages_of(past: Past, wanted: Wanted) -> list[dict[str, str]]:
    """Return what is said, as it is on the wire."""
    messages = [{"role": "system", "content": BASE_PROMPT}]
    for said, answered in past:
        messages += [{"role": "user", "content": said}, {"role": "assistant", "content": answered}]
    return [*messages, {"role": "user", "content": wanted.words}]


def provider_model(base_url: str) -> ProviderModel:
    """Return the model as Hansard opens it."""
    return open_provider(f"openai:{MODEL}", key=KEY, base_url=base_url, stall_seconds=STALL_SECONDS)
