"""Virtual environments for what is measured: one for each peer, made on demand and kept between runs.

A peer brings its own dependencies, which may contradict ours and one another's; apart, each runs as its users run it.
Run directly (`python bench/environments.py`), this makes all of them without measuring anything.
"""

import functools
import hashlib
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
ENVIRONMENTS = BENCH / ".envs"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What an environment is made from."""

    name: str
    requirements: Path
    pip_options: tuple[str, ...] = ()


RECORD = Environment(name="record", requirements=ROOT / "requirements" / "runtime.txt")
SQLITE_SESSION = Environment(name="sqlite-session", requirements=BENCH / "requirements" / "sqlite-session.txt")
# SessionDB needs nothing beyond its own wheel; the full dependency set is half a gigabyte that is never imported here.
HERMES = Environment(name="hermes", requirements=BENCH / "requirements" / "hermes.txt", pip_options=("--no-deps",))
LANGGRAPH = Environment(name="langgraph", requirements=BENCH / "requirements" / "langgraph.txt")
GOOGLE_ADK = Environment(name="google-adk", requirements=BENCH / "requirements" / "google-adk.txt")
# Not the one of bench/search.py: that searches the tables of an older version.
LLM_LOGS = Environment(name="llm-logs", requirements=BENCH / "requirements" / "llm-logs.txt")
ALL = (RECORD, SQLITE_SESSION, HERMES, LANGGRAPH, GOOGLE_ADK, LLM_LOGS)


@functools.cache
def python_of(environment: Environment) -> Path:
    """The interpreter of this environment, made first when it is absent or its requirements have changed.

    The record and its floors run in the interpreter that runs the benchmark, when that has what they need.
    """
    if environment is RECORD and _runs_here("apsw", "msgspec"):
        return Path(sys.executable)
    folder = ENVIRONMENTS / environment.name
    wanted = hashlib.sha256(environment.requirements.read_bytes() + sys.version.encode()).hexdigest()
    ready = folder / ".ready"
    if not ready.is_file() or ready.read_text() != wanted:
        _make(environment, folder)
        ready.write_text(wanted)
    return folder / "bin" / "python"


def _runs_here(*modules: str) -> bool:
    """Whether this interpreter can import these; asked in a process of its own, to load nothing here."""
    statement = "import " + ", ".join(modules)
    return subprocess.run([sys.executable, "-c", statement], capture_output=True, check=False).returncode == 0


def _make(environment: Environment, folder: Path) -> None:
    """Make the environment anew, so that nothing of an older one stays behind."""
    print(f"making {folder.relative_to(ROOT)} from {environment.requirements.relative_to(ROOT)}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*install, *environment.pip_options, "--requirement", str(environment.requirements)],
        stdout=sys.stderr,
        check=True,
    )


if __name__ == "__main__":
    for each in ALL:
        print(python_of(each))
