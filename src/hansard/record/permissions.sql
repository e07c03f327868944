-- What people allowed beyond one call: a tool, for a person, in a place; in one session, or, with '', until it is revoked.
CREATE TABLE permission (
    id         TEXT    NOT NULL PRIMARY KEY,
    tool       TEXT    NOT NULL,
    person     TEXT    NOT NULL,
    place      TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    granted_at INTEGER NOT NULL,
    granted_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX permission_person ON permission (person, place);

-- name: add_permission
-- Somebody allowed a tool beyond one call.
INSERT INTO permission (id, tool, person, place, session_id, seq, granted_at, granted_by) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: drop_permission
-- A permission counts no more.
DELETE FROM permission WHERE id = ?1

-- name: drop_permissions_of
-- What somebody allowed on a channel counts no more.
DELETE FROM permission WHERE person = ?1 AND place >= ?2 AND place < ?3

-- name: find_permission
-- A permission by its id.
SELECT id, tool, person, place, session_id, granted_at, granted_by FROM permission WHERE id = ?1

-- name: find_granted
-- A permission for a tool, of a person in a place, that counts in a session.
SELECT id FROM permission WHERE tool = ?1 AND person = ?2 AND place = ?3 AND session_id IN ('', ?4) ORDER BY seq LIMIT 1

-- name: list_permissions
-- Every permission, the oldest first.
SELECT id, tool, person, place, session_id, granted_at, granted_by FROM permission ORDER BY seq
