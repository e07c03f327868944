"""What `pyproject.toml` allows, against the versions that are pinned."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ALLOWED = {found.name: found for found in map(Requirement, PROJECT["dependencies"])}
PRIVATE = ("pydantic-ai-slim", "mcp", "matrix-nio")
"""Libraries of which private parts are used."""


def pins(name: str) -> dict[str, Version]:
    """Return the pinned versions of a file of requirements."""
    text = (ROOT / "requirements" / name).read_text()
    return {
        found[1]: Version(found[2])
        for found in re.finditer(r"^([a-z0-9-]+)(?:\[[^]]*\])?==([^ \\\n;]+)", text, re.MULTILINE)
    }


@pytest.mark.parametrize("name", ["runtime.txt", "dev.txt"])
@pytest.mark.parametrize("library", sorted(ALLOWED))
def test_what_is_pinned_is_allowed(library: str, name: str) -> None:
    """A pinned version of every dependency is one that the package may be installed with."""
    assert ALLOWED[library].specifier.contains(pins(name)[library])


@pytest.mark.parametrize("library", PRIVATE)
def test_a_library_whose_private_parts_are_used_has_an_upper_bound(library: str) -> None:
    """The next minor version, in which private parts may change, is not allowed before it was tried."""
    pinned = pins("runtime.txt")[library]
    allowed = ALLOWED[library].specifier
    assert allowed.contains(Version(f"{pinned.major}.{pinned.minor}.{pinned.micro + 1}"))
    assert not allowed.contains(Version(f"{pinned.major}.{pinned.minor + 1}"))
    assert not allowed.contains(Version(f"{pinned.major + 1}.0"))


@pytest.mark.parametrize("name", ["Makefile", "packaging/Dockerfile", "scripts/mcp_time.py", "scripts/synapse.py"])
def test_locked_files_are_installed_without_looking_for_dependencies(name: str) -> None:
    """Before 23.3, pip refuses a locked file once a package that is wanted with an extra has a newer release."""
    words = re.findall(r"--(?:no-deps|require-hashes)", (ROOT / name).read_text())
    assert "--require-hashes" in words
    assert all(words[index - 1] == "--no-deps" for index, word in enumerate(words) if word == "--require-hashes")
