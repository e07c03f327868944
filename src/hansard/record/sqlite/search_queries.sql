-- name: insert_state
-- The one row of a new index.
INSERT INTO state (one, database_id, commits) VALUES (1, ?, 0)

-- name: read_state
-- What this index is of.
SELECT database_id, commits FROM state

-- name: set_commits
-- Every journal was looked at up to this commit.
UPDATE state SET commits = ?

-- name: read_done
-- How far each journal is indexed.
SELECT journal, seq FROM done

-- name: put_done
-- A journal is indexed up to here.
INSERT INTO done (journal, seq) VALUES (?, ?) ON CONFLICT (journal) DO UPDATE SET seq = excluded.seq

-- name: insert_doc
-- One message.
INSERT OR REPLACE INTO doc (key, role, at, tool) VALUES (?, ?, ?, ?)

-- name: insert_words
-- Its tokens.
INSERT OR REPLACE INTO words (rowid, said, tools) VALUES (?, ?, ?)

-- name: undo_doc
-- A message was taken back.
UPDATE doc SET undone = 1 WHERE key = ?

-- name: count_matches
-- Whether many messages match: then they are taken by time and not by weight, which would look at all of them.
SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ?1 LIMIT ?2)

-- name: by_weight
-- The messages that match best. Parameters: query, roles, since, until, undone too, tool, journals, limit.
SELECT w.rowid, bm25(words), d.role, d.at, d.undone FROM words w JOIN doc d ON d.key = w.rowid
WHERE words MATCH ?1 AND d.role IN (SELECT value FROM json_each(?2)) AND d.at >= ?3 AND d.at <= ?4 AND d.undone <= ?5
  AND (?6 = '' OR instr(d.tool, ?6) > 0) AND (?7 IS NULL OR (w.rowid >> 32) IN (SELECT value FROM json_each(?7)))
ORDER BY rank LIMIT ?8

-- name: by_time
-- The newest messages that match.
SELECT w.rowid, 0.0, d.role, d.at, d.undone FROM words w JOIN doc d ON d.key = w.rowid
WHERE words MATCH ?1 AND d.role IN (SELECT value FROM json_each(?2)) AND d.at >= ?3 AND d.at <= ?4 AND d.undone <= ?5
  AND (?6 = '' OR instr(d.tool, ?6) > 0) AND (?7 IS NULL OR (w.rowid >> 32) IN (SELECT value FROM json_each(?7)))
ORDER BY w.rowid DESC LIMIT ?8

-- name: count_docs
-- Messages that are indexed, and tokens rows that belong to them: a difference is drift.
SELECT (SELECT count(*) FROM doc), (SELECT count(*) FROM words_docsize)

-- name: sample_docs
-- A few messages, to look whether the index still finds them.
SELECT key FROM doc WHERE key >= ?1 ORDER BY key LIMIT ?2

-- name: finds_doc
-- Whether a message is found by its own tokens.
SELECT count(*) FROM words WHERE rowid = ?1 AND words MATCH ?2
