"""Configuration, wiring and life cycle: the only place that knows everyone.

config, table_findings   what a person set, and what is wrong with it; home_files: TOML files, and who can change them
keys, secrecy            keys of providers, and hiding them from programs that are started
wiring, channels         everything put together for one process; how each channel is opened
"""

from typing import Final

ENVIRONMENT_PIPE: Final = "HANSARD_ENVIRONMENT_PIPE"
"""Set in a process that has started itself anew: the number of the descriptor from which it reads its variables."""
