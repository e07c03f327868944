"""Every query by its name, from queries.sql."""

from __future__ import annotations

import re
from importlib import resources

NAME = re.compile(r"^-- name: (\w+)\n(?:--.*\n)+", re.MULTILINE)


class Queries:
    """The named queries of a file; a misspelt name fails at once."""

    def __init__(self, text: str) -> None:
        """Split the file at its names."""
        starts = list(NAME.finditer(text))
        ends = [start.start() for start in starts[1:]] + [len(text)]
        self._queries = {start[1]: text[start.end() : end].strip() for start, end in zip(starts, ends, strict=True)}

    def __getattr__(self, name: str) -> str:
        """Return a query."""
        try:
            return self._queries[name]
        except KeyError:
            raise AttributeError(name) from None


SQL = Queries(resources.files(__package__).joinpath("queries.sql").read_text(encoding="utf-8"))
