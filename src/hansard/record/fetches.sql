-- Files of messages that are not fetched yet. Those of one person never take the place of another's.
CREATE TABLE fetch (
    session_id TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    file       TEXT    NOT NULL,
    channel    TEXT    NOT NULL,
    account    TEXT    NOT NULL,
    person     TEXT    NOT NULL,
    seq        INTEGER NOT NULL,                      -- of the home entry that tells where it is
    PRIMARY KEY (session_id, message_id, file)
) STRICT, WITHOUT ROWID;

-- name: insert_fetch
-- A file is to be fetched.
INSERT INTO fetch (session_id, message_id, file, channel, account, person, seq) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT DO NOTHING

-- name: drop_fetch
-- It is kept, or cannot be.
DELETE FROM fetch WHERE session_id = ?1 AND message_id = ?2 AND file = ?3

-- name: find_fetch
-- Whether a file is to be fetched.
SELECT seq FROM fetch WHERE session_id = ?1 AND message_id = ?2 AND file = ?3

-- name: count_fetches
-- How many files are to be fetched, in all and of one person.
SELECT count(*), coalesce(sum(CASE WHEN person = ?1 THEN 1 ELSE 0 END), 0) FROM fetch

-- name: list_fetches
-- The files to fetch now, the bodies of their entries: so many of each person, people in turn.
SELECT e.body FROM (
    SELECT seq, row_number() OVER (PARTITION BY person ORDER BY seq) AS place
    FROM fetch WHERE channel = ?1 AND account = ?2
) f JOIN entry e ON e.key = (CAST(?3 AS INTEGER) << 32) + f.seq
WHERE f.place <= ?4 ORDER BY f.place, f.seq LIMIT ?5
