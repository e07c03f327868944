CREATE TABLE cursor (
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (channel, account)
) STRICT, WITHOUT ROWID;

CREATE TABLE intake (
    channel  TEXT    NOT NULL,
    account  TEXT    NOT NULL,
    event_id TEXT    NOT NULL,
    seq      INTEGER NOT NULL,                        -- of the home entry that tells what it became
    PRIMARY KEY (channel, account, event_id)
) STRICT, WITHOUT ROWID;

-- Events that cannot be read yet. They leave when they are received after all.
CREATE TABLE held (
    channel  TEXT    NOT NULL,
    account  TEXT    NOT NULL,
    event_id TEXT    NOT NULL,
    chat     TEXT    NOT NULL,
    seq      INTEGER NOT NULL,                        -- of the home entry that holds it
    identity TEXT    NOT NULL DEFAULT '',             -- who sent it; '' when an older Hansard held it
    size_bytes INTEGER NOT NULL DEFAULT 0,
    held_at  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (channel, account, event_id)
) STRICT, WITHOUT ROWID;

-- name: find_cursor
-- How far a platform's stream was received.
SELECT value FROM cursor WHERE channel = ?1 AND account = ?2

-- name: put_cursor
-- It was received further.
INSERT INTO cursor (channel, account, value) VALUES (?1, ?2, ?3)
ON CONFLICT (channel, account) DO UPDATE SET value = excluded.value

-- name: find_intake
-- Whether a platform's event was received before.
SELECT seq FROM intake WHERE channel = ?1 AND account = ?2 AND event_id = ?3

-- name: insert_intake
-- It was received.
INSERT INTO intake (channel, account, event_id, seq) VALUES (?1, ?2, ?3, ?4)

-- name: insert_held
-- An event cannot be read yet.
INSERT INTO held (channel, account, event_id, chat, seq, identity, size_bytes, held_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT DO NOTHING

-- name: drop_held
-- It was received after all.
DELETE FROM held WHERE channel = ?1 AND account = ?2 AND event_id = ?3

-- name: find_held
-- Whether an event waits to become readable.
SELECT seq FROM held WHERE channel = ?1 AND account = ?2 AND event_id = ?3

-- name: find_held_in_chat
-- Whether any event of a chat waits to become readable.
SELECT seq FROM held WHERE channel = ?1 AND account = ?2 AND chat = ?3 LIMIT 1

-- name: count_held
-- How many events wait to become readable and how many bytes they have: in all, and those of one person.
SELECT count(*), coalesce(sum(size_bytes), 0),
       coalesce(sum(CASE WHEN identity = ?3 THEN 1 ELSE 0 END), 0), coalesce(sum(CASE WHEN identity = ?3 THEN size_bytes ELSE 0 END), 0)
FROM held WHERE channel = ?1 AND account = ?2

-- name: list_old_held
-- The ids of events that have waited since before a moment, the oldest first.
SELECT event_id FROM held WHERE channel = ?1 AND account = ?2 AND held_at < ?3 ORDER BY seq LIMIT ?4

-- name: list_held
-- The events that wait to become readable, the oldest first: the bodies of their entries.
SELECT e.body FROM held h JOIN entry e ON e.key = (CAST(?3 AS INTEGER) << 32) + h.seq
WHERE h.channel = ?1 AND h.account = ?2 ORDER BY h.seq LIMIT ?4
