"""Files that come with messages: named with the message, fetched beside the receiving loop, and then kept.

Reads: files that wait in the record. Writes: their bytes; what became of each.
Invariants: a message is recorded at once, whatever its files do; a file that is kept is stored before it is said so;
so many are fetched together, and of one person.
On crash: what was not settled is open in the record, and is fetched at the next start.
What is too large or cannot be fetched is recorded by its name, and the person is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from hansard.domain.arrivals import Awaited
from hansard.domain.budgets import Quota
from hansard.domain.messages import File
from hansard.errors import ChannelBusy, ChannelError, NotFound, TooLarge
from hansard.intake.beside import Beside, Report
from hansard.ports.channel import Channel, Fetches, RemoteFile
from hansard.record.api import Record
from hansard.record.fetches import FileAwaited
from hansard.tasks import backoff_seconds

ATTEMPTS_MAX = 3
FETCH_SECONDS_MAX = 60.0
"""How long one try may take."""

PAUSE_SECONDS = 0.5
PAUSE_SECONDS_MAX = 10.0
TOGETHER_MAX = 6
PERSON_TOGETHER_MAX = 2
"""Files that are fetched at once, in all and of one person: each is in memory until it is stored."""

MESSAGE_FILES_MAX = 20
"""Files of one message that are fetched. More are only named."""

NAME_CHARACTERS_MAX = 200


class Named(NamedTuple):
    """The files of a message as it is recorded: its parts, what is to be fetched, what the person has to know."""

    parts: tuple[File, ...] = ()
    awaited: tuple[Awaited, ...] = ()
    notes: tuple[str, ...] = ()


class Files:
    """Fetches files from one channel."""

    def __init__(self, record: Record, channel: Channel, fetches: Fetches | None, report: Report) -> None:
        """Without `fetches` nothing can be fetched."""
        self._record, self._channel, self._fetches = record, channel, fetches
        self.beside: Beside[FileAwaited] = Beside(
            self._list_due,
            self._settle_file,
            name=lambda awaited: f"{awaited.session_id} {awaited.message_id} {awaited.file}",
            together_max=TOGETHER_MAX,
            report=report,
        )

    def apply_settings(self, bytes_max: int, quota: Quota) -> None:
        self._bytes_max, self._quota = bytes_max, quota

    def name_files(self, files: Sequence[RemoteFile]) -> Named:
        parts: list[File] = []
        awaited: list[Awaited] = []
        notes: list[str] = []
        for number, file in enumerate(files, 1):
            name = "".join(sign for sign in file.name if sign.isprintable())[:NAME_CHARACTERS_MAX]
            size = max(0, file.size_bytes)
            why = self._why_not(file, number)
            key = "" if why else str(number)
            parts.append(File(blob="", name=name, media_type=file.media_type, size_bytes=size, fetch=key))
            if why:
                notes.append(self._record.words.tell_file_not_kept(name, why))
            else:
                reference, media_type = file.reference, file.media_type
                awaited.append(
                    Awaited(file=key, reference=reference, name=name, media_type=media_type, size_bytes=size)
                )
        return Named(tuple(parts), tuple(awaited), tuple(notes))

    def _why_not(self, file: RemoteFile, number: int) -> str:
        """Return why a file is not even asked for; empty when it is."""
        if self._fetches is None:
            return self._record.words.file_no_way
        if file.size_bytes > self._bytes_max:
            return self._record.words.file_too_large.format(bytes=self._bytes_max)
        return self._record.words.file_too_many if number > MESSAGE_FILES_MAX else ""

    async def _list_due(self) -> list[FileAwaited]:
        if self._fetches is None:
            return []
        return await self._record.fetches.list_due(
            self._channel.name, self._channel.account, person_max=PERSON_TOGETHER_MAX, limit=TOGETHER_MAX
        )

    async def _settle_file(self, awaited: FileAwaited) -> None:
        """Fetch a file and keep it, or say why not."""
        fetches, bytes_max, words = self._record.fetches, self._bytes_max, self._record.words
        too_large = words.file_too_large.format(bytes=bytes_max)
        left = await self._record.quotas.bytes_left(awaited.person, self._quota)
        if left is not None and left < bytes_max:
            bytes_max, too_large = left, words.file_over
        why = words.file_failed
        try:
            data = await self._try(awaited, bytes_max)
        except TooLarge:
            data, why = None, too_large
        if data is not None and len(data) > bytes_max:
            data, why = None, too_large
        if data is None:
            await fetches.give_up(awaited, why, words.tell_file_not_kept(awaited.name, why))
        else:
            await fetches.keep(awaited, await self._record.blobs.put(data), len(data))

    async def _try(self, awaited: FileAwaited, bytes_max: int) -> bytes | None:
        """Return a file's bytes, or None when several tries gave nothing."""
        assert self._fetches is not None
        file = RemoteFile(
            reference=awaited.reference,
            name=awaited.name,
            media_type=awaited.media_type,
            size_bytes=awaited.size_bytes,
        )
        for attempt in range(1, ATTEMPTS_MAX + 1):
            pause = backoff_seconds(attempt, PAUSE_SECONDS, PAUSE_SECONDS_MAX)
            try:
                async with asyncio.timeout(FETCH_SECONDS_MAX):
                    return await self._fetches.fetch(file, bytes_max=bytes_max)
            except TimeoutError:
                pass
            except (ChannelError, NotFound) as error:
                if not error.retryable:
                    return None
                pause = error.seconds if isinstance(error, ChannelBusy) else pause
            if attempt < ATTEMPTS_MAX:
                await asyncio.sleep(min(pause, PAUSE_SECONDS_MAX))
        return None
