"""A proof names the code that it is of by one hash, and its page says whether that is the code here."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.proof import BEGIN, END, RINGS, ROOT, cover, make_page, make_proof, say_whose
from tests.repository.repository import text_files

FILES = {
    "src/hansard/a.py": "",
    "src/hansard/a.sql": "",
    "tests/__init__.py": "",
    "tests/conftest.py": "",
    "tests/crash/test_kills.py": "from tests.unit import (\n    one,\n)\nfrom tests.unit.two import Two\n",
    "tests/crash/data.json": "{}",
    "tests/unit/one.py": 'run("-m", "tests.unit.three")\n',
    "tests/unit/two.py": "",
    "tests/unit/three.py": "",
    "tests/unit/four.py": "",
    "docs/page.md": "",
}
"""A small repository."""

COVERED = [name for name in FILES if name not in {"tests/unit/four.py", "docs/page.md"}]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The small repository."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def prove(root: Path) -> dict[str, Any]:
    """Return a proof of what is there now, in which nothing was run."""
    reports = root / ".prove"
    reports.mkdir(exist_ok=True)
    (reports / "covers.json").write_text(json.dumps(cover(root)))
    return make_proof(root, reports)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_changes_the_hash_if_the_proof_covers_it(root: Path, name: str) -> None:
    """The package, the rings with their data, and what they import or run, at any distance; and nothing else."""
    before = cover(root)
    (root / name).write_text(f"{FILES[name]}\n# changed\n")
    assert (cover(root) != before) == (name in COVERED)


def test_a_renamed_file_changes_the_hash(root: Path) -> None:
    """The same bytes under another name are other code; what Python compiled is none."""
    before = cover(root)
    (root / "src/hansard/__pycache__").mkdir()
    (root / "src/hansard/__pycache__/a.pyc").touch()
    assert cover(root) == before
    (root / "src/hansard/a.py").rename(root / "src/hansard/b.py")
    assert cover(root) != before


def test_code_that_changed_while_it_was_proved_is_not_covered(root: Path) -> None:
    """A proof that began with other code than it ended with is of neither."""
    assert prove(root)["covers"] == cover(root)
    (root / "src/hansard/a.py").write_text("changed")
    assert make_proof(root, root / ".prove")["covers"] is None


def test_the_page_says_whether_the_proof_is_of_this_code(root: Path) -> None:
    """Equal, different or absent: the sentence depends on that and on the proof alone."""
    page = f"# Guarantees\n\n{BEGIN}\nold\n{END}\n\nThe rest.\n"
    assert "Nothing is proved yet" in make_page(root, page)
    proof = prove(root)
    (root / "docs" / "proof").mkdir()
    (root / "docs" / "proof" / "proof.json").write_text(json.dumps(proof))
    same = make_page(root, page)
    assert "is of exactly this code" in same
    assert same.startswith(f"# Guarantees\n\n{BEGIN}\n**The proof")
    assert same.endswith(f"\n{END}\n\nThe rest.\n")
    assert make_page(root, same) == same
    (root / "src/hansard/a.py").write_text("changed")
    other = make_page(root, same)
    assert "was made of other code than this" in other
    (root / "src/hansard/a.py").write_text("changed again")
    assert make_page(root, other) == other


def test_a_proof_without_a_hash_is_of_other_code() -> None:
    """A proof from before there were hashes, or of code that changed meanwhile, is of no code that is here."""
    proof = prove_nothing()
    for covers in ({}, {"covers": None}):
        assert "was made of other code" in say_whose(proof | covers, {"files": 1, "sha256": "x"})


def prove_nothing() -> dict[str, Any]:
    """Return a proof without counts and hash."""
    tests: dict[str, Any] = {"outcomes": {}, "failed": [], "skipped": {}}
    return {"counts": {"kills": 0, "power_cuts": 0}, "tests": tests, "violations": []}


def test_make_prove_runs_every_ring() -> None:
    """What the Makefile runs is what the proof covers; each path of a ring exists."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "-m tests.proof rings)" in makefile
    assert [path for path in RINGS if not (ROOT / path).exists()] == []


def proof_only(text: str) -> Iterator[int]:
    """Yield the lines that skip a test unless HANSARD_PROVE is set, without those that HANSARD_LONG runs as well."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"pytest.mark.skipif", "pytest.skip"}:
            told = ast.unparse(node)
            if "PROVE" in told and "LONG" not in told:
                yield node.lineno


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("@pytest.mark.skipif(not PROVE, reason='long')", True),
        ("@pytest.mark.skipif('HANSARD_PROVE' not in os.environ, reason='long')", True),
        ("@pytest.mark.skipif(not (LONG or PROVE), reason='long')", False),
        ("@pytest.mark.skipif(os.getuid() != 0, reason='root')", False),
    ],
)
def test_what_runs_in_a_proof_only_is_found(line: str, is_found: bool) -> None:  # noqa: FBT001 - a case of the table
    """In each of the forms that are in use."""
    assert any(proof_only(f"{line}\ndef test_one(): ...")) == is_found


def test_what_runs_in_a_proof_only_lies_in_a_ring() -> None:
    """A test that `make test` skips and that is in no ring would never be run."""
    never_run = [
        f"{path}:{line}"
        for path, text in text_files()
        if path.startswith("tests/") and path.endswith(".py") and not path.startswith(RINGS)
        for line in proof_only(text)
    ]
    assert never_run == []
