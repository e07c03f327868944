-- The record's schema. This file is the truth; the migrations must reproduce it (tested).
-- `entry` and `chunk` are what was said. Everything below the line "projections" is a fold of `entry`.

-- One row: which database this is, and how many commits it has seen. `rebuilding` is 1 while the logs are still being
-- read into a new database: nobody may read it then, and the next opening goes on. `checked` is negative while
-- logs are still to be read into an older database that somebody put back: -1, or -1 - the last commit that this is about.
CREATE TABLE record (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    database_id TEXT    NOT NULL,
    commits     INTEGER NOT NULL,
    rebuilding  INTEGER NOT NULL DEFAULT 0 CHECK (rebuilding IN (0, 1)),
    stamp       BLOB    NOT NULL DEFAULT x'',         -- which state this is: a new one with every commit (stamps.py)
    previous    BLOB    NOT NULL DEFAULT x'',         -- the stamp of the commit before
    checked     INTEGER NOT NULL DEFAULT 0            -- heads were compared with entries up to this commit
) STRICT;

-- One row for each session and one for the home: the chain's head and how far each log file must reach.
CREATE TABLE journal (
    key         INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    base_id     TEXT,                                 -- a fork's parent
    base_seq    INTEGER NOT NULL DEFAULT 0,           -- the last seq that a fork shares; 0 otherwise
    base_digest BLOB    NOT NULL,                     -- what the first own entry's digest continues
    head_seq    INTEGER NOT NULL CHECK (head_seq >= base_seq),
    head_digest BLOB    NOT NULL,
    log_end     INTEGER NOT NULL DEFAULT 0,           -- bytes of the log that this database accounts for
    log_synced  INTEGER NOT NULL DEFAULT 0,           -- bytes of the log that are known to be on the disk
    part_end    INTEGER NOT NULL DEFAULT 0,           -- bytes of the open message's part file
    touched     INTEGER NOT NULL DEFAULT 0,           -- the commit that last changed this journal
    messages    INTEGER NOT NULL DEFAULT 0,           -- a fold, kept here: one row changes with each message
    active_at   INTEGER NOT NULL DEFAULT 0            -- a fold too: the time of the last entry
) STRICT;

-- The entries. The key is (journal << 32) + seq, so that a session's entries lie together and in order,
-- and two entries with one seq cannot exist.
CREATE TABLE entry (
    key           INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL,
    kind          TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    ignorable     INTEGER NOT NULL DEFAULT 0 CHECK (ignorable IN (0, 1)),
    at            INTEGER NOT NULL,
    digest_format INTEGER NOT NULL,
    salt          BLOB    NOT NULL,
    digest        BLOB    NOT NULL,
    body          BLOB    NOT NULL,
    journal       INTEGER NOT NULL GENERATED ALWAYS AS (key >> 32) VIRTUAL,
    seq           INTEGER NOT NULL GENERATED ALWAYS AS (key & 4294967295) VIRTUAL
) STRICT;
CREATE UNIQUE INDEX entry_id ON entry (journal, id);

-- The text of open messages. It leaves with the seal, which holds all of it.
CREATE TABLE chunk (
    journal    INTEGER NOT NULL,
    start      INTEGER NOT NULL,
    message_id TEXT    NOT NULL,
    part       TEXT    NOT NULL CHECK (part IN ('text', 'reasoning')),
    text       BLOB    NOT NULL,
    PRIMARY KEY (journal, start)
) STRICT, WITHOUT ROWID;

-- Every kind and version that was ever written here, so that opening can refuse what it does not understand.
CREATE TABLE kind (
    kind      TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    ignorable INTEGER NOT NULL CHECK (ignorable IN (0, 1)),
    PRIMARY KEY (kind, version)
) STRICT, WITHOUT ROWID;

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
VACUUM INTO ?1

-- name: list_chunk_texts
-- The text of all open messages, to see whether it can be read.
SELECT text FROM chunk

-- name: integrity_check
-- Every page, and every index compared with its table.
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
INSERT INTO record (one, database_id, commits, stamp) VALUES (1, ?1, 0, randomblob(8))

-- name: begin_rebuilding
-- Logs are about to be read into this new database.
UPDATE record SET rebuilding = 1

-- name: end_rebuilding
-- All logs are in it.
UPDATE record SET rebuilding = 0

-- name: read_rebuilding
-- Whether some logs are not in it yet.
SELECT rebuilding FROM record

-- name: find_introduction
-- Whether this database is known in the home journal.
SELECT 1 FROM entry e JOIN journal j ON j.key = e.journal
WHERE j.id = ?1 AND e.id = '~database:' || (SELECT database_id FROM record)

-- name: bump_commits
-- Count a commit and stamp it; alone, it is the no-op that makes a failed commit final (rule 3).
UPDATE record SET commits = commits + 1, previous = stamp, stamp = randomblob(8) RETURNING commits

-- name: read_stamp
-- Which state of the database this is.
SELECT stamp FROM record

-- name: mark_checked
-- The heads of all journals that changed until now were compared with their entries. A database that somebody put back
-- keeps its mark until every log could be read (?1); what is committed from now on is not meant by it.
UPDATE record SET checked = CASE WHEN ?1 OR checked >= 0 THEN commits WHEN checked = -1 THEN -1 - commits ELSE checked END

-- name: mark_put_back
-- The logs are ahead of this database by more than a crash can leave: somebody put it back.
UPDATE record SET checked = -1

-- name: mark_lost
-- The database is rebuilt, and this is the last commit that a log knows: only that one can have been torn by a crash.
-- Only the first opening sets it: a later one may find logs that a killed opening had cut. 0 and -1 mean something else.
UPDATE record SET checked = -max(2, ?1) WHERE checked >= 0

-- name: read_put_back
-- The last commit from which this database may have been put back, as far as all logs are not read in yet; else 0.
SELECT CASE WHEN checked = -1 THEN 9223372036854775807 WHEN checked < 0 THEN -1 - checked ELSE 0 END FROM record

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
UPDATE record SET commits = max(commits, ?1)

-- name: adopting_commit
-- The commit that changes a journal by adopting lines of a transaction: this one, unless the transaction is later. A
-- rebuild keeps the order of the transactions.
SELECT CASE WHEN rebuilding = 1 OR commits < ?1 THEN ?1 ELSE commits END FROM record

-- name: read_touched
-- The commit that last changed a journal.
SELECT touched FROM journal WHERE key = ?1

-- name: insert_journal
-- A new journal, empty.
INSERT INTO journal (id, base_id, base_seq, base_digest, head_seq, head_digest)
VALUES (?1, ?2, ?3, ?4, ?5, ?6) RETURNING key

-- name: update_journal
-- Move a journal's head and the ends of its files, with the commit that moved them.
UPDATE journal SET head_seq = ?1, head_digest = ?2, log_end = ?3, part_end = ?4, messages = ?5, active_at = ?6, touched = ?7
WHERE key = ?8

-- name: update_journal_log
-- The log file was rewritten: its end moved, the journal did not.
UPDATE journal SET log_end = ?1, log_synced = ?2, part_end = ?3 WHERE key = ?4

-- name: update_log_synced
-- The log is known to be on the disk up to here; never beyond what is accounted for.
UPDATE journal SET log_synced = max(log_synced, min(log_end, ?1)) WHERE id = ?2 AND log_synced >= 0

-- name: holds_bytes
-- Whether an entry of a stretch holds some bytes.
SELECT EXISTS (SELECT 1 FROM entry WHERE key > ?1 AND key <= ?2 AND instr(body, ?3))

-- name: doubt_unread_log
-- The log could not be read at an opening: nobody knows what it holds, so none of its units counts as torn by a crash.
UPDATE journal SET log_synced = -1 WHERE id = ?1 AND log_synced <> -2

-- name: trust_read_log
-- The log is as it should be, after -1 or -2.
UPDATE journal SET log_synced = max(log_synced, 0) WHERE id = ?1

-- name: doubt_log
-- The log is to be written anew or tells another history: compare all of it again at each opening, also when it is as
-- long as it should be.
UPDATE journal SET log_synced = -2 WHERE id = ?1

-- name: touched_since
-- The journals, of those that somebody follows (a JSON array), that changed after a commit of another process.
SELECT id FROM journal WHERE touched > ?1 AND id IN (SELECT value FROM json_each(?2))

-- name: insert_entry
-- One fact.
INSERT INTO entry (key, id, kind, version, ignorable, at, digest_format, salt, digest, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)

-- name: insert_kind
-- Note that this kind is used here.
INSERT INTO kind (kind, version, ignorable) VALUES (?1, ?2, ?3)
ON CONFLICT DO NOTHING

-- name: insert_chunk
-- A piece of the open message.
INSERT INTO chunk (journal, start, message_id, part, text) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: delete_chunks
-- The seal holds all of it now.
DELETE FROM chunk WHERE journal = ?1

-- name: count_entries
-- How many journals and entries there are, so that progress can be shown.
SELECT (SELECT count(*) FROM journal), (SELECT count(*) FROM entry)

-- name: update_journal_fold
-- What stands in the journal's own row as a fold of its entries.
UPDATE journal SET messages = ?1, active_at = ?2 WHERE key = ?3

-- name: unsynced_journals
-- Journals whose log is not known to be on the disk.
SELECT id FROM journal WHERE log_synced >= 0 AND log_synced < log_end
