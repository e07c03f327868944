"""A gateway on a real homeserver: in this process, or as the program that people run."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import nio

from hansard.channels.matrix import MatrixChannel
from hansard.cli.main import main
from hansard.delivery.audit import audit_chat
from hansard.domain.deliveries import Operation
from hansard.domain.messages import Message, Role
from hansard.gateway.health import Health, ask_health
from hansard.record.api import Record
from tests.acceptance.shown.program import run_forked
from tests.channels.matrix.people import Account, Peer, channel_of
from tests.channels.matrix.synapse import SERVER_NAME
from tests.gateway.stage import WAIT_SECONDS_MAX, is_idle

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-c", "from hansard.cli.main import main; main()")


NURSERY = multiprocessing.get_context("forkserver")
"""Starts gateways from a process that has imported them: most of a start is imports, which no kill is about."""
NURSERY.set_forkserver_preload(["hansard.cli.gateway", "nio", "nio.crypto", "nio.store", __name__])


class Bot(NamedTuple):
    """The agent's account, its home, and where it reaches the homeserver."""

    account: Account
    home: Path
    url: str
    additions: tuple[tuple[str, str], ...] = ()
    """What else is in the environment of its programs."""

    @property
    def environment(self) -> dict[str, str]:
        """What the program is given."""
        return {
            **os.environ,
            "HANSARD_HOME": str(self.home),
            "HANSARD_MATRIX_PASSWORD": self.account.password,
            "PYTHONPATH": str(ROOT / "src"),
            **dict(self.additions),
        }

    @property
    def log(self) -> Path:
        """Where the gateway logs to: not in the home, whose disk may be full."""
        return self.home.with_name("gateway.log")


class Program(Protocol):
    """A gateway that was started."""

    @property
    def pid(self) -> int:
        """Its process."""

    def poll(self) -> int | None:
        """Return how it ended; None while it runs."""

    def wait(self, timeout: float) -> int:
        """Wait for its end."""

    def send_signal(self, number: int, /) -> None:
        """Send it a signal."""


class Offspring:
    """A gateway from the nursery."""

    def __init__(self, bot: Bot) -> None:
        """Start it."""
        self._process = NURSERY.Process(target=run_offspring, args=(bot.environment, str(bot.log)))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return how it ended; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Wait for its end."""
        self._process.join(timeout)
        code = self._process.exitcode
        assert code is not None, "it runs on"
        return code

    def send_signal(self, number: int, /) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)


def run_offspring(environment: dict[str, str], log: str) -> None:
    """Be `hansard gateway`."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(descriptor, 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["hansard", "gateway"]
    main()


def write_config(bot: Bot, script: Path, **settings: Any) -> None:  # noqa: ANN401
    """Write what a person would write into config.toml."""
    bot.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    bot.home.chmod(0o700)
    lines = [f"model = {json.dumps(f'scripted:{script}')}"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    lines += [
        "[channels.matrix]",
        f"homeserver = {json.dumps(bot.url)}",
        f"user_id = {json.dumps(bot.account.user_id)}",
        f"allow = {json.dumps([f'*:{SERVER_NAME}'])}",
        "[gateway]",
        "drain_seconds = 10",
    ]
    (bot.home / "config.toml").write_text("\n".join(lines) + "\n")


def start(bot: Bot) -> Program:
    """Start `hansard gateway`."""
    with bot.log.open("ab") as log:
        return subprocess.Popen([*PROGRAM, "gateway"], env=bot.environment, stderr=log)


async def until_healthy(bot: Bot, process: Program, is_so: Callable[[Health], bool]) -> None:
    """Wait until a gateway says something of itself."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while True:
            assert process.poll() is None, bot.log.read_text()[-2000:]
            health = await ask_health(bot.home)
            if health is not None and health.pid == process.pid and is_so(health):
                return
            await asyncio.sleep(0.1)


async def ready(bot: Bot, process: Program) -> None:
    """Wait until a gateway that was started is connected."""
    await until_healthy(bot, process, lambda health: health.status == "ok")


@asynccontextmanager
async def running(bot: Bot, started: Callable[[Bot], Program] = Offspring) -> AsyncIterator[Program]:
    """Run `hansard gateway` for as long as this lasts; end it as systemd does."""
    process = started(bot)
    try:
        await ready(bot, process)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(120) in {143, -9}


def kill(process: Program) -> None:
    """End a gateway without warning."""
    process.send_signal(signal.SIGKILL)
    process.wait(120)


async def joined(person: Peer, room_id: str, user_id: str) -> None:
    """Wait until somebody has accepted an invitation."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not is_joined(person, room_id, user_id):
            answer = await person.client.sync(timeout=2000)
            assert isinstance(answer, nio.SyncResponse), answer
    await person.sync()


def is_joined(person: Peer, room_id: str, user_id: str) -> bool:
    """Return whether somebody is in a room, as far as a member's client knows."""
    room = person.client.rooms.get(room_id)
    return room is not None and user_id in room.users and user_id not in room.invited_users


async def rest(bot: Bot) -> None:
    """Wait until nothing runs, nothing waits to run, and nothing waits to be shown."""
    async with asyncio.timeout(WAIT_SECONDS_MAX), Record.open(bot.home) as record:
        quiet = 0
        while quiet < 3:
            quiet = quiet + 1 if await is_idle(record, "matrix") else 0
            await asyncio.sleep(0.1)


class Timeline(NamedTuple):
    """A room as a member's own client reads it, in its order."""

    events: list[Any]

    def by(self, sender: str) -> list[Any]:
        """Return somebody's events."""
        return [event for event in self.events if event.sender == sender]


async def read_timeline(person: Peer, room_id: str) -> Timeline:
    """Read a room with a separate client."""
    found: list[Any] = []
    token = ""
    await person.sync()
    while True:
        answer = await person.client.room_messages(room_id, start=token, limit=200)
        assert isinstance(answer, nio.RoomMessagesResponse), answer
        found += [event for event in answer.chunk if isinstance(event, nio.RoomMessage | nio.MegolmEvent)]
        if not answer.end or not answer.chunk:
            return Timeline(found[::-1])
        token = answer.end


async def transcripts(record: Record, chat: str) -> list[Message]:
    """Return every message of the sessions that a chat was ever in, session by session."""
    found: list[Message] = []
    for session in await record.sessions(source="matrix"):
        messages = await record.load_transcript(session.id)
        if any(message.chat == chat for message in messages):
            found += messages
    return found


class Talk(NamedTuple):
    """A room, somebody in it, and the ids of what people said there."""

    person: Peer
    room_id: str
    sent: list[str]

    @property
    def chat(self) -> str:
        """The chat that the agent knows it by."""
        return f"matrix:room:{self.room_id}"

    async def say(self, text: str) -> None:
        """Say something, and remember it."""
        self.sent.append(await self.person.say(self.room_id, text))


async def check_rooms(bot: Bot, talks: Sequence[Talk]) -> None:
    """Compare what members' own clients read with the record."""
    channel = channel_of(bot.account, bot.url, bot.home)
    try:
        async with Record.open(bot.home) as record:
            for talk in talks:
                await check_room(bot, record, channel, talk)
    finally:
        await channel.close()


async def check_room(bot: Bot, record: Record, channel: MatrixChannel, talk: Talk) -> None:
    """Compare one room with the record, and let the audit do the same."""
    timeline = await read_timeline(talk.person, talk.room_id)
    messages = await transcripts(record, talk.chat)
    said = [message.event_id for message in messages if message.role is Role.USER]
    assert Counter(said) == Counter(talk.sent), "every message is recorded once"
    in_room = [event.event_id for event in timeline.events if event.event_id in set(said)]
    assert said == in_room, "the record has them in the order of the room"
    receipts = {each.receipt: each for each in await record.deliveries.list_of_chat(talk.chat) if each.receipt}
    texts = {message.id: message.text for message in messages}
    own = timeline.by(bot.account.user_id)
    assert {event.event_id for event in own} <= receipts.keys(), "what anybody sees is in the record"
    for event in own:
        body = event.source["content"].get("m.new_content", event.source["content"])["body"]
        assert body in texts[receipts[event.event_id].message_id], "with its words"
    shown = [receipts[event.event_id] for event in own]
    posts = Counter((each.message_id, each.start_bytes) for each in shown if each.operation is Operation.POST)
    assert not [post for post, count in posts.items() if count > 1], "nothing is posted twice"
    audit = await audit_chat(record, channel, "matrix", bot.account.user_id, talk.chat)
    assert audit.ok, audit.differences
    assert audit.by_agent == len(own)


def run_audit(bot: Bot, room_id: str) -> subprocess.CompletedProcess[str]:
    """Run `hansard audit`, as people do."""
    return run_forked("audit", f"matrix:{room_id}", variables=bot.environment)
