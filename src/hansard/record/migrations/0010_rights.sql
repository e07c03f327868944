-- Invitations are answered beside the receiving loop.
CREATE TABLE invitation (
    channel  TEXT    NOT NULL,
    account  TEXT    NOT NULL,
    event_id TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (channel, account, event_id)
) STRICT, WITHOUT ROWID;

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

-- Files are fetched beside the receiving loop, and folded into their messages as changes are.
CREATE TABLE fetch (
    session_id TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    file       TEXT    NOT NULL,
    channel    TEXT    NOT NULL,
    account    TEXT    NOT NULL,
    person     TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (session_id, message_id, file)
) STRICT, WITHOUT ROWID;
DROP INDEX entry_changing;
CREATE INDEX entry_changing ON entry (key)
WHERE kind IN ('messages.undone', 'messages.restored', 'message.edited', 'message.retracted', 'file.fetched');

-- Who asked for a turn: rights and budgets come from that alone. The fold of the entries fills it.
CREATE TABLE turn_by (
    journal INTEGER NOT NULL,
    turn_id TEXT    NOT NULL,
    person  TEXT    NOT NULL,
    chat    TEXT    NOT NULL,
    how     TEXT    NOT NULL CHECK (how IN ('message', 'retry', 'compact', 'steering', 'recovery')),
    PRIMARY KEY (journal, turn_id, person, chat, how)
) STRICT, WITHOUT ROWID;

-- Events that cannot be read yet are bounded for each person, by count, bytes and age.
ALTER TABLE held ADD COLUMN identity TEXT NOT NULL DEFAULT '';
ALTER TABLE held ADD COLUMN size_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE held ADD COLUMN held_at INTEGER NOT NULL DEFAULT 0;

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
