"""A configuration file in a home, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from hansard.app.config import read_config
from hansard.app.home_files import ConfigFinding


def write(home: Path, text: str | bytes, name: str = "config.toml", mode: int = 0o600) -> Path:
    """Put a file into a home."""
    home.mkdir(exist_ok=True, mode=0o700)
    path = home / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


def findings_of(home: Path, text: str | bytes, **environment: str) -> list[ConfigFinding]:
    """What is wrong with a file, and with variables beside it."""
    write(home, text)
    return read_config(home, environment, {})[1]
