"""Logs for machines: one JSON object a line, with what happened and to which ids; never words of a conversation.

Writes: standard error, or a log file and its older parts, `NAME.1` the youngest of them. New files are private.
Invariants: one process owns a log file, by a lock on it: two that rotate would throw each other's lines away. A log
that cannot be written goes to standard error, and stops nothing.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from hansard.errors import ConfigInvalid, HansardError, InvalidInput

OWN: Final = "hansard"
FIELDS: Final = "fields"

MODE: Final = 0o600
BYTES_MAX: Final = 10_000_000
"""Of one file: some weeks of a quiet gateway, and what an editor still opens."""

PARTS_MAX: Final = 5
"""Older parts that are kept beside it."""


class JsonFormatter(logging.Formatter):
    """Writes a log record as JSON. Of other libraries, only who spoke is told: nobody checked their words."""

    def format(self, record: logging.LogRecord) -> str:
        is_own = record.name == OWN or record.name.startswith(f"{OWN}.")
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage() if is_own else "a library spoke",
        }
        fields = getattr(record, FIELDS, None)
        if isinstance(fields, dict):
            line.update(fields)
        if record.exc_info is not None and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        try:
            return msgspec.json.encode(line).decode()
        except UnicodeEncodeError:  # half a character, such as of a file's name: it is written as an escape
            return json.dumps(line, default=str)


def log_as_json(handler: logging.Handler | None = None) -> None:
    """Let everything that is logged in this process be one JSON object a line, on standard error or by a handler."""
    handler = handler or logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OWN).setLevel(logging.INFO)


def log(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    logger.log(level, event, extra={FIELDS: fields})


def error_fields(error: BaseException) -> dict[str, str]:
    """Return what may be logged of an error: its kind, and its words when they are our own and quote nobody."""
    fields = {"error": type(error).__name__}
    if isinstance(error, HansardError) and not isinstance(error, InvalidInput):
        fields["why"] = str(error)
    return fields


class LogFile(logging.Handler):
    """Writes log records to a file of its own."""

    def __init__(self, path: Path, *, bytes_max: int = BYTES_MAX, parts_max: int = PARTS_MAX) -> None:
        """Open the file. ConfigInvalid when that cannot be, or another process writes it."""
        super().__init__()
        self._path = path
        self._bytes_max = bytes_max
        self._parts_max = parts_max
        self._descriptor = -1
        try:
            self._open()
        except BlockingIOError as error:
            raise ConfigInvalid(f"another process writes the log {path}: each needs a file of its own") from error
        except OSError as error:
            raise ConfigInvalid(f"the log {path} cannot be written: {error.strerror}") from error

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; to standard error when the file cannot take it."""
        line = self.format(record) + "\n"
        data = line.encode(errors="backslashreplace")
        try:
            self._see_to_file(len(data))
            os.write(self._descriptor, data)
        except OSError:
            with suppress(OSError, ValueError):
                sys.stderr.write(line)

    def close(self) -> None:
        self.acquire()
        try:
            self._close()
        finally:
            self.release()
        super().close()

    def _open(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        self._close()
        self._descriptor = descriptor

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _see_to_file(self, wanted_bytes: int) -> None:
        """Follow a file that was moved away; begin a new one when this one is full."""
        if self._descriptor < 0 or not self._is_there():
            self._open()
        look = os.fstat(self._descriptor)
        if look.st_size and look.st_size + wanted_bytes > self._bytes_max:
            self._rotate()

    def _is_there(self) -> bool:
        """Return whether the file that is open is still the one at the path."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        """Move every part one further, the oldest away, and begin anew. One that cannot be moved just grows."""
        for number in range(self._parts_max, 0, -1):
            younger = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            with suppress(FileNotFoundError):
                younger.replace(self._path.with_name(f"{self._path.name}.{number}"))
        self._open()
