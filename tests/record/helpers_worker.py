"""Another process on the same record, told what to do line by line: `python -m tests.record.helpers_worker HOME`.

Each line of standard input is a JSON object with the command in `do`; each is answered by one line of JSON on standard
output: `{"ok": …}` or `{"error": name, "message": …}`. An answer is written after the call returned, never before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

from hansard import Chunk, Entry, HansardError, Message, Record, Reply, Turn
from hansard.journal.store import Wiring
from hansard.testing import CrashPoint

STILL = "still"
"""In place of a crash point: nothing runs between two orders."""

Command = Callable[[dict[str, Any]], Awaitable[Any]]


class Armed:
    """A crash point that may be chosen after the start."""

    def __init__(self, point: CrashPoint | None) -> None:
        """Without a point nothing happens."""
        self.point = point

    def __call__(self, step: str) -> None:
        """Die here, or go on."""
        if self.point is not None:
            self.point(step)


class Servant:
    """One open record and the turn that it may hold."""

    def __init__(self, home: Path, patience_seconds: float, wiring: Wiring | None) -> None:
        """Nothing is open before it is asked for."""
        self.home = home
        self.patience_seconds = patience_seconds
        self.wiring = wiring
        self.opened = AsyncExitStack()
        self.turn_stack = AsyncExitStack()
        self.reply_stack = AsyncExitStack()
        self.record: Record | None = None
        self.turn: Turn | None = None
        self.reply: Reply | None = None
        self.hoarded: list[int] = []
        self.dribbled: str | int = 0
        self.armed = Armed(None)

    @property
    def here(self) -> Record:
        """The open record."""
        assert self.record is not None
        return self.record

    async def do_open(self, order: dict[str, Any]) -> str:
        """Open a home; give the owner's name."""
        home = Path(order.get("home", self.home))
        context = Record.open(home, patience_seconds=self.patience_seconds, wiring=self.wiring)
        self.record = await self.opened.enter_async_context(context)
        return self.record.store.owner

    async def do_arm(self, order: dict[str, Any]) -> None:
        """Die when a step is reached the next time."""
        self.armed.point = CrashPoint(order["point"])

    async def drive(self) -> None:
        """Do the writer's work, in place of its thread."""
        while True:
            if self.record is not None:
                self.record.store.writer.step()
            await asyncio.sleep(0.001)

    async def do_close(self, _order: dict[str, Any]) -> None:
        """Close the home."""
        await self.opened.aclose()

    async def do_create(self, order: dict[str, Any]) -> str:
        """Create a session."""
        session = await self.here.create_session(id=order["session"], source="test")
        return session.id

    async def do_append(self, order: dict[str, Any]) -> int:
        """Append one message; with a chat it is a notice, which is shown there."""
        text = order.get("text", "x") * order.get("times", 1)
        said = Message.user(text, id=order["id"])
        if "chat" in order:
            said = Message.notice(text, id=order["id"], chat=order["chat"])
        return (await self.here.append(order["session"], said)).seq

    async def do_unit(self, order: dict[str, Any]) -> int:
        """Append one message to each of several sessions, in one commit."""
        entries = [(session, Message.user("x", id=order["id"])) for session in order["sessions"]]
        return len((await self.here.accept(entries)).entries)

    async def do_sessions(self, order: dict[str, Any]) -> list[str]:
        """Create many sessions with a message each, one after the other; give those that are in the record."""
        for number in range(order["count"]):
            session = await self.here.create_session(id=f"s{number}", source="test")
            await self.here.append(session.id, Message.user("x", id="m"))
        return [session.id for session in await self.here.sessions()]

    async def do_many(self, order: dict[str, Any]) -> list[int]:
        """Append many messages, one after the other."""
        seqs = []
        for number in range(order["count"]):
            message = Message.user(f"{order['prefix']}-{number}", id=f"{order['prefix']}-{number}")
            seqs.append((await self.here.append(order["session"], message)).seq)
        return seqs

    async def do_burst(self, order: dict[str, Any]) -> list[int]:
        """Append many messages at once."""
        prefix, session = order["prefix"], order["session"]
        messages = [Message.user("y" * order.get("times", 1), id=f"{prefix}-{n}") for n in range(order["count"])]
        return [entry.seq for entry in await asyncio.gather(*(self.here.append(session, each) for each in messages))]

    async def do_texts(self, order: dict[str, Any]) -> list[list[str]]:
        """Give the transcript as [id, status, text]."""
        transcript = await self.here.load_transcript(order["session"])
        return [[message.id, message.status, message.text] for message in transcript]

    async def do_verify(self, _order: dict[str, Any]) -> list[str]:
        """Give what verify finds."""
        report = await self.here.verify()
        return [f"{finding.session_id} {finding.what}: {finding.detail}" for finding in report.findings]

    async def do_turn(self, order: dict[str, Any]) -> str:
        """Claim a turn."""
        self.turn = await self.turn_stack.enter_async_context(self.here.turn(order["session"]))
        return self.turn.id

    async def do_reply(self, order: dict[str, Any]) -> str:
        """Open a reply."""
        assert self.turn is not None
        self.reply = await self.reply_stack.enter_async_context(self.turn.reply(id=order["id"]))
        return self.reply.id

    async def do_write(self, order: dict[str, Any]) -> None:
        """Write into the reply."""
        assert self.reply is not None
        await self.reply.write(order["text"])

    async def do_dribble(self, order: dict[str, Any]) -> None:
        """Write words into the reply, each once those before are in the record."""
        assert self.reply is not None
        async with aclosing(self.here.follow(order["session"], self.dribbled)) as following:
            for _ in range(order["count"]):
                await self.reply.write("word ")
                while not isinstance(item := await anext(following), Chunk):
                    pass
                self.dribbled = item.position

    async def do_note(self, order: dict[str, Any]) -> int:
        """Append a notice in the turn."""
        assert self.turn is not None
        return (await self.turn.append(Message.notice(order["text"], id=order["id"]))).seq

    async def do_seal(self, _order: dict[str, Any]) -> None:
        """Seal the reply."""
        await self.reply_stack.aclose()

    async def do_leave(self, _order: dict[str, Any]) -> None:
        """End the turn."""
        await self.turn_stack.aclose()

    async def do_follow(self, order: dict[str, Any]) -> list[list[Any]]:
        """Follow up to an entry, and connect anew after every few items; give them as `describe` does."""
        items: list[list[Any]] = []
        position: str | int = order.get("after", 0)
        while True:
            async with aclosing(self.here.follow(order["session"], position)) as following:
                for _ in range(order.get("every", 1_000_000)):
                    items.append(describe(await anext(following)))
                    position = items[-1][-1]
                    if items[-1][1] == order["until"]:
                        return items

    async def do_blob(self, order: dict[str, Any]) -> str:
        """Store a blob; give its digest."""
        return await self.here.blobs.put(order["text"].encode())

    async def do_copytree(self, order: dict[str, Any]) -> None:
        """Copy the whole home inside this process, as a careless backup would."""
        shutil.copytree(self.home, order["to"])

    async def do_hoard(self, order: dict[str, Any]) -> int:
        """Open files until so many are left."""
        with contextlib.suppress(OSError):
            while True:
                self.hoarded.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(order["leave"]):
            os.close(self.hoarded.pop())
        return len(self.hoarded)

    async def do_release(self, _order: dict[str, Any]) -> None:
        """Close the hoarded files."""
        while self.hoarded:
            os.close(self.hoarded.pop())

    async def do_trouble(self, _order: dict[str, Any]) -> str:
        """Give what the record says is wrong."""
        return self.here.trouble

    async def answer(self, line: str) -> dict[str, Any]:
        """Do what one line asks for."""
        order = json.loads(line)
        command: Command = getattr(self, f"do_{order['do']}")
        try:
            return {"ok": await command(order)}
        except HansardError as error:
            return {"error": type(error).__name__, "message": str(error), "holder": getattr(error, "holder", "")}


def describe(item: Entry | Chunk) -> list[Any]:
    """Give a followed item as [kind or "chunk", id, seq or offset, text, position]."""
    if isinstance(item, Chunk):
        return ["chunk", item.message_id, item.offset, item.text, item.position]
    return [item.kind, item.id, item.seq, item.text, item.position]


async def serve(home: Path, patience_seconds: float, crash: str) -> None:
    """Answer every line until there is none."""
    if not crash:
        await serve_lines(Servant(home, patience_seconds, None))
        return
    # Without threads only orders reach a crash point: no commit of the keeper counts.
    name, _, occurrence = crash.partition(":")
    armed = Armed(CrashPoint(name, int(occurrence or 1)) if crash != STILL else None)
    servant = Servant(home, patience_seconds, Wiring(threads=False, reach=armed))
    servant.armed = armed
    driver = asyncio.create_task(servant.drive())
    await serve_lines(servant)
    driver.cancel()


async def serve_lines(servant: Servant) -> None:
    """Have a servant answer every line of standard input until there is none."""
    loop = asyncio.get_running_loop()
    try:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            data = json.dumps(await servant.answer(line)).encode() + b"\n"
            os.write(1, data)
    finally:
        await servant.turn_stack.aclose()
        await servant.opened.aclose()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""))
