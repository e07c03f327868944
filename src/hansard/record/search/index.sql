-- The search index, a file of its own: a view of the entries that can be deleted at any time.

-- Which database it is of, and by which rule tokens were made. Every journal that did not change after the commit `commits`
-- is indexed whole; `stamp` is the record's at that commit, empty when it is not known. `made` is another text each time
-- something is removed: with the same, the index has only grown.
CREATE TABLE state (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    database_id TEXT    NOT NULL,
    commits     INTEGER NOT NULL,
    rule        TEXT    NOT NULL,
    made        TEXT    NOT NULL,
    stamp       BLOB    NOT NULL DEFAULT x''
) STRICT;

-- The head of each journal when it was indexed. The digest tells whether the record still holds these entries.
CREATE TABLE done (
    journal INTEGER PRIMARY KEY,
    seq     INTEGER NOT NULL,
    digest  BLOB    NOT NULL DEFAULT x''
) STRICT;

-- One row for each version of a message: nearly all have one. The key is that of the entry which holds its words, `message`
-- that of the entry with the first ones. The id is small and grows by one: tokens are kept by it, and take less room so.
CREATE TABLE doc (
    id      INTEGER PRIMARY KEY,
    key     INTEGER NOT NULL UNIQUE,
    message INTEGER NOT NULL,
    role    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    undone  INTEGER NOT NULL DEFAULT 0,           -- 1: undone, 2: deleted in its chat, 3: both
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
SELECT database_id, commits, stamp, rule, made, coalesce((SELECT max(id) FROM doc), 0) FROM state

-- name: set_commits
-- Every journal is indexed up to this commit. Parameters: the commit, the record's stamp there.
UPDATE state SET commits = ?, stamp = ?

-- name: set_made
-- Something is removed: it is another index now.
UPDATE state SET made = ?

-- name: put_done
-- A journal is indexed up to here.
INSERT OR REPLACE INTO done (journal, seq, digest) VALUES (?, ?, ?)

-- name: read_done
-- Up to where a journal is indexed.
SELECT journal, seq, digest FROM done WHERE journal = ?

-- name: list_done
-- Up to where every journal is indexed.
SELECT journal, seq, digest FROM done

-- name: remove_done
-- A journal is not indexed any more.
DELETE FROM done WHERE journal = ?

-- name: remove_words
-- Remove the tokens of messages between two keys.
DELETE FROM words WHERE rowid IN (SELECT id FROM doc WHERE key > ?1 AND key <= ?2)

-- name: remove_docs
-- Remove the messages between two keys.
DELETE FROM doc WHERE key > ?1 AND key <= ?2

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
-- A message was undone, or is so no longer, or was deleted: which marks stay, which come, whose.
UPDATE doc SET undone = (undone & ?1) | ?2
WHERE id IN (SELECT id FROM doc WHERE key = ?3 UNION ALL SELECT id FROM doc WHERE message = ?3 AND message <> key)

-- name: count_matches
-- Whether many messages match: then they are taken by time and not by weight, which would look at all of them.
SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ?1 LIMIT ?2)

-- name: by_weight
-- The messages that match best, each by its best version. Parameters: query, roles, since, until, up to which mark, tool,
-- journals, journals that are left out, limit, now, half-life.
WITH found AS MATERIALIZED (
    SELECT d.message AS message, -bm25(words) AS weight, d.at AS at, d.undone AS undone
    FROM words w JOIN doc d ON d.id = w.rowid
    WHERE words MATCH ?1 AND instr(?2, '"' || d.role || '"') > 0 AND d.at >= ?3 AND d.at <= ?4 AND d.undone <= ?5
      AND (?6 = '' OR instr(d.tool, ?6) > 0) AND (?7 IS NULL OR (d.key >> 32) IN (SELECT value FROM json_each(?7)))
      AND (?8 IS NULL OR (d.key >> 32) NOT IN (SELECT value FROM json_each(?8)))
)
SELECT message, max(weight) AS best, at, undone FROM found GROUP BY message
ORDER BY best * pow(0.5, max(0, ?10 - at) / ?11) DESC, message DESC LIMIT ?9

-- name: by_time
-- The newest messages that match.
SELECT DISTINCT message, 1.0, at, undone FROM doc INDEXED BY doc_at
WHERE id IN (SELECT rowid FROM words WHERE words MATCH ?1) AND instr(?2, '"' || role || '"') > 0
  AND at >= ?3 AND at <= ?4 AND undone <= ?5
  AND (?6 = '' OR instr(tool, ?6) > 0) AND (?7 IS NULL OR (key >> 32) IN (SELECT value FROM json_each(?7)))
  AND (?8 IS NULL OR (key >> 32) NOT IN (SELECT value FROM json_each(?8)))
ORDER BY at DESC, message DESC LIMIT ?9

-- name: count_docs
-- Messages that are indexed, and rows of tokens that belong to them: both are equal.
SELECT (SELECT count(*) FROM doc), (SELECT count(*) FROM words_docsize)

-- name: list_docs
-- What the index says of the messages between two keys.
SELECT key, message, role, at, tool, undone FROM doc WHERE key > ?1 AND key <= ?2

-- name: clear_state
-- Begin anew.
DELETE FROM state

-- name: quick_check
-- Whether the file and its index of words are whole.
PRAGMA quick_check

-- name: finds_doc
-- Whether a message is found by its own tokens.
SELECT count(*) FROM words WHERE rowid = (SELECT id FROM doc WHERE key = ?1) AND words MATCH ?2

-- name: clear_done
-- Begin anew.
DELETE FROM done

-- name: clear_docs
-- Begin anew.
DELETE FROM doc

-- name: clear_words
-- Begin anew.
INSERT INTO words (words) VALUES ('delete-all')
