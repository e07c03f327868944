"""What people edited or deleted in a chat: found by every version of its words, shown as it is now, and marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard import Message, Record
from hansard.tools.builtin import SessionSearch
from tests.record.search.oracle import Asked
from tests.record.search.scene import (
    change_index,
    check,
    delete_in_chat,
    edit_in_chat,
    everything_said,
    index_all,
    index_held,
    say_in_chat,
)

SESSION = "s"


async def texts(record: Record, query: str, *, everything: bool = False) -> list[str]:
    """The words of what is found, in their order."""
    hits = await record.search(query, everything=everything)
    return [hit.message.text for hit in sorted(hits, key=lambda hit: hit.seq)]


@pytest.mark.loss("F18")
async def test_an_edited_message_is_found_by_all_its_words(home: Path) -> None:
    """By the words that it has and those that it had, once, shown as it is now; whatever the index knows of it."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "the fery or the bus", "$e1")
        index_all(record)
        await edit_in_chat(record, "$e1", "the ferry or the bus")
        for stage in range(3):
            for query in ("fery", "ferry", "bus", '"ferry or"', "bus NOT fery", "bus NOT ferry"):
                (hit,) = await record.search(query)
                assert (hit.message.text, hit.message.is_edited, hit.undone) == ("the ferry or the bus", True, False)
                assert hit.seq == 2
            assert await texts(record, "fery ferry") == []
            if stage == 1:
                await edit_in_chat(record, "$e1", "the ferry or the bus")
            index_all(record)


@pytest.mark.loss("F18", "D19")
async def test_a_deleted_message_is_found_on_request(home: Path) -> None:
    """Deleted words are found with everything only, by any version, marked; restoring or editing changes nothing."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="matrix")
        kept = await say_in_chat(record, SESSION, "first secret", "$e1")
        await record.append(SESSION, Message.user("no secret", id="other"))
        index_all(record)
        await edit_in_chat(record, "$e1", "second secret")
        await delete_in_chat(record, "$e1")
        await edit_in_chat(record, "$e1", "late secret")
        await record.messages.undo(SESSION, [kept])
        await record.messages.restore(SESSION, [kept])
        for _ in range(2):
            assert await texts(record, "secret") == ["no secret"]
            for query in ("first", "second", "late"):
                assert await texts(record, query) == []
                (hit,) = await record.search(query, everything=True)
                assert (hit.message.text, hit.message.is_retracted, hit.undone) == ("second secret", True, False)
            index_all(record)


async def test_what_was_undone_stays_so_when_it_is_edited(home: Path) -> None:
    """An edit of what was taken back is found with everything only, whichever of the two the index knows of."""
    for known in range(4):
        async with Record.open(home / str(known)) as record:
            await record.create_session(id=SESSION, source="matrix")
            message_id = await say_in_chat(record, SESSION, "word one", "$e1")
            if known:
                index_all(record)
            await record.messages.undo(SESSION, [message_id])
            if known > 1:
                index_all(record)
            await edit_in_chat(record, "$e1", "word two")
            if known > 2:
                index_all(record)
            assert await texts(record, "word") == []
            assert [hit.undone for hit in await record.search("two", everything=True)] == [True]
            await record.messages.restore(SESSION, [message_id])
            for _ in range(2):
                assert await texts(record, "one") == await texts(record, "two") == ["word two"]
                index_all(record)


async def test_versions_do_not_crowd_others_out(home: Path) -> None:
    """A message that was edited often takes one place of a limit, by weight and by time."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="matrix")
        await record.append(SESSION, Message.user("the ferry is mentioned once, in a rather long text", id="long"))
        await say_in_chat(record, SESSION, "ferry", "$e1")
        for number in range(60):
            await edit_in_chat(record, "$e1", f"ferry {number}")
        for _ in range(2):
            hits = await record.search("ferry", limit=2)
            assert {hit.message.id for hit in hits} == {"e1", "long"}
            index_all(record)


@pytest.mark.slow
async def test_versions_do_not_crowd_others_out_of_very_many(home: Path) -> None:
    """The same where so much matches that the latest come first."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="matrix")
        for start in range(0, 2100, 100):
            await record.accept([(SESSION, Message.user("word", id=f"m{start + each}")) for each in range(100)])
        await say_in_chat(record, SESSION, "word", "$e1")
        for number in range(10):
            await edit_in_chat(record, "$e1", f"word {number}")
        index_all(record)
        hits = await record.search("word", limit=3)
        assert [hit.message.id for hit in hits] == ["e1", "m2099", "m2098"]


@pytest.mark.loss("F18", "D19")
async def test_neighbours_are_as_they_are_now(home: Path) -> None:
    """A neighbour is shown with its latest words; a deleted one is none, but for those who ask for everything."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="matrix")
        for number, text in enumerate(("one", "two", "three", "four")):
            await say_in_chat(record, SESSION, text, f"$e{number}")
        await edit_in_chat(record, "$e1", "2")
        await delete_in_chat(record, "$e3")
        for _ in range(2):
            (hit,) = await record.search("three", context=2)
            assert [(each.text, each.is_edited) for each in (*hit.before, *hit.after)] == [("one", False), ("2", True)]
            (hit,) = await record.search("three", context=2, everything=True)
            assert [(each.text, each.is_retracted) for each in hit.after] == [("four", True)]
            assert hit.undone_ids == ()
            index_all(record)


@pytest.mark.loss("G8")
async def test_a_fork_keeps_the_words_of_its_past(home: Path) -> None:
    """An edit after a fork changes the parent's message, not what the fork shares; it is found once, in the parent."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "old words", "$e1")
        await edit_in_chat(record, "$e1", "newer words")
        forked = await record.fork(SESSION)
        await edit_in_chat(record, "$e1", "newest words")
        await record.append(forked.id, Message.user("child"))
        await record.append(SESSION, Message.user("parent"))
        for _ in range(2):
            for name, expected in (("child", "newer words"), ("parent", "newest words")):
                (hit,) = await record.search(name, context=1)
                assert [each.text for each in hit.before] == [expected]
            assert [hit.session_id for hit in await record.search("words")] == [SESSION]
            index_all(record)


DRIFTS = {
    "a version is missing": [
        "DELETE FROM words WHERE rowid = (SELECT id FROM doc WHERE message <> key)",
        "DELETE FROM doc WHERE message <> key",
    ],
    "a version is of another message": ["UPDATE doc SET message = key"],
    "a deletion is not known": ["UPDATE doc SET undone = undone & 1"],
    "all is deleted": ["UPDATE doc SET undone = undone | 2"],
}


@pytest.mark.parametrize("drift", DRIFTS)
async def test_drift_is_noticed(home: Path, drift: str) -> None:
    """An index that says something else of edits and deletions than the record is made anew by `verify`."""
    asked = [Asked("word"), Asked("first"), Asked("second"), Asked("word", everything=True)]
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "first word", "$e1")
        await edit_in_chat(record, "$e1", "second word")
        await say_in_chat(record, SESSION, "deleted word", "$e2")
        await delete_in_chat(record, "$e2")
        index_all(record)
        with index_held(home):
            change_index(home, *DRIFTS[drift])
        assert (await record.verify()).notes == ["search.db did not find every message; it is made anew"]
        await check(record, asked, await everything_said(record))


async def test_the_tool_marks_what_was_edited(home: Path) -> None:
    """The model is told the latest words of what it found, and that they were edited; nothing that was deleted."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "the fery", "$e1")
        await edit_in_chat(record, "$e1", "the ferry")
        await say_in_chat(record, SESSION, "a secret about the ferry", "$e2")
        await delete_in_chat(record, "$e2")
        tool = SessionSearch(record, (await record.sessions.read(SESSION)).owner)
        told = (await tool.run({"query": "fery"})).text
        assert "(edited): the ferry" in told
        read = (await tool.run({"session": SESSION})).text
        assert "(edited): the ferry" in read
        assert "secret" not in told + read + (await tool.run({"query": "ferry"})).text


async def test_first_words_of_a_session_are_those_of_now(home: Path) -> None:
    """A list of sessions shows the latest words of what was said first, and nothing that was deleted."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "a secret", "$e1")
        assert await record.titles.first_words([SESSION]) == {SESSION: "a secret"}
        await delete_in_chat(record, "$e1")
        await say_in_chat(record, SESSION, "the fery", "$e2")
        await edit_in_chat(record, "$e2", "the ferry")
        assert await record.titles.first_words([SESSION]) == {SESSION: "the ferry"}
