"""What is measured: the record, its floors and its peers, and in which experiments each takes part."""

from dataclasses import dataclass
from pathlib import Path

from environments import HERMES, RECORD, ROOT, SQLITE_SESSION, Environment

APPENDS, STREAMING, LOAD, TURN, OPEN = "appends", "streaming", "load", "turn", "open"
EXPERIMENTS = (APPENDS, STREAMING, LOAD, TURN, OPEN)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One thing to measure, in its own processes."""

    name: str
    title: str
    environment: Environment
    script: str
    experiments: tuple[str, ...]
    options: tuple[str, ...] = ()
    tree: Path = ROOT
    """The checkout whose `src` and worker are run."""
    is_shared: bool = True
    """Measured in several processes at once, too."""


HANSARD = Subject(
    name="hansard",
    title="Hansard",
    environment=RECORD,
    script="hansard_worker.py",
    experiments=EXPERIMENTS,
)
# The order is the order of a round: ours, floors, peers, ours, …
SUBJECTS = (
    HANSARD,
    Subject(
        name="apsw",
        title="raw apsw",
        environment=RECORD,
        script="apsw_worker.py",
        experiments=EXPERIMENTS,
    ),
    Subject(
        name="apsw-100",
        title="raw apsw, 100 a transaction",
        environment=RECORD,
        script="apsw_worker.py",
        experiments=(APPENDS,),
        options=("--group", "100"),
    ),
    Subject(
        name="apsw-msgspec",
        title="raw apsw, decoded by msgspec",
        environment=RECORD,
        script="apsw_worker.py",
        experiments=(LOAD,),
        options=("--decoder", "msgspec"),
        is_shared=False,
    ),
    Subject(
        name="sqlite-session",
        title="SQLiteSession",
        environment=SQLITE_SESSION,
        script="sqlite_session_worker.py",
        experiments=(APPENDS, LOAD, TURN, OPEN),
    ),
    Subject(
        name="hermes",
        title="Hermes",
        environment=HERMES,
        script="hermes_worker.py",
        experiments=(APPENDS, LOAD, TURN, OPEN),
    ),
)
TITLES = {subject.name: subject.title for subject in SUBJECTS}
