"""A log in a file: bounded, private, one process's own, and found again when it was moved."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hansard.errors import ConfigInvalid
from hansard.gateway.logs import JsonFormatter, LogFile

LINE = "x" * 99


@contextmanager
def logging_to(path: Path, *, bytes_max: int = 1000, parts_max: int = 2) -> Iterator[logging.Logger]:
    """Give a logger that writes to a file."""
    handler = LogFile(path, bytes_max=bytes_max, parts_max=parts_max)
    logger = logging.getLogger(f"hansard.test.{path.parent.name}")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        handler.close()


def test_it_is_private_and_appended_to(tmp_path: Path) -> None:
    """A new file is its owner's alone; the next process goes on where the last one ended."""
    path = tmp_path / "log"
    for text in ("one", "two"):
        with logging_to(path) as logger:
            logger.warning(text)
    assert path.read_text() == "one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_is_bounded(tmp_path: Path) -> None:
    """A full file moves aside, and only so many of them stay; no line is cut, none is in two files."""
    path = tmp_path / "log"
    with logging_to(path) as logger:
        for number in range(100):
            logger.warning("%s", f"{number:03} {LINE}"[:99])
    parts = [path, tmp_path / "log.1", tmp_path / "log.2"]
    assert sorted(tmp_path.iterdir()) == sorted(parts)
    assert [part.stat().st_size for part in parts] == [1000, 1000, 1000]
    kept = [line.split()[0] for part in reversed(parts) for line in part.read_text().splitlines()]
    assert kept == [f"{number:03}" for number in range(70, 100)]
    assert {stat.S_IMODE(part.stat().st_mode) for part in parts} == {0o600}


@pytest.mark.parametrize("made_anew", [False, True])
def test_it_follows_a_file_that_was_moved_away(tmp_path: Path, made_anew: bool) -> None:  # noqa: FBT001
    """After logrotate moved it, with or without a new one in its place, the next line is in the file at the path."""
    path = tmp_path / "log"
    with logging_to(path) as logger:
        logger.warning("before")
        path.rename(tmp_path / "log.old")
        if made_anew:
            path.touch()
        logger.warning("after")
    assert (tmp_path / "log.old").read_text() == "before\n"
    assert path.read_text() == "after\n"


def test_a_file_that_was_emptied_goes_on_at_its_beginning(tmp_path: Path) -> None:
    """Who copies and cuts the file finds no hole in it."""
    path = tmp_path / "log"
    with logging_to(path) as logger:
        logger.warning("before")
        path.write_bytes(b"")
        logger.warning("after")
    assert path.read_bytes() == b"after\n"


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """Two that rotate one file would lose lines: the second is told to take another."""
    path = tmp_path / "log"
    with logging_to(path), pytest.raises(ConfigInvalid, match="another process writes"):
        LogFile(path)
    with logging_to(path) as logger:
        logger.warning("free again")
    with pytest.raises(ConfigInvalid, match="cannot be written: No such file"):
        LogFile(tmp_path / "missing" / "log")


def test_a_line_that_cannot_be_written_goes_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is gone costs no line and stops nobody; the file is there again when the folder is."""
    folder = tmp_path / "logs"
    folder.mkdir()
    with logging_to(folder / "log") as logger:
        (folder / "log").unlink()
        folder.rmdir()
        logger.warning("homeless")
        assert capsys.readouterr().err == "homeless\n"
        folder.mkdir()
        logger.warning("at home")
    assert (folder / "log").read_text() == "at home\n"


def test_lines_are_json(tmp_path: Path) -> None:
    """One object a line, whatever signs are in it: half a character is written as an escape."""
    path = tmp_path / "log"
    with logging_to(path) as logger:
        logger.handlers[0].setFormatter(JsonFormatter())
        logger.warning("first\nline")
        logger.warning("half \udcff")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["first\nline", "half \udcff"]
