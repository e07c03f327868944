"""What a command does not need is not loaded: starting stays quick, whatever channels there are."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hansard.cli.process import COMMANDS, TALKS

PLATFORMS = {"nio", "aiohttp", "vodozemac", "telegram", "httpx", "mcp", "google"}
PROGRAM = """
import json, sys
from hansard.cli import load
load(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.drawn(6)
@pytest.mark.parametrize("module", ["hansard.cli.main", *(module for module, _ in COMMANDS.values()), *TALKS.values()])
def test_no_command_loads_the_libraries_of_a_platform(module: str) -> None:
    """Neither help nor a conversation in a terminal, nor the gateway before it logs in, imports nio or aiohttp."""
    arguments = [sys.executable, "-c", PROGRAM, module]
    loaded = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True).stdout
    assert PLATFORMS.isdisjoint(json.loads(loaded))
