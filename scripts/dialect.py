"""Prepare every table and query of the concepts in a PostgreSQL of version 18: they are to be understood by it, too.

By hand, from the root: `pip install 'psycopg[binary]'`, then `python -m scripts.dialect postgresql://postgres@127.0.0.1/db`.
Nothing stays in that database. It says what is not prepared, and what is taken for another type than in SQLite.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module

from hansard.journal.concepts import Queries, read_sql
from hansard.journal.sqlite.connection import SQL
from hansard.record.schema import SCHEMA
from tests.repository.dialect import translate

PREPARED = "SELECT name, parameter_types::text[], result_types::text[] FROM pg_prepared_statements WHERE from_sql"
PARAMETERS = {"text", "bigint", "bytea"}
RESULTS = PARAMETERS | {"integer", "numeric", "boolean"}
"""Constants, sums and truth values are numbers to a backend; see docs/build/change.md."""


def refused(address: str) -> Iterator[str]:
    """Yield what PostgreSQL has against the queries."""
    psycopg = import_module("psycopg")
    shared = Queries(read_sql("hansard.journal", "journal.sql"))
    # The journal's own tables come with a backend: these are SQLite's, as far as the queries can tell.
    tables = re.sub(r"x''", "''", re.sub(r"\bVIRTUAL\b", "STORED", translate(SQL.tables)))
    with psycopg.connect(address) as connection:
        for each in (tables, *(translate(concept.queries.tables) for concept in SCHEMA.concepts)):
            connection.execute(each)
        for file, queries in [("journal", shared), *((concept.name, concept.queries) for concept in SCHEMA.concepts)]:
            for name in queries.names:
                try:
                    with connection.transaction():
                        connection.execute(f"PREPARE {file}_{name} AS {translate(getattr(queries, name))}")
                except psycopg.Error as error:
                    yield f"{file}.{name}: {error}"
        for name, parameters, results in connection.execute(PREPARED).fetchall():
            if other := {*parameters} - PARAMETERS | {*(results or ())} - RESULTS:
                yield f"{name}: a parameter or result is {', '.join(sorted(other))}"
        connection.rollback()


def main() -> int:
    """Report each query that PostgreSQL refuses or takes otherwise."""
    found = list(refused(sys.argv[1]))
    sys.stdout.write("".join(f"{each}\n" for each in (*found, f"{len(found)} findings")))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
