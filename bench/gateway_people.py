"""People on a Matrix-like platform and on Telegram's Bot API, both on this machine, in a process of their own.

What they see is measured here, so that neither they nor their platforms count as Hansard's. One JSON object a line on
standard input says what to do, one on standard output what came of it:

    talk    everybody speaks, and again as soon as they are answered, for some seconds
    say     some speak, once; told when all of them are answered
    expect  told when both of the gateway's channels have asked for news
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from hansard.ports.channel import Post
from hansard.testing import Platform
from tests.channels.telegram.bot_api import BotApi, Fault, Refused
from tests.channels.telegram.entities import Json, Rich
from tests.channels.telegram.world import Chat, Posted, World
from tests.gateway.socket_platform import served_platform

AGENT = "@agent:example.org"
BEGINNING = "You said: "
ENDING = "{text}. Here are some more words, one after the other, as a model would say."
"""Of an answer. In between, in a session that follows another one, the model is told so, and says what it was told."""
ANSWER_SECONDS_MAX = 120.0
"""After which a message counts as not answered."""
CLOSE_SECONDS = 1.0
"""Telegram wants no more than one message a second in a chat."""
NOTICE_CHARACTERS = 40


class Ear:
    """What one person waits for: the first words that come, and the whole answer."""

    def __init__(self, text: str) -> None:
        """Begin to wait for the answer to a text."""
        self._ending = ENDING.format(text=text)
        self.began = time.perf_counter()
        self.first = 0.0
        self.answered: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def hear(self, text: str) -> bool:
        """Take in what is seen now; return whether it belongs to the answer."""
        if text[: len(BEGINNING)] != BEGINNING[: len(text)]:
            return False
        now = time.perf_counter()
        self.first = self.first or now
        if text.endswith(self._ending) and not self.answered.done():
            self.answered.set_result(now)
        return True


Heard = Callable[[str, str], None]


class Rooms(Platform):
    """The Matrix-like platform."""

    def __init__(self, heard: Heard) -> None:
        """Tell of what the agent shows."""
        super().__init__()
        self._heard = heard

    async def post(self, account: str, post: Post) -> str:
        """Show it, and have it heard."""
        event_id = await super().post(account, post)
        self._heard(post.chat, post.markdown)
        return event_id


class Chats(World):
    """Telegram."""

    def __init__(self, heard: Heard) -> None:
        """Tell of what the bot shows."""
        super().__init__()
        self._heard = heard
        self._shown_at: dict[int, float] = {}
        self.close_count = 0
        """How often something was shown sooner after the last than Telegram wants."""

    def post(self, chat_id: int, sender: int, content: Json, **more: Any) -> Posted:  # type: ignore[override]  # noqa: ANN401
        """Show it, and have it heard."""
        posted = super().post(chat_id, sender, content, **more)
        if sender == self.bot.id:
            self._show(chat_id, posted.text)
        return posted

    def change(self, chat: Chat, posted: Posted, rich: Rich) -> None:
        """Show other words, and have them heard."""
        super().change(chat, posted, rich)
        self._show(chat.id, rich.text)

    def _show(self, chat_id: int, text: str) -> None:
        now = time.perf_counter()
        self.close_count += now - self._shown_at.get(chat_id, 0.0) < CLOSE_SECONDS
        self._shown_at[chat_id] = now
        self._heard(str(chat_id), text)


class Pacing(BotApi):
    """A Bot API that takes so many posts and edits a second, over all chats, and answers the others with 429."""

    def __init__(self, world: World, calls_per_second_max: int) -> None:
        """0: as many as come."""
        super().__init__(world)
        self._max = calls_per_second_max
        self._taken: deque[float] = deque()
        self.refused = 0
        self.busiest = 0
        """The most that it took within one second."""

    def _refuse(self, method: str, fault: Fault | None) -> None:
        super()._refuse(method, fault)
        if method not in {"sendMessage", "editMessageText"}:
            return
        now = time.perf_counter()
        while self._taken and self._taken[0] <= now - 1:
            self._taken.popleft()
        if self._max and len(self._taken) >= self._max:
            self.refused += 1
            raise Refused(429, "Too Many Requests: retry after 1", retry_after=1)
        self._taken.append(now)
        self.busiest = max(self.busiest, len(self._taken))


class Wait(NamedTuple):
    """One message: when it was said, and after how long anything and everything of its answer was seen."""

    at: float
    first_seconds: float
    whole_seconds: float


class People:
    """Everybody, and what they wait for."""

    def __init__(self, chats: int, calls_per_second_max: int) -> None:
        """Let them be there: the first half on the Matrix-like platform, the others on Telegram."""
        self.rooms = Rooms(self._heard)
        self.world = Chats(self._heard)
        self.api = Pacing(self.world, calls_per_second_max)
        self._ears: dict[str, Ear] = {}
        self._persons: list[tuple[str, str]] = []
        for number in range(chats // 2):
            person = f"@person{number}:example.org"
            self._persons.append((self.rooms.create_room(person, AGENT), person))
        self.telegram = [str(self.world.person(f"Person {number}")) for number in range(chats - chats // 2)]
        self._persons += [(person, "") for person in self.telegram]
        self.notices = 0
        """What was shown besides answers, such as that a new session began."""
        self.notices_seen: set[str] = set()
        self.unanswered = 0

    def _heard(self, chat: str, text: str) -> None:
        ear = self._ears.get(chat)
        if ear is None or not ear.hear(text):
            self.notices += 1
            self.notices_seen.add(text[:NOTICE_CHARACTERS])

    def is_on_telegram(self, person: int) -> bool:
        """Return where somebody is."""
        return not self._persons[person][1]

    async def speak(self, person: int, text: str) -> Wait | None:
        """Let somebody say something and wait for the whole answer; None when it does not come."""
        chat, name = self._persons[person]
        ear = self._ears[chat] = Ear(text)
        if name:
            self.rooms.say(chat, name, text)
        else:
            self.world.say(int(chat), int(chat), text)
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                answered = await ear.answered
        except TimeoutError:
            self.unanswered += 1
            return None
        return Wait(ear.began, ear.first - ear.began, answered - ear.began)

    async def talk(self, seconds: float, pause_seconds: float) -> dict[str, Any]:
        """Everybody speaks for so long; whoever is answered pauses, if there is to be a pause, and goes on."""
        waits: dict[bool, list[Wait]] = {False: [], True: []}
        began, processor = time.perf_counter(), time.process_time()
        chance = random.Random(7)
        # Begin within one second, as people do, or within a pause; all in one instant would measure the queue.
        starts = [chance.uniform(0, max(1.0, pause_seconds)) for _ in self._persons]

        async def person_talks(person: int) -> None:
            await asyncio.sleep(starts[person])
            number = 0
            while time.perf_counter() < began + seconds:
                number += 1
                wait = await self.speak(person, f"message {number}")
                if wait is None:
                    return
                waits[self.is_on_telegram(person)].append(wait)
                await asyncio.sleep(pause_seconds * chance.uniform(0.5, 1.5))

        await asyncio.gather(*(person_talks(person) for person in range(len(self._persons))))
        return {
            "began": began,
            "seconds": time.perf_counter() - began,
            "processor_seconds": time.process_time() - processor,
            "matrix": waits[False],
            "telegram": waits[True],
        }

    async def all_say(self, said: list[tuple[int, str]]) -> dict[str, Any]:
        """Let some speak, each once, and wait until all are answered."""
        waits = await asyncio.gather(*(self.speak(person, text) for person, text in said))
        return {"waits": [wait for wait in waits if wait is not None]}

    async def until_served(self) -> dict[str, Any]:
        """Wait until both channels have asked for news, and wait for it."""
        async with asyncio.timeout(60):
            while self.rooms.calls["poll"] <= 1 or len(self.api.offsets) <= 1:  # noqa: ASYNC110 - before all is measured
                await asyncio.sleep(0.02)
        return {}

    def figures(self) -> dict[str, Any]:
        """Return what the platforms counted."""
        return {
            "unanswered": self.unanswered,
            "notices": self.notices,
            "notices_seen": sorted(self.notices_seen)[:10],
            "matrix_calls": Counter(self.rooms.calls),
            "telegram_calls": Counter(self.api.calls),
            "telegram_refused": self.api.refused,
            "telegram_busiest_second": self.api.busiest,
            "telegram_sooner_than_a_second": self.world.close_count,
        }


async def main() -> None:
    """Serve until standard input ends."""
    given = json.loads(sys.argv[1])
    people = People(given["chats"], given["calls_per_second_max"])
    reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await people.api.up()
    async with served_platform(people.rooms) as port:
        where = {"matrix_port": port, "telegram_url": people.api.url, "token": people.api.token}
        answer(where | {"telegram_people": people.telegram})
        while line := await reader.readline():
            command = json.loads(line)
            match command.pop("do"):
                case "talk":
                    came = await people.talk(**command)
                case "say":
                    came = await people.all_say(command["said"])
                case _:
                    came = await people.until_served()
            answer(came | people.figures())
        await people.api.down()


def answer(told: dict[str, Any]) -> None:
    """Say what came of a command."""
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
