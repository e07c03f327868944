-- A rebuild that was interrupted is told from a whole record.
ALTER TABLE record ADD COLUMN rebuilding INTEGER NOT NULL DEFAULT 0 CHECK (rebuilding IN (0, 1));

-- Every commit is stamped, so that a WAL says which states of the database it continues.
ALTER TABLE record ADD COLUMN stamp BLOB NOT NULL DEFAULT x'';
ALTER TABLE record ADD COLUMN previous BLOB NOT NULL DEFAULT x'';
ALTER TABLE record ADD COLUMN checked INTEGER NOT NULL DEFAULT 0;
