"""No page of the repository has a dead link: relative paths lead to files, and anchors to headings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tests.repository.repository import ROOT, text_files

CODE = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)|(?P<ticks>`+).+?(?P=ticks)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(<?(?P<target>[^()<>\s]+(?:\([^()\s]*\))?[^()<>\s]*)>?(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(?P<words>.+?) *#*$", re.MULTILINE)
FOREIGN = re.compile(r"[a-z][a-z0-9+.-]*:|//")


def links(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the target of each link; what stands in code is none."""
    prose = CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for found in LINK.finditer(prose):
        yield prose.count("\n", 0, found.start()) + 1, found["target"]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found = set()
    fences = re.compile(r"^(```+|~~~+).*?^\1", re.MULTILINE | re.DOTALL)
    for heading in HEADING.finditer(fences.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["words"])
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def dead_links(root: Path, page: str, text: str) -> Iterator[str]:
    """Yield the links of a page that lead nowhere, as ``page:line: target``."""
    for line, target in links(text):
        if FOREIGN.match(target):
            continue
        name, _, anchor = target.partition("#")
        path = (root / page).parent / unquote(name) if name else root / page
        if not path.exists() or (anchor and path.suffix != ".md"):
            yield f"{page}:{line}: {target}"
        elif anchor and anchor not in anchors(path.read_text(encoding="utf-8")):
            yield f"{page}:{line}: {target} (no such heading)"


PLANTED = """# A page

## A heading, with `code` & [a link](other.md)
## Twice
## Twice

[fine](other.md) [fine](other.md#first) [fine](#a-heading-with-code--a-link) [fine](#twice-1) [fine](https://example.org/x#y)
`[code](gone.md)` and [dead](gone.md)
```
[code](gone.md)
```
[dead](other.md#second) [dead](#thrice) [dead](../other.md)
"""


def test_dead_links_are_found(tmp_path: Path) -> None:
    """Of a page with good and dead links, the dead ones are named with their lines."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("# First\n")
    (tmp_path / "docs" / "page.md").write_text(PLANTED)
    assert list(dead_links(tmp_path, "docs/page.md", PLANTED)) == [
        "docs/page.md:8: gone.md",
        "docs/page.md:12: other.md#second (no such heading)",
        "docs/page.md:12: #thrice (no such heading)",
        "docs/page.md:12: ../other.md",
    ]


def test_no_page_has_a_dead_link() -> None:
    """Every relative link of every Markdown file leads to a file, and to a heading if it names one."""
    pages = [(path, text) for path, text in text_files() if path.endswith(".md")]
    assert len(pages) > 10, "the pages were not found"
    assert [dead for path, text in pages for dead in dead_links(ROOT, path, text)] == []


def test_every_page_can_be_reached() -> None:
    """Each page below docs/ is linked from another page."""
    linked = {
        ((ROOT / page).parent / unquote(target.partition("#")[0])).resolve()
        for page, text in text_files()
        if page.endswith(".md")
        for _, target in links(text)
        if not FOREIGN.match(target) and not target.startswith("#")
    }
    pages = [page for page, _ in text_files() if page.startswith("docs/") and page.endswith(".md")]
    assert [page for page in pages if (ROOT / page).resolve() not in linked] == []
