-- Version 1: the first schema.

-- One row: which database this is, and how many commits it has seen.
CREATE TABLE record (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    database_id TEXT    NOT NULL,
    commits     INTEGER NOT NULL
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

-- projections ---------------------------------------------------------------------------------------------------

CREATE TABLE session (
    journal      INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL UNIQUE,
    source       TEXT    NOT NULL,
    owner        TEXT    NOT NULL,
    title        TEXT,
    state        TEXT    NOT NULL CHECK (state IN ('open', 'ended')),
    end_reason   TEXT,
    parent_id    TEXT,
    parent_link  TEXT CHECK (parent_link IN ('fork', 'reset', 'import')),
    parent_at    INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    open_message TEXT,
    open_turn    TEXT
) STRICT;
CREATE INDEX session_title ON session (title COLLATE NOCASE) WHERE title IS NOT NULL;
CREATE INDEX session_owner ON session (owner);

CREATE TABLE turn (
    journal INTEGER NOT NULL,
    id      TEXT    NOT NULL,
    state   TEXT    NOT NULL CHECK (state IN ('queued', 'running', 'completed', 'interrupted', 'failed', 'lost')),
    fence   INTEGER NOT NULL,
    owner   TEXT    NOT NULL,
    reason  TEXT    NOT NULL,
    PRIMARY KEY (journal, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX turn_running ON turn (journal) WHERE state = 'running';
CREATE UNIQUE INDEX turn_queued ON turn (journal) WHERE state = 'queued';

CREATE TABLE delivery (
    journal     INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    channel     TEXT    NOT NULL,
    target      TEXT    NOT NULL,
    message_id  TEXT    NOT NULL,
    operation   TEXT    NOT NULL CHECK (operation IN ('post', 'edit')),
    start_bytes INTEGER NOT NULL,
    end_bytes   INTEGER NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('pending', 'sending', 'sent', 'failed', 'unknown')),
    attempts    INTEGER NOT NULL,
    owner       TEXT    NOT NULL,
    receipt     TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    PRIMARY KEY (journal, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX delivery_unsettled ON delivery (state, channel) WHERE state <> 'sent';

CREATE TABLE route (
    key        TEXT    NOT NULL PRIMARY KEY,
    session_id TEXT    NOT NULL,
    generation INTEGER NOT NULL,
    reason     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

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
