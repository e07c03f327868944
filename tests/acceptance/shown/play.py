"""Playing runs: one home, one conversation, one process after the other, each struck as its run says."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from hansard import Record, TurnState
from hansard.cli.terminal.screen import LEAVE_SECONDS
from tests.acceptance.shown.checks import check_evidence, check_look
from tests.acceptance.shown.evidence import Asked, Evidence, Played, Shown
from tests.acceptance.shown.nursery import HAS_NURSERY
from tests.acceptance.shown.program import LOOK_SECONDS, Program, bounded, environment, until
from tests.acceptance.shown.runs import Fault, Run, Surface
from tests.acceptance.shown.terminal import CONTROL_C, CONTROL_D, Terminal
from tests.acceptance.shown.words import letters
from tests.models.providers.behaviour import Behaviour, Exchange
from tests.models.providers.server import Provider
from tests.tally import Tally

REPORT_CHARACTERS_MAX = 20_000
KEY = "sk-test-0123456789abcdef"


class Stage:
    """Where a conversation is played."""

    def __init__(self, folder: Path, providers: dict[str, Provider], evidence: Evidence) -> None:
        self.home = folder / "home"
        self._folder = folder
        self._providers = providers
        self._evidence = evidence
        self._program: Program | Terminal | None = None
        self._for: tuple[Surface, str, float] | None = None
        self._pressed = -LEAVE_SECONDS

    async def play(self, run: Run) -> None:
        """Ask, let it be struck, and keep what was seen."""
        provider = self._providers[run.style]
        before = len(provider.answers)
        provider.behaviours = [Behaviour()] * before + list(run.behaviours)
        program = await self._started(run)
        played = Played(run=run)
        self._evidence.shown[-1].played.append(played)
        try:
            goes_on = await self._converse(run, program, provider)
            if not goes_on:
                await self._end()
        finally:
            played.asked = [
                Asked(exchange=exchange, behaviour=run.behaviours[min(index, len(run.behaviours) - 1)])
                for index, exchange in enumerate(provider.answers[before:])
            ]
        if run.look or not goes_on:
            self._evidence.violations += await check_look(self.home, run, running=goes_on)

    async def _converse(self, run: Run, program: Program | Terminal, provider: Provider) -> bool:
        """Ask, and wait for what is to come; return whether the process goes on."""
        before = len(provider.answers)
        size = 0
        if isinstance(program, Terminal):
            await program.type(run.question)
        elif run.surface is Surface.LINES:
            size = len(program.output)
            await program.write(run.question.encode() + b"\n")
        if run.signal is not None:
            await strike(run, program, await moment(run, program, provider, before), size)
            if isinstance(program, Terminal) and run.fault is Fault.INTERRUPT:
                return await self._interrupt(run, program)
            program.send(run.signal)
            return False
        if run.surface is Surface.ONCE:
            return False
        said, _ = await answered(self.home, run.question, program)
        if isinstance(program, Terminal):
            await program.shows(lambda: letters(said) in letters(program.text), said)
            return await program.settled()
        return program.running

    async def _interrupt(self, run: Run, program: Terminal) -> bool:
        """Press the key. Where there was nothing left to interrupt, it leaves, and so do we."""
        # A second time within this span leaves; that is another test's matter.
        await asyncio.sleep(max(0.0, self._pressed + LEAVE_SECONDS * 1.1 - time.monotonic()))
        program.press(CONTROL_C)
        _, state = await answered(self.home, run.question, program)
        self._pressed = time.monotonic()  # at the latest: a program that stalls sees a key later
        if state is TurnState.INTERRUPTED:
            return await program.settled()
        program.press(CONTROL_D)
        return False

    async def close(self) -> None:
        """End what still runs, as somebody would who has nothing more to say."""
        if isinstance(self._program, Terminal):
            self._program.press(CONTROL_D)
        elif self._program is not None:
            await self._program.close_input()
        if self._program is not None:
            await self._end()

    async def kill(self) -> None:
        """Leave nothing running."""
        if self._program is not None:
            await self._program.__aexit__()

    async def _started(self, run: Run) -> Program | Terminal:
        """Return the process that takes this run: the one that is there, if it can."""
        wanted = (run.surface, run.style, run.stall_seconds)
        if self._program is not None and self._for == wanted:
            return self._program
        await self.close()
        self._for = wanted
        options: list[object] = ["--home", self.home, "-m", f"{run.style}:test-model"]
        options += ["-c"] if await has_session(self.home) else []
        options += [f"--prompt={run.question}"] if run.surface is Surface.ONCE else []
        variables, has_input = self._variables(run), run.surface is Surface.LINES
        # A program that is struck while it starts has to start.
        forked = HAS_NURSERY and run.moment.after != "start"
        if run.surface is Surface.TERMINAL:
            self._program = await (Terminal.fork if forked else Terminal.start)(*options, variables=variables)
        elif forked:
            self._program = await Program.fork(*options, variables=variables, has_input=has_input)
        else:
            stdin = asyncio.subprocess.PIPE if has_input else asyncio.subprocess.DEVNULL
            self._program = await Program.start(*options, variables=variables, stdin=stdin)
        self._evidence.shown.append(Shown(surface=run.surface))
        return self._program

    async def _end(self) -> None:
        """Wait for the end of the process, and keep what it left."""
        program, self._program = self._program, None
        assert program is not None
        shown = self._evidence.shown[-1]
        async with program:
            shown.code = await program.ended()
        if isinstance(program, Terminal):
            shown.lines = frozenset(program.lines)
        else:
            shown.output, shown.errors = bytes(program.output), program.stderr

    def _variables(self, run: Run) -> dict[str, str]:
        style = run.style.upper()
        addresses = {f"{style}_BASE_URL": self._providers[run.style].base_url, f"{style}_API_KEY": KEY}
        settings = {"HANSARD_LIMITS__STALL_SECONDS": str(run.stall_seconds), "HANSARD_TITLES": "false"}
        return environment(self._folder, **settings, **addresses)


async def has_session(home: Path) -> bool:
    """Whether there is a conversation to continue."""
    if not home.exists():
        return False
    async with Record.open(home) as record:
        return bool(await record.sessions(limit=1))


async def answered(home: Path, question: str, program: Program | Terminal) -> tuple[str, TurnState | None]:
    """Wait until the record says that the turn of a question has ended; return the last words of it, and how."""
    async with bounded(lambda: f"an answer to {question!r}; {program.stderr}"), Record.open(home) as record:
        await until_recorded(record)
        [session] = await record.sessions()
        async with contextlib.aclosing(record.follow(session.id, chunks=False)) as items:
            async for _ in items:
                conversation = await record.conversation(session.id)
                turn_id = next((each.turn_id for each in conversation.placed if each.message.text == question), "")
                if turn_id in conversation.ends:
                    said = [each.message.text for each in conversation.placed if each.turn_id == turn_id]
                    return said[-1], conversation.ends[turn_id].state
    return "", None


async def until_recorded(record: Record) -> None:
    """Wait until another process has made a session."""
    while not await record.sessions(limit=1):  # noqa: ASYNC110 - nobody here is told when it does
        await asyncio.sleep(LOOK_SECONDS)


async def moment(run: Run, program: Program | Terminal, provider: Provider, before: int) -> Exchange | None:
    """Wait for the request that is to be struck; None when it is not waited for, or never came."""
    return None if run.moment.after == "start" else await asked(program, provider, before + run.struck + 1)


async def strike(run: Run, program: Program | Terminal, exchange: Exchange | None, size: int) -> None:
    """Wait for the moment at which a signal is to be sent, or for the end of the process if that comes first."""
    count = run.moment.count
    if exchange is not None and run.moment.after == "shown" and isinstance(program, Program):
        await program.prints(size + len("".join(f"{text}\n" for text in earlier_texts(run)).encode()) + count)
    elif exchange is not None and run.moment.after == "event":
        await until(lambda: exchange.events_count >= count or exchange.over.is_set() or not program.running, "events")
        if run.moment.drained:
            await drained(run, program, exchange, size)
    # Not synchronisation: this is the random moment.
    await asyncio.sleep(run.moment.delay_seconds)


async def drained(run: Run, program: Program | Terminal, exchange: Exchange, size: int) -> None:
    """Wait until everything that was sent is shown."""
    texts = [*earlier_texts(run), exchange.sent_text]
    if isinstance(program, Program):
        await program.prints(size + len("\n".join(text for text in texts if text).encode()))
    else:
        await program.shows(lambda: letters(exchange.sent_text) in letters(program.text), exchange.sent_text)


def earlier_texts(run: Run) -> list[str]:
    """Return what is said in a run before the answer that is struck."""
    texts = ["".join(behaviour.pieces) for behaviour in run.behaviours[: run.struck]]
    return [text for text in texts if text]


async def asked(program: Program | Terminal, provider: Provider, count: int) -> Exchange | None:
    """Wait until the provider was asked so often; None when the process ended before."""
    asking = asyncio.create_task(provider.asked(count))
    ending = asyncio.create_task(program.ended())
    try:
        async with bounded(lambda: f"request {count}, not {len(provider.answers)}; {program.stderr}"):
            await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    finally:
        asking.cancel()
        ending.cancel()
        await asyncio.gather(asking, ending, return_exceptions=True)


@contextlib.asynccontextmanager
async def stage(folder: Path, seed: int) -> AsyncIterator[tuple[Stage, Evidence]]:
    """Set a stage with both providers, and clear it afterwards."""
    evidence = Evidence(seed=seed)
    async with Provider("openai", key=KEY) as openai, Provider("anthropic", key=KEY) as anthropic:
        stage = Stage(folder, {"openai": openai, "anthropic": anthropic}, evidence)
        try:
            yield stage, evidence
        finally:
            await stage.kill()


async def play(folder: Path, seed: int, runs: Sequence[Run]) -> Evidence:
    """Play runs one after the other; return what was seen, with everything that is wrong about it."""
    async with stage(folder, seed) as (scene, evidence):
        for run in runs:
            await scene.play(run)
        await scene.close()
    evidence.violations += await check_evidence(scene.home, evidence)
    return evidence


async def prove(folder: Path, seed: int, runs: Sequence[Run], tally: Tally, name: str) -> Evidence:
    """Play runs, count them, and let nothing be wrong. The last must be one that nothing befalls."""
    assert runs[-1].fault is Fault.NONE, "the next turn has to run"
    evidence = await play(folder, seed, runs)
    tally.add(f"shown {name}", seed, evidence.counts())
    assert not evidence.violations, "\n".join(evidence.violations)[:REPORT_CHARACTERS_MAX]
    assert len(evidence.played) == len(runs)
    return evidence
