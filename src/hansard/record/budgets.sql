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

-- name: drop_turn_persons
-- A turn begins whose askers are recorded: they are counted, not those who spoke.
DELETE FROM turn_person WHERE journal = ?1 AND turn_id = ''

-- name: count_turn_person
-- A turn counts to the day of somebody who asked for it.
INSERT INTO turn_person (journal, turn_id, person, started_at, counted, requests, input_tokens, output_tokens, cost_micros)
VALUES (?1, ?2, ?5, ?3, ?4, 0, 0, 0, 0)
ON CONFLICT DO NOTHING

-- name: add_turn_person
-- The next turn answers this person, too.
INSERT INTO turn_person (journal, turn_id, person, started_at, counted, requests, input_tokens, output_tokens, cost_micros)
VALUES (?1, '', ?2, 0, 0, 0, 0, 0, 0)
ON CONFLICT DO NOTHING

-- name: take_turn_persons
-- A turn begins, and answers those who spoke.
UPDATE turn_person SET turn_id = ?2, started_at = ?3, counted = ?4 WHERE journal = ?1 AND turn_id = ''

-- name: repeat_turn_persons
-- A turn that nobody spoke for, such as a second try, answers those whom the one before it answered.
INSERT INTO turn_person (journal, turn_id, person, started_at, counted, requests, input_tokens, output_tokens, cost_micros)
SELECT journal, ?2, person, ?3, ?4, 0, 0, 0, 0 FROM turn_person
WHERE journal = ?1 AND person <> '' AND turn_id = (
    SELECT turn_id FROM turn_person WHERE journal = ?1 AND turn_id NOT IN ('', ?2) ORDER BY started_at DESC, turn_id LIMIT 1)
AND NOT EXISTS (SELECT 1 FROM turn_person WHERE journal = ?1 AND turn_id = ?2)

-- name: take_turn_owner
-- A turn that answers nobody by name answers the owner of its session.
INSERT INTO turn_person (journal, turn_id, person, started_at, counted, requests, input_tokens, output_tokens, cost_micros)
SELECT journal, ?2, owner, ?3, ?4, 0, 0, 0, 0 FROM session
WHERE journal = ?1 AND NOT EXISTS (SELECT 1 FROM turn_person WHERE journal = ?1 AND turn_id = ?2)

-- name: take_turn_everybody
-- What a turn takes is counted for everybody together, too.
INSERT INTO turn_person (journal, turn_id, person, started_at, counted, requests, input_tokens, output_tokens, cost_micros)
VALUES (?1, ?2, '', ?3, ?4, 0, 0, 0, 0)

-- name: use_turn_person
-- A request of a turn took so much.
UPDATE turn_person SET requests = requests + 1, input_tokens = input_tokens + ?3, output_tokens = output_tokens + ?4,
    cost_micros = cost_micros + ?5
WHERE journal = ?1 AND turn_id = ?2

-- name: spare_turn_persons
-- A turn that asked no model, or got nothing from one, is not counted.
UPDATE turn_person SET counted = 0 WHERE journal = ?1 AND turn_id = ?2 AND requests = 0

-- name: list_turn_persons
-- Whom a turn answers; turn '' is the next one.
SELECT person FROM turn_person WHERE journal = ?1 AND turn_id = ?2 AND person <> '' ORDER BY person

-- name: spent_since
-- What was used for a person since a moment: turns, tokens, cost, turns that run, and the dearest of those that are over.
SELECT coalesce(sum(p.counted), 0), coalesce(sum(p.input_tokens + p.output_tokens), 0), coalesce(sum(p.cost_micros), 0),
    coalesce(sum(CASE WHEN t.state = 'running' THEN 1 ELSE 0 END), 0),
    coalesce(max(CASE WHEN t.state <> 'running' THEN p.input_tokens + p.output_tokens END), 0),
    coalesce(max(CASE WHEN t.state <> 'running' THEN p.cost_micros END), 0)
FROM turn_person p JOIN turn t ON t.journal = p.journal AND t.id = p.turn_id
WHERE p.person = ?1 AND p.started_at >= ?2
