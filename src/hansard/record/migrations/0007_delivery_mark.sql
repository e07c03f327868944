-- A post that may be shown twice says so, where the platform has no key by which it is recognised.
ALTER TABLE delivery ADD COLUMN mark TEXT NOT NULL DEFAULT '';
