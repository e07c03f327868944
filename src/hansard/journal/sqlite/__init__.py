"""SQLite by apsw: connection, schema, migrations, and every query by name."""
