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

-- name: ask_access
-- Somebody was shown a code; those of a day are counted. Parameters: channel, identity, code, end, chat, time, window.
INSERT INTO access (channel, identity, state, code, expires_at, chat, changed_at, changed_by, asked_since, asked_count)
VALUES (?1, ?2, 'asked', ?3, ?4, ?5, ?6, '', ?6, 1)
ON CONFLICT (channel, identity) DO UPDATE SET
    state = 'asked', code = excluded.code, expires_at = excluded.expires_at, chat = excluded.chat,
    changed_at = excluded.changed_at, changed_by = '',
    asked_count = CASE WHEN ?6 >= access.asked_since AND ?6 < access.asked_since + ?7
                       THEN access.asked_count + 1 ELSE 1 END,
    asked_since = CASE WHEN ?6 >= access.asked_since AND ?6 < access.asked_since + ?7
                       THEN access.asked_since ELSE ?6 END

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
FROM access WHERE channel = ?1 AND identity = ?2

-- name: find_access_by_code
-- Who was shown a code.
SELECT channel, identity, state, code, expires_at, chat, changed_at, changed_by, asked_since, asked_count
FROM access WHERE code = ?1 AND code <> ''

-- name: list_access
-- Everybody whose access is known, the latest change first.
SELECT channel, identity, state, code, expires_at, chat, changed_at, changed_by, asked_since, asked_count
FROM access WHERE CAST(?1 AS TEXT) IS NULL OR channel = ?1 ORDER BY changed_at DESC, channel, identity LIMIT ?2
