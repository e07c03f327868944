"""Restores: files of a home put back by the tools that operators use, in random shapes (L10).

Every entry that either leg holds after the restore is in the record afterwards, or the record refuses and says which
leg to take: at opening (`LegsMixed`, `LogForked`), or when something is written to a session that has two histories.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from hansard import Cursor, HansardError, Intake, Message, Record
from hansard.domain.limits import MIB
from hansard.errors import LegsMixed, LogForked, PastMissing
from tests.counts import times
from tests.record.helpers_facts import ids_of, new_session, raw_rows, say
from tests.record.helpers_process import Worker, rebuild

SHAPES = times(test=25, long=50, prove=200)
SESSIONS = ("one", "two", "three")
TOOLS = ("cp", "cp -a", "rsync", "tar", "rename")
DATABASE = ("state.db", "state.db-wal", "state.db-shm")
WHAT = {
    "database": ("state.db",),
    "database and WAL": ("state.db", "state.db-wal"),
    "WAL": ("state.db-wal",),
    "logs": ("home.jsonl", "sessions"),
    "home log": ("home.jsonl",),
    "database and home log": (*DATABASE, "home.jsonl"),
    "database and one log": (*DATABASE, "sessions/other/one.jsonl"),
    "session logs": ("sessions",),
    "home": (*DATABASE, "home.jsonl", "sessions"),
    "database and logs": ("state.db", "home.jsonl", "sessions"),
}
DEADLINE_SECONDS = 600
UNITS_SHARE = 0.4
"""How often something is said that stands in several logs at once."""
DIRECTIONS = ("older", "newer", "diverged", "other home")
CHECKPOINTS = ("none", "PASSIVE", "TRUNCATE")

Words = set[tuple[str, str]]
"""Session ids and message ids."""


class Shape(NamedTuple):
    """One restore."""

    tool: str
    what: str
    direction: str
    checkpoint: str
    """What happens to the WAL after the first life of the home, before the backup is taken."""

    checkpoint_later: str
    """What happens to the WAL after each later life."""

    restart: bool
    """Whether the WAL begins anew in the middle of a life."""

    rewrite: bool
    """Whether each life finds a log missing or cut off, and writes it anew: then its lines have other lengths."""

    is_short: bool
    """Whether little is said in each life."""


SILENT = Shape("cp", "database", "older", "TRUNCATE", "none", restart=True, rewrite=False, is_short=False)
"""The backup was taken after the WAL was emptied; `cp` puts it back over the same inode, beside a newer WAL."""


def deal(dice: random.Random, values: Sequence[str], count: int) -> list[str]:
    """Return values in an order by chance, each as often as the others, give or take one."""
    dealt = [values[number % len(values)] for number in range(count)]
    dice.shuffle(dealt)
    return dealt


def draw_shapes(seed: int, count: int) -> list[Shape]:
    """Return some restores, by a seed: the silent case, and each value of each part at least once."""
    dice = random.Random(seed)
    dealt = [deal(dice, values, count - 1) for values in (TOOLS, [*WHAT], DIRECTIONS, CHECKPOINTS, CHECKPOINTS)]
    shapes = [SILENT]
    for tool, what, direction, checkpoint, checkpoint_later in zip(*dealt, strict=True):
        restart, rewrite, is_short = dice.random() < 0.5, dice.random() < 0.3, dice.random() < 0.3
        shapes.append(Shape(tool, what, direction, checkpoint, checkpoint_later, restart, rewrite, is_short))
    return shapes


class Forked(NamedTuple):
    """A fork that was made in one of the lives of a home, and the messages that it had."""

    id: str
    parent_id: str
    past: list[str]
    own: list[str]


async def hear(record: Record, message_id: str, session_ids: list[str]) -> None:
    """Record what came from a platform: one unit of the sessions' logs and the home's."""
    await record.accept(
        [(session_id, Message.user("heard", id=message_id)) for session_id in session_ids],
        Intake(channel="matrix", account="@bot:server", event_id=message_id),
        Cursor(channel="matrix", account="@bot:server", value=message_id),
        queue_turn=False,
    )


async def live(home: Path, dice: random.Random, name: str, shape: Shape, checkpoint: str) -> Forked:
    """Let a process say something in the home, and leave the WAL in one of its states."""
    logs = sorted(home.glob("sessions/other/*.jsonl"))
    if shape.rewrite and logs:
        log = dice.choice(logs)
        log.write_bytes(log.read_bytes()[: dice.choice((0, -20))])
    async with Record.open(home) as record:
        for session_id in SESSIONS:
            await new_session(record, session_id)
        parent_id = dice.choice(SESSIONS)
        await say(record, f"{name}-before", session_id=parent_id)
        fork = Forked(f"fork-{name}", parent_id, await ids_of(record, parent_id), [f"{name}-own"])
        await record.fork(parent_id, id=fork.id)
        await say(record, *fork.own, session_id=fork.id)
        for number in range(dice.randrange(1, 3) if shape.is_short else dice.randrange(4, 24)):
            if dice.random() < UNITS_SHARE:
                await hear(record, f"{name}-{number:02}", dice.sample(SESSIONS, dice.randrange(1, 3)))
            else:
                await say(record, f"{name}-{number:02}", session_id=dice.choice(SESSIONS))
            if shape.restart and number == 3:
                raw_rows(home, "PRAGMA wal_checkpoint(PASSIVE)")
    if checkpoint != "none":
        raw_rows(home, f"PRAGMA wal_checkpoint({checkpoint})")
    return fork


def restore(tool: str, source: Path, target: Path, names: tuple[str, ...]) -> None:
    """Put files back as an operator does."""
    there = [name for name in names if (source / name).exists()]
    if tool == "rename":
        for name in there:
            old = target / f"{name}.removed"
            (target / name).rename(old) if (target / name).exists() else None
            (source / name).rename(target / name)
            shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
        return
    if tool == "tar":
        archive = source.parent / "backup.tar"
        subprocess.run(["tar", "-C", source, "-cf", archive, *there], check=True)
        subprocess.run(["tar", "-C", target, "-xf", archive], check=True)
        return
    flags = {"cp": ["cp", "-r"], "cp -a": ["cp", "-a"], "rsync": ["rsync", "-a", "--ignore-times"]}[tool]
    for name in there:
        subprocess.run([*flags, source / name, f"{(target / name).parent}/"], check=True)


def logged_words(home: Path) -> Words:
    """Return the messages that the logs hold."""
    found = set()
    for path in (home / "sessions").rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            entry = json.loads(line)
            if entry["kind"] == "message.added":
                found.add((path.stem, entry["id"]))
    return found


def stored_words(home: Path) -> Words:
    """Return the messages that the database file holds without its WAL."""
    if not (home / "state.db").exists():
        return set()
    connection = apsw.Connection(
        f"file:{home}/state.db?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    query = "SELECT j.id, e.id FROM entry e JOIN journal j ON j.key = e.journal WHERE e.kind = 'message.added'"
    try:
        return set(connection.execute(query))
    except apsw.SQLError:
        return set()  # everything is in the WAL: the file has no tables yet
    finally:
        connection.close()


class Held(NamedTuple):
    """What a record holds after a restore."""

    words: Words
    forked: set[str]
    """The journals that it refuses to write to because they have two histories."""

    without_past: set[str]
    """Forks whose past it says is missing."""


async def own_words(record: Record, session_id: str) -> list[str]:
    """Return what was said in a fork itself, which can be read without its past."""
    parent = (await record.sessions.read(session_id)).parent
    assert parent is not None
    entries = await record.sessions.read_entries(session_id, parent.at)
    return [entry.id for entry in entries if entry.kind == "message.added"]


async def read_words(home: Path, forks: list[Forked]) -> Held:
    """Return what the record holds. Sessions go on first: their new words must never be the past of a fork."""
    held = Held(set(), set(), set())
    async with Record.open(home) as record:
        sessions = {session.id for session in await record.sessions()}
        for session_id in sessions & set(SESSIONS):
            held.words.update((session_id, id) for id in await ids_of(record, session_id))
        for session_id in SESSIONS:
            try:
                for number in range(6):
                    await record.append(session_id, Message.user("after", id=f"after-{number}"))
            except LogForked as error:
                assert session_id in str(error)  # noqa: PT017 - the message names it
                held.forked.add(session_id)
        for fork in forks:
            if fork.id in sessions:
                held.words.update((fork.id, id) for id in await own_words(record, fork.id))
                try:
                    assert await ids_of(record, fork.id) == fork.past + fork.own
                except PastMissing as error:
                    assert fork.id in str(error)  # noqa: PT017 - the message names both
                    assert fork.parent_id in str(error)  # noqa: PT017
                    held.without_past.add(fork.id)
        wrong = {finding.session_id for finding in (await record.verify()).findings}
        assert wrong <= held.forked | held.without_past | {"~home"}
        held.forked.update(wrong & {"~home"})
    return held


async def play(tmp_path: Path, number: int, seed: int, shape: Shape) -> None:
    """Make a home and a backup, restore, and compare."""
    dice = random.Random(f"{seed}-{number}")
    home, backup = tmp_path / f"home-{number}", tmp_path / f"backup-{number}"
    told = f"HANSARD_SEED={seed}, number {number}: {shape}"
    forks = [await live(home, dice, "a", shape, shape.checkpoint)]
    if shape.direction == "other home":
        forks.append(await live(backup, dice, "x", shape, shape.checkpoint_later))
    else:
        shutil.copytree(home, backup)
        newer = backup if shape.direction == "newer" else home
        forks.append(await live(newer, dice, "b", shape, shape.checkpoint_later))
        if shape.direction == "diverged":
            forks.append(await live(backup, dice, "c", shape, shape.checkpoint_later))
    inode = (home / "state.db").stat().st_ino
    restore(shape.tool, backup, home, WHAT[shape.what])
    if shape == SILENT:
        assert (home / "state.db").stat().st_ino == inode
        assert (home / "state.db-wal").stat().st_size > (backup / "state.db-wal").stat().st_size == 0
    expected = logged_words(home) | stored_words(home)
    may_refuse = shape.direction in {"diverged", "other home"}
    try:
        held = await read_words(home, forks)
    except (LegsMixed, LogForked) as error:
        if not may_refuse or "move" not in str(error):
            raise AssertionError(told) from error
        return
    missing = {word for word in expected - held.words if word[0] not in held.forked}
    assert not missing, (told, sorted(missing))
    assert not held.forked or may_refuse, (told, held.forked)
    for fork in forks:
        has_past = {(fork.parent_id, id) for id in fork.past} <= expected and fork.parent_id not in held.forked
        assert fork.id not in held.without_past or not has_past or may_refuse, (told, fork)


@pytest.mark.loss("B26")
async def test_a_restore_loses_nothing_that_either_leg_holds(tmp_path: Path, seed: int) -> None:
    """Random shapes: tool × files × direction × states of the WAL; the silent case is always among them."""
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed: scripts/system-packages does that")
    for number, shape in enumerate(draw_shapes(seed, SHAPES)):
        try:
            await play(tmp_path, number, seed, shape)
        except HansardError as error:
            raise AssertionError((f"HANSARD_SEED={seed}", number, error)) from error


@pytest.mark.parametrize("seed_number", range(20))
def test_every_part_of_a_restore_is_drawn(seed_number: int) -> None:
    """Whatever the seed: no tool, no kind of files, no direction, no state of the WAL is left out."""
    shapes = draw_shapes(seed_number, SHAPES)
    assert len(shapes) == SHAPES
    assert SILENT in shapes
    assert {shape.tool for shape in shapes} == set(TOOLS)
    assert {shape.what for shape in shapes} == set(WHAT)
    assert {shape.direction for shape in shapes} == set(DIRECTIONS)
    assert {shape.checkpoint for shape in shapes} == {shape.checkpoint_later for shape in shapes} == set(CHECKPOINTS)


async def put_back(tmp_path: Path, what: str) -> Path:
    """Return a home in which two sessions heard something together, and whose older files were then put back."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    async with Record.open(home) as record:
        for session_id in SESSIONS:
            await new_session(record, session_id)
        await hear(record, "e1", ["one", "two"])
    shutil.copytree(home, backup)
    async with Record.open(home) as record:
        await hear(record, "e2", ["one", "two"])
    restore("rename", backup, home, WHAT[what])
    return home


async def assert_heard(home: Path, *session_ids: str) -> None:
    """All that was heard is in the record, and nothing of it was set aside."""
    async with Record.open(home) as record:
        for session_id in session_ids:
            assert await ids_of(record, session_id) == ["e1", "e2"]
        report = await record.verify()
        assert report.ok
        assert not [note for note in report.notes if ".tail" in note]


@pytest.mark.parametrize("what", ["database and home log", "database and one log"])
async def test_a_unit_whose_other_log_was_put_back_is_kept(tmp_path: Path, what: str) -> None:
    """The database and one log are older. What another log says of the last unit is in the record all the same."""
    await assert_heard(await put_back(tmp_path, what), "two")


async def test_a_log_that_could_not_be_read_after_a_restore_is_read_in_later(tmp_path: Path) -> None:
    """One log cannot be read when the older database is opened: it counts as put back until that log is read in."""
    home = await put_back(tmp_path, "database and home log")
    log = home / "sessions" / "other" / "two.jsonl"
    log.rename(home / "two.jsonl")
    log.mkdir()
    async with Record.open(home) as record:
        assert await ids_of(record, "one") == ["e1", "e2"]
        assert await ids_of(record, "two") == ["e1"]
    log.rmdir()
    (home / "two.jsonl").rename(log)
    await assert_heard(home, "one", "two")


async def test_a_log_of_another_history_does_not_let_torn_units_in(tmp_path: Path) -> None:
    """A log of another history says nothing about the database, however new it is: what a crash tore is cut."""
    home, other = tmp_path / "home", tmp_path / "other"
    async with Record.open(home) as record:
        for session_id in SESSIONS:
            await new_session(record, session_id)
    shutil.copytree(home, other)
    async with Record.open(other) as record:
        await say(record, *(f"other-{number}" for number in range(20)), session_id="three")
    async with Record.open(home) as record:
        await say(record, "ours", session_id="three")
    with Worker(home, crash="logging:1") as doomed, pytest.raises(EOFError):
        doomed.ask("unit", sessions=["one", "two"], id="torn")
    logs = [home / "sessions" / "other" / f"{session_id}.jsonl" for session_id in ("one", "two")]
    assert sorted(b'"torn"' in log.read_bytes() for log in logs) == [False, True]
    restore("cp", other, home, ("sessions/other/three.jsonl",))
    shutil.copyfile(other / "sessions/other/three.jsonl", home / "sessions/other/three-copy.jsonl")
    async with Record.open(home) as record:
        assert await ids_of(record, "one") == await ids_of(record, "two") == []


@pytest.mark.parametrize("crash", ["adopted:2", "reconciled:3"])
async def test_a_kill_during_the_opening_after_a_restore_cuts_no_unit(tmp_path: Path, crash: str) -> None:
    """The database and the home's log are older. A kill between two commits of the reading in takes nothing."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    longs = ("long-1", "long-2")
    async with Record.open(home) as record:
        for session_id in (*longs, *SESSIONS):
            await new_session(record, session_id)
    shutil.copytree(home, backup)
    async with Record.open(home) as record:
        await hear(record, "e1", ["one", "two"])
        for number in range(8):
            await record.append(longs[number // 4], Message.user("x" * MIB, id=f"m{number}"))
    restore("rename", backup, home, WHAT["database and home log"])
    with rebuild(home, 30, crash) as process:
        assert process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    async with Record.open(home) as record:
        assert [await ids_of(record, session_id) for session_id in longs] == [
            ["m0", "m1", "m2", "m3"],
            ["m4", "m5", "m6", "m7"],
        ]
        assert await ids_of(record, "one") == await ids_of(record, "two") == ["e1"]
        report = await record.verify()
        assert report.ok
        assert not [note for note in report.notes if ".tail" in note]


async def test_the_database_of_one_branch_over_the_logs_of_another(tmp_path: Path) -> None:
    """Two homes went on differently in one session: it is refused, what continues is taken, and no byte is lost."""
    home, ours, theirs = tmp_path / "home", tmp_path / "ours", tmp_path / "theirs"
    async with Record.open(home) as record:
        for session_id in ("one", "two"):
            await new_session(record, session_id)
            await say(record, "base", session_id=session_id)
    for branch in (ours, theirs):
        shutil.copytree(home, branch)
    async with Record.open(ours) as record:
        await say(record, "short", session_id="two")
    async with Record.open(theirs) as record:
        await record.accept([(session_id, Message.user("a long one", id="unit")) for session_id in ("one", "two")])
    restore("cp", ours, theirs, DATABASE)
    before = (theirs / "sessions" / "other" / "two.jsonl").read_bytes()
    async with Record.open(theirs) as record:
        assert await ids_of(record, "one") == ["base", "unit"]
        assert await ids_of(record, "two") == ["base", "short"]
        with pytest.raises(LogForked, match="two"):
            await say(record, "more", session_id="two")
        assert not (await record.verify()).ok
    assert (theirs / "sessions" / "other" / "two.jsonl").read_bytes() == before


async def test_an_older_database_finds_its_head_in_a_log_that_was_written_anew(tmp_path: Path) -> None:
    """Lines have other lengths in a log that was written anew: digests decide what continues the database."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    log = home / "sessions" / "other" / "one.jsonl"
    async with Record.open(home) as record:
        for session_id in ("one", "two"):
            await new_session(record, session_id)
        await hear(record, "e1", ["one", "two"])
    shutil.copytree(home, backup)
    log.unlink()
    async with Record.open(home) as record:
        await hear(record, "e2", ["one", "two"])
        await say(record, "last", session_id="one")
    assert not log.read_bytes().startswith((backup / "sessions" / "other" / "one.jsonl").read_bytes())
    restore("rename", backup, home, DATABASE)
    async with Record.open(home) as record:
        assert await ids_of(record, "one") == ["e1", "e2", "last"]
        assert await ids_of(record, "two") == ["e1", "e2"]
        assert (await record.verify()).ok


@pytest.mark.parametrize("what", ["a line twice", "a foreign line", "a line of garbage"])
async def test_damage_in_a_log_without_a_database_hides_nothing(tmp_path: Path, what: str) -> None:
    """The database is lost, and a log holds something else between its lines: all that continues the chain is read."""
    home = tmp_path / "home"
    async with Record.open(home) as record:
        for session_id in ("one", "two"):
            await new_session(record, session_id)
        await say(record, *(f"m{number}" for number in range(6)), session_id="one")
    for name in DATABASE:
        (home / name).unlink(missing_ok=True)
    log = home / "sessions" / "other" / "one.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    odd = {
        "a line twice": lines[3],
        "a foreign line": (home / "sessions" / "other" / "two.jsonl").read_bytes(),
        "a line of garbage": b"\0\0\0\n",
    }[what]
    log.write_bytes(b"".join([*lines[:5], odd, *lines[5:], odd]))
    async with Record.open(home) as record:
        assert await ids_of(record, "one") == [f"m{number}" for number in range(6)]
        await say(record, "more", session_id="one")
        assert (await record.verify()).ok


async def test_a_unit_that_was_committed_is_kept_without_a_database(tmp_path: Path) -> None:
    """The database is lost and the home's log is older. A later transaction in one log shows that a unit was whole."""
    home = tmp_path / "home"
    async with Record.open(home) as record:
        for session_id in ("one", "two"):
            await new_session(record, session_id)
    older = (home / "home.jsonl").read_bytes()
    async with Record.open(home) as record:
        await hear(record, "e1", ["one", "two"])
        await say(record, "after", session_id="one")
    for name in DATABASE:
        (home / name).unlink(missing_ok=True)
    (home / "home.jsonl").write_bytes(older)
    async with Record.open(home) as record:
        assert await ids_of(record, "one") == ["e1", "after"]
        assert await ids_of(record, "two") == ["e1"]
        assert (await record.verify()).ok
