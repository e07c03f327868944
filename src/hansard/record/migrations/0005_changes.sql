-- What was undone, edited or deleted in a session is found without reading all of it.
DROP INDEX entry_undoing;
CREATE INDEX entry_changing ON entry (key)
WHERE kind IN ('messages.undone', 'messages.restored', 'message.edited', 'message.retracted');
