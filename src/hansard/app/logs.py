"""Logs for machines: one JSON object a line, with what happened and to which ids; never words of a conversation."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, Final

import msgspec

from hansard.errors import HansardError, InvalidInput

OWN: Final = "hansard"
FIELDS: Final = "fields"


class JsonFormatter(logging.Formatter):
    """Writes a log record as JSON. Of other libraries, only who spoke is told: nobody checked their words."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
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


def log_as_json(
    stream: IO[str] | None = None, level: int = logging.INFO, handler: logging.Handler | None = None
) -> None:
    """Let everything that is logged in this process be one JSON object a line, on standard error or by a handler."""
    handler = handler or logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OWN).setLevel(level)


def log(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    """Log an event with its fields."""
    logger.log(level, event, extra={FIELDS: fields})


def error_fields(error: BaseException) -> dict[str, str]:
    """Return what may be logged of an error: its kind, and its words when they are our own and quote nobody."""
    fields = {"error": type(error).__name__}
    if isinstance(error, HansardError) and not isinstance(error, InvalidInput):
        fields["why"] = str(error)
    return fields
