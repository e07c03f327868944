"""A benchmark writes its own part of the page of figures, and nothing else of it; the parts of the work are found."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize("name", ["record", "floor", "edges", "profile", "turn", "search", "gateway"])
def test_the_page_has_every_part(name: str, tmp_path: Path) -> None:
    """The page of this repository has a part for each benchmark that writes one."""
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs" / "proof" / "performance.md").read_text(encoding="utf-8"))
    write_part(page, name, "# Replaced\n")
    assert "## Replaced" in page.read_text()


def test_every_place_of_a_part_of_the_work_is_there() -> None:
    """What `bench/profiles.py` looks for in our code is there: a place that moved would be counted elsewhere."""
    names = runpy.run_path(str(ROOT / "bench" / "profile_parts.py"))
    files = [path for folder in ("src", "bench") for path in (ROOT / folder).rglob("*.py")]
    frames = [
        f"{path}:{function}"
        for path in files
        if ".envs" not in path.parts
        for function in re.findall(r"def (\w+)", path.read_text(encoding="utf-8"))
    ]
    foreign = re.compile(r"^/|asyncio|concurrent|selectors|base_events|site-packages|^tests/")
    places = {
        place
        for part in names["RECORD_PARTS"] + names["CHAT_PARTS"]
        for place in (*part.within, *part.places, *part.beneath)
        if not foreign.search(place)
    }
    assert places
    assert not [place for place in sorted(places) if not any(names["lies_in"](frame, place) for frame in frames)]


def test_a_stack_belongs_to_one_part() -> None:
    """`within` comes first, then the innermost frame with a place, then `beneath`; else it is everything else."""
    names = runpy.run_path(str(ROOT / "bench" / "profile_parts.py"))
    parts, find_part = names["RECORD_PARTS"], names["find_part"]
    writer = ["hansard/journal/writer.py:_commit", "/lib/threading.py:run"]
    assert find_part(["hansard/journal/sqlite/group.py:commit", *writer], parts) == "SQLite: COMMIT with its fsync"
    assert find_part(["hansard/domain/ids.py:is_journal_id", *writer], parts) == "the writer's own steps and checks"
    assert find_part(["journal/files.py:write_all", "record/sqlite/keeper.py:step"], parts).endswith(
        "in the background"
    )
    assert find_part(["json/encoder.py:encode", "asyncio/events.py:_run"], parts) == "the caller's loop and coroutines"
    assert find_part(["json/encoder.py:encode"], parts) == names["ELSE"]
