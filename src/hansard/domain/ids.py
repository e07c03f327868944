"""Ids: sortable and typeable for sessions, unguessable and short for everything else."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import threading
from datetime import UTC, datetime

from hansard.domain.limits import ID_CHARACTERS_MAX
from hansard.domain.text import clean_text
from hansard.errors import InvalidInput, TooLarge

ALPHABET = "23456789abcdefghjkmnpqrstvwxyz"
"""Letters and digits that nobody confuses when typing."""

HOME_JOURNAL = "~home"
"""The journal of facts that belong to no session. No session can have this id."""

DERIVED_PREFIX = "~"
"""Ids that the record itself derives begin so; a caller's ids never do."""

SESSION_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\Z")
DATED_SESSION_ID = re.compile(r"(\d{4})(0[1-9]|1[0-2])(?:[0-2]\d|3[01])-\d{6}-[a-z0-9-]+\Z")

RANDOM_BYTES = 2048
"""Random bytes that are fetched from the system at once: each call of it costs as much as writing an entry does."""

_mutex = threading.Lock()
_random = bytearray()


def random_bytes(count: int) -> bytes:
    """Return random bytes that were never given before, from any thread."""
    with _mutex:
        if len(_random) < count:
            _random[:] = os.urandom(max(RANDOM_BYTES, count))
        taken = bytes(_random[:count])
        del _random[:count]
    return taken


def _forget_in_child() -> None:
    """A child of fork() must not give what its parent gives, and may have been forked while the lock was held."""
    global _mutex  # noqa: PLW0603 - the parent's may be held for ever
    _mutex = threading.Lock()
    _random.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def random_letters(count: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(count))


def new_session_id(at_microseconds: int) -> str:
    """Return a session id such as 20261115-201233-k3v9qd."""
    moment = datetime.fromtimestamp(at_microseconds / 1_000_000, UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{random_letters(6)}"


def new_id() -> str:
    """Return a new id for an entry, a turn or a delivery: 90 bits, so that two never meet."""
    return random_bytes(12).hex()


def check_session_id(session_id: str) -> str:
    """Return the id, or refuse it: the file's path is a function of it alone."""
    if not isinstance(session_id, str) or not SESSION_ID.match(session_id):
        raise InvalidInput(f"a session id is 1 to 64 of a-z, 0-9 and '-', not {str(session_id)[:80]!r}")
    return session_id


def is_journal_id(text: str) -> bool:
    """Return whether a text can name a journal at all: what cannot never becomes a path."""
    return text == HOME_JOURNAL or SESSION_ID.match(text) is not None


def check_entry_id(entry_id: str) -> str:
    if not isinstance(entry_id, str) or not entry_id or not entry_id.isprintable() or clean_text(entry_id) != entry_id:
        raise InvalidInput(f"an entry id is printable text, not {str(entry_id)[:80]!r}")
    if entry_id.startswith(DERIVED_PREFIX):
        raise InvalidInput(f"an entry id does not begin with {DERIVED_PREFIX!r}: {entry_id[:80]!r}")
    if len(entry_id) > ID_CHARACTERS_MAX:
        raise TooLarge(f"an entry id has {len(entry_id)} characters; the limit is {ID_CHARACTERS_MAX}")
    return entry_id


def log_stem(journal_id: str) -> str:
    """Return where a journal's files lie below the home, without their suffix: a function of the id alone."""
    if journal_id == HOME_JOURNAL:
        return "home"
    dated = DATED_SESSION_ID.match(journal_id)
    return f"sessions/{dated[1]}/{dated[2]}/{journal_id}" if dated else f"sessions/other/{journal_id}"


DIGITS = 6
"""Of a delivery's number: ids sort as numbers do."""


def delivery_prefix(message_id: str, chat: str) -> str:
    names = f"{message_id}\n{chat}".encode()
    return f"d-{hashlib.sha256(names).hexdigest()[:24]}-"


def delivery_id(message_id: str, chat: str, number: int) -> str:
    """Return the id of one of a message's deliveries in a chat: whoever delivers it makes the same one."""
    return f"{delivery_prefix(message_id, chat)}{number:0{DIGITS}d}"
