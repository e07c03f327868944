CREATE INDEX entry_changing ON entry (key)
WHERE kind IN ('messages.undone', 'messages.restored', 'message.edited', 'message.retracted', 'file.fetched');

-- name: changing_entries
-- What became of messages in a stretch of a journal after they were said, in order.
SELECT kind, version, body FROM entry
WHERE key > ?1 AND key <= ?2
  AND kind IN ('messages.undone', 'messages.restored', 'message.edited', 'message.retracted', 'file.fetched') ORDER BY key
