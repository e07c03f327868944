"""What code, tests and pages cite by number, and where the repository says it: rules, laws, sections, points, losses.

The patterns read plain text; only names with dots are looked up in the package itself.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NUMBERS = r"(\d{1,2}(?:(?:, | and )\d{1,2})*)"


@dataclass(frozen=True, kw_only=True)
class Citable:
    """A numbered thing: how it is cited, and how the page that defines it introduces it."""

    name: str
    cited: re.Pattern[str]
    page: str
    defined: re.Pattern[str]
    hint: str = ""
    """A part of every citation: a file without it is not searched, which saves most of the time."""
    elsewhere: str = "^$"
    """Files in which the pattern means something else."""


CITABLES = [
    Citable(
        name="rule",
        # "rule 2 of [[tools.rules]]" is a rule of somebody's configuration.
        cited=re.compile(rf"(?:\b[Rr]ules? |\btest_rule_){NUMBERS}(?!\d| of \[)"),
        page="docs/build/design/rules.md",
        defined=re.compile(r"^### (\d+)\. ", re.MULTILINE),
    ),
    Citable(
        name="law",
        # "L1" in quotation marks is an id of the table of losses.
        cited=re.compile(r"(?<![\w\"'/.-])L(\d{1,2})\b(?![\"'/.-]\w)"),
        page="docs/build/design/laws.md",
        defined=re.compile(r"^\| L(\d+) \|", re.MULTILINE),
        elsewhere=r"docs/proof/losses\.md$|requirements/|tests/record/homes/",
    ),
    Citable(
        name="section of the design",
        hint="esign, section",
        cited=re.compile(rf"\b[Dd]esign, sections? {NUMBERS}"),
        page="docs/build/design/design.md",
        defined=re.compile(r"^## (\d+)\. ", re.MULTILINE),
    ),
    Citable(
        name="point of the style",
        hint="tyle, point",
        cited=re.compile(rf"\b[Ss]tyle, points? {NUMBERS}"),
        page="docs/build/design/style.md",
        defined=re.compile(r"^(\d+)\. \*\*", re.MULTILINE),
    ),
    Citable(
        name="attack",
        cited=re.compile(r"(?:^\"\"\"|[ (]|\btest_)[Ss](\d{1,2})(?=[:,)_])", re.MULTILINE),
        page="docs/run/security.md",
        defined=re.compile(r"^\| S(\d+) \|", re.MULTILINE),
        elsewhere=r"(?!tests/security/)",
    ),
    Citable(
        name="loss",
        cited=re.compile(r"mark\.loss\(([^)]*)\)|^LOSSES\b[^{]*(\{.*?^\})", re.MULTILINE | re.DOTALL),
        page="docs/proof/losses.md",
        defined=re.compile(r"^\| ([A-Z]\d+) \| [^|]*\w", re.MULTILINE),
        elsewhere=r"(?!tests/)",
    ),
]

PATHS = re.compile(r"(?<![\w/.-])(?:docs|src|tests|scripts|bench|packaging|examples)/[\w./*-]*[\w*]")
"""Files and folders of the repository that a text names."""

DOTTED = re.compile(r"(?<![\w/.-])hansard(?:\.[A-Za-z_]\w*)+(?![\w/-])")
"""What a text names by its module: `hansard.domain.text.restore_text`."""

NO_MODULES = {"hansard.service", "hansard.key"}
"""A unit of systemd, and a field of what the agent says in Matrix."""

FILE_SUFFIXES = (".py", ".md", ".json", ".toml", ".sql", ".service", "Dockerfile")


def citations(citable: Citable, path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the number of each citation in a file."""
    if citable.hint not in text or re.match(citable.elsewhere, path):
        return
    for found in citable.cited.finditer(f"{text}\n{path}"):
        line = text.count("\n", 0, found.start()) + 1
        cited = next(group for group in found.groups() if group)
        numbers = re.findall(r"[\"']([A-Z]\d+)[\"']", cited) if citable.name == "loss" else re.findall(r"\d+", cited)
        for number in numbers:
            yield line, number.lstrip("0")


def missing_names(path: str, text: str) -> Iterator[str]:
    """Yield the modules, classes and functions of the package that a text names and that are not there."""
    for found in DOTTED.finditer(text):
        if found[0] in NO_MODULES:
            continue
        try:
            pkgutil.resolve_name(found[0])
        except (ImportError, AttributeError):
            yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}: there is no {found[0]}"


def missing_paths(root: Path, path: str, text: str) -> Iterator[str]:
    """Yield the files that a text names and the repository does not have. A `*` stands for anything."""
    for found in PATHS.finditer(text):
        named = found[0].rstrip(".")
        if named.endswith(FILE_SUFFIXES) and not any(root.glob(named)):
            yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}: there is no {named}"
