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

-- name: insert_state
-- The one row of a new index.
INSERT INTO state (one, database_id, commits, rule, made) VALUES (1, ?, 0, ?, ?)

-- name: read_state
-- What this index is of.
SELECT database_id, commits, rule, made FROM state

-- name: set_commits
-- Every journal was looked at up to this commit.
UPDATE state SET commits = ?

-- name: put_done
-- A journal is indexed up to here.
INSERT INTO done (journal, seq) VALUES (?, ?) ON CONFLICT (journal) DO UPDATE SET seq = excluded.seq

-- name: insert_doc
-- One version of a message; its id. A later one is as hidden as the first.
INSERT INTO doc (key, message, role, at, tool, undone)
VALUES (?1, ?2, ?3, ?4, ?5, coalesce((SELECT undone FROM doc WHERE key = ?2 AND ?2 <> ?1), 0))
ON CONFLICT (key) DO UPDATE SET message = excluded.message, role = excluded.role, at = excluded.at, tool = excluded.tool,
                                undone = excluded.undone
RETURNING id

-- name: insert_words
-- Its tokens.
INSERT OR REPLACE INTO words (rowid, said, tools) VALUES (?, ?, ?)

-- name: mark_doc
-- A message was taken back, or is so no longer, or was deleted: which marks stay, which come, whose.
UPDATE doc SET undone = (undone & ?1) | ?2
WHERE id IN (SELECT id FROM doc WHERE key = ?3 UNION ALL SELECT id FROM doc WHERE message = ?3 AND message <> key)

-- name: count_matches
-- Whether many messages match: then they are taken by time and not by weight, which would look at all of them.
SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ?1 LIMIT ?2)

-- name: by_weight
-- The messages that match best, each by its best version. Parameters: query, roles, since, until, up to which mark, tool,
-- journals, limit, now, half-life.
WITH found AS MATERIALIZED (
    SELECT d.message AS message, -bm25(words) AS weight, d.at AS at, d.undone AS undone
    FROM words w JOIN doc d ON d.id = w.rowid
    WHERE words MATCH ?1 AND d.role IN (SELECT value FROM json_each(?2)) AND d.at >= ?3 AND d.at <= ?4 AND d.undone <= ?5
      AND (?6 = '' OR instr(d.tool, ?6) > 0) AND (?7 IS NULL OR (d.key >> 32) IN (SELECT value FROM json_each(?7)))
)
SELECT message, max(weight) AS best, at, undone FROM found GROUP BY message
ORDER BY best * pow(0.5, max(0, ?9 - at) / ?10) DESC, message DESC LIMIT ?8

-- name: by_time
-- The newest messages that match.
SELECT DISTINCT message, 1.0, at, undone FROM doc INDEXED BY doc_at
WHERE id IN (SELECT rowid FROM words WHERE words MATCH ?1) AND role IN (SELECT value FROM json_each(?2))
  AND at >= ?3 AND at <= ?4 AND undone <= ?5
  AND (?6 = '' OR instr(tool, ?6) > 0) AND (?7 IS NULL OR (key >> 32) IN (SELECT value FROM json_each(?7)))
ORDER BY at DESC, message DESC LIMIT ?8

-- name: count_docs
-- Messages that are indexed, and tokens rows that belong to them: a difference is drift.
SELECT (SELECT count(*) FROM doc), (SELECT count(*) FROM words_docsize)

-- name: keys
-- The messages that are indexed after a key, up to another.
SELECT key FROM doc WHERE key > ?1 AND key <= ?2

-- name: read_doc
-- What the index says of a message.
SELECT message, role, at, tool, undone FROM doc WHERE key = ?

-- name: clear_state
-- Begin anew.
DELETE FROM state

-- name: quick_check
-- Whether the file and its index of words are whole.
PRAGMA quick_check

-- name: finds_doc
-- Whether a message is found by its own tokens.
SELECT count(*) FROM words WHERE rowid = (SELECT id FROM doc WHERE key = ?1) AND words MATCH ?2

-- name: read_done_of
-- How far one journal is indexed.
SELECT seq FROM done WHERE journal = ?

-- name: clear_done
-- Begin anew.
DELETE FROM done

-- name: clear_docs
-- Begin anew.
DELETE FROM doc

-- name: clear_words
-- Begin anew.
INSERT INTO words (words) VALUES ('delete-all')
