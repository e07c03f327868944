"""Circles: owners that are one person."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hansard.domain.people import is_person
from hansard.journal.concepts import Concept, Table

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Rows = Callable[[str, tuple[Any, ...]], list[Any]]
    """Of a transaction, or of a snapshot."""


PEOPLE = Concept(
    "people",
    "hansard.record",
    tables=(
        Table(name="person", order="owner, circle", of_home=True),
        Table(name="link_code", order="owner", of_home=True),
    ),
)


def read_circle(rows: Rows, owner: str) -> tuple[str, ...]:
    """Return everybody who is one person with an owner, that owner included. A room is only itself."""
    return tuple(each for (each,) in rows(PEOPLE.queries.read_circle, (owner,))) if is_person(owner) else (owner,)


def owners_text(rows: Rows, owner: str) -> str:
    """Return all who are one person with an owner, as queries take them."""
    return msgspec.json.encode(read_circle(rows, owner)).decode()
