"""Build homes with the code of each commit that wrote another schema: `python scripts/old_homes.py`.

Each home becomes a small archive, which the tests of migrations open: in tests/record/homes, or in FOLDER with
`python scripts/old_homes.py FOLDER VERSION`. A home is written twice: by a process that ends as it should, and by one
that is killed in the middle of an answer, with a delivery under way.
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
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

# The code of the old commit, to which PYTHONPATH leads. Its names are those of that time, and mypy knows only today's:
# what is renamed in today's code must not be renamed here.
hansard: Any = import_module("hansard")
deliveries: Any = import_module("hansard.domain.deliveries")

ROOT = Path(__file__).parents[1]
ARCHIVES = ROOT / "tests" / "record" / "homes"
COMMITS = {1: "460958e", 3: "03b321f", 5: "b9ceaa4", 6: "655c4b8", 8: "a8ba800", 9: "ee53229"}
"""The last commit of each schema that a commit wrote."""

CHAT = "matrix:room:!garden:example.org"
PERSON = "@ann:example.org"
KEPT = ("state.db", "state.db-wal", "home.jsonl", "sessions", "blobs")


def said(id: str, text: str, **fields: object) -> Any:  # noqa: ANN401 - a message of any age
    """Return a message of a person, with as many of the fields as messages had then."""
    known = {name: value for name, value in fields.items() if name in hansard.Message.__struct_fields__}
    return msgspec.structs.replace(hansard.Message.user(text, id=id), **known)


async def answer(record: Any, session_id: str, reply_id: str) -> None:  # noqa: ANN401 - a record of any age
    """Let a turn run to its end."""
    async with record.turn(session_id) as turn, turn.reply(id=reply_id) as reply:
        await reply.write("Yes, ")
        await reply.write("on Sunday. ☀")


async def talk(home: Path) -> None:
    """Say something in every way that there was."""
    async with hansard.Record.open(home) as record:
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
        await record.put_blob(b"a picture")
        await talk_in_a_room(record)
        await use_what_came_later(record)
        assert (await record.verify()).ok


async def talk_in_a_room(record: Any) -> None:  # noqa: ANN401 - a record of any age
    """Let events of a platform come in, be answered, and be shown."""
    await record.create_session(id="room", source="matrix", owner=CHAT)
    await record.move_route(CHAT, "room", reason="first")
    for number in range(3):
        event_id = f"$event-{number}"
        message = said(f"e{number}", f"Hello {number}", author=PERSON, chat=CHAT, event_id=event_id)
        intake = deliveries.Intake(channel="matrix", account="@bot", event_id=event_id)
        await record.accept(
            [("room", message)],
            intake,
            deliveries.Cursor(channel="matrix", account="@bot", value=f"s{number}"),
            queue_turn=True,
        )
        await answer(record, "room", f"a{number}")
        delivery = deliveries.Delivery(
            id=f"d{number}", session_id="room", channel="matrix", target=CHAT, message_id=f"a{number}", end_bytes=5
        )
        await record.create_delivery(delivery)
        await record.move_delivery("room", f"d{number}", "sending")
        await record.move_delivery("room", f"d{number}", "sent", receipt=f"$post-{number}")
    await record.reset_route(CHAT, source="matrix", owner=CHAT, reason="new")


async def use_what_came_later(record: Any) -> None:  # noqa: ANN401 - a record of any age
    """Use what the first versions did not have."""
    if hasattr(record, "archive_session"):
        await record.archive_session("ended")
        await record.undo("trip", ["m3"])
        await record.restore("trip", ["m3"])
        await record.undo("trip", ["m4"])
        await record.set_setting("trip", "model", "demo")
    if hasattr(record, "outbox"):
        await record.outbox.settle("room", "a0", CHAT, "shown")
        await record.access.allow("matrix", PERSON)
        await record.access.revoke("matrix", "@bob:example.org")
    if hasattr(record, "books"):
        note = await record.books.memory.add("person:admin", "Ann takes tea without sugar")
        await record.books.memory.edit(note.id, "Ann takes tea with milk")
        gone = await record.books.memory.add("person:admin", "to be forgotten")
        await record.books.memory.forget(gone.id)
    if hasattr(record, "people"):
        await record.people.link("person:matrix:@ann:example.org", "person:telegram:7")
        await record.people.show_code("person:matrix:@eve:example.org", identity="@eve:example.org", chat=CHAT)


async def die(home: Path) -> None:
    """Begin an answer and a delivery, and be killed."""
    async with hansard.Record.open(home) as record:
        await record.append("trip", said("last", "And how long does it take?"))
        await record.queue_turn("trip-fork")
        delivery = deliveries.Delivery(
            id="lost", session_id="room", channel="matrix", target=CHAT, message_id="a2", end_bytes=5
        )
        await record.create_delivery(delivery)
        await record.move_delivery("room", "lost", "sending")
        async with record.turn("trip") as turn, turn.reply(id="cut") as reply:
            await reply.write("It takes three")
            async for item in record.follow("trip"):
                if getattr(item, "message_id", "") == "cut" and item.text:
                    os.kill(os.getpid(), signal.SIGKILL)


def run_program(*command: str, environment: dict[str, str] | None = None) -> int:
    """Run a program to its end; return its code."""
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603 - git and this very file


def build(version: int, archives: Path) -> None:
    """Write the archive of one schema."""
    commit = COMMITS[version]
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
        with tarfile.open(archives / f"schema-{version}.tar.xz", "w:xz") as archive:
            for name in KEPT:
                with suppress(FileNotFoundError):
                    archive.add(home / name, name)


def main(words: list[str]) -> None:
    """Build homes, or do one part of one."""
    match words:
        case ["talk", home]:
            asyncio.run(talk(Path(home)))
        case ["die", home]:
            asyncio.run(die(Path(home)))
        case [folder, version]:
            build(int(version), Path(folder))
        case _:
            for each in COMMITS:
                build(each, ARCHIVES)


if __name__ == "__main__":
    main(sys.argv[1:])
