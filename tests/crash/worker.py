"""A writer of the crash ring: `python -m tests.crash.worker HOME --name v1 --account victim --seed 7 --point logged:3`.

It talks in several sessions at once, receives a platform's events, begins new sessions, and goes on until it is killed.
After each acknowledgement, and never before, it writes one line about it to standard output, unbuffered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from hansard import Cursor, Delivery, Intake, LeaseHeld, Message, Record, Role, SessionEnded, WrongState
from hansard.domain.access import Standing
from hansard.domain.arrivals import Arrival, ArrivalKind, Origin
from hansard.journal.store import Wiring
from hansard.journal.writer import pass_by
from hansard.testing import CrashPoint
from tests.crash import script

REOFFERED = 3
"""Events that a platform hands out again after a restart, although its cursor is past them."""

TURN_WAIT_SECONDS = 0.5


class Voice(NamedTuple):
    """Who speaks here. A name lives once; an account goes on in the next process."""

    name: str
    account: str
    seed: int
    pace_seconds: float


def tell(what: str, **facts: object) -> None:
    """Say what was acknowledged, and when: one line, one write."""
    os.write(1, json.dumps({"what": what, "at": time.monotonic(), **facts}).encode() + b"\n")


async def speak(record: Record, voice: Voice, session: str) -> None:
    """Append a question, answer it in a turn, post the answer; again and again."""
    number = 0
    while True:
        number += 1
        stem = f"{voice.name}-{session[-5:]}-{number}"
        question = Message.user(script.said(voice.seed, f"{stem}-u"), id=f"{stem}-u")
        entry = await record.append(session, question)
        tell("append", session=session, id=entry.id, seq=entry.seq)
        if number % 3 == 0:
            again = await record.append(session, question)
            tell("append", session=session, id=again.id, seq=again.seq)
        if number % 4 == 1:
            await record.set_title(session, f"title {stem}")
            tell("title", session=session, title=f"title {stem}")
        if number % 6 == 1:
            forked = await record.fork(session, entry.seq, id=f"fork-{stem}".lower())
            tell("fork", session=forked.id, parent=session, at=entry.seq)
        try:
            await answer(record, voice, session, stem)
        except LeaseHeld:
            continue


async def answer(record: Record, voice: Voice, session: str, stem: str) -> None:
    """Run one turn: a streamed reply, a tool's result, and a delivery of the reply."""
    reply_id = f"{stem}-a"
    async with record.turn(session, wait_seconds=TURN_WAIT_SECONDS) as turn:
        tell("started", session=session, turn=turn.id, fence=turn.fence)
        async with turn.reply(id=reply_id) as reply:
            tell("opened", session=session, id=reply_id)
            for piece in script.pieces(voice.seed, reply_id):
                await reply.write(piece)
                await asyncio.sleep(voice.pace_seconds)
        tell("sealed", session=session, id=reply_id)
        result = Message.make(Role.TOOL, script.said(voice.seed, f"{stem}-t"), id=f"{stem}-t")
        entry = await turn.append(result)
        tell("append", session=session, id=entry.id, seq=entry.seq)
    tell("ended", session=session, turn=turn.id)
    await record.deliveries.create(
        Delivery(id=f"{stem}-d", session_id=session, channel=script.CHANNEL, target="!room", message_id=reply_id)
    )
    tell("delivery", session=session, id=f"{stem}-d", state="pending")
    for state in ("sending", "sent"):
        await record.deliveries.move(session, f"{stem}-d", state, receipt="$event" if state == "sent" else "")
        tell("delivery", session=session, id=f"{stem}-d", state=state)


async def receive(record: Record, voice: Voice) -> None:
    """Take in a platform's events from the cursor on, some of them twice, and begin a new session now and then."""
    received = int(await record.intake.cursor(script.CHANNEL, voice.account) or 0)
    number = max(0, received - REOFFERED)
    while True:
        number += 1
        event_id = f"{voice.account}-e{number}"
        message = Message.user(script.said(voice.seed, event_id), id=event_id)
        intake = Intake(channel=script.CHANNEL, account=voice.account, event_id=event_id)
        cursor = Cursor(channel=script.CHANNEL, account=voice.account, value=str(max(number, received)))
        while True:
            route = await record.routes.read(script.KEY)
            assert route is not None
            try:
                accepted = await record.accept([(route.session_id, message)], intake, cursor, number % 4 == 0)
                break
            except SessionEnded:
                continue
        (entry,) = accepted.entries
        duplicate = accepted.duplicate
        tell("accept", session=entry.session_id, id=entry.id, seq=entry.seq, cursor=cursor.value, duplicate=duplicate)
        if number % 7 == 0:
            await begin_new(record, voice, number)
            route = await record.routes.read(script.KEY)
            assert route is not None
            tell("route", session=route.session_id, generation=route.generation)
        await asyncio.sleep(voice.pace_seconds * 5)


async def begin_new(record: Record, voice: Voice, number: int) -> None:
    """Say `/new` in the chat: its words, and those of the notice about it, follow from their ids as all others do."""
    event_id, notice_id = f"{voice.account}-new{number}", f"{voice.account}-told{number}"
    origin = Origin(
        channel=script.CHANNEL,
        account=voice.account,
        event_id=event_id,
        key=script.KEY,
        chat=script.KEY,
        owner=script.ROUTE_OWNER,
        identity="@ann:example.org",
        standing=Standing.LISTED,
    )
    said = Message.notice(script.said(voice.seed, event_id), id=event_id, chat=script.KEY)
    arrival = Arrival(
        origin=origin,
        said=(("", msgspec.structs.replace(said, author=origin.identity)),),
        kind=ArrivalKind.NEW,
        new_ids=(f"{voice.account}-session{number}", notice_id),
        told=script.said(voice.seed, notice_id),
    )
    await record.intake.receive(arrival)


async def prepare(record: Record, voice: Voice) -> None:
    """Create what every writer of a round shares; whoever comes later finds it."""
    for session in (*script.SESSIONS, *script.SPARE, script.ROUTED):
        await record.create_session(id=session, source="crash", owner=script.ROUTE_OWNER)
        tell("session", session=session)
    try:
        route = await record.routes.move(script.KEY, script.ROUTED, reason=f"first by {voice.name}", expect=0)
    except WrongState:
        return
    tell("route", session=route.session_id, generation=route.generation)


async def main() -> None:
    """Write until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--account", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--pace", type=float, default=0.002)
    parser.add_argument("--point", default="")
    options = parser.parse_args()
    point, _, occurrence = options.point.partition(":")
    reach = CrashPoint(point, int(occurrence)) if point else pass_by
    voice = Voice(options.name, options.account, options.seed, options.pace)
    async with Record.open(options.home, wiring=Wiring(reach=reach)) as record:
        tell("ready", owner=record.store.owner)
        await prepare(record, voice)
        async with asyncio.TaskGroup() as group:
            for session in script.SESSIONS:
                group.create_task(speak(record, voice, session))
            group.create_task(receive(record, voice))


if __name__ == "__main__":
    asyncio.run(main())
