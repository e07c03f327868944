CREATE TABLE scroll (
    journal INTEGER NOT NULL PRIMARY KEY,
    open_id TEXT,
    writer  TEXT NOT NULL
) STRICT;

-- name: open_scroll
-- A text is being written.
INSERT INTO scroll (journal, open_id, writer) VALUES (?1, ?2, ?3)
ON CONFLICT (journal) DO UPDATE SET open_id = excluded.open_id, writer = excluded.writer

-- name: seal_scroll
-- It is finished.
UPDATE scroll SET open_id = NULL WHERE journal = ?1

-- name: read_tip
-- Where a journal ends: its last entry and its open text.
SELECT j.key, j.head_seq, s.open_id FROM journal j LEFT JOIN scroll s ON s.journal = j.key WHERE j.id = ?1

-- name: open_scrolls
-- Every open text, and who writes it.
SELECT j.id, s.open_id, s.writer FROM scroll s JOIN journal j ON j.key = s.journal WHERE s.open_id IS NOT NULL
