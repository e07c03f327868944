"""Corners of search, each written out: where an index and a scan are apt to differ, and what must never raise."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hansard import Message, Record
from hansard.domain.messages import Text, ToolCall
from hansard.journal.store import Wiring
from hansard.record.search.index import search_index
from hansard.testing.fakes import FakeClock
from tests.record.search.oracle import Asked
from tests.record.search.samples import WORDS
from tests.record.search.scene import check, everything_said, index_all, index_held

SESSION = "s"
PARTS = 8


async def say(record: Record, *texts: str, session: str = SESSION) -> None:
    """Say something in a session that may be new."""
    await record.create_session(id=session, source="test")
    for text in texts:
        await record.append(session, Message.user(text))


async def check_twice(record: Record, *asked: Asked) -> list[int]:
    """Search is a scan before and after everything is indexed; return how many were found, all queries together."""
    before = await check(record, asked)
    index_all(record)
    return [before, await check(record, asked)]


@pytest.mark.drawn(3)
@pytest.mark.loss("K5")
@pytest.mark.parametrize("part", range(PARTS))
async def test_every_word_by_every_beginning(home: Path, part: int) -> None:
    """A word of any script is found by itself, and by each of its beginnings with a star, as by a scan."""
    words = WORDS[part::PARTS]
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        said = [text for word in words for text in (word, f"so {word} it is")]
        await record.accept([(SESSION, Message.user(text)) for text in said])
        asked = [Asked(word[:size] + "*") for word in words for size in range(1, len(word) + 1)]
        asked += [Asked(word[size:]) for word in words for size in range(len(word))]
        asked += [Asked(query) for word in words for query in (f'"{word} it"', f"NOT{word}")]
        everything = await everything_said(record)
        with index_held(home):
            before = await check(record, asked, everything)
        index_all(record)
        assert await check(record, asked, everything) == before


QUERIES = [
    "", " ", '"', '""', '"""', "'", "*", "**", '"*', "AND", "OR", "NOT", "AND OR NOT", "NOT NOT NOT",
    "foo AND", "foo OR", "foo NOT", "OR foo", "(foo", "foo)", "foo:", "said:foo",
    "{said tools}:foo", "^foo", "foo^", "-foo", "+foo",
    "NEAR(foo bar, 2)", "foo NEAR bar", 'foo"bar', '"foo" "bar', "foo\\", ";", "--", "/*", "%", "_", "?",
    "?1", "\ud800", "\0", "foo\0bar", "\ufeff", "日" * 1000, "foo " * 400, "foo NOT bar " * 90, "a OR b " * 150,
    "a AND NOT b " * 90, "x" * 5000,
    '"' + "foo " * 300 + '"', "😀" * 600, "f*" * 300, "a* " * 300, "NOT " * 250, "a NOT b" + " NOT b" * 160,
]  # fmt: skip


async def test_no_query_is_an_error(home: Path) -> None:
    """Stray quotes, operators, the index's own syntax, nothing and far too much: an answer, and the right one."""
    async with Record.open(home) as record:
        await say(record, "foo bar", "this and that or not", "foo near bar", "said tools", "日日日", "a b", "x")
        said = await everything_said(record)
        for _ in range(2):
            for query in QUERIES:
                cleaned = query.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
                hits = await record.search(query, limit=1000)
                assert len(hits) == await check(record, [Asked(cleaned.replace("\0", "\ufffd"))], said), query
            index_all(record)


async def test_limits_and_counts_of_any_size(home: Path) -> None:
    """A limit is a limit, whatever the number; a negative one is none."""
    async with Record.open(home) as record:
        await say(record, *(f"word {number}" for number in range(30)))
        for _ in range(2):
            sizes = [len(await record.search("word", limit=limit, context=limit)) for limit in (-5, 0, 1, 7, 10**9)]
            assert sizes == [0, 0, 1, 7, 30]
            index_all(record)


async def test_one_commit_for_many_sessions(home: Path) -> None:
    """Sessions that were committed to together are all indexed, however the batches are cut."""
    async with Record.open(home) as record:
        names = [f"s{number}" for number in range(4)]
        for name in names:
            await record.create_session(id=name, source="test")
        messages = [(name, Message.user("word together")) for name in names for _ in range(600)]
        await asyncio.gather(*(record.append(name, message) for name, message in messages))
        said = await everything_said(record)
        for name in names:
            await check(record, [Asked("together", session_id=name)], said)
        while search_index(record.store).step().more:
            for name in names:
                await check(record, [Asked("together", session_id=name)], said)
        for name in names:
            await check(record, [Asked("together", session_id=name)], said)


async def test_a_commit_with_messages_of_two_sessions_at_the_end_of_a_batch(home: Path) -> None:
    """A batch that is full after the first of two sessions of one commit goes on with the second."""
    async with Record.open(home) as record:
        first, second = "first", "second"
        for name in (first, second):
            await record.create_session(id=name, source="test")
        index_all(record)
        with index_held(home):
            for number in range(499):
                await record.append(first, Message.user(f"word {number}", id=f"m{number}"))
            await record.accept([(first, Message.user("last word")), (second, Message.user("other word"))])
        await check(record, [Asked("other"), Asked("word", session_id=second)])
        index_all(record)
        await check(record, [Asked("other"), Asked("word", session_id=second)])


@pytest.mark.parametrize("between", [1, 59, 60, 61, 200])
async def test_the_tool_of_a_late_result(home: Path, between: int) -> None:
    """The result of a call is found by the tool's name, however much was recorded in between and indexed meanwhile."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        call = ToolCall(id="c", name="read_file", arguments='{"path": "/etc/hosts"}')
        await record.append(SESSION, Message.assistant([Text("let me look"), call]))
        for number in range(between):
            await record.append(SESSION, Message.user(f"meanwhile {number}"))
        index_all(record)
        await record.append(SESSION, Message.tool("c", "127.0.0.1 localhost"))
        asked = [Asked("localhost", tool="read_file"), Asked("hosts", tool="read_file"), Asked("hosts", tool="other")]
        assert await check_twice(record, *asked) == [2, 2]


async def test_call_ids_that_come_again(home: Path) -> None:
    """Providers number calls anew in each turn: a result belongs to the nearest call of its id before it."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        for name in ("first", "second", "third"):
            await record.append(SESSION, Message.assistant([ToolCall(id="call_0", name=name)]))
            index_all(record)
            await record.append(SESSION, Message.tool("call_0", f"result of {name}"))
        for name in ("first", "second", "third"):
            assert await check_twice(record, Asked("result", tool=name)) == [1, 1]


@pytest.mark.parametrize("title", ["%", "_", "a_b", "aXb", "100%", "TRIP", "trip", "\\", "'", "ł", "Ł", ""])
async def test_titles_are_text(home: Path, title: str) -> None:
    """A part of a title is looked for as it stands; no character in it means another."""
    async with Record.open(home) as record:
        for name, given in (("one", "a_b 100%"), ("two", "aXb 1000"), ("three", "Trip to Łódź"), ("four", None)):
            await record.create_session(id=name, source="test", title=given)
            await record.append(name, Message.user("word"))
        await check_twice(record, Asked("word", title=title))


@pytest.mark.loss("J6")
async def test_an_owner_sees_only_their_own(home: Path) -> None:
    """With an owner given, nothing of anybody else is found, nor told as a neighbour (L11)."""
    async with Record.open(home) as record:
        for name, owner in (("ada", "person:ada"), ("bob", "person:bob"), ("room", "room:!x")):
            await record.create_session(id=name, source="test", owner=owner)
            await record.append(name, Message.user(f"secret of {owner}"))
        forked = await record.fork("ada")
        await record.append(forked.id, Message.user("secret in the fork"))
        for _ in range(2):
            for owner, count in (("person:ada", 2), ("person:bob", 1), ("room:!x", 1), ("person:a", 0), ("", 0)):
                hits = await record.search("secret", owner=owner, context=5, limit=100)
                assert len(hits) == count, owner
                shown = [each.text for hit in hits for each in (*hit.before, hit.message, *hit.after)]
                assert all(owner in text or "fork" in text for text in shown)
            index_all(record)


async def test_times(home: Path) -> None:
    """Since and until include their own moment, to the microsecond, and take the time of the event."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        noon = datetime(2026, 3, 1, 12, 0, 0, 123457, tzinfo=UTC)
        for offset in (-1, 0, 1):
            at = noon + timedelta(microseconds=offset)
            await record.append(SESSION, Message.user("word", id=f"m{offset}", at=at))
        for _ in range(2):
            since = await record.search("word", since=noon)
            until = await record.search("word", until=noon)
            both = await record.search("word", since=noon, until=noon)
            assert {hit.message.id for hit in since} == {"m0", "m1"}
            assert {hit.message.id for hit in until} == {"m0", "m-1"}
            assert {hit.message.id for hit in both} == {"m0"}
            index_all(record)


async def test_words_older_than_the_epoch(home: Path) -> None:
    """Imported words of any time are found, and told apart by it."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        for year in (1900, 1969, 2026):
            await record.append(SESSION, Message.user("word", id=f"y{year}", at=datetime(year, 6, 1, tzinfo=UTC)))
        for _ in range(2):
            found = await record.search("word", until=datetime(1970, 1, 1, tzinfo=UTC))
            assert [hit.message.id for hit in found] == ["y1969", "y1900"]
            assert len(await record.search("word")) == 3
            index_all(record)


async def break_off(record: Record, text: str) -> None:
    """Let an answer break off after a few words."""
    with suppress(RuntimeError):
        async with record.turn(SESSION) as turn, turn.reply() as reply:
            await reply.write(text)
            raise RuntimeError


@pytest.mark.loss("A6", "K6")
async def test_interrupted_text_is_found(home: Path) -> None:
    """What was said before an answer broke off is found as soon as it is sealed, and says that it was interrupted."""
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="test")
        await break_off(record, "half a senten")
        for _ in range(2):
            (hit,) = await record.search("half senten")
            assert (hit.message.status, hit.message.text) == ("interrupted", "half a senten")
            index_all(record)


async def test_a_reply_counts_from_its_opening(home: Path) -> None:
    """A reply has the time of its opening, as in transcripts: also where an index or a fork came in between."""
    clock = FakeClock()
    async with Record.open(home, wiring=Wiring(clock=clock)) as record:
        await record.create_session(id=SESSION, source="test")
        async with record.turn(SESSION) as turn, turn.reply(id="reply") as reply:
            opened = datetime.fromtimestamp(clock.now_microseconds() / 1_000_000, UTC)
            await reply.write("word")
            while not (await record.load_transcript(SESSION))[0].text:
                pass
            index_all(record)
            clock.advance(60)
            await record.fork(SESSION, id="fork")
        for _ in range(2):
            hits = await record.search("word", since=opened, until=opened)
            assert {hit.session_id for hit in hits} == {SESSION, "fork"}
            assert {hit.message.at for hit in hits} == {opened}
            assert await record.search("word", since=opened + timedelta(seconds=1)) == []
            index_all(record)
