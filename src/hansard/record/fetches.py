"""Files that wait to be fetched, as intake uses them: `record.books.fetches`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain import entries as e
from hansard.domain.entries_intake import FileAwaited, FileFetched
from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.limits import REASON_CHARACTERS_MAX
from hansard.domain.text import clean_text
from hansard.record.operations import fetches as operations
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from hansard.record.calls import Caller
    from hansard.record.reading import Snapshot


class Fetches:
    """Files of messages, from when they are named until they are kept."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.books.fetches`."""
        self._caller = caller

    async def list_due(self, channel: str, account: str, *, person_max: int, limit: int) -> list[FileAwaited]:
        """Return what is to be fetched now: so many files of one person, people in turn."""

        def read(snapshot: Snapshot) -> list[FileAwaited]:
            home = snapshot.row(SQL.read_journal, (HOME_JOURNAL,))
            if home is None:
                return []
            rows = snapshot.rows(SQL.list_fetches, (channel, account, home[0], person_max, limit))
            bodies = [e.decode_body("file.awaited", 1, data) for (data,) in rows]
            return [body for body in bodies if isinstance(body, FileAwaited)]

        return await self._caller.read(read)

    async def keep(self, awaited: FileAwaited, blob: str, size_bytes: int) -> None:
        """Record that a file is kept: its blob is stored already."""
        await self._caller.run(self._caller.store.blobs.require, blob)
        fetched = FileFetched(message_id=awaited.message_id, file=awaited.file, blob=blob, size_bytes=size_bytes)
        await self._caller.write(lambda tx: operations.settle_file(tx, awaited, operations.Settled(fetched)))

    async def give_up(self, awaited: FileAwaited, failure: str, text: str) -> None:
        """Record that a file is not kept, and why; `text` is told where it was sent."""
        why = clean_text(failure)[:REASON_CHARACTERS_MAX]
        fetched = FileFetched(message_id=awaited.message_id, file=awaited.file, failure=why)
        await self._caller.write(lambda tx: operations.settle_file(tx, awaited, operations.Settled(fetched, text)))
