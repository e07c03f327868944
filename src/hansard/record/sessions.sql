CREATE TABLE session (
    journal      INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL UNIQUE,
    source       TEXT    NOT NULL,
    owner        TEXT    NOT NULL,
    title        TEXT,
    state        TEXT    NOT NULL CHECK (state IN ('open', 'ended')),
    end_reason   TEXT,
    parent_id    TEXT,
    parent_link  TEXT CHECK (parent_link IN ('fork', 'reset', 'import')),
    parent_at    INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    open_message TEXT,
    open_turn    TEXT,
    archived     INTEGER NOT NULL DEFAULT 0           -- left out of lists until somebody asks for it
) STRICT;
CREATE INDEX session_title ON session (title COLLATE NOCASE) WHERE title IS NOT NULL;
CREATE INDEX session_owner ON session (owner);

-- name: insert_session
-- A session begins.
INSERT INTO session (journal, id, source, owner, title, state, parent_id, parent_link, parent_at, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, 'open', ?6, ?7, ?8, ?9)

-- name: set_session_parent
-- A parent that became known later.
UPDATE session SET parent_id = ?1, parent_link = ?2 WHERE journal = ?3

-- name: set_session_state
-- Ended or reopened.
UPDATE session SET state = ?1, end_reason = ?2 WHERE journal = ?3

-- name: set_session_archived
-- Archived, or not any more.
UPDATE session SET archived = ?1 WHERE journal = ?2

-- name: open_session_message
-- A message is being streamed.
UPDATE session SET open_message = ?1, open_turn = ?2 WHERE journal = ?3

-- name: seal_session_message
-- It is finished.
UPDATE session SET open_message = NULL, open_turn = NULL WHERE journal = ?1

-- name: read_session
-- A session by its id, with its journal's head.
SELECT s.journal, s.id, s.source, s.owner, s.title, s.state, s.end_reason, s.parent_id, s.parent_link, s.parent_at,
       s.created_at, s.open_message, s.open_turn, j.messages, j.active_at, j.head_seq, s.archived
FROM session s JOIN journal j ON j.key = s.journal WHERE s.id = ?1

-- name: read_tip
-- Where a session ends, for followers: its last entry and its open message.
SELECT j.key, j.head_seq, s.open_message FROM session s JOIN journal j ON j.key = s.journal WHERE s.id = ?1

-- name: list_sessions
-- Sessions, latest activity first: by commit, never by clock; within a commit by id, which no rebuild changes.
-- Owners are a JSON array, here and below: all who are one person.
SELECT s.journal, s.id, s.source, s.owner, s.title, s.state, s.end_reason, s.parent_id, s.parent_link, s.parent_at,
       s.created_at, s.open_message, s.open_turn, j.messages, j.active_at, j.head_seq, s.archived
FROM session s JOIN journal j ON j.key = s.journal
WHERE (CAST(?1 AS TEXT) IS NULL OR s.owner IN (SELECT value FROM json_each(?1)))
  AND (CAST(?2 AS TEXT) IS NULL OR s.source = ?2)
  AND (CAST(?3 AS TEXT) IS NULL OR s.state = ?3)
  AND (CAST(?6 AS INTEGER) IS NULL OR s.archived = ?6)
  AND (CAST(?4 AS TEXT) IS NULL OR (j.touched, j.id) < (SELECT touched, id FROM journal WHERE id = ?4))
ORDER BY j.touched DESC, j.id DESC LIMIT ?5

-- name: resolve_prefix
-- Ids that begin with a text, of one owner or of all.
SELECT id FROM session WHERE id >= ?1 AND id < ?1 || '~'
  AND (CAST(?3 AS TEXT) IS NULL OR owner IN (SELECT value FROM json_each(?3))) ORDER BY id LIMIT ?2

-- name: resolve_title
-- Sessions with that title, in any case, of one owner or of all.
SELECT id, title FROM session WHERE title = ?1 COLLATE NOCASE
  AND (CAST(?3 AS TEXT) IS NULL OR owner IN (SELECT value FROM json_each(?3))) ORDER BY id LIMIT ?2

-- name: find_open_chunks
-- Chunks that belong to no open message.
SELECT DISTINCT c.journal, c.message_id FROM chunk c LEFT JOIN session s ON s.journal = c.journal
WHERE s.open_message IS DISTINCT FROM c.message_id

-- name: stray_journals
-- Journals that no session and not the home accounts for.
SELECT j.id FROM journal j LEFT JOIN session s ON s.journal = j.key WHERE s.journal IS NULL AND j.id <> ?1

-- name: set_session_title
-- A title.
UPDATE session SET title = ?1 WHERE journal = ?2

-- name: count_messages
-- Messages in a stretch of a journal, for a fork's count; a body begins with its role, and notices are not counted.
SELECT count(*) FROM entry WHERE key > ?1 AND key <= ?2 AND kind IN ('message.added', 'message.opened')
  AND substr(body, 1, 16) <> CAST('{"role":"notice"' AS BLOB)

-- name: last_opened
-- The last message that was begun in a stretch of a journal, to find one that a fork cuts.
SELECT id FROM entry WHERE key > ?1 AND key <= ?2 AND kind = 'message.opened' ORDER BY key DESC LIMIT 1
