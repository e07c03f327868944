"""Slash commands: the registry, and what each command does, by what it is about."""
