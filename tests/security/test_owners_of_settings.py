"""Settings that another user owns, or can put another file in place of, are settings that others can change."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hansard.app.home_files import find_unsafe
from tests.acceptance.shown.program import run_forked
from tests.security.unprivileged import NOBODY, give_away, interpreter, own_folder, run

STRANGER = 1234
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def make_home(folder: Path) -> Path:
    """Make a home with settings and keys that are private."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    for name in ("config.toml", "keys.toml"):
        (home / name).write_text("")
        (home / name).chmod(0o600)
    return home


def hansard(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a home."""
    return run_forked("--home", home, *words, variables=os.environ)


@as_root
def test_what_another_user_owns_is_refused(tmp_path: Path) -> None:
    """Writing is refused, and the message names the owner and the command; reading works with the same words."""
    home = make_home(tmp_path)
    (tmp_path / "script.toml").write_text('[[answers]]\ntext = "hello"\n')
    model = f"scripted:{tmp_path / 'script.toml'}"
    assert hansard(home, "-m", model, "-p", "first").stdout == "hello\n"
    for path in (home, home / "keys.toml", home / "config.toml"):
        os.chown(path, STRANGER, -1)
        (found,) = find_unsafe(home)
        command = f"sudo chown {'-R ' if path == home else ''}0 {path}"
        told = f"{path}: it belongs to another user (user id {STRANGER}); run hansard as that user, or run: {command}"
        assert str(found) == told
        if path.name != "config.toml":
            os.chown(path, 0, -1)
    refused = hansard(home, "-m", model, "-p", "second")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert told in refused.stderr
    listed = hansard(home, "sessions")
    assert listed.returncode == 0
    assert "first" in listed.stdout
    assert told in listed.stderr
    checked = hansard(home, "config", "check")
    assert (checked.returncode, checked.stdout) == (1, f"{told}\n")


@as_root
def test_root_may_own_the_settings_but_not_the_keys() -> None:
    """A user without rights goes by a home and a config.toml of root's; keys.toml must be the user's own."""
    script = "import sys, pathlib; from hansard.app.home_files import find_unsafe\n"
    script += "print(*[each.path.name for each in find_unsafe(pathlib.Path(sys.argv[1]))])"
    with own_folder() as folder:
        home = make_home(folder)
        give_away(folder)

        def found() -> str:
            ended = run(interpreter(), "-c", script, str(home), given={}, cwd=folder)
            assert ended.returncode == 0, ended.stderr
            return ended.stdout.strip()

        assert found() == ""
        for path, mode in ((home, 0o755), (home / "config.toml", 0o644)):
            os.chown(path, 0, 0)
            path.chmod(mode)
        assert found() == ""
        os.chown(home / "keys.toml", 0, 0)
        assert found() == "keys.toml"
        os.chown(home / "keys.toml", NOBODY, NOBODY)
        os.chown(home / "config.toml", STRANGER, -1)
        assert found() == "config.toml"


@pytest.mark.parametrize("name", ["config.toml", "keys.toml"])
@pytest.mark.parametrize("depth", [0, 1], ids=["its folder", "the folder above"])
def test_a_link_into_a_folder_of_everybody(tmp_path: Path, name: str, depth: int) -> None:
    """Whoever writes in a folder above what a link leads to can put something else there; a sticky bit forbids it."""
    home = make_home(tmp_path)
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True, mode=0o755)
    (home / name).rename(inner / name)
    (home / name).symlink_to(Path("..") / "outer" / "inner" / name)
    assert find_unsafe(home) == []
    folder = (inner, inner.parent)[depth]
    folder.chmod(0o777)
    (found,) = find_unsafe(home)
    assert found.path == home / name
    assert f"others can put another in its place: {folder} (mode 0777); run: chmod go-w {folder}" in found.what
    folder.chmod(0o1777)
    assert find_unsafe(home) == []


def test_a_link_that_others_can_turn(tmp_path: Path) -> None:
    """A link on the way counts where it lies: from a folder of everybody it can be turned to any other target."""
    home = make_home(tmp_path)
    safe, open_folder = tmp_path / "safe", tmp_path / "open"
    safe.mkdir()
    open_folder.mkdir()
    (home / "config.toml").rename(safe / "config.toml")
    (open_folder / "middle").symlink_to(safe)
    (home / "config.toml").symlink_to(open_folder / "middle" / "config.toml")
    assert find_unsafe(home) == []
    open_folder.chmod(0o777)
    (found,) = find_unsafe(home)
    assert str(open_folder) in found.what


@as_root
def test_a_sticky_folder_protects_only_what_is_ours(tmp_path: Path) -> None:
    """In a sticky folder the owner of a link can turn it, and the owner of the folder can turn all."""
    home, shared = make_home(tmp_path), tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (home / "config.toml").rename(tmp_path / "target.toml")
    (shared / "link").symlink_to(tmp_path / "target.toml")
    (home / "config.toml").symlink_to(shared / "link")
    assert find_unsafe(home) == []
    os.chown(shared / "link", STRANGER, -1, follow_symlinks=False)
    assert [each.path.name for each in find_unsafe(home)] == ["config.toml"]
    os.chown(shared / "link", 0, -1, follow_symlinks=False)
    os.chown(shared, STRANGER, -1)
    assert [each.path.name for each in find_unsafe(home)] == ["config.toml"]


def test_a_home_in_a_folder_of_everybody(tmp_path: Path) -> None:
    """The home itself can be replaced there, so it counts once, before it is made as well; links in a ring are left."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert [each.path for each in find_unsafe(shared / "home")] == [shared / "home"]
    home = make_home(shared)
    assert [each.path for each in find_unsafe(home)] == [home]
    shared.chmod(0o755)
    (home / "config.toml").unlink()
    (home / "config.toml").symlink_to("config.toml")
    assert find_unsafe(home) == []
