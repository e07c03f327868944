"""Compaction: a summary that the model is told in place of earlier messages. The record keeps every word."""

from __future__ import annotations

from hansard.journal.concepts import Body, Concept

COMPACTION = Concept("compaction")


@COMPACTION.entry("session.compacted")
class SessionCompacted(Body, frozen=True):
    """The model is told a summary in place of the messages up to `through`, unless one changed after `read_seq`."""

    summary: str
    through: str
    from_seq: int
    to_seq: int
    read_seq: int
    tokens_before: int = 0
    tokens_after: int = 0
    model: str = ""
    focus: str = ""
