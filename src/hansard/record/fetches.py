"""Fetches: files that are fetched after their messages are recorded.

Entries: file.awaited and file.settled in the home journal, file.fetched in the session's. Table: fetch. SQL:
fetches.sql.
Invariants: a file is settled once; where it is, with its keys, is told in the home journal alone.
On crash: a file that was not settled is still open.
"""

from __future__ import annotations

import hashlib

from hansard.domain.arrivals import Arrival, ArrivalKind, IntakeRules
from hansard.domain.budgets import Brought, pace_name
from hansard.domain.limits import REASON_CHARACTERS_MAX
from hansard.domain.notices import Wording
from hansard.domain.text import clean_text
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.transaction import Transaction
from hansard.record import Namespace
from hansard.record.budgets import allows, count_used, tell_over
from hansard.record.messages.entries import FileFetched
from hansard.record.people import add_at_home, count_pace, list_due
from hansard.record.routes import tell_of_session
from hansard.record.sessions import session_journal

FETCHES = Concept(
    "fetches", "hansard.record", tables=(Table(name="fetch", order="session_id, message_id, file", of_home=True),)
)
SQL = FETCHES.queries


@FETCHES.entry("file.awaited")
class FileAwaited(Body, frozen=True):
    """A file of a message is still on the platform, and is to be fetched. Of the home journal.

    `reference` is the channel's own, with keys if the file is encrypted: it stands here alone, and in no export.
    `chat`: where people are told when it cannot be fetched; empty: nobody is.
    """

    channel: str
    account: str
    session_id: str
    message_id: str
    file: str
    person: str
    reference: str
    name: str = ""
    media_type: str = "application/octet-stream"
    size_bytes: int = 0
    chat: str = ""


@FETCHES.entry("file.settled")
class FileSettled(Body, frozen=True):
    """A file waits no longer: it was fetched, or it cannot be. What became of it stands in its session."""

    session_id: str
    message_id: str
    file: str
    person: str = ""
    size_bytes: int = 0


@FETCHES.projects(FileAwaited, FileSettled)
def project_fetch(place: EntryPlace, body: Body) -> None:
    match body:
        case FileAwaited():
            file = (body.session_id, body.message_id, body.file)
            place.run(SQL.insert_fetch, (*file, body.channel, body.account, body.person, place.seq))
        case FileSettled():
            place.run(SQL.drop_fetch, (body.session_id, body.message_id, body.file))
            if body.size_bytes:
                count_pace(place, pace_name(Brought.BYTES, body.person), body.size_bytes)


OPEN_MAX = 2000
PERSON_OPEN_MAX = 100
"""Files that wait to be fetched, in all and of one person, who leaves room for others. More are only named."""


def await_files(
    tx: Transaction, arrival: Arrival, session_id: str, message_id: str, rules: IntakeRules, *, words: Wording
) -> None:
    """Note that the files of a message are to be fetched. Of those that are too many, people are told."""
    origin, person = arrival.origin, arrival.origin.person
    chat = "" if arrival.kind is ArrivalKind.OBSERVED else origin.chat  # nowhere, if they only talked among themselves
    for awaited in arrival.files:
        asked = ((Brought.FILES, 1), (Brought.BYTES, max(1, awaited.size_bytes)))
        over = next((each for each, more in asked if not allows(tx, rules, each, person, more)), None)
        waiting, own = tx.row(SQL.count_fetches, (person,))
        if not over and waiting < OPEN_MAX and own < PERSON_OPEN_MAX:
            body = FileAwaited(
                channel=origin.channel,
                account=origin.account,
                session_id=session_id,
                message_id=message_id,
                file=awaited.file,
                person=person,
                reference=awaited.reference,
                name=awaited.name,
                media_type=awaited.media_type,
                size_bytes=awaited.size_bytes,
                chat=chat,
            )
            add_at_home(tx, "awaited", body)
            count_used(tx, person, files=1)
            continue
        failure = f"the hour's limit of {over}" if over else "the limit of files that wait is reached"
        record_file(tx, session_id, FileFetched(message_id=message_id, file=awaited.file, failure=failure))
        if over:
            tell_over(tx, words, over, person, chat)
        elif chat:
            tell_of_session(tx, session_id, chat, words.tell_file_not_kept(awaited.name, words.file_too_many))


def settle_file(tx: Transaction, awaited: FileAwaited, fetched: FileFetched, text: str = "") -> None:
    """Record what became of a file, once, in its session, ended or not; tell people when it is not kept."""
    if tx.row(SQL.find_fetch, (awaited.session_id, awaited.message_id, awaited.file)) is None:
        return
    record_file(tx, awaited.session_id, fetched)
    body = FileSettled(
        session_id=awaited.session_id,
        message_id=awaited.message_id,
        file=awaited.file,
        person=awaited.person,
        size_bytes=fetched.size_bytes,
    )
    add_at_home(tx, "settled", body)
    if text and awaited.chat:
        tell_of_session(tx, awaited.session_id, awaited.chat, text)


def record_file(tx: Transaction, session_id: str, fetched: FileFetched) -> None:
    """Add what became of a file to the session of its message. An ended session takes that, too."""
    journal, _ = session_journal(tx, session_id)
    key = hashlib.sha256(f"{fetched.message_id}\n{fetched.file}".encode()).hexdigest()[:32]
    tx.add(journal, f"~fetched:{key}", fetched)


class FileFetches(Namespace):
    """Files of messages, from when they are named until they are kept."""

    async def list_due(self, channel: str, account: str, *, person_max: int, limit: int) -> list[FileAwaited]:
        """Return what is to be fetched now: so many files of one person, people in turn."""
        return await self._caller.read(
            lambda snapshot: list_due(snapshot, FileAwaited, SQL.list_fetches, (channel, account), (person_max, limit))
        )

    async def keep(self, awaited: FileAwaited, blob: str, size_bytes: int) -> None:
        """Record that a file is kept: its blob is stored already."""
        await self._caller.run(self._caller.store.blobs.require, blob)
        fetched = FileFetched(message_id=awaited.message_id, file=awaited.file, blob=blob, size_bytes=size_bytes)
        await self._caller.write(lambda tx: settle_file(tx, awaited, fetched))

    async def give_up(self, awaited: FileAwaited, failure: str, text: str) -> None:
        """Record that a file is not kept, and why; `text` is told where it was sent."""
        why = clean_text(failure)[:REASON_CHARACTERS_MAX]
        fetched = FileFetched(message_id=awaited.message_id, file=awaited.file, failure=why)
        await self._caller.write(lambda tx: settle_file(tx, awaited, fetched, text))
