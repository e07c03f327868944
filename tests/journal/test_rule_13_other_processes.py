"""Rule 13, between processes: a follower hears of what another process committed, and sleeps meanwhile."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from hansard import Message, Record
from hansard.journal.follow import Followers, notified
from hansard.journal.sqlite.backend import SqliteBackend
from hansard.journal.sqlite.watching import Heard, InotifyListening, PolledListening, watch_others
from tests.record.helpers_facts import SESSION, assert_clean, ids_of, new_session
from tests.record.helpers_process import Worker
from tests.record.helpers_worker import STILL, describe

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells by inotify")


class OnlyCommits(PolledListening):
    """Hears of no owner, so that only a look at the database wakes anybody."""

    def wait(self, seconds: float) -> Heard | None:
        """Wait for the next look."""
        return None if super().wait(seconds) is None else Heard.COMMIT


async def heard(record: Record, wanted: str) -> None:
    """Follow the session until an entry comes."""
    async for item in record.follow(SESSION):
        if describe(item)[1] == wanted:
            return


@pytest.mark.loss("B7")
async def test_a_commit_whose_process_died_before_it_told_anybody(home: Path) -> None:
    """Killed between its commit and the byte that wakes others: they are shown the entry all the same."""
    async with Record.open(home) as record:
        await new_session(record)
        told = asyncio.create_task(heard(record, "last"))
        with Worker(home, crash=STILL) as worker:
            worker.ask("arm", point="ringing")
            with pytest.raises(EOFError):
                await worker.ask_soon("append", session=SESSION, id="last")
        async with asyncio.timeout(120):
            await told
        assert await ids_of(record) == ["last"]
        await assert_clean(record)


@pytest.mark.loss("B7")
@pytest.mark.parametrize("journal_id", [SESSION, None])
async def test_followers_where_the_kernel_tells_nothing(home: Path, journal_id: str | None) -> None:
    """Where the database has to be looked at again and again, followers of a session, and of any, are woken, too."""
    async with Record.open(home) as record:
        await new_session(record)
        backend = record.store.backend
        assert isinstance(backend, SqliteBackend)
        followers = Followers(lambda them: watch_others(backend.readers, them, OnlyCommits()))
        woken = asyncio.Event()
        with notified(followers, woken, journal_id, chunks=False), Worker(home) as worker:
            async with asyncio.timeout(120):
                await woken.wait()  # the first look
                woken.clear()
                await worker.ask_soon("append", session=SESSION, id="m1")
                await woken.wait()
        assert await ids_of(record) == ["m1"]


def test_what_polling_hears() -> None:
    """It takes others to have come or gone at once, then to have committed, and ends when told."""
    polled = PolledListening()
    assert [polled.wait(60), polled.wait(60)] == [Heard.OWNERS, Heard.COMMIT]
    polled.stop()
    assert polled.wait(60) is None


@only_linux
async def test_a_process_does_not_hear_itself(home: Path) -> None:
    """Only other owners are listened to: what this process commits wakes nobody a second time."""
    async with Record.open(home) as record:
        await new_session(record)
        listening = InotifyListening(home, record.store.owner)
        for number in range(10):
            await record.append(SESSION, Message.user("x", id=f"m{number}"))
        assert listening.wait(0) is Heard.NOTHING
        with Worker(home) as worker:
            assert listening.wait(60) is Heard.OWNERS
            while listening.wait(0) is not Heard.NOTHING:
                pass
            await worker.ask_soon("append", session=SESSION, id="theirs")
            assert listening.wait(60) is Heard.COMMIT
        while listening.wait(60) is not Heard.OWNERS:
            pass
        listening.stop()
        assert listening.wait(60) is None
        listening.close()


@only_linux
async def test_a_folder_of_owners_that_is_made_anew(home: Path) -> None:
    """While the folder is gone the database is looked at; once another process has made it anew, that one is heard."""
    async with Record.open(home) as record:
        await new_session(record)
        listening = InotifyListening(home, record.store.owner)
        shutil.rmtree(home / "locks")
        assert listening.wait(60) is Heard.OWNERS
        assert [listening.wait(60), listening.wait(60)] == [Heard.COMMIT, Heard.COMMIT]
        with Worker(home) as worker:
            while listening.wait(0) is not Heard.NOTHING:
                pass
            await worker.ask_soon("append", session=SESSION, id="theirs")
            assert listening.wait(60) is Heard.COMMIT
            assert listening.wait(0) is Heard.NOTHING  # it is not looked for any more
        listening.close()
