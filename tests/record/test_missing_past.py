"""A fork whose parent was put back to an older state: its past is refused, never replaced; its own words stay."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hansard import Message, PastMissing, Record
from tests.record.helpers_facts import SESSION, assert_clean, ids_of, log_of, new_session, say


async def put_back(home: Path, tmp_path: Path) -> None:
    """Put an older home back over a newer one, in which two forks were made: of the session, and of its fork."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "one")
    shutil.copytree(home, tmp_path / "backup")
    async with Record.open(home) as record:
        await say(record, "two", "three")
        await record.fork(SESSION, id="fork")
        await say(record, "own", session_id="fork")
        await record.fork("fork", id="second")
        await say(record, "of the second", session_id="second")
        await record.fork("fork", 2, id="early")
    shutil.copy(log_of(home), tmp_path / "newer.jsonl")
    shutil.copytree(tmp_path / "backup", home, dirs_exist_ok=True)


@pytest.mark.loss("B26")
async def test_the_parents_new_words_never_become_the_past_of_a_fork(home: Path, tmp_path: Path) -> None:
    """Before and after the parent went on beyond the fork point: refused, with both names and what is safe."""
    await put_back(home, tmp_path)
    async with Record.open(home) as record:
        assert await ids_of(record, "early") == ["one"]
        for words in ([], ["other two", "other three", "other four"]):
            await say(record, *words)
            for session_id in ("fork", "second"):
                for call in (
                    record.load_transcript(session_id),
                    record.conversation(session_id),
                    record.append(session_id, Message.user("lost?")),
                    record.fork(session_id),
                    anext(record.follow(session_id)),
                ):
                    with pytest.raises(PastMissing, match=rf"session {session_id} .* of session {SESSION}, which has"):
                        await call
            assert [
                entry.id for entry in await record.sessions.read_entries("fork", 4) if entry.kind == "message.added"
            ] == ["own"]
            assert await record.titles.first_words(["fork", "second", SESSION]) == {
                "fork": "text of own",
                "second": "text of of the second",
                SESSION: "text of one",
            }
            assert [(hit.session_id, hit.message.id) for hit in await record.search("own", context=3)] == [
                ("fork", "own")
            ]
            assert (await record.messages.read("fork", "own")).text == "text of own"
            with pytest.raises(PastMissing):
                await record.messages.read("fork", "two")
        found = {finding.session_id: finding.detail for finding in (await record.verify()).findings}
        assert set(found) == {"fork", "second"}
        assert f"from entry 4 of session {SESSION}, which has another entry at that place" in found["fork"]


async def test_the_newer_log_of_the_parent_brings_the_past_back(home: Path, tmp_path: Path) -> None:
    """As the hint says."""
    await put_back(home, tmp_path)
    async with Record.open(home) as record:
        with pytest.raises(PastMissing, match="which has entries 1 to 2 only") as caught:
            await record.load_transcript("fork")
        assert "put back the newer sessions/other/talk.jsonl" in caught.value.hint
    shutil.copy(tmp_path / "newer.jsonl", log_of(home))
    async with Record.open(home) as record:
        assert await ids_of(record, "second") == ["one", "two", "three", "own", "of the second"]
        await say(record, "goes on", session_id="fork")
        await assert_clean(record)


async def test_a_parent_that_is_gone_is_named(home: Path, tmp_path: Path) -> None:
    """The backup is older than the parent itself: its fork has no past at all."""
    await put_back(home, tmp_path)
    for path in home.glob("state.db*"):
        path.unlink()
    log_of(home).unlink()
    async with Record.open(home) as record:
        with pytest.raises(PastMissing, match=f"of session {SESSION}, which is not in the record"):
            await record.load_transcript("fork")
