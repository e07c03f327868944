"""The wheel: what is in it, and that it works in an environment that has nothing of the repository."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from hansard import Record
from tests.acceptance.fresh_machine import (
    copy_repository,
    fresh,
    listed_files,
    local_model_runs,
    needs_git,
    run,
)
from tests.acceptance.stories_program import write_script
from tests.cli.terminal.tmux import ROOT
from tests.counts import only_long

pytestmark = [needs_git, pytest.mark.slow]

PACKAGE = "src/hansard/"
INFORMATION = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}

IMPORT_ALL = """
import importlib, pkgutil, hansard
for module in pkgutil.walk_packages(hansard.__path__, "hansard."):
    importlib.import_module(module.name)
print(hansard.__file__)
"""


class Installed(NamedTuple):
    """An environment with the wheel, far from the repository."""

    wheel: Path
    python: Path
    place: Path
    variables: dict[str, str]

    def hansard(self, *arguments: str, code: int = 0) -> str:
        """Run `hansard` and return what it printed; it ends with this exit code."""
        done = run([str(self.python.with_name("hansard")), *arguments], self.variables, self.place)
        assert done.returncode == code, f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The wheel, built from the files as git has them with the pinned build backend of this environment."""
    folder = tmp_path / "build"
    source = copy_repository(folder / "source")
    build = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder / "dist"), "."]
    done = run([sys.executable, "-m", "pip", "wheel", *build], fresh(folder / "user"), source)
    assert done.returncode == 0, done.stderr
    (built,) = (folder / "dist").iterdir()
    return built


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Iterator[Installed]:
    """A clean environment: the pinned runtime requirements, then the wheel, and nothing else."""
    folder = tmp_path / "installed"
    place = folder / "place"
    place.mkdir(parents=True)
    variables = fresh(folder / "user")
    python = folder / "environment" / "bin" / "python"
    done = run([sys.executable, "-m", "venv", str(folder / "environment")], variables, place)
    assert done.returncode == 0, done.stderr
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    put_requirements(Path(run([str(python), "-c", ask], variables, place).stdout.strip()))
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--no-input"]
    done = run([*pip, "--no-deps", "--no-index", str(wheel)], variables, place)
    assert done.returncode == 0, done.stderr
    yield Installed(wheel, python, place, variables)
    shutil.rmtree(folder / "environment")


def put_requirements(site: Path) -> None:
    """Put exactly the pinned runtime requirements into an environment, as they lie in this one.

    They were installed here by their hashes; another download and another unpacking would prove nothing more.
    """
    pins = re.findall(r"^([a-z0-9][^\\\n]*)", (ROOT / "requirements" / "runtime.txt").read_text(), re.MULTILINE)
    for requirement in map(Requirement, pins):
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        found = distribution(requirement.name)
        assert requirement.specifier.contains(found.version), (requirement, found.version)
        for file in found.files or ():
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(found.locate_file(file)), site / file)


def test_the_wheel_is_the_package_and_nothing_else(wheel: Path) -> None:
    """Every file of the package is in it, the data files too; no test, no tool, no document of the repository is."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    information = {name.partition(".dist-info/")[2] for name in names if ".dist-info/" in name}
    package = {name for name in names if ".dist-info/" not in name}
    assert information == INFORMATION
    assert package == {name.removeprefix("src/") for name in listed_files(PACKAGE)}
    assert {Path(name).suffix for name in package} == {".py", ".sql", ".md", ".txt", ".typed"}


@only_long
async def test_an_installed_wheel(installed: Installed) -> None:
    """It needs nothing that only developers have, it talks and keeps the record, and it says what is missing.

    One test, because making the environment takes longer than all that is done in it.
    """
    assert_requirements_are_enough(installed)
    await assert_talks(installed)
    assert_says_what_is_missing(installed)


def assert_requirements_are_enough(installed: Installed) -> None:
    """Every module can be imported from where it was installed, and pip finds nothing that is missing."""
    done = run([str(installed.python), "-P", "-c", IMPORT_ALL], installed.variables, installed.place)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(installed.python.parents[1])
    check = run([str(installed.python), "-m", "pip", "check"], installed.variables, installed.place)
    assert check.returncode == 0, check.stdout


async def assert_talks(installed: Installed) -> None:
    """Version, help, models, settings, one question to a scripted model, and a record that is whole."""
    model = write_script(installed.place / "story.toml", {"text": "You said: {last}"})
    there = installed._replace(variables={**installed.variables, "HANSARD_MODEL": model})
    assert there.hansard("--version") == f"hansard {wheel_version(installed.wheel)}\n"
    shown = there.hansard("--help")
    assert all(command in shown for command in ("config", "models", "verify", "--resume", "--prompt"))
    assert there.hansard("-p", "Hello, wheel.") == "You said: Hello, wheel.\n"
    assert there.hansard("-c", "-p", "Again.") == "You said: Again.\n"
    assert model in there.hansard("models")
    assert "environment HANSARD_MODEL" in there.hansard("config")
    there.hansard("config", "check")
    there.hansard("verify")
    async with Record.open(Path(there.variables["HOME"]) / ".hansard") as record:
        (session,) = await record.sessions()
        said = [message.text for message in await record.load_transcript(session.id) if message.role != "notice"]
    assert said == ["Hello, wheel.", "You said: Hello, wheel.", "Again.", "You said: Again."]


def assert_says_what_is_missing(installed: Installed) -> None:
    """Without a model it ends with an exit code of its own and says how to get one."""
    if local_model_runs():
        return
    nobody = {**installed.variables, "OLLAMA_HOST": "127.0.0.1:1", "HOME": str(installed.place / "other")}
    assert "hansard models install-demo" in installed._replace(variables=nobody).hansard("models", code=1)


def wheel_version(wheel: Path) -> str:
    """Return the version that a wheel's name says."""
    return wheel.name.split("-")[1]
