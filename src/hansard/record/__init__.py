"""The record: an append-only store that several processes share and nothing can lose. See DESIGN.md."""
