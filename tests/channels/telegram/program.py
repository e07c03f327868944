"""`hansard gateway` as a process, on the Bot API of a test; and what people saw compared with its record."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hansard.channels.telegram.html import html_of, text_of
from hansard.cli.main import main
from hansard.delivery.split import MARK, MARKS_MAX, show_bytes, with_mark
from hansard.domain.deliveries import Delivery, DeliveryState, Operation
from hansard.domain.messages import Message, Role
from hansard.gateway.health import Health, ask_health
from hansard.record.api import Record
from tests.channels.telegram.bot_api import BotApi
from tests.channels.telegram.world import Chat
from tests.gateway.stage import is_idle

ROOT = Path(__file__).parents[3]
WAIT_SECONDS_MAX = 120.0
NURSERY = multiprocessing.get_context("forkserver")
"""Starts gateways from a process that has imported them: most of a start is imports, which no kill is about."""
NURSERY.set_forkserver_preload(["hansard.cli.gateway", "hansard.cli.pair", "telegram", "telegram.request", __name__])


class Bot(NamedTuple):
    """A home, and the Bot API that it is served from."""

    home: Path
    url: str
    token: str
    additions: tuple[tuple[str, str], ...] = ()
    """What else is in the environment of its programs."""

    @property
    def environment(self) -> dict[str, str]:
        """What a program is given: the token is in a file."""
        kept = {name: value for name, value in os.environ.items() if name != "HANSARD_TELEGRAM_TOKEN"}
        return {**kept, "HANSARD_HOME": str(self.home), "PYTHONPATH": str(ROOT / "src"), **dict(self.additions)}

    @property
    def log(self) -> Path:
        """Where the gateway logs to."""
        return self.home.with_name("gateway.log")

    def configure(self, script: Path, *lines: str, **settings: object) -> None:
        """Write what a person writes: the settings, and the token."""
        (self.home / "telegram").mkdir(parents=True, exist_ok=True, mode=0o700)
        self.home.chmod(0o700)
        token = self.home / "telegram" / "token"
        token.write_text(f"{self.token}\n")
        token.chmod(0o600)
        head = [f"model = {json.dumps(f'scripted:{script}')}"]
        head += [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        tail = ["[channels.telegram]", "enabled = true", f"base_url = {json.dumps(self.url)}", *lines]
        (self.home / "config.toml").write_text("\n".join([*head, *tail, "[gateway]", "drain_seconds = 10"]) + "\n")


class Program:
    """A gateway that was started."""

    def __init__(self, bot: Bot) -> None:
        """Start it."""
        self._bot = bot
        self._process = NURSERY.Process(target=run_gateway, args=(bot.environment, str(bot.log)))
        self._process.start()

    @property
    def pid(self) -> int:
        """Its number."""
        assert self._process.pid is not None
        return self._process.pid

    async def until(self, is_so: Callable[[Health], bool]) -> Health:
        """Wait until it says something of itself."""
        health = None
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while True:
                    assert self._process.exitcode is None, self._bot.log.read_text()[-2000:]
                    health = await ask_health(self._bot.home)
                    if health is not None and health.pid == self.pid and is_so(health):
                        return health
                    await asyncio.sleep(0.03)
        except TimeoutError:
            message = f"{health}\n{self._bot.log.read_text()[-2000:]}"
            raise AssertionError(message) from None

    async def ready(self) -> None:
        """Wait until all is well with it."""
        await self.until(lambda health: health.status == "ok" and health.channels[0].quiet_seconds < 60)

    async def kill(self) -> None:
        """End it without warning."""
        os.kill(self.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.join, 10)

    async def stop(self) -> None:
        """End it as systemd does."""
        if self._process.exitcode is None:
            os.kill(self.pid, signal.SIGTERM)
        await asyncio.to_thread(self._process.join, 30)
        assert self._process.exitcode in {143, -9}, self._process.exitcode


def run_gateway(environment: dict[str, str], log: str) -> None:
    """Be `hansard gateway`."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(descriptor, 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["hansard", "gateway"]
    main()


@asynccontextmanager
async def running(bot: Bot) -> AsyncIterator[Program]:
    """Run a gateway for as long as this lasts."""
    program = Program(bot)
    try:
        await program.ready()
        yield program
    finally:
        await program.stop()


class Ran(NamedTuple):
    """A command that ended."""

    returncode: int | None
    stdout: str
    stderr: str


async def hansard(bot: Bot, *arguments: str) -> Ran:
    """Run a command as a person does."""
    with tempfile.TemporaryDirectory() as folder:
        process = NURSERY.Process(target=run_command, args=(bot.environment, folder, arguments))
        process.start()
        await asyncio.to_thread(process.join, 60)
        out, err = (Path(folder, name).read_text() for name in ("out", "err"))
        return Ran(process.exitcode, out, err)


def run_command(environment: dict[str, str], folder: str, arguments: tuple[str, ...]) -> None:
    """Be `hansard`, with what it writes in two files."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT, 0o600), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["hansard", *arguments]
    main()


async def rest(bot: Bot, api: BotApi) -> None:
    """Wait until everything was received, and nothing runs, waits to run, or waits to be shown."""
    async with asyncio.timeout(WAIT_SECONDS_MAX), Record.open(bot.home) as record:
        quiet = 0
        while quiet < 3:
            cursor = await record.intake.cursor("telegram", str(api.world.bot.id)) or "0"
            behind = any(update["update_id"] >= int(cursor) for update in api.world.updates)
            quiet = quiet + 1 if not behind and await is_idle(record, "telegram") else 0
            await asyncio.sleep(0.05)


def as_shown(markdown: str) -> str:
    """Return what people read of words on Telegram."""
    html = html_of(markdown)
    return text_of(html).strip() if html else markdown.strip()


class Told(NamedTuple):
    """What a record says of a chat."""

    messages: list[Message]
    deliveries: list[Delivery]

    def words(self, delivery: Delivery) -> set[str]:
        """Return what people may have read of a delivery: its stretch, with the mark or from before there was one."""
        text = next(each.text for each in self.messages if each.id == delivery.message_id)
        stretch = show_bytes(text, delivery.start_bytes, delivery.end_bytes)
        return {as_shown(with_mark(stretch, MARK * count)) for count in range(len(delivery.mark) + 1)}


async def told_of(record: Record, chat: str) -> Told:
    """Read what a record says of a chat, in whichever sessions."""
    transcripts = [await record.load_transcript(session.id) for session in await record.sessions(source="telegram")]
    here = [found for found in transcripts if any(message.chat == chat for message in found)]
    messages = [message for found in sorted(here, key=first_number) for message in found]
    return Told(messages, await record.deliveries.list_of_chat(chat))


def first_number(messages: list[Message]) -> int:
    """Return the number in its chat of what a session began with: sessions may begin in the same second."""
    return next((int(each.event_id.rpartition(":")[2]) for each in messages if each.event_id), 0)


async def check_chat(record: Record, api: BotApi, chat: Chat, name: str) -> int:
    """Compare what people saw in a chat with the record; return how many posts are marked as shown again."""
    told = await told_of(record, name)
    bot_id = api.world.bot.id
    said = [f"{chat.id}:{posted.id}" for posted in chat.timeline if posted.sender != bot_id]
    recorded = [message.event_id for message in told.messages if message.event_id]
    assert recorded == said, "every message is recorded once, in the order of the chat"
    receipts = {each.receipt: each for each in told.deliveries if each.receipt and each.operation is Operation.POST}
    words = {each.id: told.words(each) for each in told.deliveries if not each.file}
    anywhere = set().union(*words.values()) if words else set()
    for sight in chat.sights:
        if sight.sender == bot_id:
            assert sight.text in anywhere, f"what anybody saw is in the record: {sight.text!r}"
    copies: Counter[tuple[str, int]] = Counter()
    for posted in (each for each in chat.timeline if each.sender == bot_id):
        delivery = receipts.get(f"{chat.id}:{posted.id}")
        if delivery is not None:
            assert posted.text in {as_shown(text) for text in last_words(told, delivery)}, (
                "the last edit is the record's"
            )
            copies[delivery.message_id, delivery.start_bytes] += 1
            assert posted.text.startswith(delivery.mark), "what is shown again says so"
    assert not [post for post, count in copies.items() if count > 1]
    # Killed so often in the middle of one post that no further copy of it is sent.
    given_up = [
        each for each in told.deliveries if each.state is DeliveryState.FAILED and each.mark == MARK * MARKS_MAX
    ]
    orphans = sum(f"{chat.id}:{each.id}" not in receipts for each in chat.timeline if each.sender == bot_id)
    marks = sum(len(each.mark) for each in (*receipts.values(), *given_up))
    assert orphans <= marks + len(given_up), "a copy that nobody knows of has one that says so"
    unsent = [each for each in told.deliveries if each.state is not DeliveryState.SENT and each not in given_up]
    assert not unsent, unsent
    return marks


def last_words(told: Told, delivery: Delivery) -> list[str]:
    """Return what a post shows in the end: the stretch of the last edit of it."""
    text = next(each.text for each in told.messages if each.id == delivery.message_id)
    same = [
        each
        for each in told.deliveries
        if (each.message_id, each.start_bytes, each.file) == (delivery.message_id, delivery.start_bytes, 0)
    ]
    return [with_mark(show_bytes(text, each.start_bytes, each.end_bytes), each.mark) for each in same[-1:]]


def answers_to(told: Told, text: str) -> int:
    """Return how many answers of the scripted model are about a text."""
    answers = [message.text for message in told.messages if message.role is Role.ASSISTANT]
    return sum(answer.endswith(f"{text} is what you said.") for answer in answers)


def secret_files(bot: Bot) -> list[str]:
    """Return the files in which the token stands, beside its own: there must be none."""
    secret = bot.token.partition(":")[2].encode()
    found: list[Any] = [path for path in bot.home.rglob("*") if path.is_file() and path.name != "token"]
    return [str(path) for path in [*found, bot.log] if secret in path.read_bytes()]
