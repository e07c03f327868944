-- What was undone in a session is found without reading all of it.
CREATE INDEX entry_undoing ON entry (key) WHERE kind IN ('messages.undone', 'messages.restored');
