"""One conversation from place to place, with kills on the way: Telegram, the terminal, Matrix, and back."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from hansard.delivery.audit import audit_chat
from hansard.domain.messages import Role
from hansard.record.api import Record
from tests.counts import times
from tests.gateway.matrix_stage import NURSERY
from tests.gateway.phones import BOT, PHONE, Both, channels_on
from tests.gateway.socket_platform import served_platform
from tests.gateway.stage import AGENT, ANN, until, write_script
from tests.gateway.worker_both import run

ROUNDS = times(test=1, long=2, prove=25)
TERMINAL_SECONDS_MAX = 120


class Journey:
    """A gateway that is killed now and then, two platforms, a terminal, and what was said so far."""

    def __init__(self, home: Path, script: Path, both: Both, ports: tuple[int, int], draw: random.Random) -> None:
        """Nothing runs, and nothing was said."""
        self.home, self.script, self.both, self.ports, self.draw = home, script, both, ports, draw
        self.said: list[str] = []
        self.shown: list[str] = []
        self.kills = 0
        self._worker = self._offspring()

    def _offspring(self) -> ForkServerProcess:
        """Return a gateway that is not started yet, of a process that has imported everything."""
        return NURSERY.Process(target=run, args=(self.home, self.ports, self.script), daemon=True)

    async def start(self) -> None:
        """Start a gateway, and wait until it asks both platforms."""
        polls = self.both.matrix.calls["poll"], self.both.phones.calls["poll"]
        first = not any(polls)
        self._worker = self._offspring()
        self._worker.start()
        # The first one asks twice: once for the present, once for what comes after.
        await until(lambda: self.both.matrix.calls["poll"] > polls[0] + first)
        await until(lambda: self.both.phones.calls["poll"] > polls[1] + first)

    def end(self, number: signal.Signals) -> int:
        """End the gateway."""
        assert self._worker.pid is not None
        os.kill(self._worker.pid, number)
        self._worker.join(120)
        assert self._worker.exitcode is not None, "it runs on"
        return self._worker.exitcode

    async def hop(self, chat: str) -> None:
        """Say something in a chat, kill the gateway at some moment of the answer, and start it again."""
        self.both.say(chat, self.words(chat.partition(":")[0]))
        await self.killed()

    async def killed(self) -> None:
        """Kill the gateway at some moment soon, and start it again."""
        await asyncio.sleep(self.draw.random() * 0.5)
        self.end(signal.SIGKILL)
        self.kills += 1
        await self.start()

    async def type(self, session_id: str, *, kill: bool) -> None:
        """Say something in a terminal, in the session; maybe it is killed, and so is its answer."""
        arguments = ["--home", str(self.home), "-m", f"scripted:{self.script}", "-r", session_id, "-p"]
        words = self.words("terminal")
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "hansard.cli.main", *arguments, words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert program.stdout is not None
        async with asyncio.timeout(TERMINAL_SECONDS_MAX):
            shown = await program.stdout.read(1)
            if kill:
                program.kill()
                self.kills += 1
            shown += await program.stdout.read()
            await program.wait()
        self.shown.append(shown.decode())
        assert kill or self.shown[-1].endswith(f"{words} is what you said.\n")

    def words(self, where: str) -> str:
        """Return something to say that nobody said before."""
        self.said.append(f"{where}-{len(self.said)}")
        return self.said[-1]


async def check(journey: Journey, record: Record, session_id: str) -> None:
    """Compare what was said, what the record has, and what both chats show."""
    both = journey.both
    transcript = await record.load_transcript(session_id)
    assert [each.text for each in transcript if each.role is Role.USER] == journey.said
    answers = [each.text for each in transcript if each.role is Role.ASSISTANT]
    for words in journey.said:
        assert sum(answer.endswith(f"{words} is what you said.") for answer in answers) <= 1, words
    for shown in journey.shown:
        assert any(f"{answer}\n".startswith(shown) for answer in answers), shown
    channels = channels_on(both.matrix, both.phones)
    names = zip(channels, ("matrix", "telegram"), (AGENT, BOT), (both.room, both.phone), strict=True)
    for channel, name, account, chat in names:
        audit = await audit_chat(record, channel, name, account, chat)
        assert audit.ok, audit.differences
        texts = both.texts(chat)
        whole = Counter(text for text in texts if text.endswith("is what you said."))
        assert set(whole.values()) <= {1}, "a kill may cut every answer of a chat; none is shown twice"
        quotes = Counter(text.partition("> ")[2] for text in texts if text.startswith("You said"))
        said_elsewhere = [words for words in journey.said if not words.startswith(name)]
        followed = said_elsewhere if name == "telegram" else said_elsewhere[-len(quotes) :]
        assert quotes == Counter(followed), name
    report = await record.verify()
    assert report.ok, report.findings


@pytest.mark.slow
@pytest.mark.loss("A1", "A13", "E5", "E13", "F11", "F16", "H1", "H3", "J1", "J2")
@pytest.mark.timeout(900)
async def test_one_conversation_over_many_hops(home: Path, tmp_path: Path, seed: int) -> None:
    """Telegram, terminal, Matrix and back, the gateway and the terminal killed on the way: one session, whole.

    Everything that was said is in it once and in order, each answer is there and shown at most once, and each of the
    two chats is shown what was said elsewhere once.
    """
    both = Both()
    script = write_script(tmp_path / "script", "{last} is what you said.", delay_seconds=0.03)
    async with served_platform(both.matrix) as matrix, served_platform(both.phones) as phones:
        journey = Journey(home, script, both, (matrix, phones), random.Random(seed))
        await journey.start()
        try:
            await journey.hop(both.phone)
            async with Record.open(home) as record:
                await both.settled(record)
                route = await record.routes.read(both.phone)
                assert route is not None
                await record.people.link(f"person:matrix:{ANN}", f"person:telegram:{PHONE}")
                await record.people.link("person:admin", f"person:telegram:{PHONE}")
                for number in range(ROUNDS):
                    await journey.type(route.session_id, kill=number % 2 == 0)
                    await both.settled(record)
                    both.say(both.room, f"/resume {route.session_id}")
                    await both.reads(both.room, "Resumed" if number == 0 else "already", times=max(1, number))
                    await journey.hop(both.room)
                    await both.settled(record)
                    await journey.hop(both.phone)
                    await both.settled(record)
        finally:
            assert journey.end(signal.SIGTERM) in {0, -signal.SIGKILL}
        assert journey.kills >= 2 * ROUNDS
        async with Record.open(home) as record:
            words = [each for each in await record.sessions() if each.messages]
            assert [each.id for each in words] == [route.session_id]
            await check(journey, record, route.session_id)
