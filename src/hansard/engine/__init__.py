"""Turns: claim, context, model, tools, end. The engine talks to nobody; it appends to the record."""
