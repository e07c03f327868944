"""The journal's contracts, with two toy concepts: what it promises to whatever is written to it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from pathlib import Path

import apsw
import pytest

from hansard.errors import IdConflict, NotFound, RecordReadOnly, WrongState
from hansard.journal.calls import Caller, open_journals
from hansard.journal.follow import PageReader, Position
from hansard.journal.transaction import Transaction
from hansard.journal.verify import Report, verify_record
from tests.journal.toys import (
    COUNTERS,
    SCHEMA,
    SHAPES,
    Told,
    add_amount,
    extend_scroll,
    fork,
    open_scroll,
    read_total,
    seal_scroll,
)

DEADLINE_SECONDS = 120
"""Only against hanging."""


async def total(caller: Caller, journal_id: str) -> int:
    """Return a counter, as a reader sees it."""
    return await caller.read(lambda reads: read_total(reads, journal_id))


async def verify(caller: Caller) -> Report:
    """Return what a verification sees."""
    return await caller.run(verify_record, caller.store)


async def told(caller: Caller, journal_id: str, until: str, after: str = "0") -> list[Told]:
    """Follow a journal up to an entry of a kind."""
    items: list[Told] = []
    follower = PageReader(caller, SHAPES).follow(journal_id, Position.parse(after), chunks=True)
    async with asyncio.timeout(DEADLINE_SECONDS), aclosing(follower) as following:
        async for item in following:
            items.append(item)
            if item[0] == until:
                break
    return items


@pytest.fixture
async def caller(home: Path) -> AsyncIterator[Caller]:
    """The open journals of a new home."""
    async with open_journals(home, SCHEMA) as opened:
        yield opened


async def test_an_id_is_added_once(caller: Caller) -> None:
    """The same id again changes nothing, labels aside; with another body it is refused, and nothing is written (L3)."""
    first = await caller.write(lambda tx: add_amount(tx, "a", "one", 5, "monday"))
    again = await caller.write(lambda tx: add_amount(tx, "a", "one", 5, "tuesday"))
    assert first == again == 1
    with pytest.raises(IdConflict):
        await caller.write(lambda tx: add_amount(tx, "a", "one", 6))
    assert await total(caller, "a") == 5


async def test_order_is_commit_order(caller: Caller) -> None:
    """Calls of many tasks get contiguous numbers, and the table is the fold of all of them (L4, L9)."""
    calls = [caller.write(partial(add_amount, journal_id="a", entry_id=f"id{n}", amount=n)) for n in range(200)]
    assert sorted(await asyncio.gather(*calls)) == list(range(1, 201))
    assert await total(caller, "a") == sum(range(200))
    assert (await verify(caller)).ok


async def test_one_bad_call_fails_alone(caller: Caller) -> None:
    """A call that raises after it wrote takes nothing of its neighbours with it, and leaves nothing (rule 6)."""

    def broken(tx: Transaction) -> None:
        add_amount(tx, "a", "bad", 7)
        raise WrongState("no")

    good = [caller.write(partial(add_amount, journal_id="a", entry_id=f"id{n}", amount=1)) for n in range(20)]
    bad = caller.write(broken)
    outcomes = await asyncio.gather(*good[:10], bad, *good[10:], return_exceptions=True)
    assert [type(each) for each in outcomes if isinstance(each, BaseException)] == [WrongState]
    assert await total(caller, "a") == 20


async def test_a_stream_is_what_was_written(caller: Caller) -> None:
    """Followers see the pieces of an open stream, and its seal holds all of them, from any position (rule 13)."""
    await caller.write(lambda tx: open_scroll(tx, "s", "text", caller.store.owner))
    await caller.write(lambda tx: extend_scroll(tx, "s", "text", 0, "Hel"))
    await caller.write(lambda tx: extend_scroll(tx, "s", "text", 0, "Hello"))
    with pytest.raises(WrongState):
        await caller.write(lambda tx: extend_scroll(tx, "s", "text", 9, "late"))
    assert await caller.write(lambda tx: seal_scroll(tx, "s", "text")) == "Hello"
    expected = [("scroll.opened", "text"), ("chunk", "Hello"), ("scroll.sealed", "seal-text")]
    assert await told(caller, "s", "scroll.sealed") == expected
    assert await told(caller, "s", "scroll.sealed", "1.3.text") == [("chunk", "lo"), expected[2]]
    assert (await verify(caller)).ok


async def test_nobody_follows_what_is_not_there(caller: Caller) -> None:
    """A journal that does not exist cannot be followed; the word for a journal is the schema's."""
    with pytest.raises(NotFound, match="there is no journal nowhere"):
        await told(caller, "nowhere", "any")


async def test_a_fork_continues_its_parent(caller: Caller) -> None:
    """A fork has the entries of its parent up to its base, and numbers that go on; the parent goes on by itself."""
    await caller.write(lambda tx: add_amount(tx, "a", "one", 1))
    row = await caller.write(lambda tx: fork(tx, "a", "b"))
    await caller.write(lambda tx: add_amount(tx, "a", "two", 2))
    assert row.seq == 2
    assert await told(caller, "b", "counter.forked") == [("counter.added", "one"), ("counter.forked", "forked")]
    with pytest.raises(IdConflict):
        await caller.write(lambda tx: add_amount(tx, "b", "one", 99))
    assert (await verify(caller)).ok


async def test_either_leg_makes_the_other(home: Path) -> None:
    """Without the database the logs give every entry, table, fork and open stream; without logs, the database (L10)."""
    async with open_journals(home, SCHEMA) as caller:
        await caller.write(lambda tx: add_amount(tx, "a", "one", 4))
        await caller.write(lambda tx: fork(tx, "a", "b"))
        await caller.write(lambda tx: open_scroll(tx, "s", "text", caller.store.owner))
        await caller.write(lambda tx: extend_scroll(tx, "s", "text", 0, "words"))
        await caller.write(lambda tx: seal_scroll(tx, "s", "text"))
    for path in home.glob("state.db*"):
        path.unlink()
    async with open_journals(home, SCHEMA) as caller:
        assert await total(caller, "a") == 4
        assert [each for each in await told(caller, "s", "scroll.sealed") if each[0] == "chunk"] == [("chunk", "words")]
        assert (await verify(caller)).ok
    for path in (home / "sessions").rglob("*.jsonl"):
        path.unlink()
    async with open_journals(home, SCHEMA) as caller:
        assert (await verify(caller)).ok
        assert await caller.write(lambda tx: add_amount(tx, "a", "one", 4)) == 1


async def test_verify_sees_a_table_that_no_entry_made(home: Path) -> None:
    """A row that was changed behind the journal's back is found, with the table's name (L9)."""
    async with open_journals(home, SCHEMA) as caller:
        await caller.write(lambda tx: add_amount(tx, "a", "one", 4))
    database = apsw.Connection(str(home / "state.db"))
    database.execute(COUNTERS.queries.spoil_counter)
    database.close()
    async with open_journals(home, SCHEMA) as caller:
        findings = (await verify(caller)).findings
    assert [(found.session_id, found.what) for found in findings] == [("a", "projection")]
    assert "counter" in findings[0].detail


async def test_reading_writes_nothing(home: Path) -> None:
    """Journals that are opened for reading are read, and refuse a write."""
    async with open_journals(home, SCHEMA) as caller:
        await caller.write(lambda tx: add_amount(tx, "a", "one", 4))
    async with open_journals(home, SCHEMA, read_only=True) as caller:
        assert await total(caller, "a") == 4
        with pytest.raises(RecordReadOnly):
            await caller.write(lambda tx: add_amount(tx, "a", "two", 4))


KILLED = """
import asyncio, os, signal, sys
from hansard.journal.calls import open_journals
from tests.journal.toys import SCHEMA, add_amount, extend_scroll, open_scroll

async def main():
    async with open_journals(sys.argv[1], SCHEMA) as caller:
        await caller.write(lambda tx: (add_amount(tx, "a", "one", 1), add_amount(tx, "b", "one", 2)))
        await caller.write(lambda tx: open_scroll(tx, "s", "text", caller.store.owner))
        await caller.write(lambda tx: extend_scroll(tx, "s", "text", 0, "half a"))
        assert not any(name.startswith("hansard.record") for name in sys.modules), "the journal stands alone"
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_what_a_dead_process_left_is_ended(home: Path) -> None:
    """After a kill everything that was acknowledged is there, and a concept's recovery ends what was open (L6).

    The process that is killed has imported nothing of the record.
    """
    done = subprocess.run([sys.executable, "-c", KILLED, str(home)], check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    async with open_journals(home, SCHEMA) as caller:
        assert await told(caller, "s", "scroll.sealed") == [
            ("scroll.opened", "text"),
            ("chunk", "half a"),
            ("scroll.sealed", "seal-text"),
        ]
        assert (await total(caller, "a"), await total(caller, "b")) == (1, 2)
        assert (await verify(caller)).ok
        assert [path.name for path in (home / "locks" / "owners").iterdir()] == [caller.store.owner]
