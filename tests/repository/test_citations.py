"""What a comment, a test or a page cites can be found in the repository: rules, laws, sections, losses, files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.repository.citations import CITABLES, Citable, citations, missing_names, missing_paths
from tests.repository.repository import ROOT, text_files

SAMPLE_FILES = re.compile(r"CHANGELOG\.md$|tests/repository/test_(citations|links|proof|tidy)\.py$")
"""The changelog may name what was, and samples what never was."""

BY_NAME = {citable.name: citable for citable in CITABLES}

SAMPLES = [
    ("rule", "src/a.py", "# as it says (rule 99)", ["99"]),
    ("rule", "tests/a.py", '"""Rules 14, 15 and 96: the chain."""', ["14", "15", "96"]),
    ("rule", "tests/journal/test_rule_09_locks.py", "", ["9"]),
    ("rule", "tests/a.py", "rule 2 of [[tools.rules]]", []),
    ("law", "src/a.py", '"""The same id is the same thing (L3, L44)."""', ["3", "44"]),
    ("law", "docs/a.md", "| **L1 Superset.** |", ["1"]),
    ("law", "tests/a.py", '@pytest.mark.loss("L5")', []),
    ("section of the design", "pyproject.toml", "# (design, section 7)", ["7"]),
    ("point of the style", "pyproject.toml", "# (style, point 14)", ["14"]),
    ("attack", "tests/security/a.py", '"""S22: a name is a name."""', ["22"]),
    ("attack", "tests/security/test_s09_programs.py", "", ["9"]),
    ("loss", "tests/a.py", '@pytest.mark.loss("A1", "Z9")', ["A1", "Z9"]),
    ("loss", "tests/a.py", 'LOSSES = {\n    "group": ["A1",\n "B2"],\n}\n', ["A1", "B2"]),
]


@pytest.mark.parametrize(("name", "path", "text", "numbers"), SAMPLES)
def test_citations_are_found(name: str, path: str, text: str, numbers: list[str]) -> None:
    """Each way to cite is read, and what only looks like one is not."""
    assert [number for _, number in citations(BY_NAME[name], path, text)] == numbers


@pytest.mark.parametrize("citable", CITABLES, ids=lambda citable: citable.name)
def test_whatever_is_cited_is_in_the_repository(citable: Citable) -> None:
    """Every number that any file cites is defined on the page for it, once."""
    listed = citable.defined.findall((ROOT / citable.page).read_text(encoding="utf-8"))
    assert listed
    assert sorted(listed) == sorted(set(listed))
    cited = [(path, line, number) for path, text in text_files() for line, number in citations(citable, path, text)]
    assert cited, f"nothing cites a {citable.name} any more: the pattern is blind, or the page is not needed"
    dead = [
        f"{path}:{line}: {citable.page} has no {citable.name} {number}"
        for path, line, number in cited
        if number not in listed and not SAMPLE_FILES.match(path)
    ]
    assert dead == []


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    """A path that leads nowhere is found; one with a star leads to whatever fits."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "here.md").touch()
    assert list(missing_paths(tmp_path, "a.py", "see docs/here.md and docs/h*.md.")) == []
    assert list(missing_paths(tmp_path, "a.py", "\nsee docs/gone.md.")) == ["a.py:2: there is no docs/gone.md"]


def test_files_that_are_named_exist() -> None:
    """A path of this repository, wherever it is named, leads to a file."""
    texts = [(path, text) for path, text in text_files() if not SAMPLE_FILES.match(path)]
    assert [finding for path, text in texts for finding in missing_paths(ROOT, path, text)] == []


def test_names_with_dots_exist() -> None:
    """What a page names by its module (`hansard.domain.text.restore_text`) is in the package."""
    sample = "see hansard.domain.text.restore_text, hansard.service\nand hansard.domain.gone or hansard.errors.Gone."
    assert list(missing_names("a.md", sample)) == [
        "a.md:2: there is no hansard.domain.gone",
        "a.md:2: there is no hansard.errors.Gone",
    ]
    texts = [(path, text) for path, text in text_files() if path.endswith(".md") and not SAMPLE_FILES.match(path)]
    assert [finding for path, text in texts for finding in missing_names(path, text)] == []


def test_modules_that_src_names_exist() -> None:
    """A module that a docstring, a comment or a DESIGN.md names alone (`stream.py`) is a file of the repository."""
    texts = text_files()
    names = {path.rpartition("/")[2] for path, _ in texts}
    named = [
        (path, module)
        for path, text in texts
        if path.startswith("src/")
        for module in re.findall(r"(?<![\w./-])(?:\w+/)*(\w+\.py)\b", text)
    ]
    assert ("src/hansard/delivery/DESIGN.md", "split.py") in named
    assert [(path, module) for path, module in named if module not in names] == []
