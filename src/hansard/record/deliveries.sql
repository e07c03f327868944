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

-- name: insert_delivery
-- Something is to be shown on a channel.
INSERT INTO delivery (journal, id, channel, target, message_id, operation, start_bytes, end_bytes, file,
                      state, attempts, owner, receipt, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'pending', 0, '', '', '')

-- name: move_delivery
-- Its state changed; a receipt once known stays, and so do a mark and a stretch that was made longer.
UPDATE delivery SET state = ?1, attempts = attempts + CASE WHEN ?1 = 'sending' THEN 1 ELSE 0 END, owner = ?2,
                    receipt = CASE WHEN ?3 = '' THEN receipt ELSE ?3 END, reason = ?4,
                    mark = CASE WHEN ?7 = '' THEN mark ELSE ?7 END,
                    end_bytes = CASE WHEN CAST(?8 AS INTEGER) = 0 THEN end_bytes ELSE ?8 END
WHERE journal = ?5 AND id = ?6

-- name: find_delivery
-- A delivery by its id.
SELECT id, channel, target, message_id, operation, start_bytes, end_bytes, file, state, attempts, owner, receipt,
       reason, mark
FROM delivery WHERE journal = ?1 AND id = ?2

-- name: list_deliveries
-- A page of deliveries: after a journal and an id, up to a journal, by state and channel.
SELECT s.id, d.id, d.channel, d.target, d.message_id, d.operation, d.start_bytes, d.end_bytes, d.file, d.state,
       d.attempts, d.owner, d.receipt, d.reason, d.mark
FROM delivery d JOIN journal s ON s.key = d.journal
WHERE (d.journal, d.id) > (?1, ?2) AND d.journal <= ?3 AND (CAST(?4 AS TEXT) IS NULL OR d.state = ?4)
  AND (CAST(?5 AS TEXT) IS NULL OR d.channel = ?5)
ORDER BY d.journal, d.id LIMIT ?6

-- name: sending_deliveries
-- What was on its way, for recovery.
SELECT j.id, d.id, d.owner FROM delivery d JOIN journal j ON j.key = d.journal WHERE d.state = 'sending'

-- name: outbox_order
-- The numbers that give the messages of all sessions their order.
SELECT number, journal, message_id, chat FROM outbox

-- name: restore_outbox_number
-- Give a message that was folded again its old place.
UPDATE outbox SET number = ?1 WHERE journal = ?2 AND message_id = ?3 AND chat = ?4

-- name: add_outbox
-- A message is to be shown in a chat.
INSERT INTO outbox (journal, message_id, chat, seq, follows) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO NOTHING

-- name: add_outbox_of_turn
-- A message of a turn is to be shown wherever the turn is.
INSERT INTO outbox (journal, message_id, chat, seq, follows)
SELECT journal, ?3, chat, ?4, follows FROM turn_chat WHERE journal = ?1 AND turn_id = ?2 ORDER BY chat
ON CONFLICT DO NOTHING

-- name: add_outbox_of_running
-- What is told while a turn runs is to be shown wherever the turn is.
INSERT INTO outbox (journal, message_id, chat, seq, follows)
SELECT c.journal, ?2, c.chat, ?3, c.follows FROM turn_chat c JOIN turn t ON t.journal = c.journal AND t.id = c.turn_id
WHERE c.journal = ?1 AND t.state = 'running' ORDER BY c.chat
ON CONFLICT DO NOTHING

-- name: drop_outbox
-- A message needs no further delivery in a chat.
DELETE FROM outbox WHERE journal = ?1 AND message_id = ?2 AND chat = ?3

-- name: find_outbox
-- Whether a message waits to be shown in a chat.
SELECT seq FROM outbox WHERE journal = ?1 AND message_id = ?2 AND chat = ?3

-- name: list_outbox
-- What waits to be shown in chats between two names, the oldest first, after a number.
SELECT o.number, j.id, o.message_id, o.chat, o.seq, s.open_message IS NOT DISTINCT FROM o.message_id, o.follows
FROM outbox o JOIN journal j ON j.key = o.journal LEFT JOIN session s ON s.journal = o.journal
WHERE o.number > ?1 AND o.chat >= ?2 AND o.chat < ?3 ORDER BY o.number LIMIT ?4

-- name: count_outbox
-- How much waits to be shown in chats between two names, and since when the oldest of it does.
SELECT count(*), coalesce(min(e.at), 0) FROM outbox o JOIN entry e ON e.key = (o.journal << 32) + o.seq
WHERE o.chat >= ?1 AND o.chat < ?2

-- name: count_deliveries
-- Unsettled deliveries of a channel, by state.
SELECT state, count(*) FROM delivery WHERE state <> 'sent' AND channel = ?1 GROUP BY state

-- name: deliveries_between
-- Deliveries of one journal whose ids lie between two.
SELECT id, channel, target, message_id, operation, start_bytes, end_bytes, file, state, attempts, owner, receipt,
       reason, mark
FROM delivery WHERE journal = ?1 AND id >= ?2 AND id < ?3 ORDER BY id

-- name: deliveries_to
-- Everything that was sent to chats between two names.
SELECT j.id, d.id, d.channel, d.target, d.message_id, d.operation, d.start_bytes, d.end_bytes, d.file, d.state,
       d.attempts, d.owner, d.receipt, d.reason, d.mark
FROM delivery d JOIN journal j ON j.key = d.journal
WHERE (d.target = ?1 OR (d.target >= ?2 AND d.target < ?3)) AND (j.id, d.id) > (?4, ?5) ORDER BY j.id, d.id LIMIT ?6
