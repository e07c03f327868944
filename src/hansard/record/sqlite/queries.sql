-- name: begin
-- Take the write lock at once: a deferred transaction that turns into a writer fails under load.
BEGIN IMMEDIATE

-- name: begin_read
-- A snapshot for one page of a read.
BEGIN DEFERRED

-- name: commit
-- Make it durable.
COMMIT

-- name: rollback
-- Forget an unfinished transaction.
ROLLBACK

-- name: schema_version
-- Checked in each transaction, so that an old process notices a migration.
PRAGMA user_version

-- name: data_version
-- Changes when another connection has committed.
PRAGMA data_version

-- name: count_tables
-- Whether an unversioned database is empty or a stranger's.
SELECT count(*) FROM sqlite_schema

-- name: vacuum_into
-- A backup in one read transaction; a stepwise one restarts under others' writes.
VACUUM INTO ?

-- name: quick_check
-- The database's own opinion of its pages.
PRAGMA quick_check

-- name: checkpoint
-- Copy the WAL back without waiting for anyone.
PRAGMA wal_checkpoint(PASSIVE)

-- name: checkpoint_truncate
-- Copy the WAL back and give its space back, when a process leaves and nobody else reads.
PRAGMA wal_checkpoint(TRUNCATE)

-- name: insert_record
-- The one row of a new database.
INSERT INTO record (one, database_id, commits) VALUES (1, ?, 0)

-- name: read_record
-- Which database this is, and how far it got.
SELECT database_id, commits FROM record

-- name: bump_commits
-- Count a commit; alone, it is the no-op that makes a failed commit final (rule 3).
UPDATE record SET commits = commits + 1 RETURNING commits

-- name: raise_commits
-- A log holds transactions that this database has not seen: go on after them.
UPDATE record SET commits = max(commits, ?)

-- name: read_touched
-- The commit that last changed a journal.
SELECT touched FROM journal WHERE key = ?

-- name: read_journal
-- A journal's head and the ends of its files.
SELECT key, id, base_id, base_seq, base_digest, head_seq, head_digest, log_end, log_synced, part_end, messages, active_at
FROM journal WHERE id = ?

-- name: list_journals
-- Every journal, in pages by key.
SELECT key, id, base_id, base_seq, base_digest, head_seq, head_digest, log_end, log_synced, part_end, messages, active_at
FROM journal WHERE key > ? ORDER BY key LIMIT ?

-- name: insert_journal
-- A new journal, empty.
INSERT INTO journal (id, base_id, base_seq, base_digest, head_seq, head_digest)
VALUES (?, ?, ?, ?, ?, ?) RETURNING key

-- name: update_journal
-- Move a journal's head and the ends of its files, with the commit that moved them.
UPDATE journal SET head_seq = ?, head_digest = ?, log_end = ?, part_end = ?, messages = ?, active_at = ?, touched = ?
WHERE key = ?

-- name: update_journal_log
-- The log file was rewritten: its end moved, the journal did not.
UPDATE journal SET log_end = ?, log_synced = ?, part_end = ? WHERE key = ?

-- name: update_log_synced
-- The log is known to be on the disk up to here; never beyond what is accounted for.
UPDATE journal SET log_synced = max(log_synced, min(log_end, ?)) WHERE id = ?

-- name: touched_since
-- The journals, of those that somebody follows (a JSON array), that changed after a commit of another process.
SELECT id FROM journal WHERE touched > ?1 AND id IN (SELECT value FROM json_each(?2))

-- name: insert_entry
-- One fact.
INSERT INTO entry (key, id, kind, version, ignorable, at, digest_format, salt, digest, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: find_entry
-- An entry by its id.
SELECT seq, kind, version, at, body FROM entry WHERE journal = ? AND id = ?

-- name: read_entries
-- A page of a journal, in order.
SELECT seq, id, kind, version, ignorable, at, body FROM entry WHERE key > ? AND key <= ? ORDER BY key LIMIT ?

-- name: read_full_entries
-- A page of a journal with everything that its log line holds.
SELECT seq, id, kind, version, ignorable, at, digest_format, salt, digest, body
FROM entry WHERE key > ? AND key <= ? ORDER BY key LIMIT ?

-- name: read_digest
-- The digest that a fork continues.
SELECT digest FROM entry WHERE key = ?

-- name: count_messages
-- Messages in a stretch of a journal, for a fork's count; a body begins with its role, and notices are not counted.
SELECT count(*) FROM entry WHERE key > ? AND key <= ? AND kind IN ('message.added', 'message.opened')
  AND substr(body, 1, 16) <> CAST('{"role":"notice"' AS BLOB)

-- name: last_opened
-- The last message that was begun in a stretch of a journal, to find one that a fork cuts.
SELECT id FROM entry WHERE key > ? AND key <= ? AND kind = 'message.opened' ORDER BY key DESC LIMIT 1

-- name: insert_kind
-- Note that this kind is used here.
INSERT OR IGNORE INTO kind (kind, version, ignorable) VALUES (?, ?, ?)

-- name: list_kinds
-- The kinds that are used here.
SELECT kind, version, ignorable FROM kind

-- name: insert_chunk
-- A piece of the open message.
INSERT INTO chunk (journal, start, message_id, part, text) VALUES (?, ?, ?, ?, ?)

-- name: read_chunks
-- The open message so far.
SELECT start, message_id, part, text FROM chunk WHERE journal = ? ORDER BY start

-- name: read_chunks_after
-- The open message from the chunk that holds an offset on.
SELECT start, message_id, part, text FROM chunk
WHERE journal = ?1 AND start >= coalesce((SELECT max(start) FROM chunk WHERE journal = ?1 AND start <= ?2), 0)
ORDER BY start

-- name: last_chunk
-- Where the open message ends.
SELECT start, message_id, part, text FROM chunk WHERE journal = ? ORDER BY start DESC LIMIT 1

-- name: delete_chunks
-- The seal holds all of it now.
DELETE FROM chunk WHERE journal = ?

-- name: insert_session
-- A session begins.
INSERT INTO session (journal, id, source, owner, title, state, parent_id, parent_link, parent_at, created_at)
VALUES (?, ?, ?, ?, ?, 'open', ?, ?, ?, ?)

-- name: set_session_title
-- A title.
UPDATE session SET title = ? WHERE journal = ?

-- name: set_session_parent
-- A parent that became known later.
UPDATE session SET parent_id = ?, parent_link = ? WHERE journal = ?

-- name: set_session_state
-- Ended or reopened.
UPDATE session SET state = ?, end_reason = ? WHERE journal = ?

-- name: set_session_archived
-- Archived, or not any more.
UPDATE session SET archived = ? WHERE journal = ?

-- name: open_session_message
-- A message is being streamed.
UPDATE session SET open_message = ?, open_turn = ? WHERE journal = ?

-- name: seal_session_message
-- It is finished.
UPDATE session SET open_message = NULL, open_turn = NULL WHERE journal = ?

-- name: read_session
-- A session by its id, with its journal's head.
SELECT s.journal, s.id, s.source, s.owner, s.title, s.state, s.end_reason, s.parent_id, s.parent_link, s.parent_at,
       s.created_at, s.open_message, s.open_turn, j.messages, j.active_at, j.head_seq, s.archived
FROM session s JOIN journal j ON j.key = s.journal WHERE s.id = ?

-- name: read_tip
-- Where a session ends, for followers: its last entry and its open message.
SELECT j.key, j.head_seq, s.open_message FROM session s JOIN journal j ON j.key = s.journal WHERE s.id = ?

-- name: list_sessions
-- Sessions, latest activity first: by commit, never by clock; within a commit by id, which no rebuild changes.
SELECT s.journal, s.id, s.source, s.owner, s.title, s.state, s.end_reason, s.parent_id, s.parent_link, s.parent_at,
       s.created_at, s.open_message, s.open_turn, j.messages, j.active_at, j.head_seq, s.archived
FROM session s JOIN journal j ON j.key = s.journal
WHERE (?1 IS NULL OR s.owner = ?1) AND (?2 IS NULL OR s.source = ?2) AND (?3 IS NULL OR s.state = ?3)
  AND (?6 IS NULL OR s.archived = ?6)
  AND (?4 IS NULL OR (j.touched, j.id) < (SELECT touched, id FROM journal WHERE id = ?4))
ORDER BY j.touched DESC, j.id DESC LIMIT ?5

-- name: resolve_prefix
-- Ids that begin with a text, of one owner or of all.
SELECT id FROM session WHERE id >= ?1 AND id < ?1 || '~' AND (?3 IS NULL OR owner = ?3) ORDER BY id LIMIT ?2

-- name: resolve_title
-- Sessions with that title, in any case, of one owner or of all.
SELECT id, title FROM session WHERE title = ?1 COLLATE NOCASE AND (?3 IS NULL OR owner = ?3) ORDER BY id LIMIT ?2

-- name: find_turn
-- A turn by its id.
SELECT id, state, fence, owner, reason FROM turn WHERE journal = ? AND id = ?

-- name: find_turn_in_state
-- The running or the queued turn of a session.
SELECT id, state, fence, owner, reason FROM turn WHERE journal = ? AND state = ?

-- name: running_turns
-- Everything that runs, for recovery.
SELECT s.id, t.id, t.owner FROM turn t JOIN session s ON s.journal = t.journal WHERE t.state = 'running'

-- name: list_turns
-- The turns of a session, oldest first.
SELECT id, state, fence, owner, reason FROM turn WHERE journal = ? ORDER BY fence

-- name: queued_turns
-- Sessions whose turn waits to run.
SELECT s.id, t.id, t.state, t.fence, t.owner, t.reason FROM turn t JOIN session s ON s.journal = t.journal
WHERE t.state = 'queued' ORDER BY t.fence

-- name: put_turn
-- A turn is queued or starts.
INSERT INTO turn (journal, id, state, fence, owner, reason) VALUES (?, ?, ?, ?, ?, '')
ON CONFLICT (journal, id) DO UPDATE SET state = excluded.state, fence = excluded.fence, owner = excluded.owner

-- name: end_turn
-- A turn is over.
UPDATE turn SET state = ?, reason = ? WHERE journal = ? AND id = ?

-- name: insert_delivery
-- Something is to be shown on a channel.
INSERT INTO delivery (journal, id, channel, target, message_id, operation, start_bytes, end_bytes,
                      state, attempts, owner, receipt, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'pending', 0, '', '', '')

-- name: move_delivery
-- Its state changed; a receipt once known stays.
UPDATE delivery SET state = ?1, attempts = attempts + (?1 = 'sending'), owner = ?2,
                    receipt = CASE WHEN ?3 = '' THEN receipt ELSE ?3 END, reason = ?4
WHERE journal = ?5 AND id = ?6

-- name: find_delivery
-- A delivery by its id.
SELECT id, channel, target, message_id, operation, start_bytes, end_bytes, state, attempts, owner, receipt, reason
FROM delivery WHERE journal = ? AND id = ?

-- name: list_deliveries
-- A page of deliveries: after a journal and an id, up to a journal, by state and channel.
SELECT s.id, d.id, d.channel, d.target, d.message_id, d.operation, d.start_bytes, d.end_bytes, d.state, d.attempts,
       d.owner, d.receipt, d.reason
FROM delivery d JOIN session s ON s.journal = d.journal
WHERE (d.journal, d.id) > (?1, ?2) AND d.journal <= ?3 AND (?4 IS NULL OR d.state = ?4)
  AND (?5 IS NULL OR d.channel = ?5)
ORDER BY d.journal, d.id LIMIT ?6

-- name: sending_deliveries
-- What was on its way, for recovery.
SELECT s.id, d.id, d.owner FROM delivery d JOIN session s ON s.journal = d.journal WHERE d.state = 'sending'

-- name: find_route
-- Where a session key leads.
SELECT key, session_id, generation, reason FROM route WHERE key = ?

-- name: put_route
-- A session key leads elsewhere.
INSERT INTO route (key, session_id, generation, reason) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET session_id = excluded.session_id, generation = excluded.generation,
                                reason = excluded.reason

-- name: find_cursor
-- How far a platform's stream was received.
SELECT value FROM cursor WHERE channel = ? AND account = ?

-- name: put_cursor
-- It was received further.
INSERT INTO cursor (channel, account, value) VALUES (?, ?, ?)
ON CONFLICT (channel, account) DO UPDATE SET value = excluded.value

-- name: find_intake
-- Whether a platform's event was received before.
SELECT seq FROM intake WHERE channel = ? AND account = ? AND event_id = ?

-- name: insert_intake
-- It was received.
INSERT INTO intake (channel, account, event_id, seq) VALUES (?, ?, ?, ?)

-- name: entry_by_key
-- An entry by its place.
SELECT body FROM entry WHERE key = ?

-- name: dump_session
-- A session's row as its entries must give it.
SELECT * FROM session WHERE journal = ?

-- name: dump_turn
-- A session's turns as its entries must give them.
SELECT * FROM turn WHERE journal = ? ORDER BY id

-- name: dump_delivery
-- A session's deliveries as its entries must give them.
SELECT * FROM delivery WHERE journal = ? ORDER BY id

-- name: dump_route
-- The routes as the home's entries must give them.
SELECT * FROM route ORDER BY key

-- name: dump_cursor
-- The cursors as the home's entries must give them.
SELECT * FROM cursor ORDER BY channel, account

-- name: dump_intake
-- The intake as the home's entries must give it.
SELECT * FROM intake ORDER BY channel, account, event_id

-- name: find_open_chunks
-- Chunks that belong to no open message.
SELECT DISTINCT c.journal, c.message_id FROM chunk c LEFT JOIN session s ON s.journal = c.journal
WHERE s.open_message IS NOT c.message_id

-- name: stray_journals
-- Journals that no session and not the home accounts for.
SELECT j.id FROM journal j LEFT JOIN session s ON s.journal = j.key WHERE s.journal IS NULL AND j.id <> ?

-- name: unsynced_journals
-- Journals whose log is not known to be on the disk.
SELECT id FROM journal WHERE log_synced < log_end

-- name: journals_behind
-- Sessions' journals that changed after a commit, in the order in which they did.
SELECT key, head_seq, touched, base_seq FROM journal WHERE touched > ?1 AND id <> 'home' ORDER BY touched, key LIMIT ?2

-- name: session_of_journal
-- The session that a journal is of, where it begins and where it ends.
SELECT s.id, j.base_id, j.base_seq, j.head_seq FROM journal j JOIN session s ON s.journal = j.key WHERE j.key = ?

-- name: entry_of_key
-- One entry.
SELECT seq, id, kind, version, ignorable, at, body FROM entry WHERE key = ?

-- name: entries_before
-- Entries before a key, the nearest first.
SELECT seq, id, kind, version, ignorable, at, body FROM entry WHERE key < ?1 AND key > ?2 ORDER BY key DESC LIMIT ?3

-- name: filter_journals
-- The journals of sessions that a search may look into. Parameters: owner, source, session, part of the title.
SELECT journal FROM session
WHERE (?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR source = ?2) AND (?3 IS NULL OR id = ?3)
  AND (?4 IS NULL OR instr(lower(title), lower(?4)) > 0)

-- name: entries_from
-- Entries of any journal after a key, in order.
SELECT key, id, kind, version, ignorable, at, body FROM entry WHERE key > ?1 ORDER BY key LIMIT ?2

-- name: head_of_journal
-- Where a journal ends.
SELECT head_seq FROM journal WHERE key = ?

-- name: undoing_entries
-- What was undone in a stretch of a journal, and what was brought back, in order.
SELECT kind, version, body FROM entry INDEXED BY entry_undoing
WHERE key > ?1 AND key <= ?2 AND kind IN ('messages.undone', 'messages.restored') ORDER BY key
