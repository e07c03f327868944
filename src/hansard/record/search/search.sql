-- name: read_record
-- Which database this is, how far it got, and which state that is.
SELECT database_id, commits, stamp FROM record

-- name: list_heads
-- The heads of sessions' journals that changed after a commit, in the order in which they did.
SELECT key, base_seq, head_seq, head_digest, touched FROM journal WHERE touched > ?1 AND id <> 'home' ORDER BY touched, key

-- name: session_of_journal
-- The session that a journal is of.
SELECT id FROM session WHERE journal = ?1

-- name: sessions_of_journals
-- The sessions that journals are of (a JSON array of keys), where each journal begins and ends, and whether it changes what
-- messages say.
SELECT j.key, s.id, j.base_id, j.base_seq, j.head_seq, EXISTS (
    SELECT 1 FROM entry WHERE key > (j.key << 32) + j.base_seq AND key <= (j.key << 32) + j.head_seq
      AND kind IN ('messages.undone', 'messages.restored', 'message.edited', 'message.retracted', 'file.fetched'))
FROM journal j JOIN session s ON s.journal = j.key
WHERE j.key IN (SELECT CAST(value AS INTEGER) FROM json_each(?1))

-- name: filter_journals
-- The journals of sessions that a search may look into. Parameters: owners, source, session, part of the title.
SELECT journal FROM session
WHERE (CAST(?1 AS TEXT) IS NULL OR owner IN (SELECT value FROM json_each(?1)))
  AND (CAST(?2 AS TEXT) IS NULL OR source = ?2) AND (CAST(?3 AS TEXT) IS NULL OR id = ?3)
  AND (CAST(?4 AS TEXT) IS NULL OR instr(lower(title), lower(?4)) > 0)
