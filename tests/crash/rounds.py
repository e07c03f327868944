"""A round of the crash ring: writers on one home that die one after another, beside a survivor and a follower."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hansard import Cursor, Intake, Message, Record, SessionState
from hansard.journal.entries import log_name
from tests.crash import script
from tests.crash.checks import ACCOUNTS, Picture, check_record
from tests.crash.evidence import Evidence
from tests.crash.processes import Program, programs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.crash.processes import Line

WORKER = "tests.crash.worker"
FOLLOWER = "tests.crash.follower"
VICTIM, SURVIVOR = ACCOUNTS
SURVIVOR_PACE_SECONDS = 0.01
VICTIM_LINES_MAX = 2000
"""A victim that has not come to its crash point by then is killed where it is. Several lines can share one commit."""


class Kill(NamedTuple):
    """How one victim dies: at the n-th time it reaches a point, or a while after some acknowledgements."""

    point: str = ""
    occurrence: int = 0
    lines: int = VICTIM_LINES_MAX
    delay_seconds: float = 0.0

    @property
    def in_repair(self) -> bool:
        """Whether the victim dies while it repairs a log."""
        return self.point.startswith("reconcil")


def random_kill(draw: random.Random) -> Kill:
    """Return a kill at a random moment of a writer's life, its opening of the record included."""
    if draw.random() < 0.15:
        return Kill(lines=0, delay_seconds=draw.uniform(0.1, 0.6))
    return Kill(lines=draw.choice((1, 5, 40, draw.randint(1, 200))), delay_seconds=draw.uniform(0, 0.02))


@dataclass(frozen=True, kw_only=True)
class Round:
    """What a round left: its home, with nobody alive on it, and the evidence."""

    home: Path
    evidence: Evidence
    kills: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, object]:
        """Return what is counted in the proof."""
        return {
            "kills": len(self.kills),
            "where": self.kills,
            "acknowledged": len(self.evidence.acknowledged),
            "shown_bytes": self.evidence.shown_bytes(),
            "violations": self.violations,
        }


async def run_round(home: Path, seed: int, kills: Sequence[Kill], *, survivor: bool) -> Round:
    """Kill writers on a home, with a second writer on the same sessions that goes on, and a follower."""
    result = Round(home=home, evidence=Evidence(seed=seed))
    draw = random.Random(f"{seed} round")
    async with programs() as started:
        second = follower = None
        if not survivor:  # a follower that opened the home later would repair what the next victim is to die over
            follower = await start_follower(home, result.evidence)
            started.append(follower)
            assert await follower.until(lambda line: line.get("what") == "ready")
        for number, kill in enumerate(kills, 1):
            if second is not None and kill.in_repair:
                tear_spare_logs(home)
            victim = await start_writer(home, seed, f"v{number}", VICTIM, kill)
            started.append(victim)
            if second is None and survivor:
                second = await start_writer(home, seed, "s", SURVIVOR)
                started.append(second)
            if follower is None:
                follower = await start_follower(home, result.evidence)
                started.append(follower)
            result.kills.append(await let_die(victim, kill))
            result.evidence.add_writer(victim.lines)
            if second is not None:
                await see_it_go_on(second, follower)
            # A follower that opens the record beside a victim could repair what the victim is to die over.
            if survivor and draw.random() < 0.3 and not any(each.in_repair for each in kills):
                await follower.kill()
                result.evidence.add_follower(follower.lines)
                follower = None
        if second is not None:
            await second.kill()
            result.kills.append("survivor")
            result.evidence.add_writer(second.lines)
        if follower is not None:
            await follower.kill()
            result.evidence.add_follower(follower.lines)
    return result


def tear_spare_logs(home: Path) -> None:
    """Add half a line to each spare session's log: the next opening, and nobody who has opened, repairs them."""
    for session in script.SPARE:
        with (home / log_name(session)).open("ab") as log:
            log.write(b'{"half')


async def start_writer(
    home: Path, seed: int, name: str, account: str, kill: Kill | None = None, *, errors: Path | None = None
) -> Program:
    """Start a writer."""
    point = ["--point", f"{kill.point}:{kill.occurrence}"] if kill is not None and kill.point else []
    pace = ["--pace", SURVIVOR_PACE_SECONDS] if account == SURVIVOR else []
    errors = errors or home.parent / f"{name}.errors"
    return await Program.start(
        WORKER, home, "--name", name, "--account", account, "--seed", seed, *pace, *point, errors=errors
    )


async def start_follower(home: Path, evidence: Evidence, *, errors: Path | None = None) -> Program:
    """Start a follower, where the one before it ended."""
    positions = json.dumps(evidence.positions())
    return await Program.start(
        FOLLOWER, home, "--positions", positions, errors=errors or home.parent / "follower.errors"
    )


async def let_die(victim: Program, kill: Kill) -> str:
    """See a victim die as it should; return where that was."""
    heard = 0

    def enough(_line: object) -> bool:
        nonlocal heard
        heard += 1
        return heard >= kill.lines

    survived = kill.lines == 0 or await victim.until(enough)
    if survived:
        # Not synchronisation: this is the random moment.
        await asyncio.sleep(kill.delay_seconds)
        await victim.kill()
        return "random"
    await victim.ended()
    return kill.point


async def see_it_go_on(second: Program, follower: Program) -> None:
    """Wait until the survivor took a turn in each shared session after the death, and the follower showed that."""
    after = len(second.lines)
    for session in script.SESSIONS:
        assert await second.until(partial(tells_end, session), after=after), "the survivor died"
        seq = max(line["fence"] for line in second.lines if line["what"] == "started" and line["session"] == session)
        assert await follower.until(partial(shows, session, seq)), "the follower died"


def tells_end(session: str, line: Line) -> bool:
    """Return whether a writer's line says that a turn ended in a session."""
    return bool(line["what"] == "ended" and line["session"] == session)


def shows(session: str, seq: int, line: Line) -> bool:
    """Return whether a follower's line has come as far as an entry of a session."""
    return bool(line["session"] == session and line.get("seq", 0) >= seq)


# What is checked afterwards.


async def examine(result: Round) -> None:
    """Open the home as the crash left it, then with one leg of it gone, then with the other; note what is wrong."""
    home, evidence = result.home, result.evidence
    logs_only = copy_home(home, "logs-only")
    database_only = copy_home(home, "database-only")
    remove_database(logs_only)
    remove_logs(database_only)
    both = await look(result, home, "both legs")
    rebuilt = await look(result, logs_only, "logs alone")
    if both.gist() != rebuilt.gist():
        result.violations.append(f"logs alone tell another story: {difference(both, rebuilt)}")
    kept = await look(result, database_only, "database alone")

    remove_logs(logs_only)
    again = await look(result, logs_only, "logs rewritten from a rebuilt database")
    if again.everything() != rebuilt.everything():
        result.violations.append(f"rewriting the logs changed the record: {difference(rebuilt, again)}")
    remove_database(database_only)
    again = await look(result, database_only, "database rebuilt from rewritten logs")
    if again.everything() != kept.everything():
        result.violations.append(f"rebuilding the database changed the record: {difference(kept, again)}")
    for place in (home, logs_only, database_only):
        result.violations.extend(f"going on in {place.name}: {each}" for each in await go_on(place, evidence))


async def look(result: Round, home: Path, where: str) -> Picture:
    """Open a home and compare it with the evidence."""
    async with Record.open(home) as record:
        picture, violations = await check_record(record, result.evidence)
    result.violations.extend(f"{where}: {violation}" for violation in violations)
    return picture


def difference(first: Picture, second: Picture) -> str:
    """Say where two pictures differ, in short."""
    told = [
        f"{name}: {value!r:.2000} against {second.gist()[name]!r:.2000}"
        for name, value in first.gist().items()
        if value != second.gist()[name]
    ]
    if told:
        return "; ".join(told)
    pairs = zip(first.sessions.values(), second.sessions.values(), strict=True)
    told += [f"listed: {one!r} against {two!r}" for one, two in pairs if one != two]
    told += [f"entries of {session}" for session in first.entries if first.entries[session] != second.entries[session]]
    return "; ".join(told)


async def go_on(home: Path, evidence: Evidence) -> list[str]:
    """Go on in a home: received events stay received, every open session takes a word and a turn, and it verifies."""
    violations = []
    async with Record.open(home) as record:
        for line in evidence.of("accept")[-5:]:
            account = line["id"].partition("-")[0]
            accepted = await record.accept(
                [(line["session"], Message.user(script.said(evidence.seed, line["id"]), id=line["id"]))],
                Intake(channel=script.CHANNEL, account=account, event_id=line["id"]),
                Cursor(channel=script.CHANNEL, account=account, value="1000000"),
            )
            if not accepted.duplicate or accepted.entries[0].seq != line["seq"]:
                violations.append(f"{line['id']} was taken in again: {accepted}")
        for session in await record.sessions(state=SessionState.OPEN):
            entry = await record.append(session.id, Message.user("after the crash"))
            if entry.seq != session.head_seq + 1:
                violations.append(f"{session.id}: seq {entry.seq} follows {session.head_seq}")
            async with record.turn(session.id) as turn, turn.reply(id="after-the-crash") as reply:
                await reply.write("healthy ")
                await reply.write("again")
            last = (await record.load_transcript(session.id))[-1]
            if (last.id, last.text) != ("after-the-crash", "healthy again"):
                violations.append(f"{session.id}: the last message is {last}")
        violations += [f"verify: {finding}" for finding in (await record.verify()).findings]
    return violations


def copy_home(home: Path, name: str) -> Path:
    """Copy a home that nobody has open."""
    copied = home.with_name(name)
    shutil.copytree(home, copied)
    return copied


def remove_database(home: Path) -> None:
    """Lose the database leg."""
    for path in home.glob("state.db*"):
        path.unlink()


def remove_logs(home: Path) -> None:
    """Lose the log leg."""
    shutil.rmtree(home / "sessions", ignore_errors=True)
    (home / "home.jsonl").unlink(missing_ok=True)
