-- Sessions can be archived.
ALTER TABLE session ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
