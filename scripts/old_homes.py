"""Build a home with the code of each commit that wrote another schema: `python scripts/old_homes.py`.

Each home becomes a small archive in tests/record/homes, which the tests of migrations open. A home is written twice: by
a process that ends as it should, and by one that is killed in the middle of an answer, with a delivery under way.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from hansard import Message, Record
from hansard.domain.arrivals import Cursor, Intake
from hansard.domain.deliveries import Delivery

ROOT = Path(__file__).parents[1]
ARCHIVES = ROOT / "tests" / "record" / "homes"
COMMITS = {1: "460958e", 3: "03b321f", 5: "b9ceaa4", 6: "655c4b8", 8: "a8ba800", 9: "ee53229"}
"""The last commit of each schema that a commit wrote."""

CHAT = "matrix:room:!garden:example.org"
PERSON = "@ann:example.org"
KEPT = ("state.db", "state.db-wal", "home.jsonl", "sessions", "blobs")


def said(id: str, text: str, **fields: object) -> Message:
    """Return a message of a person, with as many of the fields as messages had then."""
    known = {name: value for name, value in fields.items() if name in Message.__struct_fields__}
    return msgspec.structs.replace(Message.user(text, id=id), **known)


async def answer(record: Record, session_id: str, reply_id: str) -> None:
    """Let a turn run to its end."""
    async with record.turn(session_id) as turn, turn.reply(id=reply_id) as reply:
        await reply.write("Yes, ")
        await reply.write("on Sunday. ☀")


async def talk(home: Path) -> None:
    """Say something in every way that there was."""
    async with Record.open(home) as record:
        await record.create_session(id="trip", source="cli", title="Trip")
        for number in range(12):
            await record.append("trip", said(f"m{number}", f"How far is it, part {number}? 日本 ñ"))
        await answer(record, "trip", "r1")
        await record.fork("trip", at=5, id="trip-fork", title="Another way")
        await record.append("trip-fork", said("f1", "What if we went by train?"))
        await record.end_session("trip-fork", "done")
        await record.reopen_session("trip-fork")
        await record.create_session(id="ended", source="cli")
        await record.end_session("ended", "nobody answered")
        await record.blobs.put(b"a picture")
        await talk_in_a_room(record)
        await use_what_came_later(record)
        assert (await record.verify()).ok


async def talk_in_a_room(record: Record) -> None:
    """Let events of a platform come in, be answered, and be shown."""
    await record.create_session(id="room", source="matrix", owner=CHAT)
    await record.routes.move(CHAT, "room", reason="first")
    for number in range(3):
        event_id = f"$event-{number}"
        message = said(f"e{number}", f"Hello {number}", author=PERSON, chat=CHAT, event_id=event_id)
        intake = Intake(channel="matrix", account="@bot", event_id=event_id)
        await record.accept(
            [("room", message)], intake, Cursor(channel="matrix", account="@bot", value=f"s{number}"), queue_turn=True
        )
        await answer(record, "room", f"a{number}")
        delivery = Delivery(
            id=f"d{number}", session_id="room", channel="matrix", target=CHAT, message_id=f"a{number}", end_bytes=5
        )
        await record.deliveries.create(delivery)
        await record.deliveries.move("room", f"d{number}", "sending")
        await record.deliveries.move("room", f"d{number}", "sent", receipt=f"$post-{number}")
    await record.routes.reset(CHAT, source="matrix", owner=CHAT, reason="new")


async def use_what_came_later(record: Any) -> None:  # noqa: ANN401 - a record of any age
    """Use what the first versions did not have."""
    if hasattr(record, "archive_session"):
        await record.sessions.archive("ended")
        await record.messages.undo("trip", ["m3"])
        await record.messages.restore("trip", ["m3"])
        await record.messages.undo("trip", ["m4"])
        await record.sessions.set_setting("trip", "model", "demo")
    if hasattr(record, "outbox"):
        await record.deliveries.finish_message("room", "a0", CHAT, "shown")
        await record.access.allow("matrix", PERSON)
        await record.access.revoke("matrix", "@bob:example.org")
    if hasattr(record, "books"):
        note = await record.memory.add("person:admin", "Ann takes tea without sugar")
        await record.memory.edit(note.id, "Ann takes tea with milk")
        gone = await record.memory.add("person:admin", "to be forgotten")
        await record.memory.forget(gone.id)
    if hasattr(record, "people"):
        await record.people.link("person:matrix:@ann:example.org", "person:telegram:7")
        await record.people.show_code("person:matrix:@eve:example.org", identity="@eve:example.org", chat=CHAT)


async def die(home: Path) -> None:
    """Begin an answer and a delivery, and be killed."""
    async with Record.open(home) as record:
        await record.append("trip", said("last", "And how long does it take?"))
        await record.turns.queue("trip-fork")
        delivery = Delivery(id="lost", session_id="room", channel="matrix", target=CHAT, message_id="a2", end_bytes=5)
        await record.deliveries.create(delivery)
        await record.deliveries.move("room", "lost", "sending")
        async with record.turn("trip") as turn, turn.reply(id="cut") as reply:
            await reply.write("It takes three")
            async for item in record.follow("trip"):
                if getattr(item, "message_id", "") == "cut" and item.text:
                    os.kill(os.getpid(), signal.SIGKILL)


def run_program(*command: str, environment: dict[str, str] | None = None) -> int:
    """Run a program to its end; return its code."""
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603 - git and this very file


def build(version: int, commit: str) -> None:
    """Write the archive of one schema."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        archived = run_program("git", "-C", str(ROOT), "archive", "--output", f"{folder}/src.tar", commit, "src")
        if archived:
            raise SystemExit(f"git knows no commit {commit}")
        with tarfile.open(f"{folder}/src.tar") as source:
            source.extractall(folder, filter="data")
        environment = {**os.environ, "PYTHONPATH": f"{folder}/src"}
        for part, code in (("talk", 0), ("die", -signal.SIGKILL)):
            if (found := run_program(sys.executable, __file__, part, str(home), environment=environment)) != code:
                raise SystemExit(f"{commit} ended with {found} in {part}")
        with tarfile.open(ARCHIVES / f"schema-{version}.tar.xz", "w:xz") as archive:
            for name in KEPT:
                with suppress(FileNotFoundError):
                    archive.add(home / name, name)


def main() -> None:
    """Build all homes, or do one part of one."""
    if len(sys.argv) > 1:
        asyncio.run({"talk": talk, "die": die}[sys.argv[1]](Path(sys.argv[2])))
        return
    ARCHIVES.mkdir(exist_ok=True)
    for version, commit in COMMITS.items():
        build(version, commit)


if __name__ == "__main__":
    main()
