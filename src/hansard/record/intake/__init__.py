"""Intake: what a platform brings, received once, with what it says and the platform's cursor in one commit."""
