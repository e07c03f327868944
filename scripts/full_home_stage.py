"""What the parts of `full_home.py` share: who talks where, and a record that is written to by a fixed clock."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from hansard import Message, Record
from hansard.domain.access import Standing
from hansard.domain.arrivals import Arrival, ArrivalKind, Awaited, IntakeRules, Origin
from hansard.domain.budgets import Usage
from hansard.domain.deliveries import Delivery
from hansard.domain.ids import delivery_id
from hansard.domain.messages import Role, ToolCall
from hansard.domain.people import By
from hansard.domain.questions import Given, Scope, hash_call
from hansard.domain.requests import ToolSpec
from hansard.domain.settings import Busy
from hansard.record.questions import QuestionAsked
from hansard.testing import FakeClock

if TYPE_CHECKING:
    from hansard.domain.messages import Part
    from hansard.record.intake.events import Received
    from hansard.record.turns.holding import Turn

START_MICROSECONDS = FakeClock().now_microseconds()
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
ADMIN = "person:admin"
ANN, BOB, EVE, MALLORY = (f"@{name}:example.org" for name in ("ann", "bob", "eve", "mallory"))
AGENT = "@agent:example.org"
BOT = "hansard_bot"
ROOM = "matrix:room:!garden:example.org"
DIRECT = "matrix:room:!ann:example.org"
PHONE = "telegram:chat:7"
BY_ADMIN = (By(person=ADMIN),)

ECHO = ToolSpec(name="echo", description="Gives the text back.", parameters='{"type":"object","properties":{}}')
CLOCK = ToolSpec(name="clock", description="Tells the time.")
ODD_WORDS = "NUL \0, half a pair \ud83d, a whole one \U0001f600, \u2028 a separator, \x1b[31mred"
LONG_WORDS = "The ferry leaves at noon. Das Schiff fährt um zwölf. 船は正午に出ます。 " * 12


class Cut(Exception):
    """An answer is left in the middle."""


RULES = IntakeRules()


def picture(red: int) -> bytes:
    """Return a small PNG picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes((red, 80, 40)) * 4 for _ in range(4))
    head = struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Story:
    """A record that is written to, and the clock that it goes by."""

    def __init__(self, record: Record, clock: FakeClock, part: str) -> None:
        """Nothing has happened in this part."""
        self.record = record
        self.clock = clock
        self._part = part
        self._events = 0

    def later(self, seconds: float = MINUTE) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    def event_id(self) -> str:
        """Return an id of the platform's that was not used before."""
        self._events += 1
        return f"$event-{self._part}-{self._events}"

    async def answer(self, session_id: str, reply_id: str, *words: str, tokens: int = 20) -> None:
        """Let a turn run to its end."""
        self.later()
        async with self.record.turn(session_id, by=BY_ADMIN) as turn:
            await self.say(turn, reply_id, *words)
            turn.add_usage("scripted", Usage(input_tokens=100, output_tokens=tokens, cost_micros=7))

    async def say(self, turn: Turn, reply_id: str, *words: str, calls: tuple[ToolCall, ...] = ()) -> None:
        """Say something in a turn."""
        async with turn.reply(id=reply_id) as reply:
            for piece in words:
                await reply.write(piece)
            for call in calls:
                reply.add(call)
        self.later(1)

    async def ask(self, session_id: str, message_id: str, text: str | list[Part], *, queue: bool = True) -> None:
        """Say something at the terminal."""
        self.later()
        message = Message.user(text, id=message_id, author=ADMIN)
        await self.record.accept([(session_id, message)], queue_turn=queue)

    def arrival(
        self,
        text: str | list[Part],
        *,
        chat: str = ROOM,
        identity: str = ANN,
        kind: ArrivalKind = ArrivalKind.ASK,
        files: tuple[Awaited, ...] = (),
        answer: Given | None = None,
        standing: Standing = Standing.LISTED,
        busy: Busy = Busy.QUEUE,
    ) -> Arrival:
        """Return something that is said in a chat."""
        self.later()
        channel = chat.partition(":")[0]
        event_id = self.event_id()
        is_command = kind in {ArrivalKind.COMMAND, ArrivalKind.NEW}
        message = Message.make(
            Role.NOTICE if is_command else Role.USER,
            text,
            id=f"m{event_id}",
            author=identity,
            chat=chat,
            event_id=event_id,
        )
        message = msgspec.structs.replace(
            message,
            is_observed=kind is ArrivalKind.OBSERVED,
            is_unverified=kind is ArrivalKind.UNVERIFIED,
            at_microseconds=self.clock.now_microseconds() - 2_000_000,
        )
        is_room = chat == ROOM
        origin = Origin(
            channel=channel,
            account=account_of(channel),
            event_id=event_id,
            key=chat,
            chat=chat,
            owner=f"room:matrix:{ROOM.removeprefix('matrix:room:')}" if is_room else f"person:{channel}:{identity}",
            identity=identity,
            standing=standing,
            is_direct=not is_room,
            cursor=f"s-{event_id}",
        )
        return Arrival(origin=origin, said=(("", message),), kind=kind, files=files, answer=answer, busy=busy)

    async def hear(self, arrival: Arrival, rules: IntakeRules = RULES) -> Received:
        """Take in what was said in a chat."""
        return await self.record.intake.receive(arrival, rules)

    async def session_of(self, chat: str) -> str:
        """Return the session that a chat leads to."""
        route = await self.record.routes.read(chat)
        assert route is not None, chat
        return route.session_id

    async def edit(self, about: Arrival, text: str) -> None:
        """Edit what was said in a chat."""
        await self.record.intake.edit_message(self.change(about), about.origin.event_id, text)

    async def retract(self, about: Arrival) -> None:
        """Delete what was said in a chat."""
        await self.record.intake.retract_message(self.change(about), about.origin.event_id)

    def change(self, about: Arrival) -> Origin:
        """Return where a change of what was said comes from."""
        self.later()
        return msgspec.structs.replace(about.origin, event_id=self.event_id(), standing=Standing.LISTED, cursor="")

    async def show(self, session_id: str, message_id: str, chat: str, *, number: int = 1, receipt: str = "") -> None:
        """Deliver all the words of a message in one post."""
        message, _ = await self.record.deliveries.load_message(session_id, message_id, chat)
        delivery = self.delivery(session_id, message_id, chat, number, len(message.text.encode()))
        await self.record.deliveries.begin(delivery)
        await self.record.deliveries.move(
            session_id, delivery.id, "sent", receipt=receipt or f"$post-{delivery.id[-8:]}"
        )

    def delivery(self, session_id: str, message_id: str, chat: str, number: int, end_bytes: int) -> Delivery:
        """Return a delivery of the first words of a message."""
        return Delivery(
            id=delivery_id(message_id, chat, number),
            session_id=session_id,
            channel=chat.partition(":")[0],
            target=chat,
            message_id=message_id,
            end_bytes=end_bytes,
        )


def account_of(channel: str) -> str:
    """Return what the agent is called on a channel."""
    return AGENT if channel == "matrix" else BOT


async def cut_answer(turn: Turn, reply_id: str, text: str, *, thought: str = "") -> None:
    """Say the beginning of an answer, and leave it."""
    with suppress(Cut):
        async with turn.reply(id=reply_id) as reply:
            if thought:
                await reply.write(thought, part="reasoning")
            await reply.write(text)
            raise Cut


def question_about(call: ToolCall, code: str, people: tuple[tuple[str, str], ...]) -> QuestionAsked:
    """Return the question whether a call may be run."""
    return QuestionAsked(
        turn_id="",
        call_id=call.id,
        message_id="",
        people=people,
        tool=call.name,
        call_hash=hash_call(call.name, call.arguments),
        code=code,
        scopes=tuple(Scope),
    )
