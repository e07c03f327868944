"""Turns that a process took with it: who waits in a chat is told, or the turn is tried again, once."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from hansard.domain.messages import Message
from hansard.domain.notices import ENGLISH, Wording
from hansard.record.api import Record
from hansard.record.turns.holding import Turn
from hansard.record.turns.operations import claim_turn
from tests.record.helpers_lost import CHAT, asked, is_notice, lose, states


@pytest.mark.loss("A13", "A14")
async def test_a_turn_that_said_nothing_is_tried_again_once(home: Path) -> None:
    """It waits again, for the same chat; lost a second time, the person is told, and it is not repeated for ever."""
    session_id = await asked(home)
    await lose(home, session_id)
    async with Record.open(home) as record:
        assert await states(record, session_id) == ["lost", "queued"]
        assert [turn.session_id for turn in await record.turns.list_queued("matrix")] == [session_id]
        assert await record.deliveries.list_waiting("matrix") == []
    await lose(home, session_id)
    async with Record.open(home) as record:
        assert await states(record, session_id) == ["lost", "lost"]
        (waiting,) = await record.deliveries.list_waiting("matrix")
        message = await record.messages.read(session_id, waiting.message_id)
        assert (message.text, waiting.chat) == (ENGLISH.recovered, CHAT)
        assert (await record.verify()).ok


@pytest.mark.loss("A7", "A14")
async def test_a_turn_that_said_something_is_not_repeated(home: Path) -> None:
    """What it said is shown, as what it is, and the person is told; nobody is answered twice."""
    session_id = await asked(home)
    await lose(home, session_id, lambda turn: turn.append(Message.notice("working")))
    async with Record.open(home) as record:
        assert await states(record, session_id) == ["lost", "queued"]
    await lose(home, session_id, begin_answer)
    async with Record.open(home) as record:
        assert await states(record, session_id) == ["lost", "lost"]
        entries = await record.sessions.read_entries(session_id)
        assert sum(map(is_notice, entries)) == 1
        waiting = [each.message_id for each in await record.deliveries.list_waiting("matrix")]
        assert "reply" in waiting
        assert (await record.verify()).ok


async def begin_answer(turn: Turn) -> None:
    """Open an answer, and write a word of it."""
    reply = turn.reply(id="reply")
    await reply.__aenter__()
    await reply.write("Well")


async def test_a_turn_of_a_terminal_is_only_lost(home: Path) -> None:
    """Nobody waits in a chat: nothing is told, and nothing is tried again."""
    async with Record.open(home) as record:
        session = await record.create_session(source="cli")
        await record.accept([(session.id, Message.user("hello"))], queue_turn=True)
    await lose(home, session.id)
    async with Record.open(home) as record:
        assert await states(record, session.id) == ["lost"]
        assert not any(map(is_notice, await record.sessions.read_entries(session.id)))


async def test_a_turn_that_waits_answers_in_place_of_a_lost_one(home: Path) -> None:
    """With another turn waiting, the lost one's chats are that one's, and nobody needs to be told."""
    session_id = await asked(home)

    async def ask_again(turn: Turn) -> None:
        async with Record.open(home) as record:
            await record.accept([(turn.session_id, Message.user("from a terminal"))], queue_turn=True)

    await lose(home, session_id, ask_again)
    async with Record.open(home) as record:
        assert await states(record, session_id) == ["lost", "queued"]
        assert await record.deliveries.list_waiting("matrix") == []
        async with record.turn(session_id) as turn:
            notice = await turn.append(Message.notice("here"))
        assert [(each.message_id, each.chat) for each in await record.deliveries.list_waiting("matrix")] == [
            (notice.id, CHAT)
        ]


@pytest.mark.loss("E1")
async def test_the_outbox_is_rebuilt_from_the_logs(home: Path) -> None:
    """Without the database, what waits to be shown, and what was settled, is the same as before."""
    session_id = await asked(home)
    async with Record.open(home) as record:
        async with record.turn(session_id) as turn:
            for text in ("one", "two", "three"):
                await turn.append(Message.notice(text))
        first, *_ = await record.deliveries.list_waiting("matrix")
        await record.deliveries.finish_message(session_id, first.message_id, CHAT)
        before = [(each.message_id, each.chat, each.seq) for each in await record.deliveries.list_waiting("matrix")]
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink(missing_ok=True)
    shutil.rmtree(home / "backups", ignore_errors=True)
    async with Record.open(home) as record:
        after = [(each.message_id, each.chat, each.seq) for each in await record.deliveries.list_waiting("matrix")]
        assert after == before
        assert len(after) == 2
        assert (await record.verify()).ok


HOLDER = """
import asyncio, sys
from hansard import Record

async def main():
    async with Record.open(sys.argv[1]) as record, record.turn(sys.argv[2]):
        print("holds", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_nobody_writes_for_a_process_that_is_gone(home: Path) -> None:
    """A turn that a killed process ran shows no sign of writing, although nobody has closed it yet."""
    session_id = await asked(home)
    async with Record.open(home) as record:
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(home), session_id], stdout=subprocess.PIPE)
        try:
            assert holder.stdout is not None
            assert await asyncio.to_thread(holder.stdout.readline) == b"holds\n"
            assert await record.turns.list_writing_chats("matrix") == [CHAT]
        finally:
            holder.kill()
            holder.communicate()
        assert await record.turns.list_running_chats("matrix") == [CHAT]
        assert await record.turns.list_writing_chats("matrix") == []


async def told_in(record: Record, session_id: str) -> str:
    """Return the one notice that waits to be shown."""
    (waiting,) = await record.deliveries.list_waiting("matrix")
    return (await record.messages.read(session_id, waiting.message_id)).text


async def test_who_opens_the_record_chooses_the_words(home: Path) -> None:
    """People are told of a turn that was lost before the record was opened in the words that it was opened with."""
    session_id = await asked(home)
    await lose(home, session_id)
    await lose(home, session_id)
    async with Record.open(home, words=Wording(recovered="Lost.")) as record:
        assert await told_in(record, session_id) == "Lost."


async def claim_again(record: Record, session_id: str) -> None:
    """Hold the session for a moment."""
    async with record.turn(session_id):
        pass


@pytest.mark.parametrize(
    "find",
    [
        claim_again,
        lambda record, session_id: record.turns.stop(session_id, "enough"),
        lambda record, _session_id: record.turns.end_lost("matrix"),
    ],
    ids=["claim", "stop", "look"],
)
async def test_words_can_be_swapped(home: Path, find: Callable[[Record, str], Awaitable[object]]) -> None:
    """People are told of a turn that is lost while the record is open in the words of that moment."""
    session_id = await asked(home)
    async with Record.open(home) as record:
        for turn_id in ("first", "second"):
            claim = partial(claim_turn, waiting="", is_alive=record.store.is_alive, words=ENGLISH)
            dead = partial(claim, session_id=session_id, turn_id=turn_id, owner="nobody-1-dead")
            await record.turns._caller.write(dead)  # noqa: SLF001 - a claim as a process makes it that then dies
            if turn_id == "first":
                await record.turns.end_lost("matrix")
        record.use_words(Wording(recovered="Lost."))
        await find(record, session_id)
        assert await told_in(record, session_id) == "Lost."
