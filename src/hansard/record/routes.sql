CREATE TABLE route (
    key        TEXT    NOT NULL PRIMARY KEY,
    session_id TEXT    NOT NULL,
    generation INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    moved_at   INTEGER NOT NULL DEFAULT 0,            -- a label: when it began to lead there
    owner      TEXT    NOT NULL DEFAULT '',           -- whose chat it is; a room's owner where it is a room
    identity   TEXT    NOT NULL DEFAULT ''            -- what the platform calls that person
) STRICT, WITHOUT ROWID;
CREATE INDEX route_session ON route (session_id);

-- name: find_route
-- Where a session key leads.
SELECT key, session_id, generation, reason FROM route WHERE key = ?1

-- name: put_route
-- A session key leads elsewhere.
INSERT INTO route (key, session_id, generation, reason, moved_at, owner, identity) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (key) DO UPDATE SET session_id = excluded.session_id, generation = excluded.generation,
                                reason = excluded.reason, moved_at = excluded.moved_at,
                                owner = excluded.owner, identity = excluded.identity

-- name: find_route_age
-- Since when a session key leads where it leads.
SELECT moved_at FROM route WHERE key = ?1

-- name: find_busy_session
-- The session that a key leads to, if a turn runs or waits in it.
SELECT s.id FROM route r JOIN session s ON s.id = r.session_id WHERE r.key = ?1 AND (
    EXISTS (SELECT 1 FROM turn t WHERE t.journal = s.journal AND t.state = 'running')
    OR EXISTS (SELECT 1 FROM turn t WHERE t.journal = s.journal AND t.state = 'queued'))

-- name: list_followers
-- Chats of persons that lead to a session, with whose they are.
SELECT key, owner FROM route WHERE session_id = ?1 AND owner >= 'person:' AND owner < 'person;' ORDER BY key

-- name: find_follower
-- Whose chat leads to a session, whom the session belongs to, and the access of that person on a channel.
SELECT r.owner, r.identity, s.owner, a.state FROM route r JOIN session s ON s.id = r.session_id
LEFT JOIN access a ON a.channel = ?3 AND a.identity = r.identity
WHERE r.key = ?1 AND r.session_id = ?2 AND r.owner >= 'person:' AND r.owner < 'person;'
