-- The search index, a file of its own: a view of the entries that can be deleted at any time.

-- Which database it is of, in which format, and up to which commit every journal was looked at.
CREATE TABLE state (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    database_id TEXT    NOT NULL,
    commits     INTEGER NOT NULL
) STRICT;

-- How far each journal is indexed.
CREATE TABLE done (
    journal INTEGER PRIMARY KEY,
    seq     INTEGER NOT NULL
) STRICT;

-- One row for each message, by the key of the entry that holds its words.
CREATE TABLE doc (
    key    INTEGER PRIMARY KEY,
    role   TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    undone INTEGER NOT NULL DEFAULT 0,
    tool   TEXT    NOT NULL DEFAULT ''
) STRICT;

-- The tokens, as hansard.domain.search makes them; what is not ASCII is written as ~ and hexadecimal digits. The text
-- itself is in state.db.
CREATE VIRTUAL TABLE words USING fts5 (
    said, tools, content = '', contentless_delete = 1, tokenize = "ascii tokenchars '~'"
);
