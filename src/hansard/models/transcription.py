"""Voice notes in words, by OpenAI's `/audio/transcriptions`, at any address that speaks it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from hansard.domain.budgets import Usage
from hansard.models.clients import STYLES, find_access, http_client, openai_client
from hansard.models.endings import cost_micros
from hansard.models.failures import said
from hansard.ports.model import TranscribedText, Voice

if TYPE_CHECKING:
    import httpx2

    from hansard.domain.settings.agent import Transcription

TEXT_CHARACTERS_MAX: Final = 100_000
"""What is taken of one note: hours of talk."""

GARBLED: Final = "the provider sent something that could not be understood"
STATUS_KEY: Final = 401
MINUTE_SECONDS: Final = 60

ENDINGS: Final = {
    "audio/aac": "aac",
    "audio/flac": "flac",
    "audio/m4a": "m4a",
    "audio/mp4": "m4a",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/opus": "ogg",
    "audio/wav": "wav",
    "audio/webm": "webm",
    "audio/x-m4a": "m4a",
    "audio/x-wav": "wav",
}
"""Providers tell formats by the end of a file's name, and chats do not always give one."""


class OpenAITranscriber:
    """A model behind OpenAI's protocol for speech."""

    def __init__(self, settings: Transcription, *, key: str | None, base_url: str | None) -> None:
        self.name = settings.model or ""
        self.bytes_max = settings.bytes_max
        self._settings = settings
        self._access = find_access(
            STYLES["openai"],
            self.name.partition(":")[2],
            key=key,
            base_url=settings.base_url or base_url,
            stall_seconds=settings.seconds_max,
        )
        self._client: httpx2.AsyncClient | None = None

    async def hear(self, voice: Voice) -> TranscribedText:
        if self._access.lacks_key:
            return TranscribedText(failure=f"there is no key for {self.name}")
        try:
            async with asyncio.timeout(self._settings.seconds_max):
                answer = await self._ask(voice)
        except TimeoutError:
            return TranscribedText(failure=f"it took longer than {self._settings.seconds_max:g} s")
        except Exception as error:  # noqa: BLE001  # boundary: model call
            return TranscribedText(failure=self._told(error))
        text = getattr(answer, "text", None)
        if not isinstance(text, str):
            return TranscribedText(failure=GARBLED)
        return TranscribedText(
            text=text.strip()[:TEXT_CHARACTERS_MAX], usage=self._usage(getattr(answer, "usage", None))
        )

    async def _ask(self, voice: Voice) -> Any:  # noqa: ANN401 - the library's
        if self._client is None:
            self._client = http_client(self._access)
        library = openai_client(self._access, self._client)
        file = (file_name(voice), voice.data, voice.media_type)
        return await library.audio.transcriptions.create(file=file, model=self._access.model, response_format="json")

    def _told(self, error: Exception) -> str:
        """Say what went wrong, without what a key might stand in."""
        from openai import APIConnectionError, APIStatusError

        if isinstance(error, APIStatusError):
            did = "did not accept the key" if error.status_code == STATUS_KEY else "refused it"
            what = f"the provider {did} ({error.status_code})"
            return said(what, error.body, self._access).rstrip(".")
        if isinstance(error, APIConnectionError):
            return f"no connection to {self._access.host}"
        if isinstance(error, ValueError):
            return GARBLED
        return f"the provider could not be asked ({type(error).__name__})"

    def _usage(self, given: Any) -> Usage:  # noqa: ANN401
        """Return what it took: tokens, where the provider counts those; else minutes at the price of the settings."""
        seconds = getattr(given, "seconds", None)
        price = self._settings.dollars_per_minute
        if isinstance(seconds, int | float):
            return Usage(cost_micros=None if price is None else round(seconds / MINUTE_SECONDS * price * 1_000_000))
        from pydantic_ai.usage import RequestUsage

        tokens = [getattr(given, name, 0) for name in ("input_tokens", "output_tokens")]
        coming, going = (count if isinstance(count, int) and count > 0 else 0 for count in tokens)
        used = RequestUsage(input_tokens=coming, output_tokens=going)
        price_micros = cost_micros(used, self._access.model, self._access.base_url)
        return Usage(input_tokens=coming, output_tokens=going, cost_micros=price_micros)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def file_name(voice: Voice) -> str:
    """Return a name whose end tells the format."""
    ending = ENDINGS.get(voice.media_type.partition(";")[0].strip().lower(), "")
    given = voice.name.rpartition(".")[2].lower() if "." in voice.name else ""
    return f"voice.{given if given in ENDINGS.values() else ending or 'ogg'}"
