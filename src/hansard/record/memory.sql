-- What is remembered for an owner, until it is forgotten.
CREATE TABLE note (
    id         TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    seq        INTEGER NOT NULL,                      -- of the home entry that noted it
    noted_at   INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX note_owner ON note (owner, seq);

-- name: insert_note
-- Something is to be remembered.
INSERT INTO note (id, owner, text, seq, noted_at, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)

-- name: edit_note
-- A note says something else.
UPDATE note SET text = ?2, changed_at = ?3 WHERE id = ?1

-- name: delete_note
-- A note is forgotten.
DELETE FROM note WHERE id = ?1

-- name: memory_entries
-- What was noted and changed, in its order: read only when a note that was forgotten is asked for again.
SELECT kind, version, at, body FROM entry
WHERE key > ?1 AND key <= ?2 AND kind IN ('memory.noted', 'memory.edited') ORDER BY key

-- name: find_note
-- A note by its id.
SELECT id, owner, text, noted_at, changed_at FROM note WHERE id = ?1

-- name: list_notes
-- The notes of some owners, or of all, in the order in which they were made.
SELECT id, owner, text, noted_at, changed_at FROM note
WHERE CAST(?1 AS TEXT) IS NULL OR owner IN (SELECT value FROM json_each(?1)) ORDER BY seq LIMIT ?2
