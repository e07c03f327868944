"""A benchmark writes its own part of the page of figures, and nothing else of it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
write_part = runpy.run_path(str(ROOT / "bench" / "harness" / "pages.py"))["write_part"]

PAGE = """# Performance

<!-- a: written by its benchmark -->
## Old
<!-- end of a -->

<!-- b: written by its benchmark -->
## Other
<!-- end of b -->

By hand.
"""


def test_a_part_is_replaced(tmp_path: Path) -> None:
    """The part becomes the report, its headings one level deeper; the other part and what people wrote stay."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    write_part(page, "a", "# New\n\n## Aims\n\nfigures\n")
    assert page.read_text() == PAGE.replace("## Old", "## New\n\n### Aims\n\nfigures")


def test_a_page_without_the_part_stays_as_it_is(tmp_path: Path) -> None:
    """A page that has no such part is not written over: the benchmark says so."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    with pytest.raises(SystemExit, match="has no part for c"):
        write_part(page, "c", "# New\n")
    assert page.read_text() == PAGE


def test_a_new_file_is_the_report(tmp_path: Path) -> None:
    """Where there is no page, the report is the file."""
    write_part(tmp_path / "new.md", "a", "# New\n")
    assert (tmp_path / "new.md").read_text() == "# New\n"


@pytest.mark.parametrize("name", ["record", "floor", "edges", "turn", "search", "gateway"])
def test_the_page_has_every_part(name: str, tmp_path: Path) -> None:
    """The page of this repository has a part for each benchmark that writes one."""
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs" / "proof" / "performance.md").read_text(encoding="utf-8"))
    write_part(page, name, "# Replaced\n")
    assert "## Replaced" in page.read_text()
