"""Rule 13: a follower that connects at any position sees each entry and each byte once, in order."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from hansard import Chunk, Entry, Message, Record
from tests.record.helpers_facts import SESSION, assert_clean, new_session
from tests.record.helpers_process import Worker
from tests.record.helpers_worker import describe

Item = list[Any]
WORDS = ["a", "wörd", "日本", "🙂", "\n", "  ", "x" * 300, "é" * 50]


class Shown:
    """What a follower has been shown: refuses an entry twice, a gap, or a byte twice."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.entries: list[str] = []
        self.kinds: dict[str, str] = {}
        self.texts: dict[str, bytes] = {}
        self.open = ""

    def take(self, item: Item) -> None:
        """Take the next item."""
        kind, id, place, text, _ = item
        if kind == "chunk":
            assert id == self.open, "a chunk of a message that is not open"
            assert place == len(self.texts[id]), "a gap or a byte twice"
            self.texts[id] += text.encode()
            return
        assert id not in self.kinds, "an entry twice"
        self.entries.append(id)
        self.kinds[id] = kind
        if kind == "message.opened":
            self.open, self.texts[id] = id, b""
        elif kind == "message.sealed":
            self.open = ""
        elif kind == "message.added":
            self.texts[id] = text.encode()


def shown(items: list[Item]) -> tuple[list[str], dict[str, bytes]]:
    """Return what a list of items adds up to."""
    seen = Shown()
    for item in items:
        seen.take(item)
    return seen.entries, seen.texts


async def follow_to(record: Record, until: str, after: str | int = 0, session_id: str = SESSION) -> list[Item]:
    """Follow from a position up to an entry."""
    items: list[Item] = []
    async with aclosing(record.follow(session_id, after)) as following:
        async for item in following:
            items.append(describe(item))
            if items[-1][1] == until:
                break
    return items


async def follow_flaky(record: Record, until: str, every: int) -> list[Item]:
    """Follow, and connect anew after every few items, from the position of the last."""
    items: list[Item] = []
    position: str | int = 0
    while True:
        async with aclosing(record.follow(SESSION, position)) as following:
            for _ in range(every):
                items.append(describe(await anext(following)))
                position = items[-1][-1]
                if items[-1][1] == until:
                    return items


async def live_through(record: Record, chance: random.Random, turns: int = 6) -> None:
    """Let a session have everything: chunks, reasoning, words in between, interruptions, titles, empty replies."""
    for number in range(turns):
        await record.append(SESSION, Message.user(f"question {number}", id=f"user-{number}"))
        try:
            async with record.turn(SESSION) as turn, turn.reply(id=f"reply-{number}") as reply:
                for word in range(chance.randrange(12)):
                    part = chance.choice(["text", "text", "reasoning"])
                    await reply.write(chance.choice(WORDS), part=part)
                    if chance.random() < 0.2:
                        await record.append(SESSION, Message.user("meanwhile", id=f"between-{number}-{word}"))
                    if chance.random() < 0.3:
                        await asyncio.sleep(0.002)
                if chance.random() < 0.3:
                    raise RuntimeError
        except RuntimeError:
            await record.set_title(SESSION, f"after {number}")
    await record.append(SESSION, Message.user("end", id="end"))


async def expected(record: Record) -> dict[str, bytes]:
    """Return the bytes of each message as the transcript has them, reasoning included."""
    found = {}
    for message in await record.load_transcript(SESSION):
        found[message.id] = "".join(getattr(part, "text", "") for part in message.parts).encode()
    return found


@pytest.mark.loss("D18", "A5", "I5")
async def test_reconnecting_at_every_position_shows_each_byte_once(home: Path, seed: int) -> None:
    """Cut a live follower's items after each one and go on from there: together they are the whole, once."""
    async with Record.open(home) as record:
        await new_session(record)
        live = asyncio.create_task(follow_to(record, "end"))
        await live_through(record, random.Random(seed))
        items = await live
        whole = shown(items)
        assert whole[1] == await expected(record)
        for place in range(len(items) + 1):
            position = items[place - 1][-1] if place else 0
            if place < len(items):
                assert shown(items[:place] + await follow_to(record, "end", position)) == whole
        replay = await follow_to(record, "end")
        for place in range(1, len(replay)):
            assert shown(replay[:place] + await follow_to(record, "end", replay[place - 1][-1])) == whole
        await assert_clean(record)


@pytest.mark.loss("D18", "A5")
@pytest.mark.parametrize("every", [1, 2, 7])
async def test_a_follower_that_reconnects_all_the_time_misses_nothing(home: Path, seed: int, every: int) -> None:
    """While the session is being written, in this process and from another one: each byte once."""
    async with Record.open(home) as record:
        await new_session(record)
        with Worker(home) as other:
            there = asyncio.create_task(
                other.ask_soon("follow", session=SESSION, until="end", every=every),
            )
            here = asyncio.create_task(follow_flaky(record, "end", every))
            await live_through(record, random.Random(seed + every))
            whole = shown(await follow_to(record, "end"))
            assert shown(await here) == whole
            assert shown(await there) == whole
            assert whole[1] == await expected(record)


async def test_positions_of_one_process_hold_in_another(home: Path, seed: int) -> None:
    """A position is of the record, not of a process or a connection."""
    async with Record.open(home) as record:
        await new_session(record)
        live = asyncio.create_task(follow_to(record, "end"))
        await live_through(record, random.Random(seed + 100), turns=3)
        items = await live
        whole = shown(items)
        with Worker(home) as other:
            for place in range(1, len(items)):
                rest = await other.ask_soon("follow", session=SESSION, until="end", after=items[place - 1][-1])
                assert shown(items[:place] + rest) == whole


@pytest.mark.loss("I5")
async def test_pages_do_not_lose_an_open_message(home: Path) -> None:
    """More entries than one page holds come while a message is open: its chunks keep their place."""
    async with Record.open(home) as record:
        await new_session(record)
        async with record.turn(SESSION) as turn, turn.reply(id="long") as reply:
            await reply.write("before ")
            calls = [record.append(SESSION, Message.user(str(number), id=f"m{number}")) for number in range(1100)]
            await asyncio.gather(*calls)
            await reply.write("after")
            whole_open = await follow_until_text(record, "before after")
            for place in range(1, len(whole_open), 97):
                rest = await follow_until_text(record, "before after", whole_open[place - 1][-1], whole_open[:place])
                assert shown(whole_open[:place] + rest) == shown(whole_open)
        await record.append(SESSION, Message.user("end", id="end"))
        items = await follow_to(record, "end")
        assert shown(items)[1]["long"] == b"before after"
        for place in range(1, len(items), 97):
            assert shown(items[:place] + await follow_to(record, "end", items[place - 1][-1])) == shown(items)


async def follow_until_text(
    record: Record, text: str, after: str | int = 0, had: list[Item] | None = None
) -> list[Item]:
    """Follow until the open message has a text, what was had before included."""
    items: list[Item] = []
    so_far = "".join(item[3] for item in had or [] if item[0] == "chunk")
    async with aclosing(record.follow(SESSION, after)) as following:
        while so_far != text:
            items.append(describe(await anext(following)))
            so_far += items[-1][3] if items[-1][0] == "chunk" else ""
    return items


async def test_a_forks_followers_see_the_inherited_prefix(home: Path, seed: int) -> None:
    """A fork is followed like any session: the prefix, the cut message as interrupted, then its own words."""
    async with Record.open(home) as record:
        await new_session(record)
        await live_through(record, random.Random(seed + 200), turns=3)
        entries = await record.sessions.read_entries(SESSION)
        for at in range(1, len(entries) + 1):
            child = await record.fork(SESSION, at=at)
            await record.append(child.id, Message.user("end", id="last"))
            items = await follow_to(record, "last", session_id=child.id)
            assert [item[2] for item in items if item[0] != "chunk"] == list(range(1, len(items) - chunks(items) + 1))
            transcript = await record.load_transcript(child.id)
            assert all(message.status != "open" for message in transcript)
            assert set(shown(items)[1]) == {message.id for message in transcript}
            for place in range(1, len(items), 3):
                rest = await follow_to(record, "last", items[place - 1][-1], child.id)
                assert shown(items[:place] + rest) == shown(items)
        await assert_clean(record)


def chunks(items: list[Item]) -> int:
    """Count the chunks."""
    return sum(item[0] == "chunk" for item in items)


async def test_an_opening_comes_before_its_chunks_and_a_seal_after(home: Path) -> None:
    """The order of one reply: opened, all of its text, sealed; openings and seals have no text of their own."""
    async with Record.open(home) as record:
        await new_session(record)
        async with record.turn(SESSION) as turn, turn.reply(id="reply") as reply:
            await reply.write("Hel")
            await reply.write("lo")
        items: list[Entry | Chunk] = []
        async with aclosing(record.follow(SESSION)) as following:
            async for item in following:
                items.append(item)
                if isinstance(item, Entry) and item.kind == "turn.ended":
                    break
        kinds = ["chunk" if isinstance(item, Chunk) else item.kind for item in items]
        assert kinds == ["session.created", "turn.started", "message.opened", "chunk", "message.sealed", "turn.ended"]
        assert "".join(item.text for item in items) == "Hello"


async def test_growing_text_wakes_only_those_who_asked_for_it(home: Path) -> None:
    """A piece of an open message is no news to who follows entries, here or anywhere; its end is."""
    async with Record.open(home) as record:
        await new_session(record)
        pieces, anything, this = asyncio.Event(), asyncio.Event(), asyncio.Event()
        with record.notify(pieces), record.notify(anything, chunks=False), record.notify(this, SESSION, chunks=False):
            async with record.turn(SESSION) as turn, turn.reply() as reply:
                for _ in range(20):  # a watcher of other processes that has just begun wakes everybody once
                    for event in (pieces, anything, this):
                        event.clear()
                    await reply.write("more ")
                    await pieces.wait()
                    woken = anything.is_set() or this.is_set()
                    if not woken:
                        break
                assert not woken
            await anything.wait()
            await this.wait()
