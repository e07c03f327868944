CREATE TABLE counter (
    journal INTEGER NOT NULL PRIMARY KEY,
    total   INTEGER NOT NULL
) STRICT;

-- name: add_to_counter
-- A journal's counter grows.
INSERT INTO counter (journal, total) VALUES (?1, ?2) ON CONFLICT (journal) DO UPDATE SET total = counter.total + ?2

-- name: read_counter
-- A journal's counter.
SELECT total FROM counter WHERE journal = ?1

-- name: spoil_counter
-- What no projection does: for tests of verification.
UPDATE counter SET total = total + 1000
