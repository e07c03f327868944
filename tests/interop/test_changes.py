"""What people edited, deleted or said among themselves in a chat, in every export; and that an import sends nothing."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from msgspec.structs import replace

from hansard.cli.sessions_show import show_for_people, show_json
from hansard.domain.deliveries import Delivery, DeliveryState
from hansard.domain.ids import delivery_id
from hansard.domain.messages import RETRACTED, File, Message, Text
from hansard.domain.settings import Busy
from hansard.interop.exports import ChatExport, HtmlExport, MarkdownExport
from hansard.interop.jsonl import JsonlExport
from hansard.interop.jsonl_import import import_file
from hansard.interop.transcripts import TranscriptItem, read_transcript
from hansard.record.api import Record
from tests.interop.told import everything, export, export_jsonl
from tests.record.search.scene import AUTHOR, delete_in_chat, edit_in_chat, intake_of, say_in_chat

CHAT = "matrix:room:!talk:example.org"
SESSION = "talk"


async def tell_chat(record: Record, session_id: str = SESSION) -> None:
    """A talk in a chat: an edit, a deletion, words among people, an answer that was shown, notices, a command."""
    await record.create_session(id=session_id, source="matrix", title="In a chat")
    blob = await record.blobs.put(b"bytes")
    await say_in_chat(record, session_id, "When does the fery go?", "$e1")
    await edit_in_chat(record, "$e1", "When does the boat go?")
    await edit_in_chat(record, "$e1", "When does the ferry go?")
    file = File(blob=blob, name="private.png", media_type="image/png", size_bytes=5)
    secret = Message.user([Text("A secret"), file], id="e2", author=AUTHOR, chat=CHAT, event_id="$e2")
    await record.accept([(session_id, secret)], intake_of("$e2"))
    await delete_in_chat(record, "$e2")
    await edit_in_chat(record, "$e2", "A late edit")
    overheard = replace(Message.user("Let us go", id="e3", author=AUTHOR, chat=CHAT, event_id="$e3"), is_observed=True)
    await record.append(session_id, overheard)
    await record.append(session_id, Message.assistant("At noon.", id="a1", chat=CHAT))
    await show(record, session_id, "a1", CHAT)
    await record.append(session_id, Message.notice("A notice", id="n1", chat=CHAT))
    await record.append(session_id, Message.notice("Gone", id="n2", chat="matrix:room:!gone:example.org"))
    await record.deliveries.finish_message(
        session_id, "n2", "matrix:room:!gone:example.org", "set_aside", "the room is gone"
    )
    command = replace(Message.notice("/status", id="c1", chat=CHAT), author=AUTHOR, event_id="$e4")
    await record.append(session_id, command)


async def show(record: Record, session_id: str, message_id: str, chat: str, posts: int = 2) -> None:
    """Deliver a message in some posts, as a gateway does."""
    for number in range(posts):
        name = delivery_id(message_id, chat, number)
        each = Delivery(id=name, session_id=session_id, channel="matrix", target=chat, message_id=message_id)
        await record.deliveries.begin(each)
        await record.deliveries.move(session_id, name, DeliveryState.SENT, receipt=f"$post{number}")
    await record.deliveries.finish_message(session_id, message_id, chat)


async def waiting(record: Record) -> list[tuple[str, str, str]]:
    """What waits to be shown on Matrix."""
    return [(each.session_id, each.message_id, each.chat) for each in await record.deliveries.list_waiting("matrix")]


async def shown_for_people(record: Record, *, full: bool) -> str:
    """What `hansard sessions show` prints."""
    with redirect_stdout(io.StringIO()) as out:
        await show_for_people(record, await record.sessions.read(SESSION), full=full)
    return out.getvalue()


# What exports tell.


@pytest.mark.loss("F18")
async def test_a_transcript_is_what_the_record_says_it_is(home: Path) -> None:
    """Read page by page, an edited, a deleted and an overheard message are those of load_transcript, with what was."""
    async with Record.open(home) as record:
        await tell_chat(record)
        session = await record.sessions.read(SESSION)
        said = [item async for item in read_transcript(record, session, full=True) if isinstance(item, TranscriptItem)]
        assert [item.message for item in said] == await record.load_transcript(SESSION)
    first, second, third = said[:3]
    assert [Message.user(list(parts)).text for parts in first.before] == [
        "When does the fery go?",
        "When does the boat go?",
    ]
    assert [Message.user(list(parts)).text for parts in second.before] == ["A secret", "A late edit"]
    assert second.message.text == RETRACTED
    assert third.before == []


@pytest.mark.parametrize("form", ["show", "markdown", "html"])
@pytest.mark.loss("F18", "D19")
async def test_for_readers(home: Path, form: str) -> None:
    """The words of now, marked; of what was deleted a sentence. Asked for everything, what was said before, marked."""
    texts = []
    async with Record.open(home) as record:
        await tell_chat(record)
        for full in (False, True):
            if form == "show":
                texts.append(await shown_for_people(record, full=full))
            else:
                writer = MarkdownExport(full=full) if form == "markdown" else HtmlExport(full=full)
                texts.append((await export(record, writer)).decode())
    brief, whole = (text.replace("\\", "") for text in texts)
    for words in ("When does the ferry go?", "edited", RETRACTED, "deleted", "Let us go", "said among people"):
        assert words in brief
        assert words in whole
    for words in ("the fery", "the boat", "A secret", "A late edit", "private.png"):
        assert words not in brief
        assert words in whole
    assert "earlier words" in whole.lower()
    assert "deleted words" in whole.lower()
    assert whole.index("the fery") < whole.index("the boat") < whole.index("A secret")


async def test_chat_teaches_what_counts(home: Path) -> None:
    """Examples have the words of now, and nothing that was deleted or was not said to the model."""
    async with Record.open(home) as record:
        await tell_chat(record)
        line = json.loads(await export(record, ChatExport()))
    assert [each["content"] for each in line["messages"]] == ["When does the ferry go?", "At noon."]


@pytest.mark.loss("E3")
async def test_show_tells_where_a_message_went(home: Path) -> None:
    """Below a message stand the chats where it was shown, in how many posts, or why it was not; and with full, all."""
    async with Record.open(home) as record:
        await tell_chat(record)
        brief, full = [await shown_for_people(record, full=full) for full in (False, True)]
        with redirect_stdout(io.StringIO()) as out:
            await show_json(record, await record.sessions.read(SESSION), {})
        forked = await record.fork(SESSION, 7)
        assert forked.id != SESSION
    assert f"At noon.\n  → {CHAT}: shown in 2 posts\n" in brief
    assert "  → matrix:room:!gone:example.org: set aside: the room is gone\n" in brief
    assert f"  post to {CHAT}: sent $post1\n" in full
    assert f"  → {CHAT}: shown in 2 posts\n" in full
    assert f"in {CHAT}" in full
    messages = {each["id"]: each for each in json.loads(out.getvalue())["messages"]}
    assert messages["a1"]["outcomes"] == [{"chat": CHAT, "outcome": "shown", "reason": ""}]
    assert (messages["e1"]["edited"], messages["e1"]["text"]) == (True, "When does the ferry go?")
    assert len(messages["e1"]["before"]) == 2
    assert (messages["e2"]["deleted"], messages["e3"]["observed"], messages["c1"]["chat"]) == (True, True, CHAT)


async def test_show_tells_that_a_message_is_tried_again(home: Path) -> None:
    """The last word on a message counts: one that was set aside and is tried again is not told as set aside."""
    async with Record.open(home) as record:
        await tell_chat(record)
        await record.deliveries.finish_message(SESSION, "n2", "matrix:room:!gone:example.org", "retried")
        assert "set aside" not in await shown_for_people(record, full=False)
        assert "!gone:example.org: to be tried again" in await shown_for_people(record, full=False)


# Lines for another home.


@pytest.mark.loss("F18")
async def test_changes_come_back_as_they_were(home: Path, tmp_path: Path) -> None:
    """An import has the same transcript, chats and events included, and whatever was said before it was changed."""
    async with Record.open(tmp_path / "origin") as record:
        await tell_chat(record)
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")
    line = next(each for each in map(json.loads, path.read_text().splitlines()) if each.get("id") == "e1")
    assert line["parts"] == [{"type": "text", "text": "When does the ferry go?"}]
    assert line["edited"] is True
    async with Record.open(home) as record:
        report = await import_file(record, path)
        assert (report.messages, report.findings) == (7, ())
        again = await import_file(record, path)
        assert (again.messages, again.skipped, again.findings) == (0, 7, ())
        for word in ("fery", "boat", "ferry"):
            assert [hit.message.id for hit in await record.search(word)] == ["e1"]
        for word in ("secret", "late"):
            assert [hit.message.id for hit in await record.search(word, everything=True)] == ["e2"]
    assert await everything(home) == await everything(tmp_path / "origin")
    again_path = await export_jsonl(home, tmp_path / "again.jsonl")
    assert messages_in(again_path) == messages_in(path)


def messages_in(path: Path) -> list[str]:
    """The lines of messages."""
    return [line for line in path.read_text().splitlines() if '"type":"message"' in line]


async def test_later_changes_are_taken_by_a_later_import(home: Path, tmp_path: Path) -> None:
    """What was edited and deleted since the last import is so here after the next one; never the other way."""
    paths = []
    async with Record.open(tmp_path / "origin") as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "one", "$e1")
        await say_in_chat(record, SESSION, "other", "$e2")
        for number in range(3):
            paths.append(tmp_path / f"{number}.jsonl")
            paths[-1].write_bytes(await export(record, JsonlExport(print)))
            await (delete_in_chat(record, "$e1") if number else edit_in_chat(record, "$e1", "two"))
        paths.append(tmp_path / "last.jsonl")
        paths[-1].write_bytes(await export(record, JsonlExport(print)))
        await record.end_session(SESSION, "over")
    async with Record.open(home) as record:
        for path, expected in zip(
            [*paths, *paths], ["one", "two", RETRACTED, RETRACTED] + [RETRACTED] * 4, strict=True
        ):
            report = await import_file(record, path)
            assert report.findings == ()
            assert [message.text for message in await record.load_transcript(SESSION)] == [expected, "other"]
        assert (await record.verify()).ok


async def test_changes_that_contradict_are_told(home: Path, tmp_path: Path) -> None:
    """A message that was edited otherwise here keeps the words that it has here, and the report says so."""
    async with Record.open(tmp_path / "origin") as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "one", "$e1")
        await edit_in_chat(record, "$e1", "two")
        path = tmp_path / "export.jsonl"
        path.write_bytes(await export(record, JsonlExport(print)))
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "one", "$e1")
        await edit_in_chat(record, "$e1", "three")
        report = await import_file(record, path)
        assert [finding.what for finding in report.findings] == [
            "message e1 was changed otherwise in its chat, and stays as it is here"
        ]
        assert [message.text for message in await record.load_transcript(SESSION)] == ["three"]


@pytest.mark.loss("G8")
async def test_a_fork_of_edited_words_comes_back(home: Path, tmp_path: Path) -> None:
    """A fork shares the words that its parent had then: it comes back so, whatever was edited before and after it."""
    async with Record.open(tmp_path / "origin") as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "one", "$e1")
        await edit_in_chat(record, "$e1", "two")
        await record.fork(SESSION, id="before")
        await say_in_chat(record, SESSION, "more", "$e2")
        await record.fork(SESSION, id="between")
        await edit_in_chat(record, "$e2", "much more")
        await record.fork(SESSION, id="after")
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")
    async with Record.open(home) as record:
        assert (await import_file(record, path)).findings == ()
        assert (await import_file(record, path)).findings == ()
        links = {each.id: each.parent.link for each in await record.sessions() if each.parent}
        assert links == {"before": "fork", "between": "import", "after": "fork"}
    assert await everything(home) == await everything(tmp_path / "origin")


# Nothing of an import is sent.


@pytest.mark.loss("I13")
async def test_an_import_puts_nothing_into_the_outbox(home: Path, tmp_path: Path) -> None:
    """Answers, notices and commands of a chat are history where they are imported: nothing waits to be shown."""
    async with Record.open(tmp_path / "origin") as record:
        await tell_chat(record)
        assert await waiting(record) == [(SESSION, "n1", CHAT)]
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")
    async with Record.open(home) as record:
        await import_file(record, path)
        assert await waiting(record) == []
        assert (await record.deliveries.count_waiting("matrix")).messages == 0
        assert await record.deliveries.list() == []
        assert {message.chat for message in await record.load_transcript(SESSION)} > {CHAT}
        assert (await record.verify()).ok
    for side in ("", "-wal", "-shm"):
        (home / f"state.db{side}").unlink(missing_ok=True)
    async with Record.open(home) as record:
        assert await waiting(record) == []
        assert (await record.verify()).ok


@pytest.mark.loss("I13")
async def test_a_turn_in_an_imported_session_is_not_shown_in_its_old_chat(home: Path, tmp_path: Path) -> None:
    """Who goes on in an imported session at a terminal is answered there, not where its last words were said."""
    async with Record.open(tmp_path / "origin") as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "Is anybody there?", "$e1")
    path = await export_jsonl(tmp_path / "origin", tmp_path / "export.jsonl")
    async with Record.open(home) as record:
        await import_file(record, path)
        await record.accept([(SESSION, Message.user("here, at the terminal"))], queue_turn=True, busy=Busy.QUEUE)
        async with record.turn(SESSION) as turn:
            assert await record.turns.list_running_chats("matrix") == []
            async with turn.reply() as reply:
                await reply.write("An answer")
        assert await waiting(record) == []


@pytest.mark.loss("I13")
async def test_an_import_during_a_turn_is_not_shown_where_the_turn_is(home: Path, tmp_path: Path) -> None:
    """What is imported into a session whose turn is being shown in a chat is no part of that turn."""
    async with Record.open(tmp_path / "origin") as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "hello", "$e1")
        path = tmp_path / "export.jsonl"
        await record.append(SESSION, Message.assistant("An old answer", id="a1"))
        await record.append(SESSION, Message.notice("An old notice", id="n1"))
        path.write_bytes(await export(record, JsonlExport(print)))
    async with Record.open(home) as record:
        await record.create_session(id=SESSION, source="matrix")
        await say_in_chat(record, SESSION, "hello", "$e1")
        await record.turns.queue(SESSION)
        async with record.turn(SESSION) as turn:
            assert len(await record.turns.list_running_chats("matrix")) == 1
            await import_file(record, path)
            assert await waiting(record) == []
            notice = await turn.append(Message.notice("A new notice"))
        assert [message_id for _, message_id, _ in await waiting(record)] == [notice.id]
        assert len(await record.load_transcript(SESSION)) == 4


@pytest.mark.loss("E5")
async def test_a_rebuild_and_a_fork_send_nothing_again(home: Path) -> None:
    """After the database is made anew, and in forks, what waits is what waited: nothing that was shown before."""
    async with Record.open(home) as record:
        await tell_chat(record)
        before = await waiting(record)
        assert before == [(SESSION, "n1", CHAT)]
    for side in ("", "-wal", "-shm"):
        (home / f"state.db{side}").unlink(missing_ok=True)
    async with Record.open(home) as record:
        assert await waiting(record) == before
        for at in range(1, (await record.sessions.read(SESSION)).head_seq + 1):
            await record.fork(SESSION, at)
        assert await waiting(record) == before
        async with record.turn((await record.fork(SESSION)).id) as turn, turn.reply() as reply:
            await reply.write("An answer in the fork")
        assert await waiting(record) == before
        assert (await record.verify()).ok
