"""What is measured: the record, its floors and its peers, and in which experiments each takes part."""

from dataclasses import dataclass
from pathlib import Path

from environments import GOOGLE_ADK, HERMES, LANGGRAPH, LLM_LOGS, RECORD, ROOT, SQLITE_SESSION, Environment

APPENDS, STREAMING, LOAD, TURN, OPEN = "appends", "streaming", "load", "turn", "open"
EXPERIMENTS = (APPENDS, STREAMING, LOAD, TURN, OPEN)
# The cases of the appends.
ALONE, EIGHT_TASKS, MANY_TASKS = "1 task", "8 tasks, 8 sessions", "64 tasks, 64 sessions"
MANY_TASKS_IN_ONE, FOUR_PROCESSES_IN_ONE = "64 tasks, 1 session", "4 processes, 1 session"
FOUR_PROCESSES = "4 processes, 4 sessions"


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
    cases: tuple[str, ...] = ()
    """The cases of the appends in which it takes part; empty: all of them."""
    under: tuple[str, ...] = ()
    """The command that runs its interpreter, such as strace; empty: none."""


HANSARD = Subject(
    name="hansard",
    title="Hansard",
    environment=RECORD,
    script="hansard_worker.py",
    experiments=EXPERIMENTS,
)
# It keeps its head in memory, so nobody else may append to its journal.
FLOOR = Subject(
    name="floor",
    title="attainable floor",
    environment=RECORD,
    script="floor_worker.py",
    experiments=(APPENDS,),
    cases=(ALONE, FOUR_PROCESSES),
)
SQLITE_SESSION_SUBJECT = Subject(
    name="sqlite-session",
    title="SQLiteSession",
    environment=SQLITE_SESSION,
    script="sqlite_session_worker.py",
    experiments=(APPENDS, LOAD, TURN, OPEN),
)
# The order is the order of a round: ours, floors, peers, ours, …
SUBJECTS = (
    HANSARD,
    FLOOR,
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
    SQLITE_SESSION_SUBJECT,
    Subject(
        name="hermes",
        title="Hermes",
        environment=HERMES,
        script="hermes_worker.py",
        experiments=(APPENDS, LOAD, TURN, OPEN),
    ),
    # Of these three, several processes cannot append to one session: see bench/README.md.
    Subject(
        name="langgraph",
        title="LangGraph",
        environment=LANGGRAPH,
        script="langgraph_worker.py",
        experiments=(APPENDS, LOAD),
        cases=(ALONE, EIGHT_TASKS, MANY_TASKS, MANY_TASKS_IN_ONE, FOUR_PROCESSES),
    ),
    Subject(
        name="google-adk",
        title="ADK",
        environment=GOOGLE_ADK,
        script="google_adk_worker.py",
        experiments=(APPENDS, LOAD),
        cases=(ALONE, EIGHT_TASKS, MANY_TASKS, MANY_TASKS_IN_ONE, FOUR_PROCESSES),
    ),
    Subject(
        name="llm",
        title="llm",
        environment=LLM_LOGS,
        script="llm_worker.py",
        experiments=(APPENDS, LOAD),
        cases=(ALONE, FOUR_PROCESSES),
    ),
)
TITLES = {subject.name: subject.title for subject in SUBJECTS}
