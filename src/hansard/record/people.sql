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

-- name: read_circle
-- Everybody who is one person with an owner, that owner included.
WITH RECURSIVE one (owner) AS (
    VALUES (?1)
    UNION
    SELECT b.owner FROM one JOIN person a ON a.owner = one.owner JOIN person b ON b.circle = a.circle)
SELECT owner FROM one ORDER BY owner

-- name: list_people
-- All circles, and who is in them.
SELECT circle, owner FROM person ORDER BY circle, owner

-- name: list_circles_of
-- The circles that an owner is in.
SELECT circle FROM person WHERE owner = ?1 ORDER BY circle

-- name: add_person
-- An owner is in a circle.
INSERT INTO person (owner, circle) VALUES (?1, ?2)
ON CONFLICT DO NOTHING

-- name: drop_named
-- Forget what config.toml said before.
DELETE FROM person WHERE circle >= 'named:' AND circle < 'named;'

-- name: join_linked
-- Whoever is linked to an owner is in a new circle from now on. Parameters: the circle, the owner.
UPDATE person SET circle = ?1 WHERE circle IN
    (SELECT circle FROM person WHERE owner = ?2 AND circle >= 'linked:' AND circle < 'linked;')

-- name: leave_linked
-- An owner is linked to nobody.
DELETE FROM person WHERE owner = ?1 AND circle >= 'linked:' AND circle < 'linked;'

-- name: drop_lonely
-- Who is left alone in a circle is linked to nobody, either.
DELETE FROM person WHERE circle >= 'linked:' AND circle < 'linked;'
  AND (SELECT count(*) FROM person p WHERE p.circle = person.circle) = 1

-- name: put_link_code
-- A person was shown a code.
INSERT INTO link_code (owner, code, expires_at, identity, chat) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (owner) DO UPDATE SET code = excluded.code, expires_at = excluded.expires_at,
                                  identity = excluded.identity, chat = excluded.chat

-- name: drop_link_code
-- A code counts no longer.
DELETE FROM link_code WHERE owner = ?1

-- name: find_link_code
-- Who was shown a code.
SELECT owner, code, expires_at, identity, chat FROM link_code WHERE code = ?1

-- name: find_barred
-- Whether the admin barred an account. Parameters: channel, identity.
SELECT 1 FROM access WHERE channel = ?1 AND identity = ?2 AND state = 'revoked'
