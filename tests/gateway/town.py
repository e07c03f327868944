"""People who talk all the time to a gateway, and what became of their words."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

from hansard.delivery.audit import audit_chat
from hansard.domain.messages import Role
from hansard.domain.notices import ENGLISH
from hansard.record.api import Record
from hansard.testing import Platform, RecordingChannel
from tests.gateway.stage import AGENT, ANN, BOB, until

ROOMS = 30
ROOT = Path(__file__).parents[2]


class Town:
    """People who talk all the time, and the gateway that serves them."""

    def __init__(self, home: Path, platform: Platform, port: int, draw: random.Random) -> None:
        """Nobody said anything yet."""
        self.home = home
        self.platform = platform
        self.port = port
        self.draw = draw
        self.people = {
            platform.create_room(who, AGENT): who for number in range(ROOMS) for who in [(ANN, BOB)[number % 2]]
        }
        self.chats = list(self.people)
        self.sent: list[str] = []

    async def talk(self) -> None:
        """Let somebody say something every few milliseconds, until cancelled."""
        while True:
            self.sent.append(f"message-{len(self.sent)}")
            chat = self.draw.choice(self.chats)
            self.platform.say(chat, self.people[chat], self.sent[-1])
            await asyncio.sleep(self.draw.random() * 0.06)

    async def more(self, count: int) -> None:
        """Wait until people said so much more."""
        wanted = len(self.sent) + count
        await until(lambda: len(self.sent) >= wanted)

    async def start(self, source: Path) -> subprocess.Popen[bytes]:
        """Start a gateway of a Hansard, and wait until it receives."""
        polls = self.platform.calls["poll"] + (not self.sent)
        path = os.pathsep.join((str(source), str(ROOT)))
        arguments = [sys.executable, "-m", "tests.gateway.care_worker", str(self.home), str(self.port)]
        environment = {**os.environ, "PYTHONPATH": path}
        process = subprocess.Popen(arguments, env=environment, cwd=source, stderr=subprocess.DEVNULL)
        await until(lambda: self.platform.calls["poll"] > polls or process.poll() is not None)
        assert process.poll() is None, "it did not start"
        return process


async def check(home: Path, platform: Platform, chats: list[str], sent: list[str]) -> None:
    """Compare the rooms with the record, message by message."""
    async with Record.open(home) as record:
        channel = RecordingChannel(platform, AGENT)
        for chat in chats:
            audit = await audit_chat(record, channel, "matrix", AGENT, chat)
            assert audit.ok, audit.differences
        said: list[str] = []
        answers: list[str] = []
        for session in await record.sessions(source="matrix"):
            transcript = await record.load_transcript(session.id)
            words = [message for message in transcript if message.role in {Role.USER, Role.ASSISTANT}]
            said += [message.text for message in words if message.role is Role.USER]
            answers += [message.text for message in words if message.role is Role.ASSISTANT]
            told = [message.text for message in transcript if message.role is Role.NOTICE]
            is_cut = words[-1].role is Role.ASSISTANT or told[-1:] == [ENGLISH.recovered]
            assert is_cut, f"{words[-1].text} in {session.id} was never answered"
        assert sorted(said) == sorted(sent)
        for text in sent:
            assert sum(answer.endswith(f"{text} is what you said.") for answer in answers) <= 1, text
        report = await record.verify()
        assert report.ok, report.findings
