-- A rebuild that was interrupted is told from a whole record.
ALTER TABLE record ADD COLUMN rebuilding INTEGER NOT NULL DEFAULT 0 CHECK (rebuilding IN (0, 1));
