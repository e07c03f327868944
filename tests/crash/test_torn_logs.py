"""Logs and databases that are empty, torn, NUL-filled, garbage or not files at all: survived, or refused by name.

While one leg is intact nothing that was acknowledged or shown is lost; neighbours keep working; the next append works.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import apsw
import pytest

from hansard import HansardError, Message, NotFound, Record, RecordDamaged, Status
from tests.crash.rounds import copy_home, remove_database
from tests.crash.scene import ACCOUNT, CHANNEL, KEY, LEFT, RIGHT, event
from tests.crash.stage import (
    HOME_LOG,
    LEFT_LOG,
    LEFT_TOLD,
    RIGHT_PART,
    RIGHT_TOLD,
    check_healthy,
    check_home,
    check_right,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.stage import Play


def remove(path: Path) -> None:
    """Lose it."""
    path.unlink()


def empty(path: Path) -> None:
    """Leave zero bytes."""
    path.write_bytes(b"")


def tear(path: Path) -> None:
    """Cut it in the middle of a line."""
    os.truncate(path, path.stat().st_size // 2)


def tear_end(path: Path) -> None:
    """Cut the last line's end off."""
    os.truncate(path, path.stat().st_size - 7)


def add_nul(path: Path) -> None:
    """Let NULs follow, as a file system does that grew a file and lost what belongs there."""
    path.write_bytes(path.read_bytes() + b"\0" * 4096)


def add_garbage(path: Path) -> None:
    """Let bytes follow that are no lines, and one that only looks like one."""
    path.write_bytes(path.read_bytes() + b'\xff\xfe garbage\n{"seq": 9}\n{"half a li')


def fill_nul(path: Path) -> None:
    """Replace every byte by NUL, at the same size."""
    path.write_bytes(b"\0" * path.stat().st_size)


def fill_garbage(path: Path) -> None:
    """Replace it by other bytes, at the same size."""
    path.write_bytes((b"\x93garbage\n" * path.stat().st_size)[: path.stat().st_size])


def nul_hole(path: Path) -> None:
    """Replace a stretch in the middle by NUL, at the same size."""
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 2] = b"\0" * (len(data) // 2 - len(data) // 3)
    path.write_bytes(data)


DAMAGES = [remove, empty, tear, tear_end, add_nul, add_garbage, fill_nul, fill_garbage, nul_hole]
damages = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)


def forget_syncs(home: Path) -> None:
    """Let the crash have come before any log was synced; nobody has the database open."""
    with contextlib.closing(apsw.Connection(str(home / "state.db"))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("UPDATE journal SET log_synced = 0")


@pytest.mark.drawn(9)
@pytest.mark.loss("A1", "B17", "B18", "B19", "D8", "D9", "H4")
@pytest.mark.parametrize("name", [LEFT_LOG, RIGHT_PART, HOME_LOG], ids=["log", "part", "home"])
@damages
async def test_a_log_damaged_by_a_crash_is_healed_from_the_database(
    home: Path, play: Play, damage: Callable[[Path], None], name: str
) -> None:
    """Whatever a crash made of a log, an open message's part or the home's log, opening heals it and loses nothing."""
    await play(home)
    forget_syncs(home)
    damage(home / name)
    async with Record.open(home) as record:
        assert await told(record, LEFT) == LEFT_TOLD
        await check_right(record)
        await check_home(record)
        await check_healthy(record, LEFT, RIGHT)
    remove_database(home)
    async with Record.open(home) as record:
        assert await told(record, LEFT) == [*LEFT_TOLD, ("healthy", "healthy")]
        assert await told(record, RIGHT) == [*RIGHT_TOLD, ("healthy", "healthy")]
        await check_home(record)
        assert (await record.verify()).findings == []


@pytest.mark.loss("B17", "D8")
@pytest.mark.parametrize("damage", [fill_nul, fill_garbage, nul_hole], ids=lambda damage: damage.__name__)
async def test_a_log_that_rotted_later_is_found_by_verify_and_healed(
    home: Path, play: Play, damage: Callable[[Path], None]
) -> None:
    """A synced log that changes at the same size harms nobody: opening repairs it, or verify shows it.

    Opening sees a change of the last line. After any other, the log comes back when it is moved aside.
    """
    await play(home)
    async with Record.open(home):
        pass
    damage(home / LEFT_LOG)
    async with Record.open(home) as record:
        assert await told(record, LEFT) == LEFT_TOLD
        await record.append(LEFT, Message.user("goes on", id="on"))
        report = await record.verify()
        assert {finding.session_id for finding in report.findings} == ({LEFT} if damage is nul_hole else set())
    (home / LEFT_LOG).rename(home / "rotten")
    async with Record.open(home) as record:
        assert await told(record, LEFT) == [*LEFT_TOLD, ("on", "goes on")]
        await check_right(record)
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.loss("B17", "B18", "B19", "D9")
@damages
async def test_a_damaged_log_without_a_database_keeps_what_is_whole(
    home: Path, play: Play, damage: Callable[[Path], None]
) -> None:
    """With the database gone too, a damaged log gives its beginning, keeps the rest aside, and harms no neighbour."""
    await play(home)
    whole = (home / LEFT_LOG).read_bytes()
    remove_database(home)
    damage(home / LEFT_LOG)
    kept = 0
    async with Record.open(home) as record:
        await check_right(record)
        try:
            found = await told(record, LEFT)
        except NotFound:
            found = []
        kept = len(found)
        assert found == LEFT_TOLD[:kept]
        await record.create_session(id=LEFT, source="crash")
        await check_healthy(record, LEFT, RIGHT)
    if damage in {add_nul, add_garbage}:
        assert kept == len(LEFT_TOLD)
    if damage is tear_end:
        assert kept == len(LEFT_TOLD) - 1
    if damage is nul_hole:
        tail = (home / LEFT_LOG).with_suffix(".tail").read_bytes()
        assert whole.splitlines()[-1] in tail, "whole lines behind the hole must not be thrown away"


@pytest.mark.loss("B17", "B19")
@damages
async def test_a_damaged_part_without_a_database_keeps_its_beginning(
    home: Path, play: Play, damage: Callable[[Path], None]
) -> None:
    """With the database gone too, a damaged part file gives the beginning of the open message, as interrupted."""
    await play(home)
    remove_database(home)
    damage(home / RIGHT_PART)
    async with Record.open(home) as record:
        assert await told(record, LEFT) == LEFT_TOLD
        messages = {message.id: message for message in await record.load_transcript(RIGHT)}
        assert list(messages) == [message_id for message_id, _ in RIGHT_TOLD]
        assert messages["spoken"].status == Status.INTERRUPTED
        assert "said and shown".startswith(messages["spoken"].text)
        if damage in {add_nul, add_garbage}:
            assert messages["spoken"].text == "said and shown"
        await check_home(record)
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.loss("B17", "B19", "H4")
@damages
async def test_a_damaged_home_log_without_a_database_keeps_every_session(
    home: Path, play: Play, damage: Callable[[Path], None]
) -> None:
    """With the database gone too, a damaged home log costs no word of any session, and channels can go on."""
    await play(home)
    remove_database(home)
    damage(home / HOME_LOG)
    async with Record.open(home) as record:
        await check_right(record)
        assert (await told(record, LEFT))[:3] == LEFT_TOLD[:3]
        await record.routes.move(KEY, LEFT)
        message, intake, cursor = event(9)
        await record.accept([(LEFT, message)], intake, cursor)
        await check_healthy(record, LEFT, RIGHT)


def as_folder(path: Path) -> None:
    """Put a folder in its place."""
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "stranger").write_text("not ours")


@pytest.mark.loss("B19", "B13")
async def test_a_folder_in_place_of_a_log_stops_that_session_only(home: Path, play: Play) -> None:
    """A folder where a log should be: its session is read but not written, its neighbours go on, and it heals."""
    await play(home)
    as_folder(home / LEFT_LOG)
    async with Record.open(home) as record:
        assert await told(record, LEFT) == LEFT_TOLD
        await check_right(record)
        with pytest.raises(RecordDamaged):
            await record.append(LEFT, Message.user("refused", id="refused"))
        await record.append(RIGHT, Message.user("fine", id="fine"))
        assert LEFT in {finding.session_id for finding in (await record.verify()).findings}
        (home / LEFT_LOG).rename(home / "stranger")
        await check_healthy(record, LEFT, RIGHT)
    assert (home / "stranger" / "stranger").read_text() == "not ours"


@pytest.mark.loss("B19", "H4")
async def test_a_folder_in_place_of_the_homes_log_stops_channels_only(home: Path, play: Play) -> None:
    """A folder where the home's log should be: routes do not move, but sessions go on."""
    await play(home)
    as_folder(home / HOME_LOG)
    async with Record.open(home) as record:
        with pytest.raises(RecordDamaged):
            await record.routes.move(KEY, RIGHT)
        await record.append(LEFT, Message.user("fine", id="fine"))
        await check_right(record)
        (home / HOME_LOG).rename(home / "stranger")
        await check_home(record)
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.loss("B19", "D9")
async def test_a_folder_in_place_of_a_log_without_a_database_harms_no_neighbour(home: Path, play: Play) -> None:
    """With the database gone too, a folder where a log should be costs that session alone."""
    await play(home)
    remove_database(home)
    as_folder(home / LEFT_LOG)
    async with Record.open(home) as record:
        await check_right(record)
        with pytest.raises(HansardError):
            await record.append(LEFT, Message.user("refused", id="refused"))
        await record.append(RIGHT, Message.user("fine", id="fine"))
    assert (home / LEFT_LOG / "stranger").read_text() == "not ours"


@pytest.mark.loss("B17", "B19", "D8", "H4")
@pytest.mark.parametrize("damage", [*DAMAGES, as_folder], ids=lambda damage: damage.__name__)
async def test_a_damaged_log_without_a_database_costs_its_neighbours_nothing(
    home: Path, damage: Callable[[Path], None]
) -> None:
    """Events alternate between two sessions; one's log is damaged and the database gone: the other keeps every word."""
    async with Record.open(home) as record:
        for session in (LEFT, RIGHT):
            await record.create_session(id=session, source="crash")
        for number in range(1, 11):
            message, intake, cursor = event(number)
            await record.accept([(LEFT if number % 2 else RIGHT, message)], intake, cursor)
        await record.routes.move(KEY, RIGHT)
        before = await told(record, RIGHT)
    remove_database(home)
    damage(home / LEFT_LOG)
    async with Record.open(home) as record:
        assert await told(record, RIGHT) == before
        assert {finding.session_id for finding in (await record.verify()).findings} <= {LEFT}
        route = await record.routes.read(KEY)
        assert route is not None
        assert route.session_id == RIGHT
        message, intake, cursor = event(10)
        assert await record.intake.cursor(CHANNEL, ACCOUNT) == cursor.value
        assert (await record.accept([(RIGHT, message)], intake, cursor)).duplicate
        await record.append(RIGHT, Message.user("healthy", id="healthy"))


@pytest.mark.drawn(5)
@pytest.mark.loss("B13", "B14", "B19", "B26", "D8")
@pytest.mark.parametrize(
    "damage", [remove, empty, tear, fill_nul, fill_garbage, as_folder], ids=lambda damage: damage.__name__
)
@pytest.mark.parametrize("side", ["alone", "with_wal"])
async def test_a_damaged_database_is_rebuilt_or_refused_untouched(
    home: Path, play: Play, damage: Callable[[Path], None], side: str
) -> None:
    """A state.db that is absent or empty is rebuilt; a damaged one is refused by name, and rebuilt once moved aside."""
    await play(home)
    if side == "alone":
        for path in (home / "state.db-wal", home / "state.db-shm"):
            path.unlink()
    damage(home / "state.db")
    database = home / "state.db"
    before = database.read_bytes() if database.is_file() else b""
    try:
        async with Record.open(home) as record:
            assert await told(record, LEFT) == LEFT_TOLD
            await check_right(record)
            assert (await record.verify()).findings == []
    except RecordDamaged:
        assert damage not in {remove, empty}
        assert not database.is_file() or database.read_bytes() == before
        for path in home.glob("state.db*"):
            path.rename(home / f"aside-{path.name}")
    async with Record.open(home) as record:
        assert await told(record, LEFT) == LEFT_TOLD
        await check_right(record)
        await check_home(record)
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.loss("B19")
async def test_a_file_in_place_of_the_sessions_folder_is_a_typed_error(home: Path, play: Play) -> None:
    """A file where sessions/ should be: an error of ours, and once it is gone the logs are written anew."""
    await play(home)
    (home / "sessions").rename(home / "aside")
    (home / "sessions").write_text("not a folder")
    with pytest.raises(HansardError):
        async with Record.open(home, patience_seconds=0.2) as record:
            await record.append(LEFT, Message.user("refused", id="refused"))
    (home / "sessions").unlink()
    async with Record.open(home) as record:
        assert await told(record, LEFT) == LEFT_TOLD
        await check_right(record)
        await check_healthy(record, LEFT, RIGHT)


@pytest.mark.loss("B17", "B19", "D9")
async def test_a_fresh_home_with_strange_files_opens(home: Path) -> None:
    """Empty, NUL-filled and foreign files among the logs of a home without a database: it opens and takes words."""
    logs = home / "sessions" / "other"
    logs.mkdir(parents=True)
    (home / HOME_LOG).write_bytes(b"")
    (home / "state.db").write_bytes(b"")
    (logs / "left.jsonl").write_bytes(b"\0" * 512)
    (logs / "right.jsonl").write_bytes(b"")
    (logs / "notes.txt").write_text("a stranger's")
    async with Record.open(home) as record:
        for session in (LEFT, RIGHT):
            await record.create_session(id=session, source="crash")
            await record.append(session, Message.user("hello", id="hello"))
        await check_healthy(record, LEFT, RIGHT)
    copied = copy_home(home, "copied")
    remove_database(copied)
    async with Record.open(copied) as record:
        assert await told(record, LEFT) == [("hello", "hello"), ("healthy", "healthy")]
    assert (logs / "notes.txt").read_text() == "a stranger's"
