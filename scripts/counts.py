"""Count src: `python -m scripts.counts [COMMIT]`, beside the same figures of a commit if one is named.

Lines of Python, modules under 60 lines, class names that are defined twice, classes of more than 25 methods. The
tidy test counts by the same rules.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import PurePosixPath

from tests.repository.repository import text_files
from tests.repository.tidy_rules import Source, repeated_classes, short_modules, too_long


def sources_of(commit: str | None) -> list[Source]:
    """Read the modules of src: of a commit, or as they lie there."""
    if commit is None:
        texts = text_files()
    else:
        packed = subprocess.run(["git", "archive", commit, "src"], capture_output=True, check=True).stdout  # noqa: S603, S607
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            files = [each for each in archive if each.isfile() and each.name.endswith(".py")]
            texts = [(each.name, archive.extractfile(each).read().decode()) for each in files]
    modules = [Source(path=PurePosixPath(path), text=text) for path, text in texts if path.endswith(".py")]
    return [source for source in modules if source.in_folder("src")]


def count_sources(sources: list[Source]) -> dict[str, int]:
    """Return each figure by its name."""
    return {
        "lines": sum(len(source.lines) for source in sources),
        "modules under 60 lines": len(short_modules(sources)),
        "class names defined twice": len({finding.split()[4] for finding in repeated_classes(sources)}),
        "classes with more than 25 methods": sum(
            " methods; " in finding for source in sources for finding in too_long(source)
        ),
    }


def main() -> None:
    """Print a figure a line: its name, then of the commit if one is named, then now."""
    counted = [count_sources(sources_of(commit)) for commit in [*sys.argv[1:2], None]]
    for name in counted[0]:
        figures = "".join(f"{counts[name]:8,}" for counts in counted)
        sys.stdout.write(f"{name:34}{figures}\n")


if __name__ == "__main__":
    main()
