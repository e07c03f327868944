"""Pace: how often something happened within a window, such as codes that were shown in an hour."""

from __future__ import annotations

from hansard.journal.concepts import Concept, Table

PACE = Concept("pace", "hansard.record", tables=(Table(name="pace", order="name", of_home=True),))
SQL = PACE.queries
