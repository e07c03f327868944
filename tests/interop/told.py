"""What the tests of exports share: a session with a bit of everything, random sessions, and exports as bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from hansard.domain.messages import File, Message, Status, Text, ToolCall, ToolOutcome
from hansard.domain.sessions import Session
from hansard.interop.jsonl import JsonlExport
from hansard.interop.jsonl_import import ImportReport, import_file
from hansard.interop.transcripts import Exporter, all_sessions, parents_first
from hansard.record.api import Record
from hansard.record.turns.holding import Turn
from tests.record.search.scene import delete_in_chat, edit_in_chat, say_in_chat

WORDS = (
    "hello",
    "日本語の文",
    "שלום",
    "👩‍👩‍👧 family",
    "line one\nline two\r\nline three",
    "a\ttab \x1b[31mred \u202eturned \u2028 separated",
    '# heading ``` fence <b>bold</b> & "quoted" \\ back',
    "",
    "ok",
)
ATTACHMENT = b"\x00\x01 attached \xff" * 7


class Cut(Exception):
    """An answer is cut off."""


async def tell_story(record: Record, session_id: str = "story") -> Session:
    """A session with an attachment, reasoning, a tool, a cut answer, a turn that was taken back, and an end."""
    await record.create_session(id=session_id, source="cli", title="Trip to Rome")
    blob = await record.blobs.put(ATTACHMENT)
    file = File(blob=blob, name="map.png", media_type="image/png", size_bytes=len(ATTACHMENT))
    await record.append(session_id, Message.user([Text("What time is it?"), file], id="m1", author="Ann"))
    async with record.turn(session_id) as turn:
        async with turn.reply(id="r1") as reply:
            await reply.write("I should look.", part="reasoning")
            await reply.write("Let me look.")
            reply.add(ToolCall(id="c1", name="clock", arguments='{"zone":"Rome"}'))
        await turn.append(Message.tool("c1", "It is 12:00 in Rome", id="t1"))
        async with turn.reply(id="r2") as reply:
            await reply.write("It is noon.")
    await record.append(session_id, Message.user("Forget this", id="m2"))
    await record.append(session_id, Message.assistant("Forgotten words", id="m3"))
    await record.messages.undo(session_id, ["m2", "m3"])
    await record.append(session_id, Message.user("And tomorrow?", id="m4"))
    await cut_answer(record, session_id, "r3", "Tomorrow it will b")
    await record.append(session_id, Message.notice("A notice", id="n1"))
    return await record.end_session(session_id, "we are back")


async def cut_answer(record: Record, session_id: str, reply_id: str, text: str) -> None:
    """Say the beginning of an answer, and fail."""
    try:
        async with record.turn(session_id) as turn, turn.reply(id=reply_id) as reply:
            await reply.write(text)
            raise Cut
    except Cut:
        pass


class Teller:
    """Makes sessions up."""

    def __init__(self, record: Record, seed: int) -> None:
        """The same seed makes the same sessions up."""
        self.record = record
        self.draw = random.Random(seed)
        self._count = 0
        self._events: list[str] = []

    def name(self, kind: str) -> str:
        """A new id."""
        self._count += 1
        return f"{kind}{self._count}"

    async def sessions(self, count: int) -> None:
        """Make sessions up; some are forks of earlier ones, some end, some are archived."""
        made: list[str] = []
        for _ in range(count):
            session_id = self.name("s")
            if made and self.draw.random() < 0.4:
                parent = await self.record.sessions.read(self.draw.choice(made))
                at = self.draw.randint(1, parent.head_seq)
                await self.record.fork(parent.id, at, id=session_id)
            else:
                title = f"title {session_id}" if self.draw.random() < 0.5 else None
                link = self.draw.choice(made) if made and self.draw.random() < 0.3 else None
                await self.record.create_session(id=session_id, source="cli", title=title, parent=link)
            made.append(session_id)
            for _ in range(self.draw.randint(0, 7)):
                await self.step(session_id)
            if self.draw.random() < 0.3:
                await self.record.end_session(session_id, self.draw.choice(["done", ""]))
            if self.draw.random() < 0.2:
                await self.record.sessions.archive(session_id)

    async def step(self, session_id: str) -> None:
        """Let something happen in a session."""
        chosen = self.draw.random()
        words = self.draw.choice(WORDS)
        if chosen < 0.15:
            await self.chat(session_id, words)
        elif chosen < 0.35:
            blob = await self.record.blobs.put(words.encode())
            parts = [Text(words), File(blob=blob, name="a file")] if self.draw.random() < 0.2 else [Text(words)]
            author = self.draw.choice(["", "Ann", "李"])
            await self.record.append(session_id, Message.user([*parts], id=self.name("m"), author=author))
        elif chosen < 0.65:
            async with self.record.turn(session_id) as turn:
                await self.answer(turn, words)
        elif chosen < 0.75:
            await cut_answer(self.record, session_id, self.name("r"), words)
        elif chosen < 0.85:
            shown = await self.record.load_transcript(session_id)
            taken = [message.id for message in shown[-self.draw.randint(1, 3) :]]
            await self.record.messages.undo(session_id, taken)
            if self.draw.random() < 0.5:
                away = list((await self.record.conversation(session_id)).undone)
                await self.record.messages.restore(session_id, self.draw.sample(away, self.draw.randint(0, len(away))))
        else:
            await self.record.append(session_id, Message.notice(words, id=self.name("n")))

    async def chat(self, session_id: str, words: str) -> None:
        """Let somebody say something in a chat, or edit or delete what was said in any."""
        chosen = self.draw.random()
        if chosen < 0.5 or not self._events:
            self._events.append(f"${self.name('e')}")
            await say_in_chat(self.record, session_id, words, self._events[-1])
        elif chosen < 0.85:
            await edit_in_chat(self.record, self.draw.choice(self._events), f"{words} (edited)")
        else:
            await delete_in_chat(self.record, self.draw.choice(self._events))

    async def answer(self, turn: Turn, words: str) -> None:
        """Answer, sometimes with a tool, while somebody speaks."""
        call_id = self.name("c")
        uses_tool = self.draw.random() < 0.5
        async with turn.reply(id=self.name("r")) as reply:
            await reply.write(f"thinking {words}", part="reasoning")
            await reply.write(words)
            if self.draw.random() < 0.3:
                await self.record.append(turn.session_id, Message.user("meanwhile", id=self.name("m")))
            if uses_tool:
                reply.add(ToolCall(id=call_id, name="clock"))
        if uses_tool:
            outcome = self.draw.choice(list(ToolOutcome))
            await turn.append(Message.tool(call_id, words, id=self.name("t"), outcome=outcome))


async def export(record: Record, writer: Exporter, sessions: Sequence[Session] | None = None) -> bytes:
    """Return an export of some sessions, or of all."""
    chosen = parents_first(await all_sessions(record) if sessions is None else sessions)
    pieces = [writer.begin(chosen)]
    for session in chosen:
        pieces += [piece async for piece in writer.session(record, session)]
    return b"".join([*pieces, writer.end()])


async def export_jsonl(home: Path, target: Path, *, blobs: bool = True) -> Path:
    """Export a whole home as Hansard's own lines; every attachment must be readable."""
    async with Record.open(home) as record:
        findings: list[str] = []
        target.write_bytes(await export(record, JsonlExport(findings.append, blobs=blobs)))
        assert findings == []
    return target


async def everything(home: Path) -> dict[str, tuple[object, ...]]:
    """All that an export has to carry, by session."""
    async with Record.open(home) as record:
        found: dict[str, tuple[object, ...]] = {}
        for session in await all_sessions(record):
            messages = [replace(each, is_imported=False) for each in await record.load_transcript(session.id)]
            assert all(message.status != Status.OPEN for message in messages)
            parent = session.parent.session_id if session.parent else None
            state = (session.state, session.end_reason, session.archived)
            found[session.id] = (session.title, session.source, session.owner, state, parent, tuple(messages))
        report = await record.verify()
        assert report.ok, report.findings
        return found


async def take(home: Path, path: Path) -> ImportReport:
    """Import a file into a home."""
    async with Record.open(home) as record:
        return await import_file(record, path)
