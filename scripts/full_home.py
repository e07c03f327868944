"""Build a home that has every kind of entry and a row in every table: `python scripts/full_home.py build FOLDER`.

`python scripts/full_home.py pack` builds one, packs it into tests/acceptance/full_home/home.tar.xz and reads it: what
exports, commands and requests to models give becomes tests/acceptance/full_home/golden.tar.xz. Both are made once, by
the code of one commit. The code of later commits has to read the same from that home (tests/acceptance).

Four processes write the home, two of which are killed. The first of these is killed in the middle of an answer, and the
next process recovers. The last is killed in the middle of a commit, with answers, a question and a delivery open: its
home is packed as the kill left it. Clock and ids are fixed where a caller gives them; salts and derived ids differ.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from full_home_chats import (
    bring_files,
    change_minds,
    deliver,
    follow_a_person,
    let_people_in,
    reset_chats,
    talk_in_a_room,
)
from full_home_stage import (
    ADMIN,
    ANN,
    BOB,
    DAY,
    HOUR,
    ROOM,
    START_MICROSECONDS,
    Story,
    question_about,
)
from full_home_terminal import (
    ask_people,
    bring_in,
    declare,
    end_sessions,
    fork_sessions,
    reach_limits,
    remember,
    run_scripted,
    sum_up,
    talk_at_the_terminal,
    use_tools,
)

from hansard import Message, Record
from hansard.domain.arrivals import ArrivalKind
from hansard.domain.messages import ToolCall
from hansard.domain.questions import Given, Scope
from hansard.domain.settings import Busy
from hansard.record.schema import SCHEMA
from hansard.testing import FakeClock, Wiring

if TYPE_CHECKING:
    from hansard.record.turns.holding import Turn

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "acceptance" / "full_home"
ARCHIVE = FOLDER / "home.tar.xz"
KEPT = ("state.db", "state.db-wal", "home.jsonl", "sessions", "blobs")

PARTS = {"talk": 0, "break_off": 10 * DAY, "recover": 10 * DAY + HOUR, "die": 10 * DAY + 2 * HOUR}
"""The processes that write the home, in their order, each with the seconds after the start at which it begins."""


# The first process: it ends as it should.


async def talk(story: Story) -> None:
    """Do everything that leaves something in a record."""
    await declare(story)
    await remember(story)
    await talk_at_the_terminal(story)
    await use_tools(story)
    await ask_people(story)
    await run_scripted(story)
    await change_minds(story)
    await fork_sessions(story)
    await sum_up(story)
    await end_sessions(story)
    await bring_in(story)
    await talk_in_a_room(story)
    await bring_files(story)
    await deliver(story)
    await reset_chats(story)
    await follow_a_person(story)
    await let_people_in(story)
    await reach_limits(story)
    report = await story.record.verify()
    assert report.ok, report.findings


# The second process: it is killed while it answers.


async def break_off(story: Story) -> None:
    """Begin answers in a session and in a chat, and be killed."""
    record = story.record
    await record.create_session(id="lost", source="cli", title="Lost")
    await story.ask("lost", "lost-1", "How long is the bridge?")
    session = await story.session_of(ROOM)
    await story.hear(story.arrival("Are you there?"))
    turns = record.turn("lost"), record.turn(session)
    async with (
        turns[0] as turn,
        turns[1] as other,
        turn.reply(id="lost-r1") as reply,
        other.reply(id="room-lost") as said,
    ):
        await said.write("I am")
        await reply.write("Let me think.", part="reasoning")
        await reply.write("It is a mile")
        await wait_for_words(record, "lost", "lost-r1", "a mile")
        await wait_for_words(record, session, "room-lost", "I am")
        kill_me()


async def wait_for_words(record: Record, session_id: str, message_id: str, words: str) -> None:
    """Wait until the words of a reply are in the record."""
    while words not in (await record.messages.read(session_id, message_id)).text:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def kill_me() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


# The third process: it takes up what the second left.


async def recover(story: Story) -> None:
    """Queue what was lost, and go on with one of them."""
    record = story.record
    for session_id, turn_id in await record.turns.list_lost():
        await record.turns.queue_resumption(session_id, turn_id, ())
    async with record.turn("lost") as turn:
        turn.go_on("lost-r1")
        await story.say(turn, "lost-r2", " and a half.")
    await story.ask("lost", "lost-2", "And how wide?")
    report = await record.verify()
    assert report.ok, report.findings


# The fourth process: it is killed within a commit.

armed = False


def die_at_logging(step: str) -> None:
    """Be killed when the first of several logs was written, before the commit."""
    if armed and step == "logging":
        kill_me()


async def answer_in_time(story: Story, turn: Turn) -> None:
    """Ask about a call at the terminal, and be answered; steer the turn from a chat."""
    call = ToolCall(id="lost_call", name="echo", arguments='{"text":"wide"}')
    await story.say(turn, "lost-r8", "May I look?", calls=(call,))
    notice = Message.notice("May echo run here?", id="lost-n8")
    await turn.ask(notice, question_about(call, "b4b4", ((ADMIN, ""),)))
    await story.record.questions.note_shown("lost", notice.id)
    await story.record.questions.answer("lost", Given(scope=Scope.ONCE), author=ADMIN)
    steering = Message.user("In metres.", id="lost-3", author="99", chat="telegram:chat:99")
    await story.record.accept([("lost", steering)], queue_turn=True, busy=Busy.STEER)
    await turn.append(Message.tool("lost_call", "wide", id="lost-r8.0"))


async def die(story: Story) -> None:
    """Leave an open answer with a question, a delivery under way and a unit that is torn."""
    global armed  # noqa: PLW0603 - the writer's thread looks at it
    record = story.record
    session = await story.session_of(ROOM)
    await record.turns.stop(session, "a new day", queued=True)
    await story.hear(story.arrival("Echo the last"))
    await record.deliveries.begin(story.delivery(session, "room-r3", ROOM, 1, 8))
    async with record.turn(session) as turn, record.turn("lost") as other:
        call = ToolCall(id="last_call", name="echo", arguments='{"text":"last"}')
        await story.say(turn, "room-r9", "May I, once more?", calls=(call,))
        notice = Message.notice("May echo run, once more?", id="room-n9")
        await turn.ask(notice, question_about(call, "c3p9", ((ANN, ROOM), (BOB, ROOM))))
        await answer_in_time(story, other)
        async with other.reply(id="lost-r9") as reply:
            await reply.write("Hm.", part="reasoning")
            await reply.write("It is as wide as ")
            await reply.write("it is \udc00")
            await wait_for_words(record, "lost", "lost-r9", "it is")
            armed = True
            await story.hear(story.arrival("Half of this is in the logs", identity=BOB, kind=ArrivalKind.KEPT))
    raise AssertionError("nobody killed this process")


# Building.


def tear(home: Path) -> None:
    """Leave half a line at the end of a log that is otherwise whole, as a power cut does."""
    path = home / "sessions" / "other" / "trip-fork.jsonl"
    line = path.read_bytes().splitlines(keepends=True)[-1]
    with path.open("ab") as log:
        log.write(line[: len(line) // 2])


async def run_part(part: str, home: Path) -> None:
    """Do what one process does."""
    socket.gethostname = lambda: "example"  # it is a part of names in the record
    clock = FakeClock(START_MICROSECONDS)
    clock.advance(PARTS[part])
    work = {"talk": talk, "break_off": break_off, "recover": recover, "die": die}[part]
    async with Record.open(home, wiring=Wiring(clock=clock, reach=die_at_logging)) as record:
        await work(Story(record, clock, part))


def build(home: Path) -> None:
    """Write a home with the code that is installed."""
    for part in PARTS:
        expected = -signal.SIGKILL if part in {"break_off", "die"} else 0
        command = [sys.executable, __file__, part, str(home)]
        if (code := subprocess.run(command, check=False).returncode) != expected:  # noqa: S603 - this very file
            raise SystemExit(f"{part} ended with {code}, not {expected}")
    tear(home)
    if missing := missing_in(home):
        raise SystemExit(f"the home lacks {', '.join(missing)}")


def missing_in(home: Path) -> list[str]:
    """Return the kinds of entries that a home has none of, and the tables that are empty."""
    with closing(apsw.Connection(str(home / "state.db"))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        kinds = {kind for (kind,) in connection.execute("SELECT DISTINCT kind FROM entry")}
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        empty = [name for name in tables if not connection.execute(f"SELECT EXISTS (SELECT 1 FROM {name})").get]  # noqa: S608
    return [*sorted(set(SCHEMA.kinds) - kinds), *empty]


def pack() -> None:
    """Build a home, pack it, and keep what is read from it."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        build(home)
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            for name in KEPT:
                archive.add(home / name, name, filter=anonymous)
    subprocess.run([sys.executable, "-m", "tests.acceptance.full_home_reading"], cwd=ROOT, check=True)


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member of an archive without the names of whoever packs it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = START_MICROSECONDS // 1_000_000
    return member


def main() -> None:
    """Build a home, pack one, or do one part of one."""
    match sys.argv[1:]:
        case ["build", home]:
            build(Path(home))
        case ["pack"]:
            pack()
        case [part, home] if part in PARTS:
            asyncio.run(run_part(part, Path(home)))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
