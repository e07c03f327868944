"""The table: what becomes of a home when something happens to one of its files.

Each row has one mark for each accident of `deeds.ACCIDENTS`. A mark is one letter, or three for the moments of
`deeds.MOMENTS`. `python -m tests.crash.accidents.table` writes it into docs/run/operations.md.
"""

from __future__ import annotations

from pathlib import Path

from tests.crash.accidents.deeds import ACCIDENTS, MOMENTS, NOTHING

OUTCOMES = {"R": ("repaired",), "A": ("apart",), "X": ("refused",), "?": ("repaired", "apart", "refused")}

#               missing older newer foreign cut garbage unreadable unwritable symlink directory owner
MARKS = """
state.db        R   R?R   R?R   R??   R??   X??   X   X   X   X   X
state.db-wal    R   R??   R??   R??   R??   R??   X   X   X   X   X
state.db-shm    R   R??   R??   R??   R??   R??   X   X   X   X   X
search.db       R   R     R     R     R     R     R   R   R   R   R
home.jsonl      R   R     R     A??   R     R     X   A   A   A   X
session log     R   R     R     A     R     R     A   A   A   A   A
.part           R   R     R     R     R     R     R   R   R   R   R
.tail           R   R     R     R     R     R     R   R   R   R   R
blobs/          A   R     R     R     A     A     A   A   R   A   A
locks/          RAX R     R     R     R     R     ?RR R   R   X   X
reserve         R   R     R     R     R     R     R   R   R   R   R
backups/        R   R     R     R     R     R     R   R   R   R   R
*.orphan-*      R   R     R     R     R     R     R   R   R   R   R
"""
ROWS = {line[:16].strip(): dict(zip(ACCIDENTS, line[16:].split(), strict=True)) for line in MARKS.strip().splitlines()}

DOCUMENT = Path(__file__).parents[3] / "docs" / "run" / "operations.md"
BEGIN, END = "<!-- accidents: written by python -m tests.crash.accidents.table -->", "<!-- end of accidents -->"


def expected(row: str, accident: str, moment: str) -> tuple[str, ...]:
    """Return the outcomes that a cell may have."""
    if accident == NOTHING:
        return OUTCOMES["R"]
    mark = ROWS[row][accident]
    return OUTCOMES[mark if len(mark) == 1 else mark[MOMENTS.index(moment)]]


def render() -> str:
    """Return the table for people."""
    lines = [f"| file | {' | '.join(ACCIDENTS)} |", "|---" * (len(ACCIDENTS) + 1) + "|"]
    for row, marks in ROWS.items():
        lines.append(f"| `{row}` | {' | '.join(' '.join(mark) for mark in marks.values())} |")
    return "\n".join([BEGIN, "", *lines, "", END])


def main() -> None:
    """Write the table between its marks."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{render()}{after}")


if __name__ == "__main__":
    main()
