"""What the contracts of the conformance suite share: the backend under test, their table, and how they check."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import cleandoc

from hansard.domain.access import Standing
from hansard.domain.arrivals import Arrival, ArrivalKind, Origin
from hansard.domain.messages import Message, Role
from hansard.errors import HansardError
from hansard.record.api import Record
from hansard.record.messages.entries import Chunk, Entry
from hansard.testing.fakes import FakeClock

OpenRecord = Callable[[], AbstractAsyncContextManager[Record]]
Elsewhere = Callable[..., Awaitable[list[str]]]
Check = Callable[["RecordUnderTest"], Awaitable[None]]
RecordCheck = Callable[[Record], Awaitable[None]]
SessionCheck = Callable[[Record, str], Awaitable[None]]
Item = Entry | Chunk

FOLLOW_SECONDS_MAX = 120.0
"""How long a contract waits for a follower before it calls the contract broken."""


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


def record_contract(group: str, *needs: str) -> Callable[[RecordCheck], RecordCheck]:
    """Enter a contract that opens the backend once: its function is given the open record."""

    def enter(run: RecordCheck) -> RecordCheck:
        @wraps(run)
        async def open_and_run(backend: RecordUnderTest) -> None:
            async with backend.open_record() as record:
                await run(record)

        contract(group, *needs)(open_and_run)
        return run

    return enter


def session_contract(group: str, *needs: str) -> Callable[[SessionCheck], SessionCheck]:
    """Enter a contract that opens the backend once: its function is given the open record and a new session's id."""

    def enter(run: SessionCheck) -> SessionCheck:
        @wraps(run)
        async def create_and_run(record: Record) -> None:
            await run(record, await new_session(record))

        record_contract(group, *needs)(create_and_run)
        return run

    return enter


def require(condition: object, claim: str) -> None:
    if not condition:
        raise ContractBroken(f"expected: {claim}")


def require_equal(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise ContractBroken(f"{what}: expected {expected!r:.2000}, found {found!r:.2000}")


class Caught:
    """The error that a block raised."""

    error: HansardError


@contextmanager
def require_error(kind: type[HansardError], what: str) -> Iterator[Caught]:
    """Break the contract unless the block raises that error, and exactly that class of it."""
    caught = Caught()
    try:
        yield caught
    except kind as error:
        require_equal(type(error).__name__, kind.__name__, what)
        caught.error = error
    else:
        raise ContractBroken(f"{what}: expected {kind.__name__}, and nothing was raised")


def fresh(prefix: str) -> str:
    """Return a name that no other contract and no earlier run used; it is a valid session id."""
    return f"{prefix}-{secrets.token_hex(6)}"


async def new_session(record: Record, prefix: str = "session") -> str:
    return (await record.create_session(id=fresh(prefix), source="conformance")).id


async def begin_new(record: Record, key: str, owner: str = "person:admin") -> str:
    """Say `/new` in a chat of an owner; return the session that the chat leads to then."""
    author, event_id = "@ann:example.org", fresh("event")
    origin = Origin(
        channel=key.partition(":")[0],
        account="agent",
        event_id=event_id,
        key=key,
        chat=key,
        owner=owner,
        identity=author,
        standing=Standing.LISTED,
    )
    said = Message.make(Role.NOTICE, "/new", id=event_id, author=author, chat=key, event_id=event_id)
    arrival = Arrival(origin=origin, said=(("", said),), kind=ArrivalKind.NEW)
    return (await record.intake.receive(arrival)).session_id


async def all_entries(record: Record, session_id: str) -> list[Entry]:
    entries: list[Entry] = []
    while page := await record.sessions.read_entries(session_id, after=entries[-1].seq if entries else 0):
        entries += page
    return entries


async def texts(record: Record, session_id: str) -> list[str]:
    return [message.text for message in await record.load_transcript(session_id)]


async def follow_until(
    record: Record, session_id: str, done: Callable[[list[Item]], bool], after: str | int = 0
) -> list[Item]:
    """Return what a follower is given until it has seen enough; too long a wait breaks the contract."""
    items: list[Item] = []
    try:
        async with asyncio.timeout(FOLLOW_SECONDS_MAX), aclosing(record.follow(session_id, after)) as followed:
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
