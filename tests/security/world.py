"""People of every rank, their chats, and a whole Hansard between them: what the state machine drives.

Everything of Hansard is real: intake, record, engine, delivery, the terminal's talk, import and export. In place of a
server there is a platform in memory, in place of a model one that does whatever anybody's words ask for, and that says
every word it was ever given. A witness writes down what really happened, in its order.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hansard.app.config import load_config
from hansard.app.wiring import App, open_app
from hansard.cli.talk import Talk
from hansard.delivery.sending import DeliveryTiming
from hansard.domain.messages import Message
from hansard.domain.settings import Busy
from hansard.engine.turns import Agent
from hansard.gateway.channel import Timing
from hansard.gateway.process import Gateway
from hansard.intake.speak import speak
from hansard.interop.jsonl import JsonlExport, home_facts
from hansard.interop.jsonl_import import import_file
from hansard.interop.transcripts import all_sessions, parents_first
from hansard.ports.model import Model
from hansard.record.messages.entries import Chunk, Entry
from hansard.record.questions import QuestionAnswered, QuestionAsked
from hansard.record.turns.entries import TurnEnded
from hansard.testing import Platform, RecordingChannel
from tests.security.cast import TOOLS, Obedient, WatchedPlatform, WatchedTool, Witness

AGENT = "@agent:example.org"
ACCOUNTS = {name: f"@{name}:example.org" for name in ("ann", "ann2", "bob", "bob2", "carl", "gus", "sam", "mal")}
PLACES = ("direct", "room", "thread", "den")
CODE = re.compile(r"/link ([a-z0-9]{4}-[a-z0-9]{4})\b")
YES_CODE = re.compile(r"/yes ([a-z0-9]{4}(?:-[a-z0-9]{4})?)\b")
WAIT_SECONDS_MAX = 120.0
QUIET_SECONDS = 0.005
"""How often to look when nothing is recorded."""

PACE = DeliveryTiming(down_seconds_min=0.02, down_seconds_max=0.2, heal_seconds=0.05, full_look_seconds=0.5)
TIMING = Timing(drain_seconds=0.0, flush_seconds=2, pace=PACE)

CONFIG = """
busy = "{busy}"
titles = false

[channels.matrix]
allow = ["ann", "carl", "@bob:example.org", "@bob2:example.org", "{room}"]
rooms = "{rooms}"

[people.carl]
matrix = ["@carl:example.org"]
terminal = true

[people.ann]
matrix = ["@ann:example.org", "@ann2:example.org"]

[limits]
turns_running_max = 100
person_turns_running_max = 100

[tools]
ask_seconds = 3600

[[tools.rules]]
tool = "mcp__bank__pay"
person = "carl"
do = "allow"

[[tools.rules]]
tool = "mcp__bank__pay"
person = "ann"
do = "ask"

[[tools.rules]]
tool = "mcp__web__read"
room = "{room_id}"
do = "ask"

[[tools.rules]]
tool = "mcp__web__read"
do = "allow"

[[tools.rules]]
tool = "mcp__web__peek"
do = "allow"
reads_only = true

[[tools.rules]]
tool = "look"
do = "allow"
untrusted = "ask"

[[tools.rules]]
tool = "note"
person = "@bob*"
do = "deny"

[[tools.rules]]
tool = "note"
do = "ask"
"""


class Setup(NamedTuple):
    """How a world is made, and what is wrong with it: a mutant changes what Hansard goes by, never the oracle."""

    rooms: str = "shared"
    busy: str = "queue"
    config: Callable[[str], str] = lambda text: text
    """What Hansard reads in place of config.toml."""
    agent: Callable[[Agent], Agent] = lambda agent: agent
    """What runs turns in place of the agent."""
    channel: type[RecordingChannel] = RecordingChannel
    revokes: bool = True
    """Whether Hansard is told of whom the admin bars."""
    imports: bool = True
    """Whether what is forged comes by an import; otherwise it is taken for words that are said."""


class Evidence(NamedTuple):
    """All that the oracle is given: the configuration, an export with facts, and what the witness wrote down."""

    config: str
    export: str
    witness: list[dict[str, Any]]


class World:
    """Hansard, people, and what they can do to it."""

    def __init__(self, home: Path, setup: Setup) -> None:
        """Nobody said anything yet."""
        self.home = home
        self.witness = Witness()
        self.platform = WatchedPlatform(self.witness)
        self.model = Obedient()
        self.tokens = itertools.count(1)
        self.direct = {name: self.platform.create_room(account, AGENT) for name, account in ACCOUNTS.items()}
        self.room = self.platform.create_room(*ACCOUNTS.values(), AGENT)
        self.den = self.platform.create_room(*ACCOUNTS.values(), AGENT)
        room_id = self.room.removeprefix("matrix:room:")
        self.config = CONFIG.format(rooms=setup.rooms, busy=setup.busy, room=room_id, room_id=room_id)
        self.setup = setup
        self.said: list[tuple[str, str, str]] = []
        """Events that can be edited: (chat, account, id)."""
        self.forged = ""
        """The session that was forged last."""
        self._read: dict[str, tuple[str, int]] = {}
        """How far each session was read, and which turn waits there for an answer; empty: none."""
        self.errors: list[BaseException] = []
        self.stop = asyncio.Event()
        self.app: App
        self.talk: Talk

    # Its life.

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[World]:
        """Run everything for as long as this lasts."""
        self.home.mkdir(mode=0o700, parents=True)
        path = self.home / "config.toml"
        path.write_text(self.setup.config(self.config))
        path.chmod(0o600)
        settings = load_config(self.home, {}, {}).settings
        async with AsyncExitStack() as stack:
            opened = open_app(self.home, settings, {}, lambda _, error: self.errors.append(error))
            self.app = await stack.enter_async_context(opened)
            self.app.runner.use_agent(self._agent())
            channel = self.setup.channel(self.platform, AGENT)
            gateway = Gateway(self.app, [channel], TIMING)
            task = asyncio.create_task(gateway.run(self.stop))
            self.talk = Talk(self.app, self._draw)
            try:
                await until(lambda: self.platform.calls["poll"] > 1 or task.done())
                yield self
            finally:
                await self.talk.close()
                self.platform.flows.set()
                self.stop.set()
                await asyncio.wait({task})
            task.result()

    def _agent(self) -> Agent:
        own = self.app.wiring.agent()
        watched = [WatchedTool(name, self.witness) for name in TOOLS.values() if name != "session_search"]
        tools = {**own.tools, **{tool.spec.name: tool for tool in watched}}

        async def models() -> Sequence[Model]:
            return [self.model]

        return self.setup.agent(msgspec.structs.replace(own, models=models, tools=tools, choose=None, is_named=None))

    def _draw(self, item: Entry | Chunk) -> None:
        """The terminal draws something."""
        text = item.text
        message_id = item.message_id if isinstance(item, Chunk) else item.id
        if text:
            self.witness.write("drawn", message_id=message_id, text=text, session_id=self.talk.session_id)

    async def calm(self) -> None:
        """Wait until everything is answered and shown, or waits for an answer of somebody."""
        record, woken = self.app.record, asyncio.Event()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            with record.notify(woken):
                while True:
                    woken.clear()
                    received = await record.intake.cursor("matrix", AGENT) == self.platform.cursor
                    if received and await self._is_still():
                        break
                    with suppress(TimeoutError):
                        async with asyncio.timeout(QUIET_SECONDS):
                            await woken.wait()
        await self.talk.caught_up()

    async def _is_still(self) -> bool:
        """Return whether nothing runs but what waits for an answer, and nothing waits to be shown that could be."""
        record = self.app.record
        if await record.turns.list_queued() or self.app.runner.busy:
            asking = await self._asking()
            waits = {turn.session_id for turn in await record.turns.list_queued()}
            if self.app.runner.running != len(asking) or waits - asking:
                return False
        return not self.platform.flows.is_set() or not await record.deliveries.list_waiting("matrix")

    async def _asking(self) -> set[str]:
        """Return the sessions in which a turn waits for an answer."""
        for session in await all_sessions(self.app.record):
            shared = session.parent.at if session.parent is not None and session.parent.link == "fork" else 0
            asking, seq = self._read.get(session.id, ("", shared))
            for entry in await self.app.record.sessions.read_entries(session.id, seq):
                if isinstance(entry.body, QuestionAsked):
                    asking = entry.body.turn_id
                elif isinstance(entry.body, QuestionAnswered):
                    asking = ""
                elif isinstance(entry.body, TurnEnded) and entry.body.turn_id == asking:
                    asking = ""  # another one that ends had only been queued
                seq = entry.seq
            self._read[session.id] = (asking, seq)
        return {session_id for session_id, (asking, _) in self._read.items() if asking}

    # What people do.

    def chat(self, name: str, place: str) -> str:
        """Return where somebody is: in a direct chat, in the room that is listed, in its thread, in another room."""
        if place == "direct":
            return self.direct[name]
        if place == "den":
            return self.den
        return f"{self.room}:thread:$thread" if place == "thread" else self.room

    def token(self) -> str:
        """Return a word that nobody said before."""
        return f"word{next(self.tokens)}x"  # longer than the code of a question, which is drawn

    async def say(self, name: str, place: str, text: str, *, calm: bool = True) -> str:
        """Somebody says something to the agent; return the event."""
        chat, account = self.chat(name, place), ACCOUNTS[name]
        if account not in self.platform.room(chat).members:
            return ""
        # The witness writes before anything can be received.
        number = len(self.witness.events)
        self.witness.write("said", sender=account, chat=chat, text=text, is_direct=place == "direct")
        event_id = self.platform.say(chat, account, text, to=AGENT)
        self.witness.events[number] |= {"event_id": event_id, "sent_at_ms": self.platform.timeline(chat)[-1].sent_at_ms}
        self.said.append((chat, account, event_id))
        if calm:
            await self.calm()
        return event_id

    async def ask(self, name: str, place: str, *tags: str, calm: bool = True) -> str:
        """Somebody says new words that name tools."""
        words = " ".join(["harbour", self.token(), *(f"#{tag}" for tag in tags)])
        return await self.say(name, place, words, calm=calm)

    async def answer(self, name: str, place: str, text: str) -> None:
        """Somebody says yes or no; `{yes}` is the command to the question that was shown last there."""
        await self.say(name, place, text.format(yes=yes_in(self.platform, self.chat(name, place))))

    async def choose(self, name: str, place: str, choice: str) -> None:
        """Somebody presses a button, or reacts, beside the question that was shown last there."""
        chat, account = self.chat(name, place), ACCOUNTS[name]
        shown = [each for each in self.platform.timeline(chat) if each.sender == AGENT and "/yes" in each.text]
        if not shown or account not in self.platform.room(chat).members:
            return
        number = len(self.witness.events)
        self.witness.write("said", sender=account, chat=chat, text="", choice=choice, is_direct=place == "direct")
        self.witness.events[number]["event_id"] = self.platform.choose(chat, account, shown[-1].id, choice)
        await self.calm()

    async def type(self, text: str) -> None:
        """The person at the terminal types something."""
        self.witness.write("typed", text=text)
        await self.talk.take_line(text)
        await self.calm()

    async def edit(self, pick: int, *tags: str) -> None:
        """Somebody edits what they had said; or somebody else tries to."""
        if not self.said:
            return
        chat, account, event_id = self.said[pick % len(self.said)]
        sender = account if pick % 3 else ACCOUNTS["sam"]
        text = " ".join(["harbour", self.token(), *(f"#{tag}" for tag in tags)])
        number = len(self.witness.events)
        self.witness.write("said", sender=sender, chat=chat, text=text, is_direct=chat in self.direct.values())
        self.witness.events[number]["event_id"] = self.platform.edit(chat, sender, event_id, text)
        await self.calm()

    async def resume(self, name: str, place: str, pick: int) -> None:
        """Somebody wants to go on in a session, whosever it is."""
        found = await all_sessions(self.app.record)
        named = found[pick % len(found)].id if found else "1"
        await self.say(name, place, f"/resume {named if pick % 2 else pick}")

    async def link(self, one: str, other: str) -> None:
        """A person says in one chat who they are in another."""
        await self.say(one, "direct", "/link")
        codes = CODE.findall(" ".join(text for _, text in self.platform.seen(self.direct[one])[-1:]))
        if codes:
            await self.say(other, "direct", f"/link {codes[-1]}")

    async def revoke(self, name: str) -> None:
        """The admin bars somebody."""
        await self.calm()
        if self.setup.revokes:
            await self.app.record.access.revoke("matrix", ACCOUNTS[name])
        self.witness.write("revoked", account=ACCOUNTS[name])

    async def allow(self, name: str) -> None:
        """The admin allows somebody by name."""
        await self.calm()
        # Written first: whoever is allowed may be told so at once.
        self.witness.write("allowed", account=ACCOUNTS[name])
        await self.app.record.access.allow("matrix", ACCOUNTS[name])

    async def pair(self, name: str) -> None:
        """A stranger asks, and the admin approves the code."""
        await self.say(name, "direct", "hello")
        known = await self.app.record.access.find("matrix", ACCOUNTS[name])
        if known.code:
            self.witness.write("allowed", account=ACCOUNTS[name])
            await self.app.record.access.approve(known.code)
        await self.calm()

    async def dam(self) -> None:
        """Posts wait from now on, or get through again."""
        if self.platform.flows.is_set():
            self.platform.flows.clear()
        else:
            self.platform.flows.set()
            await self.calm()

    async def leave(self, name: str) -> None:
        """Somebody leaves the room, or comes back to it."""
        members = self.platform.room(self.room).members
        (members.discard if ACCOUNTS[name] in members else members.add)(ACCOUNTS[name])

    async def forge(self, owner: str, author: str, *tags: str) -> None:
        """The admin imports a file in which somebody pretends that somebody else asked for something."""
        token, number = self.token(), next(self.tokens)
        session_id = f"20261115-2012{number % 60:02d}-fg{number:04d}"
        self.forged = session_id
        said = f"harbour {token} {' '.join(f'#{tag}' for tag in tags)}"
        chat = self.room if author else ""
        if not self.setup.imports:
            self.witness.write("imported", token=token, owner=owner)
            session = await self.app.record.create_session(id=session_id, source="matrix", owner=owner)
            spoken = await speak(
                self.app.record, session.id, [Message.user(said, author=author, chat=chat)], Busy.QUEUE
            )
            self.app.runner.wake(session.id, spoken.turn_id)
            await self.calm()
            return
        lines: list[dict[str, object]] = [
            {"type": "hansard", "version": 1},
            {"type": "session", "id": session_id, "source": "matrix", "owner": owner, "title": f"forged {number}"},
            {
                "type": "message",
                "session_id": session_id,
                "id": f"forged-{number}",
                "role": "user",
                "parts": [{"type": "text", "text": said}],
                "author": author,
                "chat": chat,
            },
            {"type": "end", "session_id": session_id, "messages": 1},
        ]
        await self._import(lines, token, owner)

    async def _import(self, lines: list[dict[str, object]], token: str, owner: str) -> None:
        path = self.home.parent / "forged.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.witness.write("imported", token=token, owner=owner)
        await import_file(self.app.record, path)

    async def export(self) -> str:
        """Return an export of everything, with its facts."""
        record = self.app.record
        writer = JsonlExport(lambda _: None, blobs=False, facts=True)
        chosen = parents_first(await all_sessions(record))
        pieces = [writer.begin(chosen)]
        for session in chosen:
            pieces += [piece async for piece in writer.session(record, session)]
        pieces += [piece async for piece in home_facts(record)]
        return b"".join(pieces).decode()

    async def carry_over(self) -> None:
        """The admin imports what was exported here: nothing of it is new."""
        path = self.home.parent / "own.jsonl"
        path.write_text(await self.export())
        await import_file(self.app.record, path)

    async def evidence(self) -> Evidence:
        """Return all that the oracle is given."""
        self.platform.flows.set()
        await self.calm()
        assert not self.errors, self.errors
        return Evidence(self.config, await self.export(), self.witness.events)


def yes_in(platform: Platform, chat: str) -> str:
    """Return the command that says yes to the question which was shown last in a chat."""
    shown = [text for sender, text in platform.seen(chat) if sender == AGENT and "/yes" in text]
    codes = YES_CODE.findall(shown[-1]) if shown else []
    return f"/yes {codes[0]}" if codes else "/yes"


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - the platform has no bell for whoever looks on
            await asyncio.sleep(0.005)
