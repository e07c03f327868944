"""Files that come with messages: fetched and stored before the message is, so that it never names what is not there.

What is too large or cannot be fetched is recorded by its name, and the person is told.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.messages import File
from hansard.errors import ChannelBusy, ChannelError, NotFound, TooLarge
from hansard.intake import notices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.ports.channel import RemoteFile, Timeline
    from hansard.record.api import Record

ATTEMPTS_MAX = 3
FETCH_SECONDS_MAX = 60.0
"""How long one try may take."""

PAUSE_SECONDS = 0.5
PAUSE_SECONDS_MAX = 10.0
TOGETHER_MAX = 4
"""Files that are fetched at once."""

NAME_CHARACTERS_MAX = 200


class Fetched(NamedTuple):
    """A file as it is recorded, and what the person has to know about it."""

    part: File
    note: str = ""


class Fetcher:
    """Fetches files from one channel."""

    def __init__(self, record: Record, timeline: Timeline | None, bytes_max: int) -> None:
        """Without a timeline nothing can be fetched."""
        self._record = record
        self._timeline = timeline
        self._bytes_max = bytes_max
        self._room = asyncio.Semaphore(TOGETHER_MAX)

    async def fetch_all(self, files: Sequence[RemoteFile]) -> list[Fetched]:
        """Return every file of a message, in order."""
        return list(await asyncio.gather(*(self._fetch(file) for file in files)))

    async def _fetch(self, file: RemoteFile) -> Fetched:
        name = "".join(sign for sign in file.name if sign.isprintable())[:NAME_CHARACTERS_MAX]
        named = File(blob="", name=name, media_type=file.media_type, size_bytes=max(0, file.size_bytes))
        if self._timeline is None:
            return Fetched(named, notices.not_kept(name, "this channel cannot fetch files"))
        if file.size_bytes > self._bytes_max:
            return Fetched(named, notices.not_kept(name, f"it has more than {self._bytes_max} bytes"))
        try:
            async with self._room:
                data = await self._try(self._timeline, file)
        except TooLarge:
            data = None
            too_large = True
        else:
            too_large = data is not None and len(data) > self._bytes_max
        if too_large:
            return Fetched(named, notices.not_kept(name, f"it has more than {self._bytes_max} bytes"))
        if data is None:
            return Fetched(named, notices.not_kept(name, "it could not be fetched"))
        blob = await self._record.put_blob(data)
        return Fetched(File(blob=blob, name=name, media_type=file.media_type, size_bytes=len(data)))

    async def _try(self, timeline: Timeline, file: RemoteFile) -> bytes | None:
        """Return a file's bytes, or None when several tries gave nothing."""
        for attempt in range(ATTEMPTS_MAX):
            pause = PAUSE_SECONDS * 2**attempt
            try:
                async with asyncio.timeout(FETCH_SECONDS_MAX):
                    return await timeline.fetch(file, bytes_max=self._bytes_max)
            except TimeoutError:
                pass
            except (ChannelError, NotFound) as error:
                if not error.retryable:
                    return None
                pause = error.seconds if isinstance(error, ChannelBusy) else pause
            if attempt + 1 < ATTEMPTS_MAX:
                await asyncio.sleep(min(pause, PAUSE_SECONDS_MAX))
        return None
