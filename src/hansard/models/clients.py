"""How a provider is reached: addresses, keys and the clients of the provider's own library, made when first needed."""

from __future__ import annotations

import ipaddress
import os
import ssl
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from hansard.domain.http_answers import UNPACKED
from hansard.models.bodies import ASKED, google_contents
from hansard.models.endings import observe

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletionStreamOptionsParam
    from pydantic_ai.models import Model
    from pydantic_ai.models.openai import OpenAIChatModelSettings

CONNECT_SECONDS_MAX: Final = 10.0
"""A provider that does not take the connection by then is not there."""

IDLE_SECONDS_MAX: Final = 2.0
"""An idle connection is closed after this. Some servers close theirs after five seconds, and a request that is sent at
that moment fails."""

CONNECTIONS_KEPT_MAX: Final = 20
"""Idle connections to the provider's own host kept for the next turn. Those in use are not limited here: turns are."""

PLACEHOLDER_KEY: Final = "none"
"""For servers of one's own, which want none; the libraries insist on one."""

NEVER_A_TAG: Final = ("\0think", "\0/think")
"""pydantic-ai takes a piece that is just `<think>` out of the text. What was said stays: no piece is equal to this."""


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol and the variables that its own library reads."""

    name: str
    key_variables: tuple[str, ...]
    base_url_variable: str
    base_url: str


STYLES: Final = {
    "openai": Style(
        name="openai",
        key_variables=("OPENAI_API_KEY",),
        base_url_variable="OPENAI_BASE_URL",
        base_url="https://api.openai.com/v1",
    ),
    "anthropic": Style(
        name="anthropic",
        key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        base_url_variable="ANTHROPIC_BASE_URL",
        base_url="https://api.anthropic.com",
    ),
    "google": Style(
        name="google",
        key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        base_url_variable="GOOGLE_GEMINI_BASE_URL",
        base_url="https://generativelanguage.googleapis.com",
    ),
}
STYLES["openai-responses"] = msgspec.structs.replace(STYLES["openai"], name="openai-responses")


class ModelAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How one model is reached: what was given, and what the environment says where nothing was."""

    style: Style
    model: str
    base_url: str
    key: str
    key_source: str
    """Where the key came from, such as `keys.toml`; empty when none was given."""
    stall_seconds: float

    @property
    def is_own(self) -> bool:
        """Whether the provider is the one that the protocol comes from."""
        return urlsplit(self.base_url).hostname == urlsplit(self.style.base_url).hostname

    @property
    def lacks_key(self) -> bool:
        """Whether there is no key where one is wanted for certain."""
        return self.is_own and self.key == PLACEHOLDER_KEY

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def secrets(self) -> tuple[str, ...]:
        """What may not be said about a request."""
        parts = urlsplit(self.base_url)
        secrets = (self.key, parts.password or "", parts.username or "")
        return tuple(secret for secret in secrets if secret not in {"", PLACEHOLDER_KEY})


def find_access(
    style: Style,
    model: str,
    *,
    key: str | None,
    base_url: str | None,
    stall_seconds: float,
    key_source: str = "",
) -> ModelAccess:
    """Complete what was given by what the environment says, with the variables of the provider's own library."""
    variable = next((name for name in style.key_variables if os.environ.get(name)), "")
    return ModelAccess(
        style=style,
        model=model,
        base_url=base_url or os.environ.get(style.base_url_variable) or style.base_url,
        key=key or os.environ.get(variable) or PLACEHOLDER_KEY,
        key_source=key_source if key else variable and f"environment {variable}",
        stall_seconds=stall_seconds,
    )


def http_client(access: ModelAccess) -> httpx2.AsyncClient:
    """Make the client under the provider's library. Idle bytes are timed here; a server of one's own needs no proxy."""
    import httpx2

    stall = access.stall_seconds
    # llama.cpp, with TLS or without, closes the connection after each streamed answer without saying so. A request that
    # reuses it at that moment fails. So connections are kept only to the provider's own host.
    kept_max = CONNECTIONS_KEPT_MAX if access.is_own else 0
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(stall, connect=min(stall, CONNECT_SECONDS_MAX), pool=None),
        limits=httpx2.Limits(
            max_connections=None, max_keepalive_connections=kept_max, keepalive_expiry=IDLE_SECONDS_MAX
        ),
        # On the same host: `observe` refuses others.
        follow_redirects=True,
        # Packed bytes would be held back until there are enough of them, and could not be observed.
        headers=UNPACKED,
        event_hooks={"response": [observe]},
        trust_env=not is_loopback(access.base_url),
        verify=trusted(),
    )


@cache
def trusted() -> ssl.SSLContext:
    """Return whom to believe on the network. Reading all certificates takes a while, so it is done once."""
    import httpx2

    return httpx2.create_ssl_context()


def make_model(access: ModelAccess, client: httpx2.AsyncClient, *, asks_usage: bool) -> Model[Any]:
    if access.style.name == "anthropic":
        return anthropic_model(access, client)
    if access.style.name == "google":
        return google_model(access, client)
    if access.style.name == "openai-responses":
        return responses_model(access, client)
    return openai_model(access, client, asks_usage=asks_usage)


def openai_model(access: ModelAccess, client: httpx2.AsyncClient, *, asks_usage: bool) -> Model[Any]:
    """Make a model behind Chat Completions, at any address. Some servers refuse to be asked for usage figures."""
    from openai import omit
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    class FigurelessModel(OpenAIChatModel):
        """The same, without asking for figures."""

        def _get_stream_options(self, model_settings: OpenAIChatModelSettings) -> ChatCompletionStreamOptionsParam:
            del model_settings
            return cast("ChatCompletionStreamOptionsParam", omit)

    library = openai_client(access, client)
    profile = OpenAIModelProfile(
        thinking_tags=NEVER_A_TAG, ignore_streamed_leading_whitespace=False, json_schema_transformer=None
    )
    if not access.is_own:
        # Servers of others know the older name of the limit.
        profile["openai_chat_supports_max_completion_tokens"] = False
    kind = OpenAIChatModel if asks_usage else FigurelessModel
    return kind(access.model, provider=OpenAIProvider(openai_client=library), profile=profile)


def openai_client(access: ModelAccess, client: httpx2.AsyncClient) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    return AsyncOpenAI(
        api_key=access.key,
        base_url=access.base_url,
        max_retries=0,
        timeout=client.timeout,
        http_client=client,
    )


def responses_model(access: ModelAccess, client: httpx2.AsyncClient) -> Model[Any]:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    library = openai_client(access, client)
    profile = OpenAIModelProfile(
        json_schema_transformer=None,
        openai_supports_encrypted_reasoning_content=access.is_own or is_loopback(access.base_url),
    )
    return OpenAIResponsesModel(access.model, provider=OpenAIProvider(openai_client=library), profile=profile)


def google_model(access: ModelAccess, client: httpx2.AsyncClient) -> Model[Any]:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.profiles.google import GoogleModelProfile
    from pydantic_ai.providers.google import GoogleProvider

    class OwnContents(GoogleModel):
        """The same, with the contents as they are made here."""

        async def _map_messages(self, messages: Any, model_request_parameters: Any) -> Any:  # noqa: ANN401
            system, contents = await super()._map_messages(messages, model_request_parameters)
            asked = ASKED.get(None)
            return system, contents if asked is None else google_contents(asked)

    provider = GoogleProvider(api_key=access.key, base_url=access.base_url, http_client=client)
    return OwnContents(access.model, provider=provider, profile=GoogleModelProfile(json_schema_transformer=None))


def anthropic_model(access: ModelAccess, client: httpx2.AsyncClient) -> Model[Any]:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.profiles.anthropic import AnthropicModelProfile
    from pydantic_ai.providers.anthropic import AnthropicProvider

    # A key and a token are sent the same way.
    library = AsyncAnthropic(
        api_key=access.key,
        base_url=access.base_url,
        max_retries=0,
        timeout=client.timeout,
        http_client=client,
        open_telemetry=False,
    )
    return AnthropicModel(
        access.model,
        provider=AnthropicProvider(anthropic_client=library),
        profile=AnthropicModelProfile(json_schema_transformer=None),
    )


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
