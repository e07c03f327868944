"""What must hold after any crash: the record against the evidence. Each check returns the violations that it found."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from hansard import (
    DeliveryState,
    Entry,
    Link,
    Message,
    Record,
    Role,
    Session,
    SessionState,
    Status,
    TurnInfo,
    TurnState,
)
from tests.crash import script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hansard import Delivery, Route
    from tests.crash.evidence import Evidence
    from tests.crash.processes import Line

ACCOUNTS = ("victim", "survivor")


class Picture(NamedTuple):
    """Everything that a record says, read through its API."""

    sessions: dict[str, Session]
    entries: dict[str, list[Entry]]
    transcripts: dict[str, list[Message]]
    turns: dict[str, list[TurnInfo]]
    deliveries: dict[tuple[str, str], Delivery]
    route: Route | None
    cursors: dict[str, str | None]

    def everything(self) -> list[object]:
        """What a rebuild must give back to the last bit: times, places and the order of sessions included."""
        return [list(self.sessions.values()), self.entries, self.gist()]

    def gist(self) -> dict[str, object]:
        """What two recoveries of one crash must agree on: everything but the times at which they recovered."""
        return {
            "sessions": {
                session.id: (session.title, session.state, session.end_reason, session.parent, session.messages)
                for session in self.sessions.values()
            },
            "messages": {
                session: [(message.id, message.role, message.parts, message.status) for message in transcript]
                for session, transcript in self.transcripts.items()
            },
            "turns": self.turns,
            "deliveries": self.deliveries,
            "route": self.route,
            "cursors": self.cursors,
        }


async def take_picture(record: Record) -> Picture:
    """Read the whole record."""
    sessions = {session.id: session for session in await record.sessions()}
    entries: dict[str, list[Entry]] = {}
    for session in sessions:
        entries[session] = []
        while page := await record.sessions.read_entries(session, len(entries[session])):
            entries[session] += page
    deliveries = [
        each for session in sessions for each in await record.deliveries.list(session_id=session, limit=1_000_000)
    ]
    return Picture(
        sessions,
        entries,
        {session: await record.load_transcript(session) for session in sessions},
        {session: await record.turns.list(session) for session in sessions},
        {(delivery.session_id, delivery.id): delivery for delivery in deliveries},
        await record.routes.read(script.KEY),
        {account: await record.intake.cursor(script.CHANNEL, account) for account in ACCOUNTS},
    )


async def check_record(record: Record, evidence: Evidence) -> tuple[Picture, list[str]]:
    """Compare an open record with the evidence, and let it verify itself."""
    picture = await take_picture(record)
    violations = [*check_picture(picture, evidence)]
    report = await record.verify()
    violations += [f"verify: {finding}" for finding in report.findings]
    return picture, violations


def check_picture(picture: Picture, evidence: Evidence) -> Iterator[str]:
    """Yield every difference between what was seen and what is recorded."""
    yield from check_order(picture)
    yield from check_sessions(picture, evidence)
    yield from check_messages(picture, evidence)
    yield from check_texts(picture, evidence)
    yield from check_turn_ends(picture, evidence)
    yield from check_turns(picture, evidence)
    yield from check_deliveries(picture, evidence)
    yield from check_home(picture, evidence)
    for session, lines in evidence.shown.items():
        yield from check_shown(picture, session, lines)


def check_order(picture: Picture) -> Iterator[str]:
    """Seq is contiguous, and no id appears twice."""
    for session, entries in picture.entries.items():
        if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
            yield f"{session}: seq is not contiguous: {[entry.seq for entry in entries]}"
        if picture.sessions[session].head_seq != len(entries):
            yield f"{session}: the head is {picture.sessions[session].head_seq}, with {len(entries)} entries"
        for entry_id, count in Counter(entry.id for entry in entries).items():
            if count > 1:
                yield f"{session}: {entry_id} is there {count} times"


def check_sessions(picture: Picture, evidence: Evidence) -> Iterator[str]:
    """Acknowledged sessions, forks and titles are there."""
    for line in evidence.of("session", "fork", "title"):
        session = picture.sessions.get(line["session"])
        if session is None:
            yield f"session {line['session']} was acknowledged and is not there"
        elif line["what"] == "fork":
            parent = session.parent
            if parent is None or (parent.session_id, parent.link, parent.at) != (
                line["parent"],
                Link.FORK,
                line["at"],
            ):
                yield f"{session.id} is not the fork that was acknowledged: {parent}"
        elif line["what"] == "title":
            titles = [getattr(entry.body, "title", None) for entry in picture.entries[session.id]]
            if line["title"] not in titles or session.title is None:
                yield f"{session.id}: the title {line['title']!r} was acknowledged and is not there"


def check_messages(picture: Picture, evidence: Evidence) -> Iterator[str]:
    """Every acknowledged message is there once, at its place, and nothing that was taken in is there twice."""
    for line in evidence.of("append", "accept"):
        entries = picture.entries.get(line["session"], [])
        entry = entries[line["seq"] - 1] if line["seq"] <= len(entries) else None
        if entry is None or entry.id != line["id"] or entry.text != script.said(evidence.seed, line["id"]):
            yield f"{line['id']} was acknowledged as seq {line['seq']} of {line['session']}: there is {entry}"
    told = Counter(
        message.id
        for session, transcript in picture.transcripts.items()
        if not is_fork(picture, session)
        for message in transcript
    )
    yield from (f"message {message_id} is there {count} times" for message_id, count in told.items() if count > 1)
    yield from (
        f"message {line['id']} of {line['what']} is not in any transcript"
        for line in evidence.of("append", "accept", "opened", "sealed")
        if line["id"] not in told
    )


def is_fork(picture: Picture, session: str) -> bool:
    """Return whether a session shares its beginning with another."""
    parent = picture.sessions[session].parent
    return parent is not None and parent.link == Link.FORK


def check_texts(picture: Picture, evidence: Evidence) -> Iterator[str]:
    """A complete reply is whole, an interrupted one is a beginning, and none is open any more."""
    sealed = {line["id"] for line in evidence.of("sealed")}
    for session, transcript in picture.transcripts.items():
        for message in transcript:
            if message.role != Role.ASSISTANT:
                expected = script.said(evidence.seed, message.id)
                if message.text != expected:
                    yield f"{session}: {message.id} says {message.text!r}, not {expected!r}"
                continue
            whole = script.reply(evidence.seed, message.id)
            if message.status == Status.OPEN:
                yield f"{session}: {message.id} is still open"
            if message.status == Status.COMPLETE and message.text != whole:
                yield f"{session}: {message.id} is complete and says {message.text!r}, not {whole!r}"
            if not whole.startswith(message.text):
                yield f"{session}: {message.id} says what nobody said: {message.text!r}"
            if message.id in sealed and message.status != Status.COMPLETE and not is_fork(picture, session):
                yield f"{session}: {message.id} was acknowledged as complete and is {message.status}"


def check_turn_ends(picture: Picture, evidence: Evidence) -> Iterator[str]:
    """No turn runs any more, only what was killed is lost, and only what never began is interrupted."""
    for session, turns in picture.turns.items():
        for turn in turns:
            never_began = turn.state == TurnState.INTERRUPTED and not turn.owner
            if turn.state not in {TurnState.QUEUED, TurnState.COMPLETED, TurnState.LOST} and not never_began:
                yield f"{session}: turn {turn.id} of {turn.owner} is {turn.state}: {turn.reason}"
            if turn.state == TurnState.LOST and turn.owner not in evidence.killed_owners:
                yield f"{session}: turn {turn.id} of {turn.owner}, which was never killed, is lost"


def check_turns(picture: Picture, evidence: Evidence) -> Iterator[str]:
    """Acknowledged turns are there, ended as they were acknowledged, each with a fence of its own."""
    turns = {(session, turn.id): turn for session, listed in picture.turns.items() for turn in listed}
    fences: dict[str, list[int]] = defaultdict(list)
    for line in evidence.of("started", "ended"):
        found = turns.get((line["session"], line["turn"]))
        if found is None:
            yield f"{line['session']}: turn {line['turn']} was acknowledged and is not there"
        elif line["what"] == "ended" and found.state != TurnState.COMPLETED:
            yield f"{line['session']}: turn {line['turn']} was acknowledged as completed and is {found.state}"
        elif line["what"] == "started":
            fences[line["session"]].append(line["fence"])
            if found.fence != line["fence"]:
                yield f"{line['session']}: turn {line['turn']} began at {line['fence']}, not {found.fence}"
    for session, listed_fences in fences.items():
        if len(set(listed_fences)) != len(listed_fences):
            yield f"{session}: a fence was given twice: {listed_fences}"


def check_deliveries(picture: Picture, evidence: Evidence) -> Iterator[str]:
    """A delivery is at least as far as it was acknowledged, and nothing is being sent by the dead."""
    for delivery in picture.deliveries.values():
        if delivery.state == DeliveryState.SENDING:
            yield f"{delivery.session_id}: delivery {delivery.id} is still being sent by {delivery.owner}"
    further = {
        "pending": set(DeliveryState),
        "sending": {DeliveryState.UNKNOWN, DeliveryState.SENT},
        "sent": {DeliveryState.SENT},
    }
    for line in evidence.of("delivery"):
        found = picture.deliveries.get((line["session"], line["id"]))
        if found is None or found.state not in further[line["state"]]:
            yield f"{line['session']}: delivery {line['id']} was {line['state']} and is {found}"


def check_home(picture: Picture, evidence: Evidence) -> Iterator[str]:
    """Routes and cursors are at least as far as they were acknowledged."""
    for line in evidence.of("route"):
        route = picture.route
        if route is None or route.generation < line["generation"]:
            yield f"the route was at generation {line['generation']} and is {route}"
        elif route.generation == line["generation"] and route.session_id != line["session"]:
            yield f"generation {line['generation']} led to {line['session']} and leads to {route.session_id}"
        if line["session"] not in picture.sessions:
            yield f"session {line['session']} of route generation {line['generation']} is not there"
        if line["generation"] > 1 and (
            (session := picture.sessions.get(line["session"])) is None
            or session.parent is None
            or picture.sessions[session.parent.session_id].state != SessionState.ENDED
        ):
            yield f"the reset to generation {line['generation']} was not done whole: {session}"
    for line in evidence.of("accept"):
        account = line["id"].partition("-")[0]
        cursor = picture.cursors[account]
        if cursor is None or int(cursor) < int(line["cursor"]):
            yield f"the cursor of {account} was {line['cursor']} and is {cursor}"


def check_shown(picture: Picture, session: str, lines: list[Line]) -> Iterator[str]:
    """What a follower showed is in the record: each entry at its place, each byte once, in order."""
    entries = picture.entries.get(session, [])
    said = {message.id: message for message in picture.transcripts.get(session, [])}
    told: dict[str, bytes] = defaultdict(bytes)
    seq = 0
    for line in lines:
        if "offset" in line:
            if line["offset"] != len(told[line["message"]]):
                yield f"{session}: {line['message']} was shown from {line['offset']} after {len(told[line['message']])}"
            told[line["message"]] += line["text"].encode()
            continue
        if line["seq"] != seq + 1:
            yield f"{session}: seq {line['seq']} was shown after {seq}"
        seq = line["seq"]
        entry = entries[seq - 1] if 0 < seq <= len(entries) else None
        if entry is None or (entry.id, entry.kind, entry.text) != (line["id"], line["kind"], line["text"]):
            yield f"{session}: {line['id']} ({line['kind']}) was shown as seq {seq}: there is {entry}"
        if line["kind"] == "message.sealed":
            final = said.get(line["message"])
            if final is None or final.text.encode() != told[line["message"]] or final.status != line["status"]:
                yield f"{session}: {line['message']} was shown {line['status']} as {told[line['message']]!r}: {final}"
    for message_id, data in told.items():
        final = said.get(message_id)
        if final is None or not final.text.encode().startswith(data):
            yield f"{session}: {message_id} was shown as {data!r} and is {final}"
