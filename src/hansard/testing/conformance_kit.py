"""What the contracts of the conformance suite share: the backend under test, their table, and how they check."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from functools import wraps
from inspect import cleandoc
from typing import TypeVar

from hansard.domain.access import Standing
from hansard.domain.arrivals import Arrival, ArrivalKind, IntakeRules, Origin
from hansard.domain.chats import message_id_of
from hansard.domain.messages import Message, Role, Status
from hansard.domain.settings import Busy
from hansard.errors import HansardError
from hansard.record.api import Record
from hansard.record.intake.events import Received
from hansard.record.messages.entries import Chunk, Entry
from hansard.record.turns.holding import Turn
from hansard.testing.fakes import FakeClock

OpenRecord = Callable[[], AbstractAsyncContextManager[Record]]
Elsewhere = Callable[..., Awaitable[list[str]]]
Check = Callable[["RecordUnderTest"], Awaitable[None]]
RecordCheck = Callable[[Record], Awaitable[None]]
SessionCheck = Callable[[Record, str], Awaitable[None]]
Item = Entry | Chunk
Kind = TypeVar("Kind", bound=HansardError)
Offered = TypeVar("Offered")

ANN = "@ann:example.org"

FOLLOW_SECONDS_MAX = 120.0
"""How long a contract waits for a follower, or for a refusal, before it calls the contract broken."""

CONTRACT_SECONDS_MAX = 300.0


@dataclass(frozen=True, kw_only=True)
class RecordUnderTest:
    """A record backend under test.

    `open_record` opens one storage, which may hold other sessions, and opens the same one each time it is called.
    `elsewhere` runs a coroutine function in another process (see `hansard.testing.conformance_processes`); None when
    the backend lives in one process. `clock` is the clock that `open_record` uses, where it can be moved by hand.
    """

    open_record: OpenRecord
    elsewhere: Elsewhere | None = None
    clock: FakeClock | None = None


def offered(part: Offered | None) -> Offered:
    """Return a part of a backend that a contract needs: without it the contract is not tried."""
    assert part is not None
    return part


class ContractBroken(AssertionError):
    """A backend does not keep a contract."""


@dataclass(frozen=True, kw_only=True)
class Contract:
    """One promise of every backend: what it is called, what it claims, and the code that tries to break it."""

    name: str
    claim: str
    run: Check
    needs: tuple[str, ...] = ()

    def missing(self, backend: RecordUnderTest) -> str:
        """Return what the backend would have to offer for this contract to be tried; empty when it offers all."""
        return ", ".join(need for need in self.needs if getattr(backend, need) is None)

    async def check(self, backend: RecordUnderTest) -> None:
        """Try to break the contract, then verify the whole record. Raises `ContractBroken`."""
        await self.run(backend)
        async with backend.open_record() as record:
            report = await record.verify()
            require(report.ok, f"verify is clean afterwards, not {report.findings}")


CONTRACTS: dict[str, Contract] = {}
"""Every contract by its name, `group.claim`."""


def contract(group: str, *needs: str) -> Callable[[Check], Check]:
    """Enter a coroutine function into the table of contracts; its docstring states the claim."""

    def enter(run: Check) -> Check:
        name = f"{group}.{getattr(run, '__name__', '')}"
        CONTRACTS[name] = Contract(name=name, claim=cleandoc(run.__doc__ or ""), run=run, needs=needs)
        return run

    return enter


def record_contract(group: str) -> Callable[[RecordCheck], RecordCheck]:
    """Enter a contract that opens the backend once: its function is given the open record."""

    def enter(run: RecordCheck) -> RecordCheck:
        @wraps(run)
        async def open_and_run(backend: RecordUnderTest) -> None:
            async with backend.open_record() as record:
                await run(record)

        contract(group)(open_and_run)
        return run

    return enter


def session_contract(group: str) -> Callable[[SessionCheck], SessionCheck]:
    """Enter a contract that opens the backend once: its function is given the open record and a new session's id."""

    def enter(run: SessionCheck) -> SessionCheck:
        @wraps(run)
        async def create_and_run(record: Record) -> None:
            await run(record, await new_session(record))

        record_contract(group)(create_and_run)
        return run

    return enter


def require(condition: object, claim: str) -> None:
    if not condition:
        raise ContractBroken(f"expected: {claim}")


def require_equal(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise ContractBroken(f"{what}: expected {expected!r:.2000}, found {found!r:.2000}")


async def refusal(kind: type[Kind], what: str, call: Awaitable[object]) -> Kind:
    """Break the contract unless a call raises that error, and exactly that class of it; return the error."""
    try:
        await call
    except kind as error:
        require_equal(type(error).__name__, kind.__name__, what)
        return error
    raise ContractBroken(f"{what}: expected {kind.__name__}, and nothing was raised")


async def require_errors(kind: type[HansardError], verbs: dict[str, Awaitable[object]]) -> None:
    """Break the contract unless each of these calls raises that error, soon; they are named by what they do."""
    for what, verb in verbs.items():
        try:
            async with asyncio.timeout(FOLLOW_SECONDS_MAX):
                await refusal(kind, what, verb)
        except TimeoutError:
            raise ContractBroken(f"{what}: no answer within {FOLLOW_SECONDS_MAX:g} s") from None


def fresh(prefix: str) -> str:
    """Return a name that no other contract and no earlier run used; it is a valid session id."""
    return f"{prefix}-{secrets.token_hex(6)}"


async def new_session(record: Record) -> str:
    return (await record.create_session(id=fresh("session"), source="conformance")).id


class ContractChat:
    """A chat of one owner, and what is said in it; without a key it is one that no other contract uses."""

    def __init__(
        self, record: Record, rules: IntakeRules | None = None, *, key: str = "", owner: str = f"person:matrix:{ANN}"
    ) -> None:
        self.record = record
        self.rules = rules or IntakeRules()
        self.account = f"@{fresh('agent')}:example.org"
        self.key = key or f"matrix:room:!{fresh('room')}:example.org"
        self.owner = owner
        self._events = 0

    def origin(self, *, identity: str = ANN, standing: Standing = Standing.LISTED, cursor: str = "") -> Origin:
        """Return where the chat's next event comes from."""
        self._events += 1
        return Origin(
            channel="matrix",
            account=self.account,
            event_id=f"$event{self._events}",
            key=self.key,
            chat=self.key,
            owner=self.owner,
            identity=identity,
            standing=standing,
            cursor=cursor,
        )

    def arrival(self, text: str, kind: ArrivalKind = ArrivalKind.ASK, origin: Origin | None = None) -> Arrival:
        origin = origin or self.origin()
        message = Message.make(
            Role.NOTICE if kind in {ArrivalKind.COMMAND, ArrivalKind.NEW} else Role.USER,
            text,
            id=message_id_of("matrix", self.account, origin.event_id),
            author=origin.identity,
            chat=self.key,
            event_id=origin.event_id,
        )
        return Arrival(origin=origin, said=(("", message),), kind=kind)

    async def receive(self, arrival: Arrival) -> Received:
        return await self.record.intake.receive(arrival, self.rules)

    async def say(self, text: str, kind: ArrivalKind = ArrivalKind.ASK) -> str:
        """Say something, and let nobody answer; return the session that it went to."""
        received = await self.receive(self.arrival(text, kind))
        await self.record.turns.stop(received.session_id, "nobody answers", queued=True)
        return received.session_id

    async def leads_to(self) -> str:
        route = await self.record.routes.read(self.key)
        return route.session_id if route is not None else ""


async def ask(record: Record, session_id: str, text: str, *, chat: str = "", busy: Busy = Busy.QUEUE) -> None:
    """Let a person say something, in a chat or at the terminal, and ask for a turn."""
    message = Message.user(text, author=ANN, chat=chat, event_id=fresh("event")) if chat else Message.user(text)
    await record.accept([(session_id, message)], queue_turn=True, busy=busy)


async def begin_new(record: Record, key: str, owner: str = "person:admin") -> str:
    """Say `/new` in a chat of an owner; return the session that the chat leads to then."""
    chat = ContractChat(record, key=key, owner=owner)
    return (await chat.receive(chat.arrival("/new", ArrivalKind.NEW))).session_id


async def all_entries(record: Record, session_id: str) -> list[Entry]:
    entries: list[Entry] = []
    while page := await record.sessions.read_entries(session_id, after=entries[-1].seq if entries else 0):
        entries += page
    return entries


async def kinds(record: Record, session_id: str) -> list[str]:
    return [entry.kind for entry in await all_entries(record, session_id)]


async def texts(record: Record, session_id: str) -> list[str]:
    return [message.text for message in await record.load_transcript(session_id)]


async def spoken(record: Record, session_id: str) -> list[tuple[str, Status]]:
    return [(message.text, message.status) for message in await record.load_transcript(session_id)]


async def reply(turn: Turn, text: str, *, id: str | None = None) -> None:
    async with turn.reply(id=id) as streamed:
        await streamed.write(text)


async def run_turn(record: Record, session_id: str, *replies: str, waiting: str | None = None) -> None:
    """Hold a session for a turn, new or waiting, that gives these replies, or says nothing."""
    async with record.turn(session_id, waiting=waiting) as turn:
        for text in replies:
            await reply(turn, text)


async def follow_until(
    record: Record, session_id: str, done: Callable[[list[Item]], bool], after: str | int = 0, *, chunks: bool = True
) -> list[Item]:
    """Return what a follower is given until it has seen enough; too long a wait breaks the contract."""
    items: list[Item] = []
    try:
        followed = record.follow(session_id, after, chunks=chunks)
        async with asyncio.timeout(FOLLOW_SECONDS_MAX), aclosing(followed):
            async for item in followed:
                items.append(item)
                if done(items):
                    return items
    except TimeoutError:
        message = f"a follower from {after!r} was given only {items!r:.2000} in {FOLLOW_SECONDS_MAX:g} s"
        raise ContractBroken(message) from None
    raise ContractBroken("following never ends by itself")


def reached(seq: int) -> Callable[[list[Item]], bool]:
    """Return a test for having been given the entry of that seq."""
    return lambda items: isinstance(items[-1], Entry) and items[-1].seq >= seq


def came(kind: str) -> Callable[[list[Item]], bool]:
    """Return a test for having been given an entry of that kind."""
    return lambda items: isinstance(items[-1], Entry) and items[-1].kind == kind


def said(message_id: str, text: str) -> Callable[[list[Item]], bool]:
    """Return a test for having been given that much of a message."""
    return lambda items: len(streamed(items).get(message_id, "")) >= len(text)


def streamed(items: list[Item]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        if isinstance(item, Chunk):
            found[item.message_id] = found.get(item.message_id, "") + item.text
    return found


def summary(items: list[Item]) -> tuple[list[int], dict[str, str]]:
    """Return what does not depend on how chunks were cut: the seqs of entries, and each message's bytes."""
    return [item.seq for item in items if isinstance(item, Entry)], streamed(items)
