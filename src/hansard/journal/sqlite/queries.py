"""The journal's own tables and queries, from journal.sql."""

from __future__ import annotations

from hansard.journal.concepts import load_queries

SQL = load_queries("hansard.journal.sqlite", "journal.sql")
