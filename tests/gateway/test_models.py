"""Which model answers in a chat: the session's own, which no other chat shares."""

from __future__ import annotations

from pathlib import Path

from hansard.domain.settings import Channels, Settings
from hansard.domain.settings.channels import Matrix
from hansard.record.api import Record
from hansard.testing import RECORDING_CAPABILITIES, Platform
from tests.engine.stage import PlayedModel
from tests.gateway.stage import AGENT, ANN, BOB, app_with, gateway_on


async def test_a_model_for_one_chat(home: Path) -> None:
    """`/model` holds in its session until `/new`; other chats go on as before; files of this machine are no models."""
    platform = Platform()
    first, second = PlayedModel(["one"], name="first"), PlayedModel(["two"], name="openai:gpt-5")
    settings = Settings(channels=Channels(matrix=Matrix(allow=("*:example.org",))))
    async with (
        Record.open(home) as record,
        app_with(record, settings, first, second) as app,
        gateway_on(app, platform, RECORDING_CAPABILITIES) as play,
    ):
        ann, bob = platform.create_room(ANN, AGENT), platform.create_room(BOB, AGENT)

        async def say(chat: str, who: str, text: str) -> str:
            count = len(play.texts(chat))
            platform.say(chat, who, text)
            await play.until(lambda: len(play.texts(chat)) > count)
            await play.settled()
            return play.texts(chat)[-1]

        assert await say(ann, ANN, "hello") == "one"
        assert await say(bob, BOB, "hello") == "one"
        assert "openai:gpt-5" in await say(ann, ANN, "/model openai:gpt-5")
        assert await say(ann, ANN, "hello") == "two"
        assert await say(bob, BOB, "hello") == "one"
        refused = await say(ann, ANN, "/model scripted:/etc/passwd")
        assert "A model is" in refused
        assert "scripted" not in refused
        assert "openai:gpt-5" in await say(ann, ANN, "/model")
        assert await say(ann, ANN, "hello") == "two"
        await say(ann, ANN, "/new")
        assert await say(ann, ANN, "hello") == "one"
