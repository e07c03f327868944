"""Install the homeserver for tests into .synapse, once; again when requirements/synapse.txt changed.

It has an environment of its own: its licence is another (AGPL), and so are the versions that it wants.
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
REQUIREMENTS = ROOT / "requirements" / "synapse.txt"
TARGET = ROOT / ".synapse"
STAMP = TARGET / ".requirements"
OPTIONS = [
    "-qq",
    "--no-compile",
    "--disable-pip-version-check",
    "--no-input",
    "--only-binary=:all:",
    "--no-deps",
    "--require-hashes",
]


def main() -> int:
    """Install what is missing. Several callers at once wait for the first."""
    with (ROOT / ".synapse.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if STAMP.exists() and STAMP.read_bytes() == REQUIREMENTS.read_bytes():
            return 0
        sys.stderr.write("Setting up .synapse, the homeserver for tests: about half a minute, once.\n")
        shutil.rmtree(TARGET, ignore_errors=True)
        venv.create(TARGET, symlinks=True)
        python = TARGET / "bin" / "python"
        install = [sys.executable, "-m", "pip", "--python", python, "install", *OPTIONS]
        install += ["--requirement", REQUIREMENTS]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        # The import keeps what Python compiles, so that the first test does not wait for it.
        for command in (install, [python, "-c", "import synapse.app.homeserver"]):
            done = subprocess.run(command, check=False, env=environment)  # noqa: S603  # both are written above
            if done.returncode:
                return done.returncode
        STAMP.write_bytes(REQUIREMENTS.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
