"""Journals of entries in two legs, and the streams that grow in them. See DESIGN.md."""
