"""Models behind OpenAI's, Anthropic's and Google's protocols, by pydantic-ai's direct streaming.

The libraries take a second to import, so nothing of them is touched before the first request; `preload` does it
earlier, in a thread, while a person types. One call of `stream` asks once: the libraries' own retries are off, and
every failure is a value.
"""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

import msgspec

from hansard.domain.http_answers import ANSWER_CHARACTERS_MAX, AnswerRefused
from hansard.domain.limits import MIB
from hansard.domain.requests import Called, Delta, Failed, Failure, Finished, ModelEvent, Request
from hansard.domain.text import clean_text, split_pending_surrogate
from hansard.errors import InvalidInput
from hansard.models.bodies import ASKED, NO_TEXT, anthropic_messages, chat_messages, responses_input
from hansard.models.clients import STYLES, ModelAccess, find_access, http_client, make_model, trusted
from hansard.models.endings import OBSERVER, AnswerWire, ending_of, known_usage, signed_parts
from hansard.models.failures import failure_of, missing_key, missing_package, refuses_figures
from hansard.models.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2
    from pydantic_ai.messages import ModelResponseStreamEvent
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings


def open_provider(
    name: str,
    *,
    key: str | None,
    base_url: str | None,
    stall_seconds: float,
    sees: bool | None = None,
    key_source: str = "",
) -> ProviderModel:
    """Return the model of a name such as `openai:gpt-5`. Nothing is imported and nobody is called before it is asked.

    Without a key or an address the variables are read that the provider's own library reads. `sees`: whether it takes
    pictures; None: that is judged by its name. `key_source`: where the key came from, for people.
    """
    prefix, _, model = name.partition(":")
    if not model or prefix not in STYLES:
        known = ", ".join(f"{prefix}:NAME" for prefix in STYLES)
        raise InvalidInput(f"{name!r} is not the name of a model at a provider; those are {known}")
    style = STYLES[prefix]
    if prefix == "google" and not is_installed("google.genai"):
        return ProviderModel(name, missing_package("google-genai"), sees=sees)
    access = find_access(style, model, key=key, base_url=base_url, stall_seconds=stall_seconds, key_source=key_source)
    if access.lacks_key:
        return ProviderModel(name, missing_key(style.key_variables[0]), sees=sees)
    return ProviderModel(name, access, sees=sees)


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


IMPORTING = threading.Lock()
"""Two threads that import packages which import one another may be shown half of one: one at a time."""


def preload(name: str = "") -> None:
    """Import and read what the first request to a model needs; without a name, what any model needs.

    Call it in a thread while a person types: it takes a second or more.
    """
    prefix = name.partition(":")[0]
    with IMPORTING:
        if prefix in {"", "openai", "openai-responses"}:
            import openai.resources.chat.completions
            import openai.resources.responses  # noqa: F401
            import pydantic_ai.models.openai
        if prefix in {"", "anthropic"}:
            import anthropic.resources.beta.messages  # noqa: F401
            import pydantic_ai.models.anthropic
        if prefix == "google":
            import pydantic_ai.models.google
        if prefix in {"", *STYLES}:
            import pydantic_ai.direct  # noqa: F401
            from genai_prices.data_snapshot import get_snapshot

            get_snapshot()
            trusted()


class ProviderModel:
    """One model at one provider; or, when it cannot be reached from here, the failure that says why."""

    uses_tools = True
    """Every provider can be offered tools; what a model makes of them is its own affair."""

    def __init__(self, name: str, access: ModelAccess | Failure, *, sees: bool | None = None) -> None:
        self.name = name
        prefix, _, model = name.partition(":")
        is_own = not isinstance(access, Failure) and access.is_own
        self.rules = rules_of(prefix, model, is_own=is_own, sees=sees)
        self._access = access
        self._lock = threading.Lock()
        self._client: httpx2.AsyncClient | None = None
        self._model: Model[Any] | None = None
        self._asks_usage = True

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Ask once, and give the answer as it comes. Calls are given at the end, when they are known to be whole."""
        access = self._access
        if isinstance(access, Failure):
            yield Failed(failure=access)
            return
        wire = AnswerWire()
        pieces = Pieces()
        answer: StreamedResponse | None = None
        try:
            async with AsyncExitStack() as stack:
                answer = await self._ask(stack, wire, access, request)
                async for event in answer:
                    if (delta := pieces.delta(event)) is not None:
                        yield delta
                ending = ending_of(answer, wire, access.style.name)
        except Exception as error:  # noqa: BLE001  # boundary: model call
            ending = ending_of(answer, wire, access.style.name, failure_of(error, wire, access))
        for delta in pieces.rest():
            yield delta
        usage = known_usage(answer, access.base_url)
        if isinstance(ending, Failure):
            yield Failed(failure=ending, usage=usage)
            return
        assert answer is not None
        if ending.refusal:
            yield Delta(ending.refusal)
        for call in ending.calls:
            yield Called(call)
        yield Finished(reason=ending.reason, usage=usage, parts=signed_parts(answer, self.name))

    async def close(self) -> None:
        client, self._client, self._model = self._client, None, None
        if client is not None:
            await client.aclose()

    async def _ask(
        self, stack: AsyncExitStack, wire: AnswerWire, access: ModelAccess, request: Request
    ) -> StreamedResponse:
        """Send the request and return the answer that begins; once more where only the figures were refused."""
        asks_usage = self._asks_usage
        model = await self._made(access)
        from pydantic_ai.exceptions import ModelHTTPError

        try:
            return await open_answer(stack, wire, access, model, request)
        except ModelHTTPError as error:
            if access.is_own or not asks_usage or not refuses_figures(error):
                raise
        if self._asks_usage:
            self._asks_usage, self._model = False, None
        return await open_answer(stack, wire, access, await self._made(access), request)

    async def _made(self, access: ModelAccess) -> Model[Any]:
        """Return the model of the library. Importing and building happen in a thread, once."""
        return await asyncio.to_thread(self._build, access) if self._model is None else self._model

    def _build(self, access: ModelAccess) -> Model[Any]:
        """Make the clients. Turns that come first at once share what the earliest of them made."""
        preload(self.name)
        with self._lock:
            if self._client is None:
                self._client = http_client(access)
            if self._model is None:
                self._model = make_model(access, self._client, asks_usage=self._asks_usage)
            return self._model


async def open_answer(
    stack: AsyncExitStack, wire: AnswerWire, access: ModelAccess, model: Model[Any], request: Request
) -> StreamedResponse:
    """Send a request, and return the answer that begins, which `wire` watches. Leaving the stack ends it."""
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    opening = model_request_stream(
        model,
        [ModelRequest(parts=[UserPromptPart(content=NO_TEXT)])],  # in place of what was said
        model_settings=map_settings(request, access.style.name),
        model_request_parameters=map_parameters(request),
        instrument=False,
    )
    token, asked = OBSERVER.set(wire), ASKED.set(request)
    try:
        return await stack.enter_async_context(opening)
    finally:
        OBSERVER.reset(token)
        ASKED.reset(asked)


class Pieces:
    """The pieces of an answer, in the order in which they come. Halves of a character are held until both are there."""

    def __init__(self) -> None:
        self._halves = {"text": "", "reasoning": ""}
        self._characters = 0

    def delta(self, event: ModelResponseStreamEvent) -> Delta | None:
        """Return the piece that an event brings; None when it brings no words.

        Raises AnswerRefused when all of them together, with arguments of tools, are more than is taken.
        """
        content: str | None = None
        part = "text"
        if event.event_kind == "part_delta":
            if event.delta.part_delta_kind == "text":
                content = event.delta.content_delta
            elif event.delta.part_delta_kind == "thinking":
                content, part = event.delta.content_delta, "reasoning"
            elif event.delta.part_delta_kind == "tool_call":
                self._count(event.delta.args_delta)
        elif event.event_kind == "part_start":
            if event.part.part_kind == "text":
                content = event.part.content
            elif event.part.part_kind == "thinking":
                content, part = event.part.content, "reasoning"
        if not content:
            return None
        self._count(content)
        text, self._halves[part] = split_pending_surrogate(self._halves[part] + content)
        return Delta(whole_characters(text), part) if text else None

    def _count(self, piece: object) -> None:
        self._characters += len(piece) if isinstance(piece, str) else 0
        if self._characters > ANSWER_CHARACTERS_MAX:
            raise AnswerRefused(f"it has more than {ANSWER_CHARACTERS_MAX // MIB} million characters")

    def rest(self) -> list[Delta]:
        """Return what is still held: halves whose other half never came."""
        return [Delta(whole_characters(half), part) for part, half in self._halves.items() if half]


def whole_characters(text: str) -> str:
    """Return the text with the halves of characters joined. All other text stays as it is, byte for byte."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return clean_text(text)
    return text


def map_parameters(request: Request) -> ModelRequestParameters:
    """Return the tools and the system. Strict modes would rewrite the tools' frozen schemas, so they stay off."""
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=msgspec.json.decode(tool.parameters, type=dict[str, Any]),
            strict=False,
        )
        for tool in request.tools
    ]
    instructions = [InstructionPart(content=request.system)] if request.system.strip() else []
    return ModelRequestParameters(function_tools=tools, instruction_parts=instructions)


def map_settings(request: Request, style: str) -> ModelSettings:
    """Return the limit, what was said, and Anthropic's cache marks after the system and the tools.

    Nothing is stored at OpenAI: what it has to know again, its own reasoning too, is sent again.
    """
    settings: dict[str, Any] = {}
    if request.output_tokens_max is not None:
        settings["max_tokens"] = request.output_tokens_max
    if style == "openai":
        settings["extra_body"] = {"messages": chat_messages(request)}
    elif style == "openai-responses":
        settings["extra_body"] = {"input": responses_input(request)}
        settings["openai_store"] = False
    elif style == "anthropic":
        settings["extra_body"] = {"messages": anthropic_messages(request)}
        settings |= {"anthropic_cache_instructions": True, "anthropic_cache_tool_definitions": True}
    return cast("ModelSettings", settings)
