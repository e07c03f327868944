"""What was seen from outside: what each process showed, how it ended, and what its provider was asked and sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.acceptance.shown.runs import Run, Surface
from tests.models.providers.behaviour import Behaviour, Exchange


@dataclass(kw_only=True)
class Asked:
    """One request, and what the provider had in mind with it."""

    exchange: Exchange
    behaviour: Behaviour


@dataclass(kw_only=True)
class Played:
    """A run and what its provider saw of it."""

    run: Run
    asked: list[Asked] = field(default_factory=list)


@dataclass(kw_only=True)
class Shown:
    """One process: everything that left it."""

    surface: Surface
    played: list[Played] = field(default_factory=list)
    output: bytes = b""
    """A pipe's bytes."""
    lines: frozenset[str] = frozenset()
    """Every line that ever stood on the screen of a terminal, the input and the status line aside."""
    errors: str = ""
    code: int = 0

    @property
    def size_bytes(self) -> int:
        """How much was shown."""
        return len(self.output) + sum(len(line.encode()) for line in self.lines)


@dataclass(kw_only=True)
class Evidence:
    """All processes of one conversation, in their order."""

    seed: int
    shown: list[Shown] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    @property
    def played(self) -> list[Played]:
        """All runs, in their order."""
        return [played for each in self.shown for played in each.played]

    def counts(self) -> dict[str, object]:
        """Return what is counted in the proof."""
        faults = [str(played.run.fault) for played in self.played if played.run.fault != "none"]
        return {
            "runs": len(faults),
            "faults": faults,
            "acknowledged": sum(bool(played.asked) for played in self.played),
            "shown_bytes": sum(each.size_bytes for each in self.shown),
            "violations": self.violations,
        }
