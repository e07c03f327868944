"""What is read from the home that `scripts/full_home.py` made: exports, commands, requests to models, tables.

Everything that the tests of that home import from inside Hansard is imported here. `python -m
tests.acceptance.full_home_reading` reads the packed home with the present code and writes the golden answers anew. Do
that only in a commit that changes an answer on purpose, and say so there.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw
import msgspec
from click.testing import CliRunner

from hansard import Record
from hansard.cli.main import cli
from hansard.domain.requests import ToolSpec
from hansard.engine.requests import Requests, build_request
from hansard.models.pydantic import ProviderModel, open_provider
from hansard.record.conversation import Conversation
from hansard.record.schema import SCHEMA
from hansard.record.sessions import SessionFrozen
from hansard.record.turns.holding import Turn
from hansard.testing import FakeClock, Wiring
from tests.models.validity.bodies import STYLES

FOLDER = Path(__file__).parent / "full_home"
HOME = FOLDER / "home.tar.xz"
GOLDEN = FOLDER / "golden.tar.xz"
HOME_MODE = 0o700
EXIT_NOTHING_FOUND = 1
OPENED_AT_MICROSECONDS = 1_700_950_400_000_000
"""When the home is opened after the kill: some hours later. What recovery records has this time."""

OLD_HOMES = Path(__file__).parents[1] / "record" / "homes"
OLD = ("schema-1", "schema-9")
"""Homes of older schemas that are read as well: their entries lack fields that today's have."""

KEPT_BY_SQLITE = "sqlite_"
NUMBERED = {"outbox": "number"}
"""Columns that a rebuild may fill otherwise."""

QUERIES = (
    ("ferry", "--limit", "5", "--context", "2"),
    ("harbour OR milk",),
    ('"the garden"', "--by-session"),
    ("echo", "--tools", "--limit", "40"),
    ("noon", "--tool", "clock"),
    ("edited", "--all"),
    ("deleted OR undone", "--all", "--context", "1"),
    ("正午", "--session", "summed"),
    ("hello", "--source", "matrix", "--role", "assistant"),
    ("train", "--owner", "person:admin", "--until", "2023-11-15"),
    ("nothingofthekind",),
)
"""What is searched for; each asks for another part of search."""

SHOWN = ("trip", "tools", "trip-fork-fork", "stream-fork", "minds-fork", "imported", "lost", "20231114-23")
"""Sessions that are shown; the last is the room's, by the beginning of its id."""

COMMANDS = {
    "verify": ("verify", "--json"),
    "sessions": ("sessions", "list", "--json", "--limit", "100"),
    "archived": ("sessions", "list", "--json", "--archived"),
    "deliveries": ("deliveries", "--json"),
    "memory": ("memory", "--json"),
    "access": ("pair", "list", "--json"),
    "people": ("people", "--json"),
    "permissions": ("permissions", "--json"),
}
EXPORTS = {
    "export.jsonl": ("--format", "jsonl"),
    "export.md": ("--format", "markdown", "--full"),
    "export.html": ("--format", "html", "--full"),
    "export-chat.jsonl": ("--format", "chat"),
    "facts.jsonl": ("--format", "jsonl", "--no-blobs", "--facts"),
}
MOVED = re.compile(rb'"~moved:[0-9a-f]{24}"')
"""The id of what recovery says of a delivery: a new one at each opening."""

FROZEN = SessionFrozen(system="Be brief.", tools=(ToolSpec(name="echo", description="Says it again."),))
"""What a model is told in sessions in which nothing was frozen."""

DECIDED_ON = (
    *("seq", "owner", "settings", "running", "queued", "by", "ends", "usage", "requests", "undone"),
    *("placed", "waiting", "measure", "failed_compactions", "wants_compaction", "wants_reply", "compactions"),
)
"""What is kept of a conversation: attributes, as the fold has them."""

SMALL_TOKENS = 400
"""A window so small that most of a conversation is left out."""

Parts = dict[str, bytes]


class Asked(NamedTuple):
    """The part of a turn that requests are built for."""

    session_id: str


def unpack(home: Path, archive: Path = HOME) -> Path:
    """Put a home there, as a kill left it."""
    with tarfile.open(archive) as packed:
        packed.extractall(home, filter="data")
    home.chmod(HOME_MODE)
    return home


def golden_parts() -> Parts:
    """Return what the commit that made the home read from it."""
    with tarfile.open(GOLDEN) as packed:
        return {member.name: packed.extractfile(member).read() for member in packed}  # type: ignore[union-attr]


# Reading.


def read_home(home: Path) -> Parts:
    """Read a home while its writer counts as alive; then recover it, and return everything that is read from it."""
    parts = read_running(home) | read_basics(home)
    for name, options in EXPORTS.items():
        parts[name] = export(home, name, *options)
    parts["facts.jsonl"] = MOVED.sub(b'"~moved:"', parts["facts.jsonl"])
    parts["commands.json"] = pretty({name: run_cli(home, *words) for name, words in COMMANDS.items()})
    parts["search.json"] = pretty({" ".join(words): search(home, words) for words in QUERIES})
    parts["shown.json"] = pretty({each: run_cli(home, "sessions", "show", each, "--json") for each in SHOWN})
    return parts


def read_basics(home: Path) -> Parts:
    """Open a home, which recovers it, and return what it says, and what models would be sent."""
    parts = asyncio.run(read_record(home)) | asyncio.run(read_all_requests(home))
    parts["tables.json"] = pretty(read_tables(home))
    parts["export.jsonl"] = export(home, "export.jsonl")
    return parts


def read_old_homes(folder: Path) -> Parts:
    """Return the same of homes of older schemas."""
    homes = {name: unpack(folder / name, OLD_HOMES / f"{name}.tar.xz") for name in OLD}
    return {f"{name}/{part}": data for name, home in homes.items() for part, data in read_basics(home).items()}


def export(home: Path, name: str, *options: str) -> bytes:
    """Return an export of everything."""
    target = home.parent / name
    run_cli(home, "export", "--all", *options, "-o", str(target))
    return target.read_bytes()


def run_cli(home: Path, *words: str) -> Any:  # noqa: ANN401 - JSON
    """Run a command; return what it prints as JSON."""
    done = CliRunner().invoke(cli, ["--home", str(home), *words])
    if done.exit_code > 1 or (done.exception and not isinstance(done.exception, SystemExit)):
        raise AssertionError((words, done.exit_code, done.output)) from done.exception
    return json.loads(done.stdout) if done.stdout else None


def search(home: Path, words: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    """Search; scores are left out, as they depend on the present time."""
    found = run_cli(home, "search", *words, "--json")
    for hit in found["hits"]:
        del hit["score"]
    return found


@contextmanager
def living_owners(home: Path) -> Iterator[None]:
    """Let the killed process count as alive: its lock is held, so that nobody ends its turns."""
    with closing(opened(home)) as connection:
        owners = [owner for (owner,) in connection.execute("SELECT DISTINCT owner FROM turn WHERE state = 'running'")]
    folder = home / "locks" / "owners"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for owner in owners:
            lock = stack.enter_context((folder / owner).open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_running(home: Path) -> Parts:
    """Return what is read while the killed process counts as alive: open answers, open questions, running turns."""
    with living_owners(home):
        parts = asyncio.run(read_record(home))
        parts |= {"tables.json": pretty(read_tables(home)), "export.jsonl": export(home, "running.jsonl")}
    return {f"running/{name}": data for name, data in parts.items()}


def conversation_facts(conversation: Conversation) -> dict[str, Any]:
    """Return what a conversation stands at, beside its requests: what engine and commands decide on."""
    facts = {name: getattr(conversation, name) for name in DECIDED_ON}
    return facts | {name: sorted(getattr(conversation, name)) for name in ("heard", "awaited", "unattributed")}


async def read_record(home: Path) -> Parts:
    """Open a home; return what every session says and stands at, once both legs agree."""
    async with Record.open(home, wiring=Wiring(clock=FakeClock(OPENED_AT_MICROSECONDS))) as record:
        report = await record.verify()
        assert report.ok, report.findings
        sessions = sorted(session.id for session in await record.sessions())
        transcripts = {each: await record.load_transcript(each) for each in sessions}
        conversations = {each: conversation_facts(await record.conversation(each)) for each in sessions}
    return {"transcripts.json": pretty(transcripts), "conversations.json": pretty(conversations)}


async def read_all_requests(home: Path) -> Parts:
    """Return what models would be sent in every session, now and after each of its entries."""
    async with Record.open(home, wiring=Wiring(clock=FakeClock(OPENED_AT_MICROSECONDS))) as record:
        sessions = sorted(session.id for session in await record.sessions())
        requests = {each: await read_requests(record, each) for each in sessions}
        beginnings = {each: await read_beginnings(record, each) for each in sessions}
    return {"requests.json": pretty(requests), "beginnings.json": pretty(beginnings)}


def model_of(style: str) -> ProviderModel:
    """Return the model that is asked in a protocol. Nobody is called."""
    return open_provider(f"{style}:{STYLES[style].model}", key="key", base_url="http://127.0.0.1:9", stall_seconds=1)


async def read_requests(record: Record, session_id: str) -> dict[str, Any]:
    """Return what each protocol would be sent as the next request of a session, pictures included."""
    conversation = await record.conversation(session_id)
    frozen = conversation.frozen or FROZEN
    bodies: dict[str, Any] = {}
    for name, style in STYLES.items():
        requests = Requests(record, cast("Turn", Asked(session_id)), frozen, model_of(name), 1000)
        request = await requests.build()
        bodies[name] = {**style.body(request), "system": request.system, "specs": request.tools}
        small = msgspec.structs.replace(style.rules, window_tokens=SMALL_TOKENS)
        bodies[f"{name}, small"] = style.body(build_request(conversation, frozen, 100, small))
    return bodies


async def read_beginnings(record: Record, session_id: str) -> dict[str, list[str]]:
    """Return, for each protocol, a short digest of the request after each entry of a session."""
    conversation = Conversation()
    found: dict[str, list[str]] = {name: [] for name in STYLES}
    after = 0
    while page := await record.sessions.read_entries(session_id, after):
        for entry in page:
            conversation.add(entry)
            for name, style in STYLES.items():
                request = build_request(conversation, conversation.frozen or FROZEN, None, style.rules)
                body = msgspec.json.encode(style.body(request), order="sorted")
                found[name].append(hashlib.sha256(body).hexdigest()[:8])
        after = page[-1].seq
    return found


def pretty(value: object) -> bytes:
    """Return a value as JSON that people can compare."""
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"


# Tables.


def opened(home: Path) -> apsw.Connection:
    """Open the database directly; the WAL is left alone."""
    connection = apsw.Connection(str(home / "state.db"))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def tables_of(connection: apsw.Connection) -> Iterator[tuple[str, list[str]]]:
    """Yield each table of the record with its columns."""
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
    for name in names:
        if not name.startswith(KEPT_BY_SQLITE):
            yield name, [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]


def read_tables(home: Path) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every projection. Journals are named by their ids: their numbers are the database's own."""
    with closing(opened(home)) as connection:
        ids = dict(connection.execute("SELECT key, id FROM journal"))
        found = {}
        for table, columns in tables_of(connection):
            if table in {"record", "journal", "entry", "chunk", "kind"}:
                continue
            rows = [dict(zip(columns, row, strict=True)) for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608
            for row in rows:
                row.pop(NUMBERED.get(table, ""), None)
                if "journal" in row:
                    row["journal"] = ids[row["journal"]]
            found[table] = sorted(rows, key=msgspec.json.encode)
    return found


def empty_tables(home: Path) -> list[str]:
    """Return the tables that have no row."""
    with closing(opened(home)) as connection:
        tables = [name for name, _ in tables_of(connection)]
        return [name for name in tables if not connection.execute(f"SELECT EXISTS (SELECT 1 FROM {name})").get]  # noqa: S608


def torn_units(home: Path) -> list[str]:
    """Return the journals whose logs hold whole lines that the database does not account for."""
    with closing(opened(home)) as connection:
        ends = dict(connection.execute("SELECT id, log_end FROM journal"))
    surplus = {path.stem: path.read_bytes()[ends[path.stem] :] for path in (home / "sessions").rglob("*.jsonl")}
    return [session_id for session_id, data in surplus.items() if data.endswith(b"\n")]


def lose_database(home: Path) -> None:
    """Leave the logs alone in a home: opening it builds the database anew."""
    for path in home.glob("state.db*"):
        path.unlink()


def missing_kinds(home: Path) -> list[str]:
    """Return the kinds of entries that a home has none of."""
    with closing(opened(home)) as connection:
        return sorted(set(SCHEMA.kinds) - {kind for (kind,) in connection.execute("SELECT DISTINCT kind FROM entry")})


def write_golden() -> None:
    """Write the golden answers."""
    with tempfile.TemporaryDirectory() as folder:
        parts = read_home(unpack(Path(folder) / "home")) | read_old_homes(Path(folder))
    with tarfile.open(GOLDEN, "w:xz") as archive:
        for name, data in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            member.mtime = OPENED_AT_MICROSECONDS // 1_000_000
            archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    write_golden()
