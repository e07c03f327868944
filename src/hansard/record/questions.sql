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

-- name: add_question
-- A turn waits for an answer of a person in a chat.
INSERT INTO question (journal, turn_id, author, chat, message_id, scopes) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (journal, turn_id, author, chat) DO UPDATE SET message_id = excluded.message_id, scopes = excluded.scopes

-- name: drop_question
-- A turn waits for no answer any more.
DELETE FROM question WHERE journal = ?1 AND turn_id = ?2

-- name: list_questions
-- The turns that wait for an answer of a person in a chat.
SELECT j.id, q.turn_id FROM question q JOIN journal j ON j.key = q.journal
WHERE q.author = ?1 AND q.chat = ?2 ORDER BY q.journal, q.turn_id

-- name: list_chat_questions
-- The turns that wait for an answer of anybody in a chat.
SELECT DISTINCT j.id, q.turn_id FROM question q JOIN journal j ON j.key = q.journal WHERE q.chat = ?1

-- name: find_scopes
-- The answers that are offered beside a message that asks in a chat, while its question waits.
SELECT scopes FROM question WHERE message_id = ?1 AND chat = ?2 LIMIT 1
