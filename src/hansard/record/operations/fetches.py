"""Files that are fetched after their messages are recorded: in the commit with the message, and when each is settled.

Reads: fetch. Writes: file.awaited and file.settled in the home journal, file.fetched in the session's.
Invariants: a file is settled once; where it is, with its keys, is told in the home journal alone.
On crash: a file that was not settled is still open.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.arrivals import Manner
from hansard.domain.chats import person_owner
from hansard.domain.entries_intake import FileAwaited, FileFetched, FileSettled
from hansard.domain.messages import Message
from hansard.domain.quotas import Brought
from hansard.domain.sessions import SessionState
from hansard.record.operations.access import tell_at_home
from hansard.record.operations.home import home_journal
from hansard.record.operations.messages import append, offer
from hansard.record.operations.quotas import allows, count_used, tell_over
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from hansard.domain.arrivals import Arrival, Awaited, Rules
    from hansard.record.transaction import Transaction

OPEN_MAX = 2000
PERSON_OPEN_MAX = 100
"""Files that wait to be fetched, in all and of one person, who leaves room for others. More are only named."""


class Settled(NamedTuple):
    """What became of a file, and what people are told when it is not kept."""

    fetched: FileFetched
    text: str = ""


def await_files(tx: Transaction, arrival: Arrival, session_id: str, message_id: str, rules: Rules) -> None:
    """Note that the files of a message are to be fetched. Of those that are too many, people are told."""
    person = person_owner(arrival.channel, arrival.identity)
    for awaited in arrival.files:
        if over := over_quota(tx, rules, person, awaited.size_bytes):
            fetched = FileFetched(message_id=message_id, file=awaited.file, failure=f"the hour's limit of {over}")
            record_file(tx, session_id, fetched)
            tell_over(tx, rules, over, person, told_in(arrival))
            continue
        waiting, own = tx.row(SQL.count_fetches, (person,))
        if waiting >= OPEN_MAX or own >= PERSON_OPEN_MAX:
            fetched = FileFetched(
                message_id=message_id, file=awaited.file, failure="the limit of files that wait is reached"
            )
            record_file(tx, session_id, fetched)
            tell(tx, session_id, told_in(arrival), rules.words.too_many_files(awaited.name))
            continue
        home = home_journal(tx)
        tx.add(home, f"~awaited:{home.head_seq + 1}", awaited_of(arrival, awaited, session_id, message_id, person))
        count_used(tx, person, files=1)


def over_quota(tx: Transaction, rules: Rules, person: str, size_bytes: int) -> Brought | None:
    """Return which limit of the hour a file would exceed; None when it is within all."""
    if not allows(tx, rules, Brought.FILES, person):
        return Brought.FILES
    return None if allows(tx, rules, Brought.BYTES, person, max(1, size_bytes)) else Brought.BYTES


def told_in(arrival: Arrival) -> str:
    """Return where people are told about a file: nowhere, if they only talked among themselves."""
    return "" if arrival.manner is Manner.OBSERVED else arrival.chat


def awaited_of(arrival: Arrival, awaited: Awaited, session_id: str, message_id: str, person: str) -> FileAwaited:
    """Return the fact that a file is to be fetched."""
    return FileAwaited(
        channel=arrival.channel,
        account=arrival.account,
        session_id=session_id,
        message_id=message_id,
        file=awaited.file,
        person=person,
        reference=awaited.reference,
        name=awaited.name,
        media_type=awaited.media_type,
        size_bytes=awaited.size_bytes,
        chat=told_in(arrival),
    )


def settle_file(tx: Transaction, awaited: FileAwaited, settled: Settled) -> None:
    """Record what became of a file, once, in its session, ended or not; tell people when it is not kept."""
    if tx.row(SQL.find_fetch, (awaited.session_id, awaited.message_id, awaited.file)) is None:
        return
    record_file(tx, awaited.session_id, settled.fetched)
    home = home_journal(tx)
    body = FileSettled(
        session_id=awaited.session_id,
        message_id=awaited.message_id,
        file=awaited.file,
        person=awaited.person,
        size_bytes=settled.fetched.size_bytes,
    )
    tx.add(home, f"~settled:{home.head_seq + 1}", body)
    tell(tx, awaited.session_id, awaited.chat, settled.text)


def record_file(tx: Transaction, session_id: str, fetched: FileFetched) -> None:
    """Add what became of a file to the session of its message. An ended session takes that, too."""
    journal, _ = tx.session(session_id)
    key = hashlib.sha256(f"{fetched.message_id}\n{fetched.file}".encode()).hexdigest()[:32]
    tx.add(journal, f"~fetched:{key}", fetched)


def tell(tx: Transaction, session_id: str, chat: str, text: str) -> None:
    """Tell people in a chat something about a session; in the home journal when the session has ended."""
    if not text or not chat:
        return
    if tx.session(session_id)[1].state == SessionState.ENDED:
        tell_at_home(tx, chat, text)
    else:
        append(tx, session_id, offer(Message.notice(text, chat=chat)))
