"""What the experiments share: how much to measure, where, and the server in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from environments import BENCH, ROOT
from turn_hansard import HansardReader
from turn_readers import FLOORS, Reader

START_SECONDS_MAX = 30.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much is measured."""

    first_rounds: int
    stream_rounds: int
    stream_tokens: int
    crowd_rounds: int
    history_rounds: int
    start_rounds: int


FULL = Settings(first_rounds=60, stream_rounds=5, stream_tokens=300, crowd_rounds=3, history_rounds=5, start_rounds=15)
QUICK = Settings(first_rounds=12, stream_rounds=1, stream_tokens=100, crowd_rounds=1, history_rounds=1, start_rounds=3)


@dataclass(kw_only=True)
class Scene:
    """One run."""

    settings: Settings
    homes: Path
    base_url: str
    _homes_count: int = 0

    def new_home(self) -> Path:
        """Return a home that does not exist yet."""
        self._homes_count += 1
        return self.homes / f"home-{self._homes_count}"

    def readers(self, home: Path, *, watched: bool = False) -> list[Callable[[], Reader]]:
        """Return what makes each reader, the floors first. The order is the order of a round."""
        floors: list[Callable[[], Reader]] = [partial(kind, self.base_url) for kind in FLOORS]
        return [*floors, partial(HansardReader, home, self.base_url, watched=watched)]


@contextmanager
def serving(errors: Path) -> Iterator[str]:
    """Run the server for as long as the context lasts, and give its address."""
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with errors.open("wb") as stderr:
        server = subprocess.Popen(
            [sys.executable, str(BENCH / "turn_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
        )
    assert server.stdin is not None
    assert server.stdout is not None
    watchdog = threading.Timer(START_SECONDS_MAX, server.kill)
    watchdog.start()
    try:
        port = server.stdout.readline().strip()
        watchdog.cancel()
        if not port:
            message = f"the server did not start: {errors.read_text(errors='replace')[-600:]}"
            raise RuntimeError(message)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        watchdog.cancel()
        server.stdin.close()
        try:
            server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        server.stdout.close()
