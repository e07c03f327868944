"""Rule 4 for the home itself: a process whose home was moved, removed or replaced says so and writes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hansard import HomeMoved, OutcomeUnknown, Record
from hansard.journal.store import Wiring
from hansard.record.search.index import search_index
from tests.record.helpers_facts import SESSION, assert_clean, fingerprint, ids_of, new_session, say
from tests.record.helpers_process import Worker, WorkerError

PATIENCE_SECONDS = 20.0


def rename_home(home: Path) -> None:
    """Somebody renames the home."""
    home.rename(home.with_name("moved"))


def remove_home(home: Path) -> None:
    """Somebody removes the home."""
    shutil.rmtree(home)


def replace_home(home: Path) -> None:
    """Somebody renames the home, and another program makes a new one at the old path."""
    rename_home(home)
    with Worker(home) as worker:
        worker.ask("create", session="other")
        worker.ask("append", session="other", id="theirs")


def replace_by_empty_folder(home: Path) -> None:
    """Somebody renames the home and makes an empty folder in its place."""
    rename_home(home)
    home.mkdir()


def replace_by_file(home: Path) -> None:
    """Somebody renames the home and puts a file in its place."""
    rename_home(home)
    home.write_bytes(b"")


DEEDS = [rename_home, remove_home, replace_home, replace_by_empty_folder, replace_by_file]


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
async def test_every_call_refuses_and_nothing_appears_at_the_old_path(home: Path, deed: Callable[[Path], None]) -> None:
    """Known session, new session, blob, read, verify: each names the home, at once, and the old path stays as it is."""
    async with Record.open(home, patience_seconds=PATIENCE_SECONDS) as record:
        await new_session(record)
        await say(record, "a")
        deed(home)
        before = fingerprint(home) if home.is_dir() else home.exists()
        for call in (
            lambda: say(record, "b"),
            lambda: new_session(record, "second"),
            lambda: record.blobs.put(b"blob"),
            lambda: record.load_transcript(SESSION),
            record.verify,
        ):
            with pytest.raises(HomeMoved, match=str(home)):
                await call()  # type: ignore[no-untyped-call, unused-ignore]
        assert str(home) in record.trouble
        record.store.backend.upkeep.step()
        search_index(record.store).tick()
    assert (fingerprint(home) if home.is_dir() else home.exists()) == before
    if (moved := home.with_name("moved")).exists():
        async with Record.open(moved) as record:
            assert await ids_of(record) == ["a"]
            await assert_clean(record)


async def test_a_home_that_is_put_back_goes_on(home: Path) -> None:
    """The same folder at the same path again: nothing was lost, and the process writes on."""
    async with Record.open(home, patience_seconds=PATIENCE_SECONDS) as record:
        await new_session(record)
        await say(record, "a")
        rename_home(home)
        with pytest.raises(HomeMoved):
            await say(record, "b")
        home.with_name("moved").rename(home)
        await say(record, "b")
        assert await ids_of(record) == ["a", "b"]
        await assert_clean(record)


@pytest.mark.parametrize("step", ["begun", "applied", "logged", "committed"])
async def test_moved_in_the_middle_of_a_commit(home: Path, step: str) -> None:
    """Moved inside a transaction: the words are not acknowledged, and the call tells whether they may be written."""
    armed = False

    def reach(name: str) -> None:
        nonlocal armed
        if armed and name == step:
            armed = False
            rename_home(home)

    async with Record.open(home, patience_seconds=PATIENCE_SECONDS, wiring=Wiring(reach=reach)) as record:
        await new_session(record)
        await say(record, "a")
        armed = True
        with pytest.raises((HomeMoved, OutcomeUnknown), match=str(home)) as refused:
            await say(record, "b")
    assert not home.exists()
    async with Record.open(home.with_name("moved")) as record:
        found = await ids_of(record)
        assert found[:1] == ["a"]
        assert found == ["a"] or isinstance(refused.value, OutcomeUnknown)
        await assert_clean(record)


def test_two_processes_both_refuse(home: Path) -> None:
    """Two processes with one home: neither makes it anew, neither waits for the other's dead lock."""
    with Worker(home) as first, Worker(home) as second:
        first.ask("create", session=SESSION)
        rename_home(home)
        for number, worker in enumerate((first, second, first, second)):
            with pytest.raises(WorkerError) as refused:
                worker.ask("append", session=SESSION, id=f"m{number}")
            assert refused.value.name == "HomeMoved"
    assert not home.exists()


def test_the_folder_of_locks_is_not_made_anew(home: Path) -> None:
    """Without `locks/` two processes could not see one another: writing is refused until a start makes it."""
    with Worker(home) as worker:
        worker.ask("create", session=SESSION)
        shutil.rmtree(home / "locks")
        with pytest.raises(WorkerError) as refused:
            worker.ask("append", session=SESSION, id="a")
        assert refused.value.name == "HomeMoved"
        assert str(home / "locks") in str(refused.value)
        assert not (home / "locks").exists()
        with Worker(home) as second:
            second.ask("append", session=SESSION, id="b")
            worker.ask("append", session=SESSION, id="c")
            assert [row[0] for row in second.ask("texts", session=SESSION)] == ["b", "c"]
            assert second.ask("verify") == []
