-- Chats: where the answers of a turn are shown, and what waits to be shown there.
CREATE TABLE turn_chat (
    journal INTEGER NOT NULL,
    turn_id TEXT    NOT NULL,
    chat    TEXT    NOT NULL,
    PRIMARY KEY (journal, turn_id, chat)
) STRICT, WITHOUT ROWID;
CREATE INDEX turn_chat_running ON turn_chat (chat) WHERE turn_id <> '';
CREATE INDEX turn_chat_waiting ON turn_chat (chat) WHERE turn_id = '';

CREATE TABLE outbox (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    journal    INTEGER NOT NULL,
    message_id TEXT    NOT NULL,
    chat       TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    UNIQUE (journal, message_id, chat)
) STRICT;

-- Since when a route leads where it leads. Entries know; a body is text in a blob, which JSON functions would misread.
ALTER TABLE route ADD COLUMN moved_at INTEGER NOT NULL DEFAULT 0;
UPDATE route SET moved_at = coalesce(
    (SELECT at FROM entry WHERE kind = 'route.moved' AND json_extract(CAST(body AS TEXT), '$.key') = route.key
     ORDER BY entry.key DESC LIMIT 1), 0);

-- Events that cannot be read yet, and who may talk.
CREATE TABLE held (
    channel  TEXT    NOT NULL,
    account  TEXT    NOT NULL,
    event_id TEXT    NOT NULL,
    chat     TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (channel, account, event_id)
) STRICT, WITHOUT ROWID;

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
    asked_count INTEGER NOT NULL,
    PRIMARY KEY (channel, identity)
) STRICT, WITHOUT ROWID;
CREATE INDEX access_code ON access (code) WHERE code <> '';

CREATE TABLE pace (
    name  TEXT    NOT NULL PRIMARY KEY,
    since INTEGER NOT NULL,
    times INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A delivery shows words, or one of a message's files. Nothing sent files before.
ALTER TABLE delivery ADD COLUMN file INTEGER NOT NULL DEFAULT 0;
