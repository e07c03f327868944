"""S25: what is built and installed is pinned, and no bound admits a version with published holes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HOLES_FIXED_IN = {"aiohttp": (3, 14, 3)}
"""The first version without the holes that are published, of packages that had some."""


def project() -> dict[str, object]:
    """Return what pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned(name: str) -> dict[str, tuple[int, ...]]:
    """Return the versions of a file of requirements."""
    text = (ROOT / "requirements" / name).read_text()
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([0-9.]+)", text, re.MULTILINE)
    return {package: tuple(map(int, version.strip(".").split("."))) for package, version in found}


@pytest.mark.parametrize("package", HOLES_FIXED_IN)
def test_lower_bounds_admit_no_known_hole(package: str) -> None:
    """The bound in pyproject.toml is at least the first version without holes, and so is what is locked."""
    wanted = project()["project"]["dependencies"]  # type: ignore[index]
    (bound,) = [each for each in wanted if re.match(rf"{package}\b", each)]
    lowest = re.search(r">=([0-9.]+)", bound)
    assert lowest is not None
    assert tuple(map(int, lowest[1].split("."))) >= HOLES_FIXED_IN[package]
    assert pinned("runtime.txt")[package] >= HOLES_FIXED_IN[package]


def test_the_image_builds_with_pinned_tools() -> None:
    """Whatever pip installs in the Dockerfile is hash-pinned, or is what was just built, without a build of its own."""
    text = (ROOT / "packaging" / "Dockerfile").read_text().replace("\\\n", " ")
    calls = [
        call for line in text.splitlines() if line.startswith("RUN") for call in line.split("&&") if "pip " in call
    ]
    assert calls
    for call in calls:
        is_pinned = "--require-hashes" in call
        is_built_here = "--no-deps" in call and ("--no-build-isolation" in call or ".whl" in call)
        assert is_pinned or is_built_here, call
    backend = project()["build-system"]["requires"]  # type: ignore[index]
    assert {re.split(r"[>=<]", each)[0] for each in backend} <= set(pinned("build.txt"))
    assert backend == project()["dependency-groups"]["build"]  # type: ignore[index]
    blocks = re.split(r"^(?=[a-z])", (ROOT / "requirements" / "build.txt").read_text(), flags=re.MULTILINE)
    assert all("--hash=sha256:" in block for block in blocks if block.strip())
