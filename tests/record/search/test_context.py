"""Neighbours, order and marks of what is found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hansard import Message, Record
from tests.record.search.scene import index_all

SESSION = "s"


async def neighbours(record: Record, query: str, context: int) -> tuple[list[str], list[str]]:
    """The texts before and after the one message that is found."""
    (hit,) = await record.search(query, context=context)
    return [each.text for each in hit.before], [each.text for each in hit.after]


@pytest.mark.parametrize("context", [0, 1, 3, 20])
async def test_neighbours(home: Path, context: int) -> None:
    """With context N a hit has the N messages before and after it, in the order of the transcript."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        texts = [f"message {chr(97 + number)}" for number in range(25)]
        for text in texts:
            await record.append(SESSION, Message.user(text))
            await record.append(SESSION, Message.notice(f"notice on {text}"))
        for _ in range(2):
            for place in (0, 1, 12, 24):
                before, after = await neighbours(record, f'"{texts[place]}"', context)
                assert before == texts[max(0, place - context) : place]
                assert after == texts[place + 1 : place + 1 + context]
            index_all(record)


async def test_neighbours_far_away(home: Path) -> None:
    """Neighbours are found however many other entries lie between: settings, deliveries, turns."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        await record.append(SESSION, Message.user("before"))
        for number in range(60):
            await record.sessions.set_setting(SESSION, "busy", f"value {number}")
        await record.append(SESSION, Message.user("here"))
        for number in range(60):
            await record.sessions.set_setting(SESSION, "busy", f"other {number}")
        await record.append(SESSION, Message.user("after"))
        assert await neighbours(record, "here", 1) == (["before"], ["after"])


@pytest.mark.loss("D19")
async def test_neighbours_that_were_undone(home: Path) -> None:
    """What was taken back is no neighbour of what was not: it is shown only to those who ask for everything."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        for name in ("one", "two", "three"):
            await record.append(SESSION, Message.user(name, id=name))
        await record.messages.undo(SESSION, ["two"])
        for _ in range(2):
            assert await neighbours(record, "three", 2) == (["one"], [])
            index_all(record)


@pytest.mark.loss("D19")
async def test_undone_neighbours_are_marked(home: Path) -> None:
    """Who asks for everything is told what was taken back around a message, by its id."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        for name in ("one", "two", "three", "four"):
            await record.append(SESSION, Message.user(name, id=name))
        await record.messages.undo(SESSION, ["two", "four"])
        await record.messages.restore(SESSION, ["four"])
        for _ in range(2):
            (hit,) = await record.search("three", context=2, everything=True)
            assert [each.id for each in (*hit.before, *hit.after)] == ["one", "two", "four"]
            assert (hit.undone, hit.undone_ids) == (False, ("two",))
            assert await neighbours(record, "three", 2) == (["one"], ["four"])
            index_all(record)


@pytest.mark.loss("G8")
async def test_neighbours_that_a_fork_undid(home: Path) -> None:
    """A fork's undo counts in the fork; the parent's counts in a fork only when it came before it."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        for name in ("one", "two", "three"):
            await record.append(SESSION, Message.user(name, id=name))
        await record.messages.undo(SESSION, ["one"])
        forked = await record.fork(SESSION)
        await record.append(forked.id, Message.user("child"))
        await record.messages.undo(forked.id, ["two"])
        await record.messages.undo(SESSION, ["three"])
        await record.append(SESSION, Message.user("parent"))
        assert await neighbours(record, "child", 5) == (["three"], [])
        assert await neighbours(record, "parent", 5) == (["two"], [])


@pytest.mark.loss("G8")
async def test_neighbours_across_a_fork(home: Path) -> None:
    """What was said before a fork is the past of what was said after it, and is told as such."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        await record.append(SESSION, Message.user("shared"))
        forked = await record.fork(SESSION)
        await record.append(SESSION, Message.user("only in the parent"))
        await record.append(forked.id, Message.user("only in the child"))
        assert await neighbours(record, "child", 3) == (["shared"], [])
        assert await neighbours(record, '"the parent"', 3) == (["shared"], [])


@pytest.mark.loss("D19")
async def test_undone_messages_are_marked(home: Path) -> None:
    """Undone words are found with everything only, and marked; whether or not the index knows it yet."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        await record.append(SESSION, Message.user("first word", id="a"))
        index_all(record)
        await record.append(SESSION, Message.user("second word", id="b"))
        async with record.turn(SESSION) as turn, turn.reply(id="c") as reply:
            await reply.write("third word")
        await record.messages.undo(SESSION, ["a", "c"])
        for _ in range(2):
            assert [hit.message.id for hit in await record.search("word")] == ["b"]
            found = {hit.message.id: hit.undone for hit in await record.search("word", everything=True)}
            assert found == {"a": True, "b": False, "c": True}
            index_all(record)


async def test_few_are_left_when_most_were_undone(home: Path) -> None:
    """Undoing what the index ranks first does not hide what it ranks next."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        for number in range(100):
            await record.append(SESSION, Message.user("word", id=f"short{number}"))
        await record.append(SESSION, Message.user("a much longer text that says the word once, at its end", id="long"))
        index_all(record)
        await record.messages.undo(SESSION, [f"short{number}" for number in range(100)])
        assert [hit.message.id for hit in await record.search("word", limit=1)] == ["long"]


@pytest.mark.loss("D19")
async def test_what_was_restored_is_found(home: Path) -> None:
    """Of undoing and restoring the last counts, in any order, whether or not the index knows of either yet."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        await record.append(SESSION, Message.user("first word", id="a"))
        await record.append(SESSION, Message.user("second word", id="b"))
        index_all(record)
        for times in range(1, 5):
            await record.messages.undo(SESSION, ["a"])
            if times % 2:
                index_all(record)
            assert [hit.message.id for hit in await record.search("word")] == ["b"]
            await record.messages.restore(SESSION, ["a"])
            for _ in range(2):
                found = await record.search("word", everything=times > 2)
                assert {hit.message.id: hit.undone for hit in found} == {"a": False, "b": False}
                index_all(record)


async def test_a_fork_undoes_for_itself(home: Path) -> None:
    """What a fork takes back of its parent's words stays found in the parent."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        await record.append(SESSION, Message.user("shared word", id="a"))
        forked = await record.fork(SESSION)
        await record.messages.undo(forked.id, ["a"])
        for _ in range(2):
            assert [(hit.session_id, hit.undone) for hit in await record.search("shared")] == [(SESSION, False)]
            index_all(record)


async def test_relevance_and_age(home: Path) -> None:
    """Of two equal messages the newer comes first; one that is all about the words beats one that mentions them."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        now = datetime.now(UTC)
        for days in (400, 1, 200):
            text = "the ferry leaves at noon"
            await record.append(SESSION, Message.user(text, id=f"d{days}", at=now - timedelta(days=days)))
        for number in range(50):
            await record.append(SESSION, Message.user(f"something else {number}"))
        index_all(record)
        assert [hit.message.id for hit in await record.search("ferry")] == ["d1", "d200", "d400"]
        await record.append(SESSION, Message.user("ferry", id="all"))
        await record.append(SESSION, Message.user("on and on " * 50 + "ferry " + "and on " * 50, id="some"))
        index_all(record)
        hits = await record.search("ferry")
        ids = [hit.message.id for hit in hits]
        assert ids.index("all") < ids.index("some")
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@pytest.mark.slow
async def test_the_latest_of_very_many(home: Path) -> None:
    """When very many match, the latest come first, whichever session they are in."""
    async with Record.open(home) as record:
        now = datetime.now(UTC)
        for name in ("old", "new"):
            await record.create_session(id=name, source="test")
        for number in range(24):
            entries = [
                ("new", Message.user(f"word {number}.{each}", at=now - timedelta(days=30))) for each in range(100)
            ]
            await record.accept(entries)
        for number in range(5):
            await record.append("old", Message.user(f"latest word {number}", id=f"m{number}"))
        index_all(record)
        hits = await record.search("word", limit=5)
        assert {hit.message.id for hit in hits} == {f"m{number}" for number in range(5)}
