-- How often codes were shown, and wrong ones tried, since a moment, within an hour.
CREATE TABLE pace (
    name  TEXT    NOT NULL PRIMARY KEY,
    since INTEGER NOT NULL,
    times INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- name: add_pace
-- It happened so many times more. Parameters: name, time, window, times.
INSERT INTO pace (name, since, times) VALUES (?1, ?2, ?4)
ON CONFLICT (name) DO UPDATE SET
    times = CASE WHEN ?2 >= pace.since AND ?2 < pace.since + ?3 THEN pace.times + ?4 ELSE ?4 END,
    since = CASE WHEN ?2 >= pace.since AND ?2 < pace.since + ?3 THEN pace.since ELSE ?2 END

-- name: find_pace
-- How often it happened, since when.
SELECT since, times FROM pace WHERE name = ?1
