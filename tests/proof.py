"""Write docs/proof.json from what `make prove` left in .prove/: `python -m tests.proof`.

The rounds of the crash ring and of tests/shown write their counts as they end (*.jsonl), and pytest its outcomes
(*.xml). A round that is not there, a test that failed and a violation all end up in the proof: it says what happened,
not what should have.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / ".prove"
PROOF = ROOT / "docs" / "proof.json"

Round = dict[str, Any]


def read_rounds(path: Path) -> list[Round]:
    """Return the rounds that were counted."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def count_rounds(rounds: list[Round]) -> dict[str, object]:
    """Return the sums of the rounds."""
    where = Counter(place for each in rounds for place in each.get("where", ()))
    return {
        "rounds": len(rounds),
        "kills": sum(each.get("kills", 0) for each in rounds),
        "kills_by_place": dict(sorted(where.items())),
        "power_cuts": sum(each.get("cuts", 0) for each in rounds),
        "acknowledgements_checked": sum(each["acknowledged"] for each in rounds),
        "shown_bytes_checked": sum(each["shown_bytes"] for each in rounds),
    }


def is_talk(each: Round) -> bool:
    """Return whether a round is of the ring that compares what the program showed with its record."""
    return "runs" in each


def count_talks(rounds: list[Round]) -> dict[str, object]:
    """Return the sums of the rounds in which the program itself was run."""
    faults: Counter[str] = Counter()
    for each in rounds:
        faults.update(each.get("faults", {}))
    return {
        "runs": sum(each["runs"] for each in rounds),
        "runs_by_fault": dict(sorted(faults.items())),
        "shown_bytes_checked": sum(each.get("shown_bytes", 0) for each in rounds),
    }


def read_outcomes(folder: Path) -> dict[str, object]:
    """Return how the tests ended, from pytest's own reports."""
    outcomes: Counter[str] = Counter()
    failed: list[str] = []
    skipped: dict[str, str] = {}
    for path in sorted(folder.glob("*.xml")):
        for case in ET.parse(path).iter("testcase"):  # noqa: S314 - written by pytest a moment ago
            name = f"{case.get('classname')}::{case.get('name')}"
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                outcomes["failed"] += 1
                failed.append(name)
            elif skip is not None:
                outcomes["skipped"] += 1
                skipped[name] = skip.get("message") or ""
            else:
                outcomes["passed"] += 1
    return {"outcomes": dict(sorted(outcomes.items())), "failed": failed, "skipped": skipped}


def read_commit(root: Path) -> str:
    """Return the commit that was proved, and say so when the tree was not as committed."""

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(root), *words]
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith("docs/proof.json")]
    return (git("rev-parse", "--verify", "-q", "HEAD") or "none") + (" with uncommitted changes" if changed else "")


def make_proof(root: Path, reports: Path) -> dict[str, object]:
    """Return the whole proof."""
    rounds = [each for path in sorted(reports.glob("*.jsonl")) for each in read_rounds(path)]
    talks = [each for each in rounds if is_talk(each)]
    return {
        "commit": read_commit(root),
        "seeds": sorted({each["seed"] for each in rounds}),
        "counts": count_rounds([each for each in rounds if not is_talk(each)]),
        "talks": count_talks(talks),
        "tests": read_outcomes(reports),
        "violations": [violation for each in rounds for violation in each["violations"]],
    }


def main() -> None:
    """Write the proof."""
    PROOF.parent.mkdir(exist_ok=True)
    PROOF.write_text(json.dumps(make_proof(ROOT, REPORTS), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
