"""Files that come with messages: fetched and stored before the message is, so that it never names what is not there.

What is too large or cannot be fetched is recorded by its name, and the person is told.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.messages import File
from hansard.errors import ChannelBusy, ChannelError, NotFound, TooLarge
from hansard.intake.notices import not_kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.domain.notices import Notices
    from hansard.ports.channel import Fetches, RemoteFile
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

    def __init__(self, record: Record, fetches: Fetches | None, bytes_max: int, notices: Notices) -> None:
        """Without that nothing can be fetched."""
        self._record = record
        self._fetches = fetches
        self._bytes_max = bytes_max
        self._notices = notices
        self._room = asyncio.Semaphore(TOGETHER_MAX)

    async def fetch_all(self, files: Sequence[RemoteFile]) -> list[Fetched]:
        """Return every file of a message, in order."""
        return list(await asyncio.gather(*(self._fetch(file) for file in files)))

    async def _fetch(self, file: RemoteFile) -> Fetched:
        name = "".join(sign for sign in file.name if sign.isprintable())[:NAME_CHARACTERS_MAX]
        named = File(blob="", name=name, media_type=file.media_type, size_bytes=max(0, file.size_bytes))
        if self._fetches is None:
            return Fetched(named, not_kept(self._notices, name, self._notices.file_no_way))
        too_much = not_kept(self._notices, name, self._notices.file_too_large.format(bytes=self._bytes_max))
        if file.size_bytes > self._bytes_max:
            return Fetched(named, too_much)
        try:
            async with self._room:
                data = await self._try(self._fetches, file)
        except TooLarge:
            data = None
            too_large = True
        else:
            too_large = data is not None and len(data) > self._bytes_max
        if too_large:
            return Fetched(named, too_much)
        if data is None:
            return Fetched(named, not_kept(self._notices, name, self._notices.file_failed))
        blob = await self._record.put_blob(data)
        return Fetched(File(blob=blob, name=name, media_type=file.media_type, size_bytes=len(data)))

    async def _try(self, fetches: Fetches, file: RemoteFile) -> bytes | None:
        """Return a file's bytes, or None when several tries gave nothing."""
        for attempt in range(ATTEMPTS_MAX):
            pause = PAUSE_SECONDS * 2**attempt
            try:
                async with asyncio.timeout(FETCH_SECONDS_MAX):
                    return await fetches.fetch(file, bytes_max=self._bytes_max)
            except TimeoutError:
                pass
            except (ChannelError, NotFound) as error:
                if not error.retryable:
                    return None
                pause = error.seconds if isinstance(error, ChannelBusy) else pause
            if attempt + 1 < ATTEMPTS_MAX:
                await asyncio.sleep(min(pause, PAUSE_SECONDS_MAX))
        return None
