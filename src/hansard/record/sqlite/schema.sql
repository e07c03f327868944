-- The record's schema. This file is the truth; the migrations must reproduce it (tested).
-- `entry` and `chunk` are what was said. Everything below the line "projections" is a fold of `entry`.

-- One row: which database this is, and how many commits it has seen. `rebuilding` is 1 while the logs are still being
-- read into a new database: nobody may read it then, and the next opening goes on.
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
CREATE INDEX entry_changing ON entry (key)
WHERE kind IN ('messages.undone', 'messages.restored', 'message.edited', 'message.retracted', 'file.fetched');

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
    open_turn    TEXT,
    archived     INTEGER NOT NULL DEFAULT 0           -- left out of lists until somebody asks for it
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
    purpose TEXT    NOT NULL DEFAULT '',              -- of a turn that answers nobody
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
    file        INTEGER NOT NULL DEFAULT 0,           -- the number of the message's file; 0: its words
    mark        TEXT    NOT NULL DEFAULT '',          -- what stands above the words when they may be shown twice
    PRIMARY KEY (journal, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX delivery_unsettled ON delivery (state, channel) WHERE state <> 'sent';

CREATE TABLE route (
    key        TEXT    NOT NULL PRIMARY KEY,
    session_id TEXT    NOT NULL,
    generation INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    moved_at   INTEGER NOT NULL DEFAULT 0,            -- a label: when it began to lead there
    owner      TEXT    NOT NULL DEFAULT '',           -- whose chat it is; a room's owner where it is a room
    identity   TEXT    NOT NULL DEFAULT ''            -- what the platform calls that person
) STRICT, WITHOUT ROWID;
CREATE INDEX route_session ON route (session_id);

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

-- Where the answers of a turn are shown: the chats in which what it answers was said. Turn '' is the next one.
CREATE TABLE turn_chat (
    journal INTEGER NOT NULL,
    turn_id TEXT    NOT NULL,
    chat    TEXT    NOT NULL,
    follows INTEGER NOT NULL DEFAULT 0,               -- nothing was said there: it is a chat of the same person
    PRIMARY KEY (journal, turn_id, chat)
) STRICT, WITHOUT ROWID;
CREATE INDEX turn_chat_running ON turn_chat (chat) WHERE turn_id <> '';
CREATE INDEX turn_chat_waiting ON turn_chat (chat) WHERE turn_id = '';

-- Messages that are not shown yet in a chat, in the order in which they came. The number is operational: a rebuild
-- gives others, and one that was used is not used again, so that readers can ask for what is new.
CREATE TABLE outbox (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    journal    INTEGER NOT NULL,
    message_id TEXT    NOT NULL,
    chat       TEXT    NOT NULL,
    seq        INTEGER NOT NULL,                      -- of the entry that put it here
    follows    INTEGER NOT NULL DEFAULT 0,            -- shown only while the chat follows the session
    UNIQUE (journal, message_id, chat)
) STRICT;

-- Events that cannot be read yet. They leave when they are received after all.
CREATE TABLE held (
    channel  TEXT    NOT NULL,
    account  TEXT    NOT NULL,
    event_id TEXT    NOT NULL,
    chat     TEXT    NOT NULL,
    seq      INTEGER NOT NULL,                        -- of the home entry that holds it
    identity TEXT    NOT NULL DEFAULT '',             -- who sent it; '' when an older Hansard held it
    size_bytes INTEGER NOT NULL DEFAULT 0,
    held_at  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (channel, account, event_id)
) STRICT, WITHOUT ROWID;

-- Invitations that are not answered yet. The answers of one source never take the place of another's.
CREATE TABLE invitation (
    channel  TEXT    NOT NULL,
    account  TEXT    NOT NULL,
    event_id TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    seq      INTEGER NOT NULL,                        -- of the home entry that tells of it
    PRIMARY KEY (channel, account, event_id)
) STRICT, WITHOUT ROWID;

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

-- Who asked to talk, who may, and who may no longer.
CREATE TABLE access (
    channel     TEXT    NOT NULL,
    identity    TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('asked', 'allowed', 'revoked')),
    code        TEXT    NOT NULL,
    expires_at  INTEGER NOT NULL,
    chat        TEXT    NOT NULL,
    changed_at  INTEGER NOT NULL,
    changed_by  TEXT    NOT NULL,
    asked_since INTEGER NOT NULL,
    asked_count INTEGER NOT NULL,                     -- codes that they were shown since then, within a day
    PRIMARY KEY (channel, identity)
) STRICT, WITHOUT ROWID;
CREATE INDEX access_code ON access (code) WHERE code <> '';

-- How often codes were shown, and wrong ones tried, since a moment, within an hour.
CREATE TABLE pace (
    name  TEXT    NOT NULL PRIMARY KEY,
    since INTEGER NOT NULL,
    times INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What is remembered for an owner, until it is forgotten.
CREATE TABLE note (
    id         TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    seq        INTEGER NOT NULL,                      -- of the home entry that noted it
    noted_at   INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX note_owner ON note (owner, seq);

-- Whom a turn answers, and what it took. Turn '' is the next one; person '' is everybody, counted once.
CREATE TABLE turn_person (
    journal       INTEGER NOT NULL,
    turn_id       TEXT    NOT NULL,
    person        TEXT    NOT NULL,
    started_at    INTEGER NOT NULL,
    counted       INTEGER NOT NULL CHECK (counted IN (0, 1)),
    requests      INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_micros   INTEGER NOT NULL,
    PRIMARY KEY (journal, turn_id, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX turn_person_day ON turn_person (person, started_at);

-- Who asked for a turn, where and how. Turn '' is the next one: who said what it will answer.
CREATE TABLE turn_by (
    journal INTEGER NOT NULL,
    turn_id TEXT    NOT NULL,
    person  TEXT    NOT NULL,
    chat    TEXT    NOT NULL,
    how     TEXT    NOT NULL CHECK (how IN ('message', 'retry', 'compact', 'steering', 'recovery')),
    PRIMARY KEY (journal, turn_id, person, chat, how)
) STRICT, WITHOUT ROWID;

-- Turns that a crash ended, to be found at a start.
CREATE INDEX turn_lost ON turn (journal) WHERE state = 'lost';

-- Who is one person with whom: owners of one circle. A circle is `named:NAME` (config.toml) or `linked:N` (a code).
CREATE TABLE person (
    owner  TEXT NOT NULL,
    circle TEXT NOT NULL,
    PRIMARY KEY (owner, circle)
) STRICT, WITHOUT ROWID;
CREATE INDEX person_circle ON person (circle);

-- The code that a person was shown last, to be entered where they are called something else.
CREATE TABLE link_code (
    owner      TEXT    NOT NULL PRIMARY KEY,
    code       TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    identity   TEXT    NOT NULL,
    chat       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX link_code_code ON link_code (code);

-- Questions about tool calls that wait: who may answer each, and in which chat; at the terminal it is ''.
CREATE TABLE question (
    journal    INTEGER NOT NULL,
    turn_id    TEXT    NOT NULL,
    author     TEXT    NOT NULL,
    chat       TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    scopes     TEXT    NOT NULL,                      -- the answers that are offered, with spaces between them
    PRIMARY KEY (journal, turn_id, author, chat)
) STRICT, WITHOUT ROWID;
CREATE INDEX question_person ON question (author, chat);

-- What people allowed beyond one call: a tool, for a person, in a place; in one session, or, with '', until it is revoked.
CREATE TABLE permission (
    id         TEXT    NOT NULL PRIMARY KEY,
    tool       TEXT    NOT NULL,
    person     TEXT    NOT NULL,
    place      TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    granted_at INTEGER NOT NULL,
    granted_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX permission_person ON permission (person, place);
