"""What the agent keeps in a record besides conversations: `record.books`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.record.fetches import Fetches
from hansard.record.invitations import Invitations
from hansard.record.ledger import Ledger
from hansard.record.memory import Memory
from hansard.record.permissions import Permissions
from hansard.record.questions import Questions
from hansard.record.quotas import Quotas
from hansard.record.recovery import Recovery
from hansard.record.titles import Titles

if TYPE_CHECKING:
    from hansard.record.calls import Caller


class Books:
    """Memory, what a day took, questions about tools, titles, turns that were lost, invitations, files to fetch."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.books`."""
        self.memory = Memory(caller)
        self.ledger = Ledger(caller)
        self.questions = Questions(caller)
        self.permissions = Permissions(caller)
        self.titles = Titles(caller)
        self.recovery = Recovery(caller)
        self.invitations = Invitations(caller)
        self.fetches = Fetches(caller)
        self.quotas = Quotas(caller)
