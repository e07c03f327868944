"""Every query by its name, from queries.sql."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING

NAME = re.compile(r"^-- name: (\w+)\n(?:--.*\n)+", re.MULTILINE)


class Queries:
    """The named queries of a file; a misspelt name fails at once."""

    def __init__(self, text: str) -> None:
        """Split the file at its names."""
        starts = list(NAME.finditer(text))
        ends = [start.start() for start in starts[1:]] + [len(text)]
        for start, end in zip(starts, ends, strict=True):
            setattr(self, start[1], text[start.end() : end].strip())

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> str:
            """Every query is text."""


SQL = Queries(resources.files(__package__).joinpath("queries.sql").read_text(encoding="utf-8"))
SEARCH = Queries(resources.files(__package__).joinpath("search_queries.sql").read_text(encoding="utf-8"))
SEARCH_SCHEMA = resources.files(__package__).joinpath("search.sql").read_text(encoding="utf-8")
