"""Every limit of the record, with its unit and its reason."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

ENTRY_BYTES_MAX: Final = 8 * MIB
"""One entry's body. Larger content belongs into a blob; every reader holds one entry in memory."""

REPLY_BYTES_MAX: Final = 1 * MIB
"""The streamed text of one reply: with every byte escaped it still fits into the entry that seals it."""

LINE_BYTES_MAX: Final = ENTRY_BYTES_MAX + 128 * KIB
"""One line of a log: a body and its header. A longer line is damage, and is not read into memory."""

BATCH_BYTES_MAX: Final = 16 * MIB
"""One group commit, so that a waiter behind a large batch waits for one of this size at most."""

BATCH_ITEMS_MAX: Final = 1024
"""Items in one group commit: the lock is given to other processes in between."""

QUEUE_BYTES_MAX: Final = 64 * MIB
"""What may wait for the writer before callers are held back."""

QUEUE_ITEMS_MAX: Final = 8192
"""Items that may wait for the writer before callers are held back."""

UNIT_ENTRIES_MAX: Final = 100
"""Entries that one call may commit together."""

ID_CHARACTERS_MAX: Final = 255
"""An entry id: long enough for every platform's event id."""

TITLE_CHARACTERS_MAX: Final = 200
"""A session's title: one line in a list."""

REASON_CHARACTERS_MAX: Final = 2000
"""Why something ended: a sentence or an error, not a traceback."""

NAME_CHARACTERS_MAX: Final = 1000
"""Session keys, owners, sources, accounts, file names."""

BLOB_BYTES_MAX: Final = 256 * MIB
"""One attachment."""

READ_ROWS_MAX: Final = 500
"""Rows in one page of a read: a snapshot is never held longer than one page takes."""

PATIENCE_SECONDS: Final = 30.0
"""How long a caller waits for the write lock before it is told that the record is unavailable."""

LOG_SYNC_SECONDS: Final = 1.0
"""The log is fsynced at least this often while it grows (rule 2)."""

FOLLOW_POLL_SECONDS: Final = 0.025
"""How often a process with followers looks for commits of others where the system does not tell it of them; the promise
is 50 ms."""

BUSY_STEP_SECONDS: Final = 0.25
"""How long SQLite waits for a stranger's lock before the writer looks whether it was told to stop."""

RETRY_SECONDS_MIN: Final = 0.05
"""The first pause after a failed commit."""

RETRY_SECONDS_MAX: Final = 1.0
"""The longest pause between two tries of a failing commit."""

PARKED_SECONDS: Final = 2.0
"""The pause before the end of a turn or of a delivery is tried again whose session's log cannot be written."""

CHECKPOINT_WAL_BYTES: Final = 4 * MIB
"""Each time that the WAL has grown by this much, keeper and writer copy it back into the database."""

SHRINK_WAL_BYTES: Final = 1 * MIB
"""A WAL of this size is copied back and cut when a process leaves."""

WAL_BYTES_MAX: Final = 64 * MIB
"""A WAL that grew beyond this, because a reader held it, is cut back to it."""

RESERVE_BYTES: Final = 256 * KIB
"""Kept aside on disk and given back when the disk is full, so that running turns can end."""

JOURNALS_KEPT_MAX: Final = 4096
"""Journals whose heads the writer remembers between its commits."""

LOG_HANDLES_MAX: Final = 512
"""Log files that the writer keeps open between commits, where the limit of open files allows it."""

LOG_HANDLES_SHARE: Final = 4
"""The writer keeps at most one in so many of the files that its process may open."""

LOG_HANDLES_MIN: Final = 8
"""Log files that the writer keeps open under the smallest limit of open files."""

POSITION_CHARACTERS_MAX: Final = 400
"""A follower's position: two numbers and an id."""

INDEX_BATCH_ENTRIES: Final = 500
"""Entries in one batch of the search index."""

INDEX_BATCH_BYTES: Final = 1 * MIB
"""Text in one batch of the search index: nobody else is held up by one for long."""

HITS_MAX: Final = 1000
"""Messages that one search returns."""

CONTEXT_MESSAGES_MAX: Final = 20
"""Neighbours on each side that a search returns with a message."""

NOTES_MAX: Final = 50
"""Notes of one owner's memory: each is told to the model in every session."""

NOTE_CHARACTERS_MAX: Final = 500
"""One note: a sentence or two, not a document."""

CONVERSATIONS_MAX: Final = 256
"""Conversations whose fold a process keeps, so that a turn reads only what is new."""

CONVERSATION_BYTES_MAX: Final = 32 * MIB
"""About what all of those take in memory, counted in UTF-8: 150 chats of 200 short messages, or a few that fill a large
window. Words with an emoji among them take up to four times as much. To fold one anew takes milliseconds."""

CONVERSATION_IDLE_SECONDS: Final = 1800.0
"""A conversation in which nothing was asked or answered for so long is folded again when it goes on."""
