"""What was said elsewhere: the record as imports use it.

Reads: nothing. Writes: messages, and what people changed of them in their chats.
Invariants: a message that came by an import is history. It is put into no outbox and answered in no chat, whatever it
says of where it was said. The same again changes nothing. No import changes what was said here.
On crash: a message is there with the changes that were taken with it, or it is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.domain import entries as e
from hansard.domain.ids import check_session_id
from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.messages import Message, clean_part
from hansard.domain.text import clean_name
from hansard.errors import InvalidInput
from hansard.record.operations.messages import Offered, append, offer
from hansard.record.turn import check_blobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.record.calls import Caller
    from hansard.record.journals import Journal
    from hansard.record.transaction import Transaction

Change = e.MessageEdited | e.MessageRetracted


class Imported(NamedTuple):
    """A message with its first words, and what was changed of it; so many of the changes are here already."""

    message: Message
    changes: tuple[Change, ...] = ()
    known: int = 0


class Imports:
    """Takes in what was said elsewhere."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.imports`."""
        self._caller = caller

    async def take(self, session_id: str, said: Sequence[Imported]) -> None:
        """Record messages, each followed by what was changed of it, in one commit; what is there already stays."""
        checked = check_session_id(session_id)
        offered = [
            (offer(msgspec.structs.replace(each.message, is_imported=True)), clean_changes(each), each.known)
            for each in said
        ]
        await check_blobs(self._caller, *(each for each, _, _ in offered))
        cost = sum(len(each.data) for each, _, _ in offered)

        def operation(tx: Transaction) -> None:
            for each, changes, known in offered:
                take_one(tx, checked, each, changes, known)

        await self._caller.write(operation, cost=cost)


def clean_changes(imported: Imported) -> tuple[Change, ...]:
    """Return the changes of a message as they can be recorded."""
    return tuple(clean_change(each, imported.message.id) for each in imported.changes)


def clean_change(change: Change, message_id: str) -> Change:
    """Return a change as it can be recorded."""
    event_id = clean_name(change.event_id, "an event id", NAME_CHARACTERS_MAX) if change.event_id else ""
    if isinstance(change, e.MessageRetracted):
        return e.MessageRetracted(message_id=message_id, event_id=event_id)
    parts = tuple(clean_part(part) for part in change.parts)
    return e.MessageEdited(message_id=message_id, parts=parts, event_id=event_id)


def is_imported(tx: Transaction, journal: Journal, message_id: str) -> bool:
    """Return whether a message came by an import."""
    found = tx.find(journal, message_id)
    body = e.decode_body(found.kind, found.version, found.body) if found is not None else None
    return isinstance(body, e.MessageAdded) and body.imported


def take_one(tx: Transaction, session_id: str, offered: Offered, changes: tuple[Change, ...], known: int) -> None:
    """Record a message and the changes of it that are not here. Each has an id of its own: no retry doubles it."""
    append(tx, session_id, offered)
    journal, _ = tx.session(session_id)
    if changes[known:] and not is_imported(tx, journal, offered.id):
        message = f"message {offered.id} was said here: an import does not change it"
        raise InvalidInput(message)
    for number, change in list(enumerate(changes))[known:]:
        entry_id = f"~imported:{offered.id}:{number}"
        if tx.find(journal, entry_id) is None:
            tx.add(journal, entry_id, change)
