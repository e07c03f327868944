"""Situations that a message can be in, and the seven readers that say what it says now.

All that the table of `test_message_fold.py` needs of Hansard's insides is here: when modules move, only this file
follows. A minute passes before each step, so that times tell which entry a reader took them from.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from hansard import Delivery, Message, Record
from hansard.delivery.audit import read_recorded
from hansard.domain.messages import RETRACTED, File, Part, Text
from hansard.interop.jsonl import JsonlExport
from hansard.journal.concepts import Body
from hansard.journal.store import Wiring
from hansard.record.messages.entries import FileFetched, FileTranscribed, MessageEdited
from hansard.record.messages.operations import ImportedMessage
from hansard.record.search.asking import Hit
from hansard.record.sessions import session_journal
from hansard.testing.fakes import FakeClock
from tests.record.search.scene import ACCOUNT, AUTHOR, CHANNEL, delete_in_chat, edit_in_chat, index_all, intake_of

MINUTE = 60
WORDS = ("a", "b", "c")
"""What messages say: short, so that the table is."""


class Scene:
    """One session in which one message comes into a situation."""

    def __init__(self, record: Record, clock: FakeClock, stack: AsyncExitStack, name: str) -> None:
        """The session is created by `begin`. What the stack holds lasts until everything was read."""
        self.record = record
        self.stack = stack
        self.session_id = self.message_id = name
        self.event_id = f"${name}"
        self.chat = f"{CHANNEL}:room:!{name}:example.org"
        self.started_at = 0
        self._clock = clock

    def wait(self) -> None:
        """A minute passes."""
        self._clock.advance(MINUTE)

    async def begin(self) -> None:
        """The session begins."""
        self.started_at = (await self.record.create_session(id=self.session_id, source="test")).created_at_microseconds

    async def say(self, *, file: File | None = None, **marks: bool) -> None:
        """Somebody says "a" in the chat."""
        self.wait()
        parts: list[Part] = [Text("a")] if file is None else [Text("a"), file]
        said = Message.user(parts, id=self.message_id, author=AUTHOR, chat=self.chat, event_id=self.event_id)
        marked = msgspec.structs.replace(said, **marks)
        await self.record.accept([(self.session_id, marked)], intake_of(self.event_id))

    async def type(self, message: Message) -> None:
        """Something is said outside of chats."""
        self.wait()
        await self.record.append(self.session_id, message)

    async def edit(self, text: str) -> None:
        """The author edits it."""
        self.wait()
        await edit_in_chat(self.record, self.event_id, text)

    async def delete(self) -> None:
        """Somebody deletes it in the chat."""
        self.wait()
        await delete_in_chat(self.record, self.event_id)

    async def undo(self) -> None:
        """It is taken back by a command."""
        self.wait()
        await self.record.messages.undo(self.session_id, [self.message_id])

    async def restore(self) -> None:
        """And restored."""
        self.wait()
        await self.record.messages.restore(self.session_id, [self.message_id])

    async def take(self, *changes: MessageEdited, event_id: str) -> None:
        """It is imported, with what was changed of it."""
        self.wait()
        said = Message.user("a", id=self.message_id, author=AUTHOR, chat=self.chat, event_id=event_id)
        await self.record.messages.import_messages(self.session_id, [ImportedMessage(said, changes)])

    async def fetch(self) -> None:
        """Its file is fetched."""
        blob = await self.record.blobs.put(b"file")
        await self.add(FileFetched(message_id=self.message_id, file="1", blob=blob, size_bytes=4))

    async def add(self, body: Body) -> None:
        """An entry is added that nothing else here brings about."""
        self.wait()
        caller = self.record._caller  # noqa: SLF001 - the very seam
        await caller.write(lambda tx: tx.add(session_journal(tx, self.session_id)[0], "~added", body))


async def plain(scene: Scene) -> None:
    """Said outside of chats."""
    await scene.type(Message.user("a", id=scene.message_id))


async def in_chat(scene: Scene) -> None:
    """Said in a chat."""
    await scene.say()


async def edited(scene: Scene) -> None:
    """Edited once."""
    await scene.say()
    await scene.edit("b")


async def edited_twice(scene: Scene) -> None:
    """Edited twice."""
    await edited(scene)
    await scene.edit("c")


async def retracted(scene: Scene) -> None:
    """Deleted in its chat."""
    await scene.say()
    await scene.delete()


async def edited_retracted(scene: Scene) -> None:
    """Edited, then deleted."""
    await edited(scene)
    await scene.delete()


async def retracted_edited(scene: Scene) -> None:
    """Deleted; an edit comes after that."""
    await retracted(scene)
    await scene.edit("b")


async def undone(scene: Scene) -> None:
    """Taken back."""
    await scene.say()
    await scene.undo()


async def undone_restored(scene: Scene) -> None:
    """Taken back and restored."""
    await undone(scene)
    await scene.restore()


async def undone_edited(scene: Scene) -> None:
    """Taken back, then edited in its chat."""
    await undone(scene)
    await scene.edit("b")


async def voice_note(scene: Scene) -> None:
    """A voice note that was written down."""
    blob = await scene.record.blobs.put(b"voice")
    await scene.say(file=File(blob=blob, name="note", media_type="audio/ogg"))
    await scene.add(FileTranscribed(message_id=scene.message_id, blob=blob, text="c"))


async def voice_note_edited(scene: Scene) -> None:
    """The same, edited since."""
    await voice_note(scene)
    await scene.edit("b")


AWAITED = File(blob="", name="file", fetch="1")


async def file_awaited(scene: Scene) -> None:
    """With a file that is still being fetched."""
    await scene.say(file=AWAITED)


async def file_fetched(scene: Scene) -> None:
    """With a file that was fetched since."""
    await file_awaited(scene)
    await scene.fetch()


async def file_failed(scene: Scene) -> None:
    """With a file that cannot be had."""
    await file_awaited(scene)
    await scene.add(FileFetched(message_id=scene.message_id, file="1", failure="gone"))


async def file_fetched_edited(scene: Scene) -> None:
    """The file came, and then the words were edited."""
    await file_fetched(scene)
    await scene.edit("b")


async def edited_file_fetched(scene: Scene) -> None:
    """The words were edited before the file came."""
    await file_awaited(scene)
    await scene.edit("b")
    await scene.fetch()


async def retracted_file_fetched(scene: Scene) -> None:
    """Deleted before the file came."""
    await file_awaited(scene)
    await scene.delete()
    await scene.fetch()


class Cut(Exception):
    """A reply is cut off."""


@asynccontextmanager
async def replying(scene: Scene) -> AsyncIterator[None]:
    """A reply says "a", and after a minute "b"; it is open for as long as the block lasts."""
    scene.wait()
    async with scene.record.turn(scene.session_id) as turn, turn.reply(id=scene.message_id) as reply:
        await reply.write("a")
        yield
        scene.wait()
        await reply.write(" b")


async def reply_open(scene: Scene) -> None:
    """A reply that is being said."""
    await scene.stack.enter_async_context(replying(scene))
    await settled(scene)


async def reply_sealed(scene: Scene) -> None:
    """A reply that is complete."""
    async with replying(scene):
        pass


async def reply_interrupted(scene: Scene) -> None:
    """A reply that was cut off."""
    with suppress(Cut):
        async with replying(scene):
            scene.wait()
            raise Cut


async def reply_undone(scene: Scene) -> None:
    """A reply that was taken back."""
    await reply_sealed(scene)
    await scene.undo()


async def reply_cut_by_fork(scene: Scene) -> None:
    """A fork was made while a reply was open: here it is read in the fork."""
    async with replying(scene):
        await settled(scene)
        scene.wait()
        forked = await scene.record.fork(scene.session_id)
    scene.session_id = forked.id


async def reply_goes_on(scene: Scene) -> None:
    """The same, read in the parent."""
    parent = scene.session_id
    await reply_cut_by_fork(scene)
    scene.session_id = parent


async def settled(scene: Scene) -> None:
    """Wait until what was written is durable."""
    while (await scene.record.load_transcript(scene.session_id))[-1].text != "a":
        pass


async def edited_after_fork(scene: Scene) -> None:
    """Edited in its chat after a fork: here it is read in the fork."""
    await edited(scene)
    forked = await scene.record.fork(scene.session_id)
    await scene.edit("c")
    scene.session_id = forked.id


async def imported(scene: Scene) -> None:
    """Imported from another record."""
    await scene.take(event_id=scene.event_id)


async def imported_edited(scene: Scene) -> None:
    """Imported with an edit."""
    await scene.take(MessageEdited(message_id="", parts=(Text("b"),), event_id="$e"), event_id=scene.event_id)


async def edited_without_event(scene: Scene) -> None:
    """An edit of a message that names no event of a chat."""
    await scene.take(MessageEdited(message_id="", parts=(Text("b"),), event_id="$e"), event_id="")


async def observed(scene: Scene) -> None:
    """Said among people."""
    await scene.say(is_observed=True)


async def unverified(scene: Scene) -> None:
    """Said by somebody who is not proved to be its author."""
    await scene.say(is_unverified=True)


async def notice(scene: Scene) -> None:
    """Said by Hansard itself."""
    await scene.type(Message.notice("a", id=scene.message_id, chat=scene.chat))


SITUATIONS: Mapping[str, Callable[[Scene], Awaitable[None]]] = {
    act.__name__.replace("_", " "): act
    for act in (
        plain,
        in_chat,
        edited,
        edited_twice,
        retracted,
        edited_retracted,
        retracted_edited,
        undone,
        undone_restored,
        undone_edited,
        voice_note,
        voice_note_edited,
        file_awaited,
        file_fetched,
        file_failed,
        file_fetched_edited,
        edited_file_fetched,
        retracted_file_fetched,
        reply_open,
        reply_sealed,
        reply_interrupted,
        reply_undone,
        reply_cut_by_fork,
        reply_goes_on,
        edited_after_fork,
        imported,
        imported_edited,
        edited_without_event,
        observed,
        unverified,
        notice,
    )
}


# Readers.


def words_of(parts: Iterable[Part]) -> str:
    """What parts say: texts, and of a file whether it is here, with the words of a voice note."""
    told = []
    for part in parts:
        if isinstance(part, Text):
            told.append("×" if part.text == RETRACTED else part.text)
        elif isinstance(part, File):
            state = "fetching" if part.fetch else "file" if part.blob else "name"
            told.append(f"+{state}{f'({part.transcript})' if part.transcript else ''}")
    return " ".join(told)


def cell_of(scene: Scene, message: Message | None, *more: str) -> str:
    """What a reader has of a message: words, the minute, marks."""
    if message is None:
        return "-"
    minute = (message.at_microseconds - scene.started_at) // (MINUTE * 1_000_000)
    marks = (
        ("" if message.status == "complete" else str(message.status)),
        "edited" if message.is_edited else "",
        "retracted" if message.is_retracted else "",
        "observed" if message.is_observed else "",
        "imported" if message.is_imported else "",
        "unverified" if message.is_unverified else "",
    )
    return " ".join(filter(None, (words_of(message.parts), f"@{minute}", *marks, *more)))


async def read_transcript(scene: Scene) -> str:
    """Read `Record.load_transcript`."""
    messages = await scene.record.load_transcript(scene.session_id)
    return cell_of(scene, next((each for each in messages if each.id == scene.message_id), None))


async def read_conversation(scene: Scene) -> str:
    """Read what the model is given."""
    conversation = await scene.record.conversation(scene.session_id)
    messages = [each.message for each in (*conversation.placed, *conversation.waiting)]
    return cell_of(scene, next((each for each in messages if each.id == scene.message_id), None))


async def read_export(scene: Scene) -> str:
    """Read the line of the message in `hansard export`: with the words that it had before."""
    writer = JsonlExport(lambda _: None, blobs=False)
    data = b"".join(
        [piece async for piece in writer.session(scene.record, await scene.record.sessions.read(scene.session_id))]
    )
    lines = [json.loads(line) for line in data.splitlines()]
    line = next((each for each in lines if each["type"] == "message" and each["id"] == scene.message_id), None)
    if line is None:
        return "-"
    names = {"is_edited": "edited", "is_retracted": "deleted", "is_observed": "observed", "is_unverified": "unverified"}
    message = msgspec.convert({**line, **{new: line.get(old, False) for new, old in names.items()}}, Message)
    versions = [line.get("first"), *(each.get("parts") for each in line.get("changes", ()))]
    said = ["×" if each is None else words_of(msgspec.convert(each, tuple[Part, ...])) for each in versions]
    return cell_of(
        scene, message, "undone" if line.get("undone") else "", f"< {', '.join(said)}" if len(said) > 1 else ""
    )


async def read_search(scene: Scene) -> str:
    """Read the hits for each word; what is undone or retracted is found on request only."""
    found: dict[str, str] = {}
    for word in WORDS:
        hits = await hits_of(scene, word, everything=True)
        for hit in hits:
            found[word] = cell_of(scene, hit.message, "undone" if hit.undone else "")
            is_hidden = hit.undone or hit.message.is_retracted
            assert bool(await hits_of(scene, word, everything=False)) is not is_hidden
    assert len(set(found.values())) <= 1, found
    return f"{next(iter(found.values()))} ? {' '.join(found)}" if found else "-"


async def hits_of(scene: Scene, word: str, *, everything: bool) -> list[Hit]:
    """Find the message by a word, whoever said it."""
    search = partial(scene.record.search, word, session_id=scene.session_id, everything=everything)
    return [hit for hit in (*await search(), *await search(role="notice")) if hit.message.id == scene.message_id]


async def read_delivery(scene: Scene) -> str:
    """Read what would be shown in a chat."""
    return cell_of(scene, await scene.record.messages.read(scene.session_id, scene.message_id))


async def read_audit(scene: Scene) -> str:
    """Read what an audit compares posts of the message with."""
    book = await read_recorded(scene.record, CHANNEL, ACCOUNT, scene.chat, [])
    return book.texts.get((scene.session_id, scene.message_id), "-")


async def read_first_words(scene: Scene) -> str:
    """Read what a list of sessions shows."""
    return (await scene.record.titles.first_words([scene.session_id])).get(scene.session_id, "-")


READERS: Mapping[str, Callable[[Scene], Awaitable[str]]] = {
    "transcript": read_transcript,
    "conversation": read_conversation,
    "export": read_export,
    "search": read_search,
    "delivery": read_delivery,
    "audit": read_audit,
    "first words": read_first_words,
}


async def read_all(scene: Scene) -> list[str]:
    """What each reader says. The message is delivered in its chat before, so that an audit looks at it."""
    post = Delivery(
        id=f"{scene.message_id}:1",
        session_id=scene.session_id,
        channel=CHANNEL,
        target=scene.chat,
        message_id=scene.message_id,
    )
    await scene.record.deliveries.begin(post)
    return [await read(scene) for read in READERS.values()]


async def read_situations(home: Path) -> dict[str, list[str]]:
    """What each reader says of each situation. A search finds the same with the index and without."""
    clock = FakeClock()
    answers: dict[str, list[str]] = {}
    async with Record.open(home, wiring=Wiring(clock=clock)) as record, AsyncExitStack() as stack:
        scenes: list[Scene] = []
        for name, bring_about in SITUATIONS.items():
            scene = Scene(record, clock, stack, name.replace(" ", "-"))
            scenes.append(scene)
            await scene.begin()
            await bring_about(scene)
            answers[name] = await read_all(scene)
        index_all(record)
        searched = [cells[list(READERS).index("search")] for cells in answers.values()]
        assert [await read_search(scene) for scene in scenes] == searched
    return answers
