-- name: tables
-- Which of the tables that hold conversations are there.
SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('sessions', 'messages')

-- name: computed_tables
-- Tables that compute what they give: those with generated or hidden columns, and virtual ones.
SELECT DISTINCT t.name FROM sqlite_schema t JOIN pragma_table_xinfo(t.name) c
WHERE t.type = 'table' AND t.name IN ('sessions', 'messages') AND (c.hidden <> 0 OR t.rootpage = 0)

-- name: session_keys
-- A page of sessions.
SELECT rowid AS row FROM sessions WHERE rowid > ? ORDER BY rowid LIMIT ?

-- name: session
-- One session. Columns differ from version to version: what is there is taken by its name.
SELECT * FROM sessions WHERE rowid = ?

-- name: session_id
-- The id alone of a session whose row cannot be read.
SELECT id FROM sessions WHERE rowid = ?

-- name: sessions_without_row
-- Sessions that have messages and no row of their own.
SELECT DISTINCT session_id FROM messages WHERE session_id NOT IN (SELECT id FROM sessions) LIMIT ?

-- name: message_ids
-- A page of a session's messages in the order they were written; timestamps are not monotonic.
SELECT id FROM messages WHERE session_id = ? AND id > ? ORDER BY id LIMIT ?

-- name: message
-- One message.
SELECT * FROM messages WHERE id = ?
