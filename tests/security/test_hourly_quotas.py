"""Fairness: what one person may bring in an hour. More is refused, told once, and counted in the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hansard.domain.budgets import Brought, Quota
from hansard.domain.messages import File
from hansard.domain.settings import Settings, TurnLimits
from hansard.ports.channel import RemoteFile
from tests.intake.town import ANN, BOB, ROOM, Town, settings_of, town

FILE = RemoteFile(reference="mxc://1", name="a.txt")


def limited(**limits: Any) -> Settings:  # noqa: ANN401
    """Settings with limits of the hour."""
    return msgspec.structs.replace(settings_of(), limits=TurnLimits(**limits))


def thread(number: int) -> str:
    """A thread of the room."""
    return f"{ROOM}:thread:$t{number}"


async def kept_files(here: Town) -> list[bool]:
    """Which files of the session were kept."""
    parts = [part for message in await here.messages() for part in message.parts]
    return [bool(part.blob) for part in parts if isinstance(part, File)]


def told(here: Town, brought: str) -> int:
    """How often somebody was told of a limit."""
    words = {"files": "as many files", "bytes": "as many bytes", "sessions": "as many sessions"}[brought]
    bodies = here.at_home("message.added")
    return sum(words in body["parts"][0]["text"] for body in bodies)


def test_what_a_quota_leaves() -> None:
    """A limit leaves what was not spent, and nothing leaves everything."""
    quota = Quota(files=3)
    assert quota.left(Brought.FILES, 2) == 1
    assert quota.left(Brought.FILES, 5) == 0
    assert quota.left(Brought.BYTES, 5) is None
    assert quota.allows(Brought.FILES, 2)
    assert not quota.allows(Brought.FILES, 2, 2)
    assert quota.allows(Brought.SESSIONS, 10**9)


async def test_files_of_an_hour(home: Path) -> None:
    """Two files are kept; of two more the names, told once; an hour later the next is kept."""
    async with town(home, limited(person_files_hour_max=2)) as here:
        here.channel.files["mxc://1"] = b"bytes"
        for _ in range(4):
            assert len(await here.say("look", files=(FILE,))) == 1, "the words are taken all the same"
        assert await kept_files(here) == [True, True, False, False]
        assert told(here, "files") == 1
        here.clock.advance(3601)
        await here.say("look", files=(FILE,))
        assert await kept_files(here) == [True, True, False, False, True]
        await here.check()


async def test_bytes_of_an_hour(home: Path) -> None:
    """A file that says its size is refused at once; one that lies about it is cut off while it is fetched."""
    async with town(home, limited(person_bytes_hour_max=12)) as here:
        here.channel.files["mxc://1"] = b"0123456789"
        await here.say("one", files=(FILE,))
        await here.say("two", files=(FILE,))
        await here.say("three", files=(msgspec.structs.replace(FILE, size_bytes=10),))
        assert await kept_files(here) == [True, False, False]
        assert told(here, "bytes") == 1
        assert any("as much as one person may" in text for text in await here.notices())
        await here.check()


async def test_sessions_of_an_hour(home: Path) -> None:
    """Threads, `/new` and `/fork` begin sessions: one too many is refused, told once; others are not concerned."""
    async with town(home, limited(person_sessions_hour_max=3)) as here:
        await here.say("one", ANN, thread(1), is_for_agent=True)
        await here.say("/new", ANN, thread(1), is_for_agent=True)
        await here.say("/fork", ANN, thread(1), is_for_agent=True)
        count = await here.count_sessions()
        for number in range(2, 6):
            assert await here.say("more", ANN, thread(number), is_for_agent=True) == []
        await here.say("/fork", ANN, thread(1), is_for_agent=True)
        await here.say("/new", ANN, thread(1), is_for_agent=True)
        assert await here.count_sessions() == count
        assert told(here, "sessions") == 1
        assert len(await here.say("here", ANN, thread(1), is_for_agent=True)) == 1, "what she has goes on"
        assert len(await here.say("mine", BOB, thread(9), is_for_agent=True)) == 1
        await here.check()
