-- Memory, and what a day took. Turns from before are not counted.
-- What is remembered for an owner, until it is forgotten.
CREATE TABLE note (
    id         TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
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

-- Turns that answer nobody: nobody waits for them, is shown them, or is told when they are lost.
ALTER TABLE turn ADD COLUMN purpose TEXT NOT NULL DEFAULT '';

-- Turns that a crash ended, to be found at a start.
CREATE INDEX turn_lost ON turn (journal) WHERE state = 'lost';
