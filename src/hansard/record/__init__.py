"""The record: an append-only store that several processes share and nothing can lose. See DESIGN.md.

`api.Record` opens one; `schema` names all concepts. Each concept has its entries, tables, projection, operations and
API in one module, with its SQL beside it:

    sessions            create, title, end, reopen, archive, resolve a name; the row of a session
    forks, titles       sessions that share another's beginning; titles that nobody gave
    messages/entries    message entries, Entry and Chunk; what a message says now; the order for the model
    messages/operations append, undo, import, read a message or a transcript; blobs
    conversation        the fold that engine and commands decide on; compaction
    conversation_cache  the folds that a process keeps
    turns/entries       turn entries, who asks for turns     turns/operations   queue, claim, stream, stop, end
    turns/holding       Turn and Reply, as the engine uses them; `record.turns`
    budgets             what a day took, and whether a turn may begin; what a person may bring in an hour
    questions           calls that wait for a yes            permissions        a yes for more than one call
    routes              which session a chat leads to; chats that follow a session
    intake/events       receipts, cursors, events that are held or change what was said, ends of commands
    intake/arrivals     what is said, received in one commit: `record.intake`
    fetches, invitations  files to be fetched; chats to be entered
    deliveries          posts and edits on a channel; the outbox
    people, access      who is one person; who may talk
    memory, search/     notes of an owner; finding messages

Rules that are looked for first:

    who may see a session       `people.read_circle`, and `may_see` of domain/access.py
    what a plain yes is         `questions.read_words`; when it counts: `questions.judge`
    where an event goes         `routes.choose_session`
    what /new and resets do     `routes.start_next_session`
    when a title is cut         never by the record, which refuses one that is too long; `/new TITLE` is cut in
                                hansard/intake/receive.py, and a suggested one is dropped in engine/titles.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hansard.domain.notices import Wording
    from hansard.journal.calls import Caller


class Namespace:
    """The calls of one concept: what `record.sessions` or `record.turns` is."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller


class TellingNamespace(Namespace):
    """One whose calls tell people things: `words` gives the wording as it is at that moment."""

    def __init__(self, caller: Caller, words: Callable[[], Wording]) -> None:
        super().__init__(caller)
        self._words = words
