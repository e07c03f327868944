"""Inbound: what people say and command, into the record."""
