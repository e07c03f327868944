-- One person, several places: whose chat a route is of, which chats only follow, who is one person with whom.
ALTER TABLE route ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE route ADD COLUMN identity TEXT NOT NULL DEFAULT '';
CREATE INDEX route_session ON route (session_id);

ALTER TABLE turn_chat ADD COLUMN follows INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN follows INTEGER NOT NULL DEFAULT 0;

CREATE TABLE person (
    owner  TEXT NOT NULL,
    circle TEXT NOT NULL,
    PRIMARY KEY (owner, circle)
) STRICT, WITHOUT ROWID;
CREATE INDEX person_circle ON person (circle);

CREATE TABLE link_code (
    owner      TEXT    NOT NULL PRIMARY KEY,
    code       TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    identity   TEXT    NOT NULL,
    chat       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX link_code_code ON link_code (code);
