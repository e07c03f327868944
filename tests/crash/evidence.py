"""What the processes of a round said before they died: what was acknowledged, and what was shown."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.crash.processes import Line


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that the record must hold, and who may have left something unfinished."""

    seed: int
    acknowledged: list[Line] = field(default_factory=list)
    shown: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))
    killed_owners: set[str] = field(default_factory=set)

    def add_writer(self, lines: Iterable[Line]) -> None:
        """Take what a writer acknowledged; it was killed."""
        for line in lines:
            if line["what"] == "ready":
                self.killed_owners.add(line["owner"])
            else:
                self.acknowledged.append(line)

    def add_follower(self, lines: Iterable[Line]) -> None:
        """Take what a follower showed; one that goes on from the last position adds to the one before."""
        for line in lines:
            if line["session"]:
                self.shown[line["session"]].append(line)

    def positions(self) -> dict[str, str]:
        """Return where a follower stands after what was shown."""
        return {session: str(lines[-1]["position"]) for session, lines in self.shown.items()}

    def of(self, *what: str) -> list[Line]:
        """Return the acknowledgements of some kinds."""
        return [line for line in self.acknowledged if line["what"] in what]

    def shown_bytes(self) -> int:
        """Return how many bytes of conversation were shown."""
        return sum(len(line["text"].encode()) for lines in self.shown.values() for line in lines)
