"""The Telegram channel keeps the contracts of the channel suite, on the loopback Bot API."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from hansard.channels.telegram import TelegramTiming, open_telegram
from hansard.domain.chats import parse_key
from hansard.ports.channel import Channel
from hansard.testing.channel_suite import Ability, Seen, run_channel_suite
from hansard.testing.platform import FaultKind
from tests.channels.telegram import bot_api as telegram
from tests.channels.telegram.bot_api import BotApi, bot_api
from tests.channels.telegram.entities import Json

PACE = TelegramTiming(poll_seconds=5, retry_seconds_min=0.02, retry_seconds_max=0.2)
CALLING = frozenset({"mention", "text_mention"})
NOT_THERE = {"receive.a_deletion_names_what_it_takes_away", "timeline.the_timeline_knows_posts_by_their_keys"}
NOT_PROMISED = {"send.the_same_key_shows_nothing_twice", "send.an_unknown_outcome_is_settled_by_its_key"}


def entities_of(message: Json) -> list[Json]:
    """Return what Telegram makes of the words of a message: who is named in it, among others."""
    return [*message.get("entities", ()), *message.get("caption_entities", ())]


class TelegramStage:
    """People on Telegram, whose bot is told of everything in its groups."""

    abilities = frozenset(Ability) - {Ability.DELETIONS}

    def __init__(self, api: BotApi, home: Path) -> None:
        """Begin with nobody."""
        self._api, self._home = api, home
        self._world = api.world
        self._world.is_private_mode = False
        self._topics = itertools.count(1000)
        self._people: dict[str, tuple[int, ...]] = {}
        self.secrets = (api.token, api.token.partition(":")[2])

    async def open(self) -> Channel:
        """Open the channel."""
        environment = {"HANSARD_TELEGRAM_TOKEN": self._api.token}
        return open_telegram(self._home, environment, base_url=self._api.url, pace=PACE)

    async def direct(self) -> str:
        """Let somebody come who writes to the bot alone."""
        person = self._world.person("Ann")
        return self._named(person, person)

    async def room(self) -> str:
        """Let two people make a group with topics."""
        ann, ben = self._world.person("Ann"), self._world.person("Ben")
        return self._named(self._world.group("tea", ann, ben, is_forum=True), ann, ben)

    def _named(self, chat_id: int, *people: int) -> str:
        chat = f"telegram:chat:{chat_id}"
        self._people[chat] = people
        return chat

    def _where(self, chat: str) -> tuple[int, int, tuple[int, ...]]:
        key = parse_key(chat)
        return int(key.place), int(key.part or 0), self._people[f"telegram:chat:{key.place}"]

    async def say(self, chat: str, text: str, *, second: bool = False, to_agent: bool = False) -> str:
        """Let somebody write, in the topic that the chat names."""
        chat_id, topic, people = self._where(chat)
        words = f"@{self._world.bot.username} {text}" if to_agent else text
        return f"{chat_id}:{self._world.say(chat_id, people[int(second)], words, topic=topic)}"

    async def edit(self, chat: str, event_id: str, text: str) -> None:
        """Let somebody change what they wrote."""
        self._world.edit(self._where(chat)[0], int(event_id.rpartition(":")[2]), text)

    async def delete(self, chat: str, event_id: str) -> None:
        """Bots are not told."""
        raise NotImplementedError

    async def seen(self, chat: str) -> list[Seen]:
        """Look at the chat as its members see it."""
        chat_id, topic, _ = self._where(chat)
        return [
            Seen(
                text=posted.text,
                is_agents=posted.sender == self._world.bot.id,
                rings=bool(CALLING & {entity["type"] for entity in entities_of(posted.message)}),
                file=posted.file,
            )
            for posted in self._world.chats[chat_id].timeline
            if posted.topic == topic
        ]

    async def thread(self, chat: str) -> str:
        """Name a topic."""
        return f"{chat}:topic:{next(self._topics)}"

    async def send_file(self, chat: str, name: str, data: bytes) -> None:
        """Let somebody send a document."""
        chat_id, _, people = self._where(chat)
        self._world.send_file(chat_id, people[0], "document", data, name=name)

    async def choose(self, chat: str, receipt: str, choice: str, *, second: bool = False) -> None:
        """Let somebody press a button."""
        chat_id, _, people = self._where(chat)
        self._world.press(chat_id, people[int(second)], int(receipt.rpartition(":")[2]), choice)

    async def remove(self, chat: str) -> None:
        """Let somebody block the bot."""
        self._world.block(self._where(chat)[0])

    async def fail(self, kind: FaultKind) -> None:
        """Let the next message fail."""
        self._api.faults.append(telegram.Fault(telegram.FaultKind(kind.value), "sendMessage"))

    async def down(self) -> None:
        """Let Telegram be away."""
        await self._api.down()

    async def up(self) -> None:
        """Let it be back."""
        await self._api.up()


@pytest.mark.loss("E4", "E6", "F8", "F15", "F18")
async def test_telegram_keeps_the_contracts(home: Path) -> None:
    """The Telegram channel keeps every contract but those about what Telegram does not have, which are skipped.

    Bots are not told of deletions nor of the past, and no key keeps a message from being shown twice.
    """
    async with bot_api() as api:
        results = await run_channel_suite(TelegramStage(api, home))
    assert not "\n".join(f"{each.contract.name}: {each.reason}" for each in results if each.outcome == "broken")
    assert {result.contract.name for result in results if result.outcome == "skipped"} == NOT_THERE | NOT_PROMISED
