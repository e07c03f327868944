"""The stage of a cell: a stock of homes, two processes, and what a cell asks of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.limits import RESERVE_BYTES
from tests.crash.accidents.deeds import (
    COPIES,
    HIT,
    KEPT,
    NOBODY,
    NOTHING,
    OPEN,
    OTHER,
    PATHS,
    SPARE,
    TORN,
    do_accident,
    files_of,
    remedy,
)
from tests.crash.accidents.table import expected
from tests.crash.accidents.worker import PATIENCE_SECONDS
from tests.record.helpers_process import ROOT, Worker, WorkerError

ACTOR = [sys.executable, "-m", "tests.crash.accidents.worker"]
NEEDLES = {"a", "b", "c", "o1", "o2"}
"""Messages that a search must find."""

BULK, BULK_CHARACTERS = [f"bulk-{number}" for number in range(12)], 4800
"""Messages that fill pages of `state.db` which its WAL does not have: an older copy lacks them."""

IDS = {HIT: ["first", "a", "b", "c", "attached"], OTHER: ["o1", *BULK, "o2"], OPEN: ["noted"], SPARE: ["s1"]}
"""What the present home holds by session, in order."""

OPEN_TEXT, LATER_TEXT, LIVE_TEXT, LAST_TEXT = "half ", "a word ", "spoken ", "on"
"""What was said of the message that a crash left open, and later of it; of one that is open now, and its end."""

SHARED = Path("/dev/shm")  # noqa: S108 - homes in memory: no fsync costs anything there


class Actor(Worker):
    """One process, used by one cell after another."""

    def __init__(self, source: Path | None = None) -> None:
        """Start it."""
        self.owner = ""
        self.start(source)

    def start(self, source: Path | None) -> None:
        """Start a process, which opens nothing yet. `source`: a folder from which it imports Hansard, not from ours."""
        environment = {**os.environ, "PYTHONPATH": str(source)} if source else None
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            ACTOR, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env=environment
        )


class Cell(NamedTuple):
    """One cell of the table."""

    row: str
    accident: str
    moment: str
    second: bool

    def __str__(self) -> str:
        """Return its name."""
        return f"{self.row}, {self.accident}, {self.moment}{', two processes' if self.second else ''}"


class Seen(NamedTuple):
    """What became of a cell."""

    outcome: str
    errors: dict[str, str]
    """What was refused, with the words of the refusal."""


class Stage:
    """The stock, and the processes."""

    def __init__(self, folder: Path) -> None:
        """Make the stock."""
        self.folder = folder
        self.stock = folder / "stock"
        self.source: Path | None = None
        self.first, self.second = Actor(), Actor()
        self._count = 0
        self._make_stock()

    def close(self) -> None:
        """End the processes."""
        for actor in (self.first, self.second):
            actor.__exit__()

    # The stock.

    def _make_stock(self) -> None:
        self.stock.mkdir()
        self._make_foreign()
        home, actor = self.folder / "growing", self.first
        self._begin(actor, home)
        actor.ask("append", session=HIT, id="a", text="needle a")
        actor.ask("append", session=OTHER, id="o1", text="needle o1")
        self._keep(home, "older")
        actor.ask("open", home=str(home))
        actor.ask("append", session=HIT, id="b", text="needle b")
        for id in BULK:
            actor.ask("append", session=OTHER, id=id, times=BULK_CHARACTERS)
        actor.ask("close")
        actor.ask("checkpoint", home=str(home))
        actor.ask("open", home=str(home))
        actor.ask("append", session=HIT, id="c", text="needle c")
        actor.ask("append", session=OTHER, id="o2", text="needle o2")
        actor.ask("attach", id="attached")
        actor.ask("turn", session=OPEN)
        actor.ask("reply", id="reply")
        actor.ask("write", text=OPEN_TEXT)
        actor.ask("note", id="noted", text="the chunk before this is durable")
        actor.ask("index")
        self._keep(home, "present", stopped=actor)
        actor.ask("write", text=LATER_TEXT)
        actor.ask("append", session=HIT, id="d", text="needle d")
        actor.ask("attach", id="attached again")
        actor.ask("index")
        self._keep(home, "newer", stopped=actor)
        actor.ask("close")

    def _make_foreign(self) -> None:
        home, actor = self.folder / "elsewhere", self.first
        self._begin(actor, home)
        actor.ask("append", session=HIT, id="x", text="needle of another home")
        actor.ask("attach", id="theirs")
        actor.ask("turn", session=OPEN)
        actor.ask("reply", id="their-reply")
        actor.ask("write", text="theirs")
        actor.ask("note", id="noted", text="the chunk before this is durable")
        actor.ask("index")
        self._keep(home, "foreign", stopped=actor)
        actor.ask("close")

    def _begin(self, actor: Actor, home: Path) -> None:
        home.mkdir(mode=0o700)
        give_away(home)
        actor.ask("open", home=str(home))
        for session in (HIT, OTHER, OPEN, SPARE):
            actor.ask("create", session=session)
        actor.ask("append", session=SPARE, id="s1")
        actor.ask("route", key="key")
        actor.ask("attach", id="first")
        actor.ask("index")

    def _keep(self, home: Path, name: str, stopped: Actor | None = None) -> None:
        """Copy a home into the stock: closed, or while the process that has it open stands still."""
        if stopped is None:
            self.first.ask("close")
            self.first.ask("checkpoint", home=str(home))
        else:
            os.kill(stopped.pid, signal.SIGSTOP)
            os.waitpid(stopped.pid, os.WUNTRACED)
        copy = self.stock / name
        shutil.copytree(home, copy)
        if stopped is not None:
            os.kill(stopped.pid, signal.SIGCONT)
        for row in (".tail", "*.orphan-*"):
            (copy / PATHS[row]).write_bytes(f"{name}: bytes that a crash left\n".encode() * 9)
        (copy / "backups").mkdir(exist_ok=True)
        (copy / "backups" / "state-v8-0badcafe.db").write_bytes(f"{name}: a database of before\n".encode() * 9)
        if name == "older" and not (copy / PATHS[".part"]).exists():
            (copy / PATHS[".part"]).write_bytes(b"")
        for side in ("-wal", "-shm"):
            if not (copy / f"state.db{side}").exists():
                (copy / f"state.db{side}").write_bytes(b"")

    def make_home(self, *, recovering: bool) -> Path:
        """Return a copy of the present home; one to recover lacks a log that the database can write again."""
        self._count += 1
        home = self.folder / f"home-{self._count}"
        shutil.copytree(self.stock / "present", home)
        if recovering:
            (home / "sessions" / "other" / f"{SPARE}.jsonl").unlink()
        give_away(home)
        return home

    def use_source(self, source: Path | None) -> None:
        """Go on with processes that import Hansard from another folder; None: from ours."""
        self.close()
        self.source = source
        self.revive()
        for actor in (self.first, self.second):
            assert source is None or actor.ask("source") == str(source)

    def begin_anew(self) -> None:
        """Kill both processes: after a cell that failed nobody knows what they have open."""
        for actor in (self.first, self.second):
            actor.kill()

    def revive(self, *actors: Actor) -> None:
        """Start processes again that died; without a name, whichever did."""
        for actor in actors or (self.first, self.second):
            if actor.process.poll() is not None:
                actor.__exit__()
                actor.start(self.source)


def give_away(home: Path) -> None:
    """Make a home nobody's, whose name the actors take."""
    if os.getuid() == 0:
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@contextmanager
def open_stage() -> Iterator[Stage]:
    """Set the stage in a folder that every user may pass."""
    with tempfile.TemporaryDirectory(dir=SHARED if os.access(SHARED, os.W_OK) else None) as name:
        Path(name).chmod(0o755)
        stage = Stage(Path(name))
        try:
            yield stage
        finally:
            stage.close()


def room_of(path: Path) -> int:
    """Return how many bytes of the disk a file takes."""
    return path.stat().st_blocks * 512


class Play:
    """One cell, played."""

    def __init__(self, stage: Stage, cell: Cell, patience_seconds: float) -> None:
        """On a home of its own."""
        self.cell = cell
        self.stage = stage
        self.home = stage.make_home(recovering=cell.moment == "recovering")
        self.stock = stage.stock
        self.patience_seconds = patience_seconds
        self.errors: dict[str, str] = {}
        self.expected = {session: list(ids) for session, ids in IDS.items()}
        if cell.moment == "recovering" and cell.row.startswith("state.db"):
            del self.expected[SPARE]  # its log is missing then, and the database is hit: it may be in neither
        self.keys, self.blobs = ["key"], list[str]()
        self.spoken = {"reply": OPEN_TEXT}
        self.kept: list[bytes] = []

    @property
    def actors(self) -> list[Actor]:
        """The processes of this cell, those that live now."""
        return [self.stage.first, self.stage.second] if self.cell.second else [self.stage.first]

    def act(self) -> Seen:
        """Play it to the end; assert what holds for every cell, and return how this one ended."""
        running = self.cell.moment == "running"
        opened = [actor for actor in self.actors if running and self.open(actor, "before")]
        if running:
            self.speak(self.actors[0])
        if self.cell.moment == "recovering":
            accident = [str(self.stock), str(self.home), self.cell.row, self.cell.accident]
            opened += [self.actors[0]] if self.open(self.actors[0], "open", accident=accident) else []
        else:
            do_accident(self.stock, self.home, self.cell.row, self.cell.accident)
        if self.cell.row in KEPT:
            self.kept = [file.read_bytes() for file in files_of(self.home / PATHS[self.cell.row])]
        opened += [actor for actor in self.actors if not running and actor not in opened and self.open(actor, "open")]
        self.write(opened)
        self.close(opened)
        self.read("reopen")
        self.check_file()
        errors, outcome = self.errors, self.outcome()
        self.check_names(errors)
        if errors:
            remedy(self.home, self.cell.row, self.cell.accident)
            self.errors, self.patience_seconds = {}, PATIENCE_SECONDS
            if self.open(self.actors[0], "remedied"):
                self.write(self.actors[:1])
                self.close(self.actors[:1])
                self.read("remedied")
            left = {where: text for where, text in self.errors.items() if not self.is_gone(where)}
            assert not left, (errors, left)
        return Seen(outcome, errors)

    def is_gone(self, where: str) -> bool:
        """Return whether an error tells of a file that only existed once: an attachment has no other leg."""
        return self.cell.row == "blobs/" and where.endswith(("blob", "verify"))

    def outcome(self) -> str:
        """Return how the cell ended, by what was refused."""
        if any(where.endswith("open") for where in self.errors):
            return "refused"
        return "apart" if self.errors else "repaired"

    def check_names(self, errors: dict[str, str]) -> None:
        """Assert that each refusal names the file; where the content is wrong, the database stands for its files."""
        path = PATHS[self.cell.row]
        is_content = self.cell.accident in {"missing", "cut off", "garbage", *COPIES}
        names = ("state.db", ".jsonl") if path.startswith("state.db") and is_content else (path.rpartition("/")[2],)
        silent = [each for where, each in errors.items() if where != "died" and not any(name in each for name in names)]
        assert not silent, f"{self.cell}: {names} is not named: {silent}"

    # What the processes are asked for.

    def open(self, actor: Actor, where: str, **more: object) -> bool:
        """Open the home; return whether that succeeded."""
        return self.ask(actor, where, "open", home=str(self.home), patience=self.patience_seconds, **more) is not None

    def ask(self, actor: Actor, where: str, do: str, **order: object) -> Any:  # noqa: ANN401
        """Ask for something; note an error. A process that dies is one that crashed."""
        try:
            return actor.ask(do, **order) or True
        except WorkerError as error:
            self.errors[where] = str(error)
        except (EOFError, BrokenPipeError) as error:
            self.note_death(actor, str(error))
        return None

    def note_death(self, actor: Actor, said: str) -> None:
        """A process may die of a memory map that was cut off under it, and of nothing else."""
        code = actor.process.wait()
        assert code == -signal.SIGBUS, f"{self.cell}: it ended with {code}: {said[-3000:]}"
        self.errors["died"] = "SIGBUS"
        self.stage.revive(actor)

    def speak(self, actor: Actor) -> None:
        """Have a message open, some of which is durable."""
        actor.ask("turn", session=OPEN)
        actor.ask("reply", id="live-reply")
        actor.ask("write", text=LIVE_TEXT)
        actor.ask("note", id="noted-live", text="the chunk before this is durable")
        self.expected[OPEN].append("noted-live")
        self.spoken["live-reply"] = LIVE_TEXT

    def write(self, actors: list[Actor]) -> None:
        """Write to every journal, in all processes at once."""
        names = [f"{len(self.expected[OTHER])}-{number}" for number in range(len(actors))]
        for actor, name in zip(actors, names, strict=True):
            actor.send("write_all", name=name)
        for actor, name in zip(actors, names, strict=True):
            try:
                answer = actor.receive()
            except EOFError as error:
                self.note_death(actor, str(error))
                continue
            for what, outcome in answer.items():
                if isinstance(outcome, dict):
                    self.errors[f"write {what}"] = f"{outcome['error']}: {outcome['message']}"
                else:
                    self.note_acknowledged(what, name)

    def note_acknowledged(self, what: str, name: str) -> None:
        """Expect from now on what a write was acknowledged for."""
        if what in self.expected:
            self.expected[what].append(f"{what}-{name}")
        elif what == "home":
            self.keys.append(f"key-{name}")
        elif what == "blob":
            self.blobs.append(name)
        elif what == "reply":
            self.spoken["live-reply"] = LIVE_TEXT + LAST_TEXT

    def close(self, actors: list[Actor]) -> None:
        """Leave."""
        for actor in actors:
            if actor.process.poll() is None:
                self.ask(actor, "write close", "close")

    def read(self, where: str) -> None:
        """Open anew in one process, read everything, write more, and read everything again."""
        actor = self.actors[0]
        if not self.open(actor, where):
            return
        if self.cell.row == "search.db" and not actor.ask("is_indexed"):  # asked first: `verify` mends it, too
            self.errors["search"] = "search.db is not used for searches"
        self.check_all(where, actor)
        self.write([actor])
        self.check_all(where, actor)
        self.close([actor])

    def check_all(self, where: str, actor: Actor) -> None:
        """Read everything; note what is refused, and assert that nothing else is missing or made up."""
        found = actor.ask("read_all", keys=self.keys, blobs=self.blobs)
        found = {what: outcome for what, outcome in found.items() if what in self.expected or what not in IDS}
        errors = {what: outcome for what, outcome in found.items() if isinstance(outcome, dict)}
        self.errors |= {f"{where} {what}": f"{each['error']}: {each['message']}" for what, each in errors.items()}
        findings = found["verify"] if "verify" not in errors else []
        lost = {session: set(ids) - set(found[session]) for session, ids in self.expected.items()}
        for session, missing in (lost | {HOME_JOURNAL: found[HOME_JOURNAL]}).items():
            if session in errors:
                continue
            if missing and any(finding.startswith(f"{session} log") for finding in findings):
                # Two histories: verify tells of both, and the one of the log comes back by the remedy.
                self.errors[f"{where} {session}"] = f"state.db lacks what the log {session}.jsonl has: {missing}"
                continue
            assert not missing, f"{self.cell}: {missing} missing in {found[session]}; {self.errors}"
            if session in self.expected:
                self.check_ids(found[session], self.expected[session])
        if "texts" not in errors:
            self.check_texts(dict(found["texts"]))
        if "search" not in errors:
            unfound = NEEDLES - set(found["search"])
            assert not unfound, (self.cell, "search does not find", unfound, self.errors)
        if findings:
            self.errors[f"{where} verify"] = "; ".join(findings)
        assert "blob" in errors or found["blob"], (self.cell, "another attachment")

    def check_ids(self, found: list[str], ids: list[str]) -> None:
        """Everything acknowledged is there once, in order, and nothing that was never said here."""
        assert len(found) == len(set(found)), (self.cell, found)
        rest = iter(found)
        assert self.cell.second or all(id in rest for id in ids), (self.cell, found, ids)
        assert not {"x", "theirs", "their-reply"} & set(found), (self.cell, found)

    def check_texts(self, found: dict[str, str]) -> None:
        """Each message that was open has the words that were acknowledged, and no others than were written to it."""
        whole = {"reply": OPEN_TEXT + LATER_TEXT, "live-reply": LIVE_TEXT + LAST_TEXT}
        for message, said in self.spoken.items():
            assert found.get(message) in {said, whole[message]}, (self.cell, message, said, found, self.errors)

    def check_file(self) -> None:
        """Note when the file itself is not as it must be: kept for people, or room on the disk.

        The other files are compared by `verify`, by reading and by searching.
        """
        path = self.home / PATHS[self.cell.row]
        if self.cell.accident == NOTHING:
            return
        if self.cell.row in KEPT:
            lying = [each.read_bytes() for place in path.parent.glob(f"{path.name}*") for each in files_of(place)]
            lost = [data for data in self.kept if not any(each.startswith(data) for each in lying)]
            assert not lost, f"{self.cell}: {path.name} is not kept: {lost}"
        if self.cell.row == ".tail" and not (path.is_file() and path.read_bytes().endswith(TORN + b"\n")):
            self.errors["tail"] = f"{path.name} does not hold the unfinished line of the log; {self.errors}"
        if self.cell.row == "reserve" and (path.is_symlink() or not path.is_file() or room_of(path) < RESERVE_BYTES):
            self.errors["reserve"] = "reserve is not there, or has no room"


REFUSED_SECONDS = 2.0
"""How long a call waits that is to be refused; what is to succeed waits as long as a busy machine needs."""


def is_definite(cell: Cell) -> bool:
    """Return whether a cell has one outcome only; the others, which chance decides, are for the proof."""
    return len(expected(cell.row, cell.accident, cell.moment)) == 1


def play(stage: Stage, cell: Cell) -> str:
    """Play one cell; return what is wrong with it."""
    allowed = expected(cell.row, cell.accident, cell.moment)
    stage.revive()
    try:
        seen = Play(stage, cell, PATIENCE_SECONDS if allowed == ("repaired",) else REFUSED_SECONDS).act()
    except (AssertionError, WorkerError, EOFError, BrokenPipeError) as error:
        stage.begin_anew()
        return f"{cell}: {type(error).__name__}: {error}"
    if seen.outcome not in allowed:
        return f"{cell}: {seen.outcome}, not as the table says; {seen.errors}"
    return ""
