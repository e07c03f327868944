"""Configuration, wiring and life cycle: the only place that knows everyone."""

from typing import Final

ENVIRONMENT_PIPE: Final = "HANSARD_ENVIRONMENT_PIPE"
"""Set in a process that has started itself anew: the number of the descriptor from which it reads its variables."""
