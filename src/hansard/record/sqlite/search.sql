-- The search index, a file of its own: a view of the entries that can be deleted at any time.

-- Which database it is of, up to which commit every journal was looked at, and by which rule tokens were made. `made` is
-- another text each time the index is begun anew: with the same, it has only grown.
CREATE TABLE state (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    database_id TEXT    NOT NULL,
    commits     INTEGER NOT NULL,
    rule        TEXT    NOT NULL,
    made        TEXT    NOT NULL
) STRICT;

-- How far each journal is indexed.
CREATE TABLE done (
    journal INTEGER PRIMARY KEY,
    seq     INTEGER NOT NULL
) STRICT;

-- One row for each version of a message: nearly all have one. The key is that of the entry which holds its words, `message`
-- that of the entry with the first ones. The id is small and grows by one: tokens are kept by it, and take less room so.
CREATE TABLE doc (
    id      INTEGER PRIMARY KEY,
    key     INTEGER NOT NULL UNIQUE,
    message INTEGER NOT NULL,
    role    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    undone  INTEGER NOT NULL DEFAULT 0,           -- 1: taken back, 2: deleted in its chat, 3: both
    tool    TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX doc_at ON doc (at);
CREATE INDEX doc_later ON doc (message) WHERE message <> key;

-- The tokens, as hansard.domain.search makes them: letters and digits that need no folding any more, so that the
-- tokeniser only has to part them at spaces. The text itself is in state.db.
CREATE VIRTUAL TABLE words USING fts5 (said, tools, content = '', contentless_delete = 1, tokenize = 'ascii');
