"""Concepts keep to the SQL that SQLite and PostgreSQL share. Each rule is first shown what breaks it."""

from __future__ import annotations

import re

import pytest

from tests.repository.dialect import FILES, FORMS, beyond_dialect, table_names, translate
from tests.repository.repository import text_files

TABLE = (
    "CREATE TABLE note (\n    id    TEXT NOT NULL PRIMARY KEY,\n    owner TEXT NOT NULL\n) STRICT, WITHOUT ROWID;\n\n"
)

OF_ONE_DATABASE = [
    "SELECT id FROM note INDEXED BY note_owner",
    "SELECT iif(owner = 'x', 1, 0) FROM note",
    "SELECT replace(owner, 'a', 'b') FROM note",
    "SELECT id FROM note WHERE owner GLOB ?1",
    "SELECT id FROM note WHERE owner glob ?1",
    "SELECT id FROM note WHERE owner LIKE ?1",
    "SELECT id FROM note WHERE rowid = ?1",
    "SELECT id FROM note WHERE owner == ?1",
    "SELECT id FROM note WHERE owner IS ?1",
    "SELECT id FROM note WHERE ?1 IS NULL OR owner = ?1",
    "SELECT id FROM note WHERE owner = ?",
    "SELECT id FROM note WHERE owner = $1",
    "SELECT id FROM note WHERE owner = :owner",
    "SELECT id FROM note WHERE length(id) = (?1 << 32)",
    "SELECT id FROM note WHERE ?1 = 0 OR owner = 'x'",
    "SELECT id FROM note WHERE owner IN (SELECT key FROM json_each(?1))",
    "SELECT max(length(id), ?1) FROM note",
    "SELECT owner->>'$.a' FROM note",
    "SELECT owner::text FROM note",
    'SELECT "id" FROM note',
    "SELECT `id` FROM note",
    "SELECT [id] FROM note",
    "SELECT id FROM note WHERE owner = x'00'",
    "SELECT json_extract(owner, '$.a') FROM note",
    "SELECT julianday(owner) FROM note",
    "SELECT hex(randomblob(8))",
    "SELECT id FROM note ORDER BY owner COLLATE BINARY",
    "INSERT OR IGNORE INTO note (id, owner) VALUES (?1, ?2)",
    "REPLACE INTO note (id, owner) VALUES (?1, ?2)",
    "PRAGMA user_version",
    "SELECT name FROM sqlite_schema",
    "SELECT id FROM note LIMIT 1, 2",
]

SHARED = [
    "SELECT n.id, count(*) FROM note n WHERE n.owner IN (SELECT value FROM json_each(?1)) GROUP BY n.id",
    "SELECT id AS named FROM note WHERE CAST(?1 AS TEXT) IS NULL OR owner = ?1 COLLATE NOCASE ORDER BY named",
    "INSERT INTO note (id, owner) VALUES (?1, ?2)\nON CONFLICT (id) DO UPDATE SET owner = excluded.owner",
    "SELECT max(coalesce(id, owner)), instr(owner, ?1) > 0, 'rowid', -1 FROM note -- in plain English, with a PRAGMA",
]


@pytest.mark.parametrize("query", OF_ONE_DATABASE)
def test_what_one_database_alone_understands_is_found(query: str) -> None:
    """Whatever is not in the list is a finding, at its line."""
    text = f"{TABLE}-- name: example\n-- An example.\n{query}\n"
    found = list(beyond_dialect(text, table_names(text)))
    assert found
    assert {finding.partition(":")[0] for finding in found} == {"8"}


@pytest.mark.parametrize("query", SHARED)
def test_what_both_understand_is_let_pass(query: str) -> None:
    """The words of both databases, and the forms that a backend translates, are no finding."""
    text = f"{TABLE}-- name: example\n-- An example.\n{query}\n"
    assert list(beyond_dialect(text, table_names(text))) == []


def test_forms_are_translated() -> None:
    """What SQLite alone understands is gone from what PostgreSQL is given."""
    given = translate(TABLE + ";".join(SHARED))
    assert not re.search(r"STRICT|ROWID|\?|json_each|NOCASE|instr", given)


def test_forms_are_documented() -> None:
    """The page for contributors gives for each form what PostgreSQL is given."""
    page = (
        dict(text_files())["docs/build/change.md"].partition("## The SQL that backends share")[2].partition("\n## ")[0]
    )
    rows = [[re.findall(r"`([^`]+)`", cell) for cell in line.split(" | ")] for line in page.splitlines() if "|" in line]
    pairs = [pair for left, right, *_ in rows[2:] if right for pair in zip(left, right, strict=True)]
    assert [(left, translate(left)) for left, _ in pairs] == pairs
    assert len(pairs) == len(FORMS) - 2  # an index's NOCASE and STRICT are described in words


def test_concepts_keep_to_the_dialect() -> None:
    """The tables and queries of every concept, and the reads of the journal, are understood by both databases."""
    texts = {path: text for path, text in text_files() if re.fullmatch(FILES, path)}
    assert len(texts) > 15
    tables = [text for path, text in text_files() if path == "src/hansard/journal/sqlite/sqlite.sql"]
    known = {name for text in (*tables, *texts.values()) for name in table_names(text)}
    assert [f"{path}:{each}" for path, text in texts.items() for each in beyond_dialect(text, known)] == []
