"""The harness's side of a worker: a process that is asked, waited for with a limit, and ended."""

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

from environments import python_of

from harness.subjects import Subject

# Longer than any one operation takes, even a fill of 100,000 messages on a slow disk.
ANSWER_SECONDS_MAX = 180
_STDERR_CHARACTERS = 600


class WorkerError(Exception):
    """A worker answered with an error, said nothing in time, or ended."""


class Worker:
    """One process that holds one subject."""

    def __init__(self, subject: Subject, number: int, homes: Path):
        self.name = f"{subject.name}-{number}"
        self.errors = homes / f"{self.name}.stderr"
        script = subject.tree / "bench" / "workers" / subject.script
        with self.errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*subject.under, str(python_of(subject.environment)), str(script), *subject.options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=_environment(homes, subject.tree / "src"),
            )

    def ask(self, operation: str, **arguments: object) -> None:
        """Send a request without waiting: several workers are to work at once."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"operation": operation, "arguments": arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise WorkerError(f"{self.name} has ended: {self._last_words()}") from error

    def answer(self) -> Any:  # noqa: ANN401 - whatever the operation gives
        """Wait for the answer to what was asked first."""
        assert self.process.stdout is not None
        watchdog = threading.Timer(ANSWER_SECONDS_MAX, self.process.kill)
        watchdog.start()
        try:
            line = self.process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise WorkerError(f"{self.name} ended without an answer: {self._last_words()}")
        reply = json.loads(line)
        if not reply["ok"]:
            raise WorkerError(f"{self.name}: {reply['error']}")
        return reply["result"]

    def call(self, operation: str, **arguments: object) -> Any:  # noqa: ANN401
        """Ask and wait."""
        self.ask(operation, **arguments)
        return self.answer()

    def end(self) -> None:
        """End the process: standard input ends, and if that is not enough, by its own id."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """End the process as a power cut of its own would: it hears nothing of it."""
        self.process.kill()
        self.process.wait()

    def _last_words(self) -> str:
        return self.errors.read_text(errors="replace")[-_STDERR_CHARACTERS:].strip()


def _environment(homes: Path, source: Path) -> dict[str, str]:
    """A small environment: no person's settings, and no peer may find or touch a person's own home."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "HOME": str(homes),
        "HERMES_HOME": str(homes / "hermes-home"),
        "LLM_USER_PATH": str(homes / "llm-home"),
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "PYTHONPATH": str(source),
    }
