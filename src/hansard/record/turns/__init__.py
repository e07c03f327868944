"""Turns: runs of the agent, from their trigger to their end."""
