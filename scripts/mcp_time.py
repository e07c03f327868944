"""Install a real MCP server for tests into .mcp-time, once; again when requirements/mcp-time.txt changed.

It has an environment of its own, as servers of other people have.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements" / "mcp-time.txt"
TARGET = ROOT / ".mcp-time"
STAMP = TARGET / ".requirements"
OPTIONS = ["-qq", "--no-compile", "--disable-pip-version-check", "--no-input", "--only-binary=:all:"]


def main() -> int:
    """Install what is missing. Several callers at once wait for the first."""
    with (ROOT / ".mcp-time.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if STAMP.exists() and STAMP.read_bytes() == REQUIREMENTS.read_bytes():
            return 0
        sys.stderr.write("Setting up .mcp-time, a server for tests: about half a minute, once.\n")
        shutil.rmtree(TARGET, ignore_errors=True)
        venv.create(TARGET, symlinks=True)
        python = TARGET / "bin" / "python"
        install = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            *OPTIONS,
            "--no-deps",
            "--require-hashes",
            "-r",
            REQUIREMENTS,
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        # The import keeps what Python compiles, so that the first test does not wait for it.
        for command in (install, [python, "-c", "import mcp_server_time, mcp_proxy.mcp_server"]):
            done = subprocess.run(command, check=False, env=environment)  # noqa: S603  # both are written above
            if done.returncode:
                return done.returncode
        STAMP.write_bytes(REQUIREMENTS.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
