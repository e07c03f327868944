-- Invitations are answered beside the receiving loop.
CREATE TABLE invitation (
    channel  TEXT    NOT NULL,
    account  TEXT    NOT NULL,
    event_id TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (channel, account, event_id)
) STRICT, WITHOUT ROWID;
