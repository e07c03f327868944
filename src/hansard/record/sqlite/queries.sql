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

-- name: savepoint
-- Begin a part of a transaction that may be undone alone.
SAVEPOINT part

-- name: rollback_to
-- Undo that part.
ROLLBACK TO part

-- name: release
-- Make that part belong to its transaction.
RELEASE part

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

-- name: integrity_check
-- The same, with every index compared with its table.
PRAGMA integrity_check(1)

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
INSERT INTO record (one, database_id, commits, stamp) VALUES (1, ?, 0, randomblob(8))

-- name: begin_rebuilding
-- Logs are about to be read into this new database.
UPDATE record SET rebuilding = 1

-- name: end_rebuilding
-- All logs are in it.
UPDATE record SET rebuilding = 0

-- name: read_rebuilding
-- Whether some logs are not in it yet.
SELECT rebuilding FROM record

-- name: read_record
-- Which database this is, and how far it got.
SELECT database_id, commits FROM record

-- name: bump_commits
-- Count a commit and stamp it; alone, it is the no-op that makes a failed commit final (rule 3).
UPDATE record SET commits = commits + 1, previous = stamp, stamp = randomblob(8) RETURNING commits

-- name: read_stamp
-- Which state of the database this is.
SELECT stamp FROM record

-- name: mark_checked
-- The heads of all journals that changed until now were compared with their entries.
UPDATE record SET checked = commits

-- name: unchecked_journals
-- The journals that changed since heads were last compared.
SELECT id FROM journal WHERE touched > (SELECT checked FROM record)

-- name: wrong_heads
-- A journal whose head is not its last entry, or whose last entries (?1 of them) are not all there. With ?2 = 0 only
-- those are looked at that changed since heads were last compared.
SELECT j.id, j.head_seq FROM journal j
WHERE j.touched > iif(?2, -1, (SELECT checked FROM record)) AND (
    j.head_digest IS NOT iif(j.head_seq = j.base_seq, j.base_digest,
                             (SELECT e.digest FROM entry e WHERE e.key = (j.key << 32) + j.head_seq))
    OR (SELECT count(*) FROM entry e
        WHERE e.key > (j.key << 32) + max(j.base_seq, j.head_seq - ?1) AND e.key < (j.key + 1) << 32)
       <> min(j.head_seq - j.base_seq, ?1)
)
LIMIT 1

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

-- name: doubt_log
-- The log tells another history: compare it again at each opening, also when it is as long as it should be.
UPDATE journal SET log_synced = 0 WHERE id = ?

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
-- Owners are a JSON array, here and below: all who are one person.
SELECT s.journal, s.id, s.source, s.owner, s.title, s.state, s.end_reason, s.parent_id, s.parent_link, s.parent_at,
       s.created_at, s.open_message, s.open_turn, j.messages, j.active_at, j.head_seq, s.archived
FROM session s JOIN journal j ON j.key = s.journal
WHERE (?1 IS NULL OR s.owner IN (SELECT value FROM json_each(?1))) AND (?2 IS NULL OR s.source = ?2)
  AND (?3 IS NULL OR s.state = ?3)
  AND (?6 IS NULL OR s.archived = ?6)
  AND (?4 IS NULL OR (j.touched, j.id) < (SELECT touched, id FROM journal WHERE id = ?4))
ORDER BY j.touched DESC, j.id DESC LIMIT ?5

-- name: resolve_prefix
-- Ids that begin with a text, of one owner or of all.
SELECT id FROM session WHERE id >= ?1 AND id < ?1 || '~'
  AND (?3 IS NULL OR owner IN (SELECT value FROM json_each(?3))) ORDER BY id LIMIT ?2

-- name: resolve_title
-- Sessions with that title, in any case, of one owner or of all.
SELECT id, title FROM session WHERE title = ?1 COLLATE NOCASE
  AND (?3 IS NULL OR owner IN (SELECT value FROM json_each(?3))) ORDER BY id LIMIT ?2

-- name: find_turn
-- A turn by its id.
SELECT id, state, fence, owner, reason FROM turn WHERE journal = ? AND id = ?

-- name: find_turn_in_state
-- The running or the queued turn of a session.
SELECT id, state, fence, owner, reason FROM turn WHERE journal = ? AND state = ?

-- name: find_chore
-- The turn that runs in a session, if it answers nobody.
SELECT id FROM turn WHERE journal = ? AND state = 'running' AND purpose <> ''

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
INSERT INTO turn (journal, id, state, fence, owner, reason, purpose) VALUES (?, ?, ?, ?, ?, '', ?)
ON CONFLICT (journal, id) DO UPDATE SET state = excluded.state, fence = excluded.fence, owner = excluded.owner

-- name: end_turn
-- A turn is over.
UPDATE turn SET state = ?, reason = ? WHERE journal = ? AND id = ?

-- name: insert_delivery
-- Something is to be shown on a channel.
INSERT INTO delivery (journal, id, channel, target, message_id, operation, start_bytes, end_bytes, file,
                      state, attempts, owner, receipt, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', 0, '', '', '')

-- name: move_delivery
-- Its state changed; a receipt once known stays, and so do a mark and a stretch that was made longer.
UPDATE delivery SET state = ?1, attempts = attempts + (?1 = 'sending'), owner = ?2,
                    receipt = CASE WHEN ?3 = '' THEN receipt ELSE ?3 END, reason = ?4,
                    mark = CASE WHEN ?7 = '' THEN mark ELSE ?7 END,
                    end_bytes = CASE WHEN ?8 = 0 THEN end_bytes ELSE ?8 END
WHERE journal = ?5 AND id = ?6

-- name: find_delivery
-- A delivery by its id.
SELECT id, channel, target, message_id, operation, start_bytes, end_bytes, file, state, attempts, owner, receipt,
       reason, mark
FROM delivery WHERE journal = ? AND id = ?

-- name: list_deliveries
-- A page of deliveries: after a journal and an id, up to a journal, by state and channel.
SELECT s.id, d.id, d.channel, d.target, d.message_id, d.operation, d.start_bytes, d.end_bytes, d.file, d.state,
       d.attempts, d.owner, d.receipt, d.reason, d.mark
FROM delivery d JOIN journal s ON s.key = d.journal
WHERE (d.journal, d.id) > (?1, ?2) AND d.journal <= ?3 AND (?4 IS NULL OR d.state = ?4)
  AND (?5 IS NULL OR d.channel = ?5)
ORDER BY d.journal, d.id LIMIT ?6

-- name: sending_deliveries
-- What was on its way, for recovery.
SELECT j.id, d.id, d.owner FROM delivery d JOIN journal j ON j.key = d.journal WHERE d.state = 'sending'

-- name: find_route
-- Where a session key leads.
SELECT key, session_id, generation, reason FROM route WHERE key = ?

-- name: put_route
-- A session key leads elsewhere.
INSERT INTO route (key, session_id, generation, reason, moved_at, owner, identity) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET session_id = excluded.session_id, generation = excluded.generation,
                                reason = excluded.reason, moved_at = excluded.moved_at,
                                owner = excluded.owner, identity = excluded.identity

-- name: find_route_age
-- Since when a session key leads where it leads.
SELECT moved_at FROM route WHERE key = ?

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

-- name: dump_turn_chat
-- Where a session's turns are shown, as its entries must give it.
SELECT * FROM turn_chat WHERE journal = ? ORDER BY turn_id, chat

-- name: dump_outbox
-- What a journal has to show, as its entries must give it.
SELECT journal, message_id, chat, seq, follows FROM outbox WHERE journal = ? ORDER BY seq, message_id, chat

-- name: dump_route
-- The routes as the home's entries must give them.
SELECT * FROM route ORDER BY key

-- name: dump_cursor
-- The cursors as the home's entries must give them.
SELECT * FROM cursor ORDER BY channel, account

-- name: dump_held
-- The events that cannot be read yet as the home's entries must give them.
SELECT * FROM held ORDER BY channel, account, event_id

-- name: dump_invitation
-- The invitations that are not answered yet as the home's entries must give them.
SELECT * FROM invitation ORDER BY channel, account, event_id

-- name: dump_fetch
-- The files that are not fetched yet as the home's entries must give them.
SELECT * FROM fetch ORDER BY session_id, message_id, file

-- name: dump_access
-- Who may talk as the home's entries must give it.
SELECT * FROM access ORDER BY channel, identity

-- name: dump_pace
-- How often codes were shown and tried as the home's entries must give it.
SELECT * FROM pace ORDER BY name

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

-- name: clear_projections
-- Empty every table that is a fold of the entries. The outbox goes on with the numbers that follow.
DELETE FROM session;
DELETE FROM turn;
DELETE FROM delivery;
DELETE FROM route;
DELETE FROM cursor;
DELETE FROM intake;
DELETE FROM turn_chat;
DELETE FROM question;
DELETE FROM permission;
DELETE FROM outbox;
DELETE FROM held;
DELETE FROM invitation;
DELETE FROM fetch;
DELETE FROM access;
DELETE FROM pace;
DELETE FROM note;
DELETE FROM turn_person;
DELETE FROM turn_by;
DELETE FROM person;
DELETE FROM link_code

-- name: outbox_order
-- The numbers that give the messages of all sessions their order.
SELECT number, journal, message_id, chat FROM outbox

-- name: restore_outbox_number
-- Give a message that was folded again its old place.
UPDATE outbox SET number = ? WHERE journal = ? AND message_id = ? AND chat = ?

-- name: count_entries
-- How many journals and entries there are, so that progress can be shown.
SELECT (SELECT count(*) FROM journal), (SELECT count(*) FROM entry)

-- name: update_journal_fold
-- What stands in the journal's own row as a fold of its entries.
UPDATE journal SET messages = ?, active_at = ? WHERE key = ?

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
-- The journals of sessions that a search may look into. Parameters: owners, source, session, part of the title.
SELECT journal FROM session
WHERE (?1 IS NULL OR owner IN (SELECT value FROM json_each(?1))) AND (?2 IS NULL OR source = ?2) AND (?3 IS NULL OR id = ?3)
  AND (?4 IS NULL OR instr(lower(title), lower(?4)) > 0)

-- name: entries_from
-- Entries of any journal after a key, in order.
SELECT key, id, kind, version, ignorable, at, body FROM entry WHERE key > ?1 ORDER BY key LIMIT ?2

-- name: head_of_journal
-- Where a journal ends.
SELECT head_seq FROM journal WHERE key = ?

-- name: changing_entries
-- What became of messages in a stretch of a journal after they were said, in order.
SELECT kind, version, body FROM entry INDEXED BY entry_changing
WHERE key > ?1 AND key <= ?2
  AND kind IN ('messages.undone', 'messages.restored', 'message.edited', 'message.retracted', 'file.fetched') ORDER BY key

-- name: add_turn_chat
-- What a turn answers was said in this chat, too, or it only follows; turn '' is the next one.
INSERT INTO turn_chat (journal, turn_id, chat, follows) VALUES (?, ?, ?, ?)
ON CONFLICT (journal, turn_id, chat) DO UPDATE SET follows = min(follows, excluded.follows)

-- name: take_turn_chats
-- A turn begins, and is shown where what it answers was said.
UPDATE turn_chat SET turn_id = ?2 WHERE journal = ?1 AND turn_id = ''

-- name: leave_turn_chats
-- A turn was lost: the one that waits answers in its place.
INSERT INTO turn_chat (journal, turn_id, chat, follows)
SELECT journal, '', chat, follows FROM turn_chat
WHERE journal = ?1 AND turn_id = ?2 AND EXISTS (SELECT 1 FROM turn WHERE journal = ?1 AND state = 'queued')
ON CONFLICT (journal, turn_id, chat) DO UPDATE SET follows = min(follows, excluded.follows)

-- name: drop_turn_chats
-- A turn is over.
DELETE FROM turn_chat WHERE journal = ? AND turn_id = ?

-- name: list_turn_chats
-- Where a turn is shown.
SELECT chat, follows FROM turn_chat WHERE journal = ? AND turn_id = ? ORDER BY chat

-- name: running_chats
-- Chats, between two names, in which a running turn answers somebody.
SELECT DISTINCT chat FROM turn_chat WHERE turn_id <> '' AND follows = 0 AND chat >= ? AND chat < ? ORDER BY chat

-- name: writing_chats
-- The same chats, each with who runs the turn.
SELECT DISTINCT c.chat, t.owner FROM turn_chat c JOIN turn t ON t.journal = c.journal AND t.id = c.turn_id
WHERE c.turn_id <> '' AND c.follows = 0 AND c.chat >= ? AND c.chat < ? ORDER BY c.chat

-- name: running_turns_of_chats
-- Sessions with a running turn that is shown in chats between two names, and who runs it.
SELECT DISTINCT s.id, t.owner
FROM turn_chat c JOIN turn t ON t.journal = c.journal AND t.id = c.turn_id AND t.state = 'running'
     JOIN session s ON s.journal = c.journal
WHERE c.turn_id <> '' AND c.chat >= ? AND c.chat < ? ORDER BY s.id

-- name: queued_turns_of_chats
-- Turns that wait to run and are to be shown in chats between two names.
SELECT DISTINCT s.id, t.id, t.state, t.fence, t.owner, t.reason
FROM turn_chat c JOIN turn t ON t.journal = c.journal AND t.state = 'queued' JOIN session s ON s.journal = c.journal
WHERE c.turn_id = '' AND c.chat >= ? AND c.chat < ? ORDER BY t.fence, s.id

-- name: add_outbox
-- A message is to be shown in a chat.
INSERT OR IGNORE INTO outbox (journal, message_id, chat, seq, follows) VALUES (?, ?, ?, ?, ?)

-- name: add_outbox_of_turn
-- A message of a turn is to be shown wherever the turn is.
INSERT OR IGNORE INTO outbox (journal, message_id, chat, seq, follows)
SELECT journal, ?3, chat, ?4, follows FROM turn_chat WHERE journal = ?1 AND turn_id = ?2 ORDER BY chat

-- name: add_outbox_of_running
-- What is told while a turn runs is to be shown wherever the turn is.
INSERT OR IGNORE INTO outbox (journal, message_id, chat, seq, follows)
SELECT c.journal, ?2, c.chat, ?3, c.follows FROM turn_chat c JOIN turn t ON t.journal = c.journal AND t.id = c.turn_id
WHERE c.journal = ?1 AND t.state = 'running' ORDER BY c.chat

-- name: drop_outbox
-- A message needs no further delivery in a chat.
DELETE FROM outbox WHERE journal = ? AND message_id = ? AND chat = ?

-- name: find_outbox
-- Whether a message waits to be shown in a chat.
SELECT seq FROM outbox WHERE journal = ? AND message_id = ? AND chat = ?

-- name: list_outbox
-- What waits to be shown in chats between two names, the oldest first, after a number.
SELECT o.number, j.id, o.message_id, o.chat, o.seq, s.open_message IS o.message_id, o.follows
FROM outbox o JOIN journal j ON j.key = o.journal LEFT JOIN session s ON s.journal = o.journal
WHERE o.number > ? AND o.chat >= ? AND o.chat < ? ORDER BY o.number LIMIT ?

-- name: count_outbox
-- How much waits to be shown in chats between two names, and since when the oldest of it does.
SELECT count(*), coalesce(min(e.at), 0) FROM outbox o JOIN entry e ON e.key = (o.journal << 32) + o.seq
WHERE o.chat >= ? AND o.chat < ?

-- name: count_deliveries
-- Unsettled deliveries of a channel, by state.
SELECT state, count(*) FROM delivery WHERE state <> 'sent' AND channel = ? GROUP BY state

-- name: deliveries_between
-- Deliveries of one journal whose ids lie between two.
SELECT id, channel, target, message_id, operation, start_bytes, end_bytes, file, state, attempts, owner, receipt,
       reason, mark
FROM delivery WHERE journal = ? AND id >= ? AND id < ? ORDER BY id

-- name: deliveries_to
-- Everything that was sent to chats between two names.
SELECT j.id, d.id, d.channel, d.target, d.message_id, d.operation, d.start_bytes, d.end_bytes, d.file, d.state,
       d.attempts, d.owner, d.receipt, d.reason, d.mark
FROM delivery d JOIN journal j ON j.key = d.journal
WHERE (d.target = ?1 OR (d.target >= ?2 AND d.target < ?3)) AND (j.id, d.id) > (?4, ?5) ORDER BY j.id, d.id LIMIT ?6

-- name: lost_since_end
-- How many turns of a session that answer somebody were lost in a row, up to now.
SELECT count(*) FROM turn WHERE journal = ?1 AND state = 'lost' AND purpose = '' AND fence > coalesce((
    SELECT max(fence) FROM turn
    WHERE journal = ?1 AND state IN ('completed', 'interrupted', 'failed') AND purpose = ''), 0)

-- name: said_since
-- Whether a session has said anything in its entries between two keys.
SELECT 1 FROM entry WHERE key > ? AND key <= ? AND kind = 'message.opened' LIMIT 1

-- name: insert_held
-- An event cannot be read yet.
INSERT OR IGNORE INTO held (channel, account, event_id, chat, seq, identity, size_bytes, held_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_held
-- It was received after all.
DELETE FROM held WHERE channel = ? AND account = ? AND event_id = ?

-- name: find_held
-- Whether an event waits to become readable.
SELECT seq FROM held WHERE channel = ? AND account = ? AND event_id = ?

-- name: find_held_in_chat
-- Whether any event of a chat waits to become readable.
SELECT seq FROM held WHERE channel = ? AND account = ? AND chat = ? LIMIT 1

-- name: count_held
-- How many events wait to become readable and how many bytes they have: in all, and those of one person.
SELECT count(*), coalesce(sum(size_bytes), 0),
       coalesce(sum(identity = ?3), 0), coalesce(sum(iif(identity = ?3, size_bytes, 0)), 0)
FROM held WHERE channel = ?1 AND account = ?2

-- name: list_old_held
-- The ids of events that have waited since before a moment, the oldest first.
SELECT event_id FROM held WHERE channel = ? AND account = ? AND held_at < ? ORDER BY seq LIMIT ?

-- name: list_held
-- The events that wait to become readable, the oldest first: the bodies of their entries.
SELECT e.body FROM held h JOIN entry e ON e.key = (?3 << 32) + h.seq
WHERE h.channel = ?1 AND h.account = ?2 ORDER BY h.seq LIMIT ?4

-- name: insert_invitation
-- Somebody asked the agent into a chat.
INSERT OR IGNORE INTO invitation (channel, account, event_id, source, seq) VALUES (?, ?, ?, ?, ?)

-- name: drop_invitation
-- It is answered.
DELETE FROM invitation WHERE channel = ? AND account = ? AND event_id = ?

-- name: find_invitation
-- Whether an invitation waits for an answer.
SELECT seq FROM invitation WHERE channel = ? AND account = ? AND event_id = ?

-- name: count_invitations
-- How many invitations wait for an answer, in all and of one source.
SELECT count(*), coalesce(sum(source = ?3), 0) FROM invitation WHERE channel = ?1 AND account = ?2

-- name: list_invitations
-- The invitations to answer now, the bodies of their entries: so many of each source, the sources in turn.
-- All strangers together are one.
SELECT e.body FROM (
    SELECT seq, row_number() OVER (
        PARTITION BY iif(source LIKE 'strangers %', 'strangers', source) ORDER BY seq
    ) AS place
    FROM invitation WHERE channel = ?1 AND account = ?2
) i JOIN entry e ON e.key = (?3 << 32) + i.seq
WHERE i.place <= ?4 ORDER BY i.place, i.seq LIMIT ?5

-- name: insert_fetch
-- A file is to be fetched.
INSERT OR IGNORE INTO fetch (session_id, message_id, file, channel, account, person, seq) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: drop_fetch
-- It is kept, or cannot be.
DELETE FROM fetch WHERE session_id = ? AND message_id = ? AND file = ?

-- name: find_fetch
-- Whether a file is to be fetched.
SELECT seq FROM fetch WHERE session_id = ? AND message_id = ? AND file = ?

-- name: count_fetches
-- How many files are to be fetched, in all and of one person.
SELECT count(*), coalesce(sum(person = ?), 0) FROM fetch

-- name: list_fetches
-- The files to fetch now, the bodies of their entries: so many of each person, people in turn.
SELECT e.body FROM (
    SELECT seq, row_number() OVER (PARTITION BY person ORDER BY seq) AS place
    FROM fetch WHERE channel = ?1 AND account = ?2
) f JOIN entry e ON e.key = (?3 << 32) + f.seq
WHERE f.place <= ?4 ORDER BY f.place, f.seq LIMIT ?5

-- name: ask_access
-- Somebody was shown a code; those of a day are counted. Parameters: channel, identity, code, end, chat, time, window.
INSERT INTO access (channel, identity, state, code, expires_at, chat, changed_at, changed_by, asked_since, asked_count)
VALUES (?1, ?2, 'asked', ?3, ?4, ?5, ?6, '', ?6, 1)
ON CONFLICT (channel, identity) DO UPDATE SET
    state = 'asked', code = excluded.code, expires_at = excluded.expires_at, chat = excluded.chat,
    changed_at = excluded.changed_at, changed_by = '',
    asked_count = CASE WHEN ?6 >= asked_since AND ?6 < asked_since + ?7 THEN asked_count + 1 ELSE 1 END,
    asked_since = CASE WHEN ?6 >= asked_since AND ?6 < asked_since + ?7 THEN asked_since ELSE ?6 END

-- name: change_access
-- Somebody may talk, or may no longer; the code is used up.
INSERT INTO access (channel, identity, state, code, expires_at, chat, changed_at, changed_by, asked_since, asked_count)
VALUES (?1, ?2, ?3, '', 0, '', ?4, ?5, 0, 0)
ON CONFLICT (channel, identity) DO UPDATE SET
    state = excluded.state, code = '', expires_at = 0, changed_at = excluded.changed_at,
    changed_by = excluded.changed_by

-- name: find_access
-- What is known of somebody's access.
SELECT channel, identity, state, code, expires_at, chat, changed_at, changed_by, asked_since, asked_count
FROM access WHERE channel = ? AND identity = ?

-- name: find_access_by_code
-- Who was shown a code.
SELECT channel, identity, state, code, expires_at, chat, changed_at, changed_by, asked_since, asked_count
FROM access WHERE code = ? AND code <> ''

-- name: list_access
-- Everybody whose access is known, the latest change first.
SELECT channel, identity, state, code, expires_at, chat, changed_at, changed_by, asked_since, asked_count
FROM access WHERE ?1 IS NULL OR channel = ?1 ORDER BY changed_at DESC, channel, identity LIMIT ?2

-- name: add_pace
-- It happened so many times more. Parameters: name, time, window, times.
INSERT INTO pace (name, since, times) VALUES (?1, ?2, ?4)
ON CONFLICT (name) DO UPDATE SET
    times = CASE WHEN ?2 >= since AND ?2 < since + ?3 THEN times + ?4 ELSE ?4 END,
    since = CASE WHEN ?2 >= since AND ?2 < since + ?3 THEN since ELSE ?2 END

-- name: find_pace
-- How often it happened, since when.
SELECT since, times FROM pace WHERE name = ?

-- name: last_fence
-- Where the last turn of a session that answers somebody was queued or began.
SELECT coalesce(max(fence), 0) FROM turn WHERE journal = ? AND purpose = ''

-- name: find_busy_session
-- The session that a key leads to, if a turn runs or waits in it.
SELECT s.id FROM route r JOIN session s ON s.id = r.session_id WHERE r.key = ? AND (
    EXISTS (SELECT 1 FROM turn t WHERE t.journal = s.journal AND t.state = 'running')
    OR EXISTS (SELECT 1 FROM turn t WHERE t.journal = s.journal AND t.state = 'queued'))

-- name: dump_note
-- The memory as the home's entries must give it.
SELECT * FROM note ORDER BY id

-- name: dump_turn_person
-- Whom a session's turns answered, and what they took, as its entries must give it.
SELECT * FROM turn_person WHERE journal = ? ORDER BY turn_id, person

-- name: dump_turn_by
-- Who asked for a session's turns, as its entries must give it.
SELECT * FROM turn_by WHERE journal = ? ORDER BY turn_id, person, chat, how

-- name: add_turn_by
-- Somebody asks for a turn; turn '' is the next one.
INSERT OR IGNORE INTO turn_by (journal, turn_id, person, chat, how) VALUES (?, ?, ?, ?, ?)

-- name: take_turn_by
-- A turn begins that was recorded without those who asked: the authors of what it answers count.
UPDATE OR IGNORE turn_by SET turn_id = ?2 WHERE journal = ?1 AND turn_id = ''

-- name: drop_next_by
-- A turn begins: whoever speaks from now on asks for the turn after it.
DELETE FROM turn_by WHERE journal = ? AND turn_id = ''

-- name: find_turns_by_id
-- Turns whose ids begin with a text, in every session: only looked for by people.
SELECT s.id, t.id, t.state, t.fence, t.owner, t.reason FROM turn t JOIN session s ON s.journal = t.journal
WHERE substr(t.id, 1, length(?1)) = ?1 ORDER BY t.id LIMIT 2

-- name: list_turn_by
-- Who asked for a turn; turn '' is the next one.
SELECT person, chat, how FROM turn_by WHERE journal = ? AND turn_id = ? ORDER BY person, chat, how

-- name: list_next_by
-- Who asks for the next turn of a session, whether it waits already or is only being asked for.
SELECT DISTINCT person, chat FROM turn_by WHERE journal = ?1 AND turn_id IN (
    SELECT '' UNION ALL SELECT id FROM turn WHERE journal = ?1 AND state = 'queued') ORDER BY person, chat

-- name: list_last_by
-- Who asked for the last turn of a session that began.
SELECT DISTINCT person, chat FROM turn_by WHERE journal = ?1 AND turn_id = (
    SELECT id FROM turn WHERE journal = ?1 AND purpose = '' AND state <> 'queued' ORDER BY fence DESC LIMIT 1)
ORDER BY person, chat

-- name: drop_turn_persons
-- A turn begins whose askers are recorded: they are counted, not those who spoke.
DELETE FROM turn_person WHERE journal = ? AND turn_id = ''

-- name: count_turn_person
-- A turn counts to the day of somebody who asked for it.
INSERT OR IGNORE INTO turn_person (journal, turn_id, person, started_at, counted, requests, input_tokens, output_tokens, cost_micros)
VALUES (?1, ?2, ?5, ?3, ?4, 0, 0, 0, 0)

-- name: insert_note
-- Something is to be remembered.
INSERT INTO note (id, owner, text, seq, noted_at, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)

-- name: edit_note
-- A note says something else.
UPDATE note SET text = ?2, changed_at = ?3 WHERE id = ?1

-- name: delete_note
-- A note is forgotten.
DELETE FROM note WHERE id = ?

-- name: memory_entries
-- What was noted and changed, in its order: read only when a note that was forgotten is asked for again.
SELECT kind, version, at, body FROM entry
WHERE key > ? AND key <= ? AND kind IN ('memory.noted', 'memory.edited') ORDER BY key

-- name: find_note
-- A note by its id.
SELECT id, owner, text, noted_at, changed_at FROM note WHERE id = ?

-- name: list_notes
-- The notes of some owners, or of all, in the order in which they were made.
SELECT id, owner, text, noted_at, changed_at FROM note
WHERE ?1 IS NULL OR owner IN (SELECT value FROM json_each(?1)) ORDER BY seq LIMIT ?2

-- name: add_turn_person
-- The next turn answers this person, too.
INSERT OR IGNORE INTO turn_person (journal, turn_id, person, started_at, counted, requests, input_tokens, output_tokens, cost_micros)
VALUES (?, '', ?, 0, 0, 0, 0, 0, 0)

-- name: take_turn_persons
-- A turn begins, and answers those who spoke.
UPDATE turn_person SET turn_id = ?2, started_at = ?3, counted = ?4 WHERE journal = ?1 AND turn_id = ''

-- name: repeat_turn_persons
-- A turn that nobody spoke for, such as a second try, answers those whom the one before it answered.
INSERT INTO turn_person (journal, turn_id, person, started_at, counted, requests, input_tokens, output_tokens, cost_micros)
SELECT journal, ?2, person, ?3, ?4, 0, 0, 0, 0 FROM turn_person
WHERE journal = ?1 AND person <> '' AND turn_id = (
    SELECT turn_id FROM turn_person WHERE journal = ?1 AND turn_id NOT IN ('', ?2) ORDER BY started_at DESC, turn_id LIMIT 1)
AND NOT EXISTS (SELECT 1 FROM turn_person WHERE journal = ?1 AND turn_id = ?2)

-- name: take_turn_owner
-- A turn that answers nobody by name answers the owner of its session.
INSERT INTO turn_person (journal, turn_id, person, started_at, counted, requests, input_tokens, output_tokens, cost_micros)
SELECT journal, ?2, owner, ?3, ?4, 0, 0, 0, 0 FROM session
WHERE journal = ?1 AND NOT EXISTS (SELECT 1 FROM turn_person WHERE journal = ?1 AND turn_id = ?2)

-- name: take_turn_everybody
-- What a turn takes is counted for everybody together, too.
INSERT INTO turn_person (journal, turn_id, person, started_at, counted, requests, input_tokens, output_tokens, cost_micros)
VALUES (?, ?, '', ?, ?, 0, 0, 0, 0)

-- name: use_turn_person
-- A request of a turn took so much.
UPDATE turn_person SET requests = requests + 1, input_tokens = input_tokens + ?3, output_tokens = output_tokens + ?4,
    cost_micros = cost_micros + ?5
WHERE journal = ?1 AND turn_id = ?2

-- name: spare_turn_persons
-- A turn that asked no model, or got nothing from one, is not counted.
UPDATE turn_person SET counted = 0 WHERE journal = ? AND turn_id = ? AND requests = 0

-- name: list_turn_persons
-- Whom a turn answers; turn '' is the next one.
SELECT person FROM turn_person WHERE journal = ? AND turn_id = ? AND person <> '' ORDER BY person

-- name: list_asked_sessions
-- Sessions in which a turn waits or runs that one of these people asked for.
SELECT DISTINCT s.id FROM turn_by b JOIN session s ON s.journal = b.journal
JOIN turn t ON t.journal = b.journal AND t.state IN ('queued', 'running') AND b.turn_id IN ('', t.id)
WHERE CASE WHEN b.chat = '' THEN b.person ELSE 'person:' || substr(b.chat, 1, instr(b.chat, ':')) || b.person END IN (SELECT value FROM json_each(?)) ORDER BY s.id

-- name: spent_since
-- What was used for a person since a moment: turns, tokens, cost, turns that run, and the dearest of those that are over.
SELECT coalesce(sum(p.counted), 0), coalesce(sum(p.input_tokens + p.output_tokens), 0), coalesce(sum(p.cost_micros), 0),
    coalesce(sum(t.state = 'running'), 0),
    coalesce(max(CASE WHEN t.state <> 'running' THEN p.input_tokens + p.output_tokens END), 0),
    coalesce(max(CASE WHEN t.state <> 'running' THEN p.cost_micros END), 0)
FROM turn_person p JOIN turn t ON t.journal = p.journal AND t.id = p.turn_id
WHERE p.person = ? AND p.started_at >= ?

-- name: lost_turns
-- Open sessions whose last turn that answers somebody was lost since a moment, with that turn.
SELECT s.id, t.id FROM turn t JOIN session s ON s.journal = t.journal JOIN turn_person p
ON p.journal = t.journal AND p.turn_id = t.id AND p.person = ''
WHERE t.state = 'lost' AND s.state = 'open' AND p.started_at >= ?
AND t.fence = (SELECT max(fence) FROM turn WHERE journal = t.journal AND purpose = '') ORDER BY p.started_at DESC LIMIT ?

-- name: read_circle
-- Everybody who is one person with an owner, that owner included.
WITH RECURSIVE one (owner) AS (
    VALUES (?1)
    UNION
    SELECT b.owner FROM one JOIN person a ON a.owner = one.owner JOIN person b ON b.circle = a.circle)
SELECT owner FROM one ORDER BY owner

-- name: list_people
-- All circles, and who is in them.
SELECT circle, owner FROM person ORDER BY circle, owner

-- name: list_circles_of
-- The circles that an owner is in.
SELECT circle FROM person WHERE owner = ? ORDER BY circle

-- name: add_person
-- An owner is in a circle.
INSERT OR IGNORE INTO person (owner, circle) VALUES (?, ?)

-- name: drop_named
-- Forget what config.toml said before.
DELETE FROM person WHERE circle >= 'named:' AND circle < 'named;'

-- name: join_linked
-- Whoever is linked to an owner is in a new circle from now on. Parameters: the circle, the owner.
UPDATE person SET circle = ?1 WHERE circle IN
    (SELECT circle FROM person WHERE owner = ?2 AND circle >= 'linked:' AND circle < 'linked;')

-- name: leave_linked
-- An owner is linked to nobody.
DELETE FROM person WHERE owner = ? AND circle >= 'linked:' AND circle < 'linked;'

-- name: drop_lonely
-- Who is left alone in a circle is linked to nobody, either.
DELETE FROM person WHERE circle >= 'linked:' AND circle < 'linked;'
  AND (SELECT count(*) FROM person p WHERE p.circle = person.circle) = 1

-- name: put_link_code
-- A person was shown a code.
INSERT INTO link_code (owner, code, expires_at, identity, chat) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (owner) DO UPDATE SET code = excluded.code, expires_at = excluded.expires_at,
                                  identity = excluded.identity, chat = excluded.chat

-- name: drop_link_code
-- A code counts no longer.
DELETE FROM link_code WHERE owner = ?

-- name: find_link_code
-- Who was shown a code.
SELECT owner, code, expires_at, identity, chat FROM link_code WHERE code = ?

-- name: dump_person
-- Who is one person with whom as the home's entries must give it.
SELECT * FROM person ORDER BY owner, circle

-- name: dump_link_code
-- The codes that people were shown as the home's entries must give them.
SELECT * FROM link_code ORDER BY owner

-- name: list_followers
-- Chats of persons that lead to a session, with whose they are.
SELECT key, owner FROM route WHERE session_id = ? AND owner >= 'person:' AND owner < 'person;' ORDER BY key

-- name: list_waiting_chats
-- Chats in which something was said that the next turn answers.
SELECT chat FROM turn_chat WHERE journal = ? AND turn_id = '' AND follows = 0

-- name: find_follower
-- Whose chat leads to a session, and whom the session belongs to.
SELECT r.owner, r.identity, s.owner FROM route r JOIN session s ON s.id = r.session_id
WHERE r.key = ?1 AND r.session_id = ?2 AND r.owner >= 'person:' AND r.owner < 'person;'

-- name: add_question
-- A turn waits for an answer of a person in a chat.
INSERT INTO question (journal, turn_id, author, chat, message_id, scopes) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (journal, turn_id, author, chat) DO UPDATE SET message_id = excluded.message_id, scopes = excluded.scopes

-- name: drop_question
-- A turn waits for no answer any more.
DELETE FROM question WHERE journal = ? AND turn_id = ?

-- name: list_questions
-- The turns that wait for an answer of a person in a chat.
SELECT j.id, q.turn_id FROM question q JOIN journal j ON j.key = q.journal
WHERE q.author = ? AND q.chat = ? ORDER BY q.journal, q.turn_id

-- name: list_chat_questions
-- The turns that wait for an answer of anybody in a chat.
SELECT DISTINCT j.id, q.turn_id FROM question q JOIN journal j ON j.key = q.journal WHERE q.chat = ?

-- name: find_scopes
-- The answers that are offered beside a message that asks in a chat, while its question waits.
SELECT scopes FROM question WHERE message_id = ? AND chat = ? LIMIT 1

-- name: dump_question
-- A journal's open questions as its entries must give them.
SELECT * FROM question WHERE journal = ? ORDER BY turn_id, author, chat

-- name: add_permission
-- Somebody allowed a tool beyond one call.
INSERT INTO permission (id, tool, person, place, session_id, seq, granted_at, granted_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_permission
-- A permission counts no more.
DELETE FROM permission WHERE id = ?

-- name: drop_permissions_of
-- What somebody allowed on a channel counts no more.
DELETE FROM permission WHERE person = ? AND place >= ? AND place < ?

-- name: find_permission
-- A permission by its id.
SELECT id, tool, person, place, session_id, granted_at, granted_by FROM permission WHERE id = ?

-- name: find_granted
-- A permission for a tool, of a person in a place, that counts in a session.
SELECT id FROM permission WHERE tool = ?1 AND person = ?2 AND place = ?3 AND session_id IN ('', ?4) ORDER BY seq LIMIT 1

-- name: list_permissions
-- Every permission, the oldest first.
SELECT id, tool, person, place, session_id, granted_at, granted_by FROM permission ORDER BY seq

-- name: dump_permission
-- The permissions as the home's entries must give them.
SELECT * FROM permission ORDER BY id
