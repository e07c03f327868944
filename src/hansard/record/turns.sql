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
-- Turns that a crash ended, to be found at a start.
CREATE INDEX turn_lost ON turn (journal) WHERE state = 'lost';

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

-- Who asked for a turn, where and how. Turn '' is the next one: who said what it will answer.
CREATE TABLE turn_by (
    journal INTEGER NOT NULL,
    turn_id TEXT    NOT NULL,
    person  TEXT    NOT NULL,
    chat    TEXT    NOT NULL,
    how     TEXT    NOT NULL CHECK (how IN ('message', 'retry', 'compact', 'steering', 'recovery')),
    PRIMARY KEY (journal, turn_id, person, chat, how)
) STRICT, WITHOUT ROWID;

-- name: find_turn
-- A turn by its id.
SELECT id, state, fence, owner, reason FROM turn WHERE journal = ?1 AND id = ?2

-- name: find_turn_in_state
-- The running or the queued turn of a session.
SELECT id, state, fence, owner, reason FROM turn WHERE journal = ?1 AND state = ?2

-- name: find_turn_of_purpose
-- The turn that runs in a session, if it answers nobody.
SELECT id FROM turn WHERE journal = ?1 AND state = 'running' AND purpose <> ''

-- name: running_turns
-- Everything that runs, for recovery.
SELECT s.id, t.id, t.owner FROM turn t JOIN session s ON s.journal = t.journal WHERE t.state = 'running'

-- name: list_turns
-- The turns of a session, oldest first.
SELECT id, state, fence, owner, reason FROM turn WHERE journal = ?1 ORDER BY fence

-- name: queued_turns
-- Sessions whose turn waits to run.
SELECT s.id, t.id, t.state, t.fence, t.owner, t.reason FROM turn t JOIN session s ON s.journal = t.journal
WHERE t.state = 'queued' ORDER BY t.fence

-- name: put_turn
-- A turn is queued or starts.
INSERT INTO turn (journal, id, state, fence, owner, reason, purpose) VALUES (?1, ?2, ?3, ?4, ?5, '', ?6)
ON CONFLICT (journal, id) DO UPDATE SET state = excluded.state, fence = excluded.fence, owner = excluded.owner

-- name: end_turn
-- A turn is over.
UPDATE turn SET state = ?1, reason = ?2 WHERE journal = ?3 AND id = ?4

-- name: add_turn_chat
-- What a turn answers was said in this chat, too, or it only follows; turn '' is the next one.
INSERT INTO turn_chat (journal, turn_id, chat, follows) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (journal, turn_id, chat) DO UPDATE
SET follows = CASE WHEN turn_chat.follows < excluded.follows THEN turn_chat.follows ELSE excluded.follows END

-- name: take_turn_chats
-- A turn begins, and is shown where what it answers was said.
UPDATE turn_chat SET turn_id = ?2 WHERE journal = ?1 AND turn_id = ''

-- name: leave_turn_chats
-- A turn was lost: the one that waits answers in its place.
INSERT INTO turn_chat (journal, turn_id, chat, follows)
SELECT journal, '', chat, follows FROM turn_chat
WHERE journal = ?1 AND turn_id = ?2 AND EXISTS (SELECT 1 FROM turn WHERE journal = ?1 AND state = 'queued')
ON CONFLICT (journal, turn_id, chat) DO UPDATE
SET follows = CASE WHEN turn_chat.follows < excluded.follows THEN turn_chat.follows ELSE excluded.follows END

-- name: drop_turn_chats
-- A turn is over.
DELETE FROM turn_chat WHERE journal = ?1 AND turn_id = ?2

-- name: list_turn_chats
-- Where a turn is shown.
SELECT chat, follows FROM turn_chat WHERE journal = ?1 AND turn_id = ?2 ORDER BY chat

-- name: running_chats
-- Chats, between two names, in which a running turn answers somebody.
SELECT DISTINCT chat FROM turn_chat WHERE turn_id <> '' AND follows = 0 AND chat >= ?1 AND chat < ?2 ORDER BY chat

-- name: writing_chats
-- The same chats, each with who runs the turn.
SELECT DISTINCT c.chat, t.owner FROM turn_chat c JOIN turn t ON t.journal = c.journal AND t.id = c.turn_id
WHERE c.turn_id <> '' AND c.follows = 0 AND c.chat >= ?1 AND c.chat < ?2 ORDER BY c.chat

-- name: running_turns_of_chats
-- Sessions with a running turn that is shown in chats between two names, and who runs it.
SELECT DISTINCT s.id, t.owner
FROM turn_chat c JOIN turn t ON t.journal = c.journal AND t.id = c.turn_id AND t.state = 'running'
     JOIN session s ON s.journal = c.journal
WHERE c.turn_id <> '' AND c.chat >= ?1 AND c.chat < ?2 ORDER BY s.id

-- name: queued_turns_of_chats
-- Turns that wait to run and are to be shown in chats between two names.
SELECT DISTINCT s.id, t.id, t.state, t.fence, t.owner, t.reason
FROM turn_chat c JOIN turn t ON t.journal = c.journal AND t.state = 'queued' JOIN session s ON s.journal = c.journal
WHERE c.turn_id = '' AND c.chat >= ?1 AND c.chat < ?2 ORDER BY t.fence, s.id

-- name: lost_since_end
-- How many turns of a session that answer somebody were lost in a row, up to now.
SELECT count(*) FROM turn WHERE journal = ?1 AND state = 'lost' AND purpose = '' AND fence > coalesce((
    SELECT max(fence) FROM turn
    WHERE journal = ?1 AND state IN ('completed', 'interrupted', 'failed') AND purpose = ''), 0)

-- name: said_since
-- Whether a session has said anything in its entries between two keys.
SELECT 1 FROM entry WHERE key > ?1 AND key <= ?2 AND kind = 'message.opened' LIMIT 1

-- name: last_start
-- Where the last turn of a session that answers somebody began. One that ended before it began has no owner.
SELECT coalesce(max(fence), 0) FROM turn WHERE journal = ?1 AND purpose = '' AND owner <> ''

-- name: said_since_start
-- The messages of a stretch of a session's entries.
SELECT id, kind, version, body FROM entry WHERE key > ?1 AND key <= ?2 AND kind = 'message.added' ORDER BY key

-- name: last_fence
-- Where the last turn of a session that answers somebody was queued or began.
SELECT coalesce(max(fence), 0) FROM turn WHERE journal = ?1 AND purpose = ''

-- name: add_turn_by
-- Somebody asks for a turn; turn '' is the next one.
INSERT INTO turn_by (journal, turn_id, person, chat, how) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO NOTHING

-- name: take_turn_by
-- A turn begins that was recorded without those who asked: the authors of what it answers count.
INSERT INTO turn_by (journal, turn_id, person, chat, how)
SELECT journal, ?2, person, chat, how FROM turn_by WHERE journal = ?1 AND turn_id = ''
ON CONFLICT DO NOTHING

-- name: drop_next_by
-- A turn begins: whoever speaks from now on asks for the turn after it.
DELETE FROM turn_by WHERE journal = ?1 AND turn_id = ''

-- name: find_turns_by_id
-- Turns whose ids begin with a text, in every session: only looked for by people.
SELECT s.id, t.id, t.state, t.fence, t.owner, t.reason FROM turn t JOIN session s ON s.journal = t.journal
WHERE substr(t.id, 1, length(?1)) = ?1 ORDER BY t.id LIMIT 2

-- name: list_turn_by
-- Who asked for a turn; turn '' is the next one.
SELECT person, chat, how FROM turn_by WHERE journal = ?1 AND turn_id = ?2 ORDER BY person, chat, how

-- name: list_next_by
-- Who asks for the next turn of a session, whether it waits already or is only being asked for.
SELECT DISTINCT person, chat FROM turn_by WHERE journal = ?1 AND turn_id IN (
    SELECT '' UNION ALL SELECT id FROM turn WHERE journal = ?1 AND state = 'queued') ORDER BY person, chat

-- name: list_last_by
-- Who asked for the last turn of a session that began.
SELECT DISTINCT person, chat FROM turn_by WHERE journal = ?1 AND turn_id = (
    SELECT id FROM turn WHERE journal = ?1 AND purpose = '' AND state <> 'queued' ORDER BY fence DESC LIMIT 1)
ORDER BY person, chat

-- name: list_asked_turns
-- Sessions in which a turn waits or runs, each with the people and chats that asked for it.
SELECT s.id, b.person, b.chat FROM turn_by b JOIN session s ON s.journal = b.journal
JOIN turn t ON t.journal = b.journal AND t.state IN ('queued', 'running') AND b.turn_id IN ('', t.id)
ORDER BY s.id

-- name: lost_turns
-- Open sessions whose last turn that answers somebody was lost since a moment, with that turn.
SELECT s.id, t.id FROM turn t JOIN session s ON s.journal = t.journal JOIN turn_person p
ON p.journal = t.journal AND p.turn_id = t.id AND p.person = ''
WHERE t.state = 'lost' AND s.state = 'open' AND p.started_at >= ?1
AND t.fence = (SELECT max(fence) FROM turn WHERE journal = t.journal AND purpose = '') ORDER BY p.started_at DESC LIMIT ?2

-- name: list_waiting_chats
-- Chats in which something was said that the next turn answers.
SELECT chat FROM turn_chat WHERE journal = ?1 AND turn_id = '' AND follows = 0
