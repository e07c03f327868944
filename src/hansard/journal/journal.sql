-- name: read_record
-- Which database this is, and how far it got.
SELECT database_id, commits FROM record

-- name: read_journal
-- A journal's head and the ends of its files.
SELECT key, id, base_id, base_seq, base_digest, head_seq, head_digest, log_end, log_synced, part_end, messages, active_at
FROM journal WHERE id = ?1

-- name: trace_past
-- The journals that a fork goes on from, the nearest first: up to which entry each belongs to it, and that entry's digest.
-- Parameters: its parent, its last inherited seq, and the seq up to which journals are not looked at. UNION, so that a
-- circle, which only damage can make, ends.
WITH RECURSIVE past (id, last) AS (
    SELECT CAST(?1 AS TEXT), CAST(?2 AS INTEGER) AS last
    UNION
    SELECT j.base_id, CASE WHEN j.base_seq < p.last THEN j.base_seq ELSE p.last END
    FROM past p JOIN journal j ON j.id = p.id WHERE j.base_id IS NOT NULL AND j.base_seq > ?3
)
SELECT p.id, p.last, j.key, j.base_seq, j.base_digest, j.head_seq, e.digest
FROM past p LEFT JOIN journal j ON j.id = p.id LEFT JOIN entry e ON e.key = (j.key << 32) + p.last
ORDER BY p.last DESC

-- name: read_head
-- Where a journal ends, for followers of a schema that has no streams: its last entry.
SELECT key, head_seq, NULL FROM journal WHERE id = ?1

-- name: list_journals
-- Every journal, in pages by key.
SELECT key, id, base_id, base_seq, base_digest, head_seq, head_digest, log_end, log_synced, part_end, messages, active_at
FROM journal WHERE key > ?1 ORDER BY key LIMIT ?2

-- name: find_entry
-- An entry by its id.
SELECT seq, kind, version, at, body FROM entry WHERE journal = ?1 AND id = ?2

-- name: find_entries
-- The entries with an id in some journals, the latest first. Parameters: the journals' keys as a JSON array, the id.
SELECT journal, seq, kind, version, at, body FROM entry
WHERE journal IN (SELECT CAST(value AS INTEGER) FROM json_each(?1)) AND id = ?2 ORDER BY seq DESC

-- name: read_entries
-- A page of a journal, in order.
SELECT seq, id, kind, version, ignorable, at, body FROM entry WHERE key > ?1 AND key <= ?2 ORDER BY key LIMIT ?3

-- name: read_full_entries
-- A page of a journal with everything that its log line holds.
SELECT seq, id, kind, version, ignorable, at, digest_format, salt, digest, body
FROM entry WHERE key > ?1 AND key <= ?2 ORDER BY key LIMIT ?3

-- name: read_digest
-- The digest that a fork continues.
SELECT digest FROM entry WHERE key = ?1

-- name: list_kinds
-- The kinds that are used here.
SELECT kind, version, ignorable FROM kind

-- name: read_chunks
-- The open message so far.
SELECT start, message_id, part, text FROM chunk WHERE journal = ?1 ORDER BY start

-- name: read_chunks_after
-- The open message from the chunk that holds an offset on.
SELECT start, message_id, part, text FROM chunk
WHERE journal = ?1 AND start >= coalesce((SELECT max(start) FROM chunk WHERE journal = ?1 AND start <= ?2), 0)
ORDER BY start

-- name: last_chunk
-- Where the open message ends.
SELECT start, message_id, part, text FROM chunk WHERE journal = ?1 ORDER BY start DESC LIMIT 1

-- name: entry_by_key
-- An entry by its place.
SELECT body FROM entry WHERE key = ?1

-- name: entries_before
-- Entries before a key, the nearest first.
SELECT seq, id, kind, version, ignorable, at, body FROM entry WHERE key < ?1 AND key > ?2 ORDER BY key DESC LIMIT ?3
