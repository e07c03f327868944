"""One page for all reports: each benchmark writes its own part of it and leaves the others alone."""

from __future__ import annotations

import re
from pathlib import Path


def write_part(path: Path, name: str, report: str) -> None:
    """Put a report into its part of a page, its headings one level deeper; a file that is new is the report alone."""
    if not path.exists():
        path.write_text(report)
        return
    begin, end = f"<!-- {name}: written by its benchmark -->", f"<!-- end of {name} -->"
    before, found, rest = path.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        message = f"{path} has no part for {name}: {begin} and {end}"
        raise SystemExit(message)
    deeper = re.sub(r"^#", "##", report.strip(), flags=re.MULTILINE)
    path.write_text(f"{before}{begin}\n{deeper}\n{end}{after}")
