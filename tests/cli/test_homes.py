"""Which home a command takes when it is given an empty one: never the current directory."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from hansard.cli.main import cli


def test_an_empty_option_is_refused() -> None:
    """Most likely a variable of a script is empty: nobody means this folder by it."""
    ended = CliRunner().invoke(cli, ["--home", "", "sessions"])
    assert ended.exit_code == 2
    assert "--home is empty: give a path, or leave it out." in ended.output


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    """The home is where it is without the variable."""
    ended = CliRunner(env={"HANSARD_HOME": "", "HOME": str(tmp_path)}).invoke(cli, ["sessions"])
    assert str(tmp_path / ".hansard") in str(ended.exception)
