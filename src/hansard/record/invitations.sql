-- Invitations that are not answered yet. The answers of one source never take the place of another's.
CREATE TABLE invitation (
    channel  TEXT    NOT NULL,
    account  TEXT    NOT NULL,
    event_id TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    seq      INTEGER NOT NULL,                        -- of the home entry that tells of it
    PRIMARY KEY (channel, account, event_id)
) STRICT, WITHOUT ROWID;

-- name: insert_invitation
-- Somebody asked the agent into a chat.
INSERT INTO invitation (channel, account, event_id, source, seq) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO NOTHING

-- name: drop_invitation
-- It is answered.
DELETE FROM invitation WHERE channel = ?1 AND account = ?2 AND event_id = ?3

-- name: find_invitation
-- Whether an invitation waits for an answer.
SELECT seq FROM invitation WHERE channel = ?1 AND account = ?2 AND event_id = ?3

-- name: count_invitations
-- How many invitations wait for an answer, in all and of one source.
SELECT count(*), coalesce(sum(CASE WHEN source = ?3 THEN 1 ELSE 0 END), 0) FROM invitation WHERE channel = ?1 AND account = ?2

-- name: list_invitations
-- The invitations to answer now, the bodies of their entries: so many of each source, the sources in turn.
-- All strangers together are one.
SELECT e.body FROM (
    SELECT seq, row_number() OVER (
        PARTITION BY CASE WHEN substr(source, 1, 10) = 'strangers ' THEN 'strangers' ELSE source END ORDER BY seq
    ) AS place
    FROM invitation WHERE channel = ?1 AND account = ?2
) i JOIN entry e ON e.key = (CAST(?3 AS INTEGER) << 32) + i.seq
WHERE i.place <= ?4 ORDER BY i.place, i.seq LIMIT ?5
