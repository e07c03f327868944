"""Files that people send in a chat, on a platform in memory: pictures, tables and voice notes, up to the model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import File, Role
from hansard.domain.requests import ModelRules, Request, UserSaid
from hansard.domain.settings.agent import Transcription
from hansard.models.transcription import OpenAITranscriber
from hansard.ports.channel import RemoteFile
from hansard.record.api import Record
from hansard.testing import RECORDING_CAPABILITIES, Platform
from tests.engine.stage import PlayedModel
from tests.gateway.stage import AGENT, ANN, BOB, Playing, app_with, gateway_on, make_settings
from tests.models.providers.audio import ears
from tests.tools.samples import PICTURE

SOUND = b"OggS" + bytes(range(200))
SEES = ModelRules(images_max=5, image_bytes_max=100_000)
BLIND = ModelRules()


@asynccontextmanager
async def chatting(home: Path, model: PlayedModel, base_url: str = "") -> AsyncIterator[tuple[Playing, str]]:
    """A gateway with a model of the test's own, and a room with two people."""
    platform = Platform()
    chat = platform.create_room(ANN, BOB, AGENT)
    platform.files |= {"mxc://dot": PICTURE, "mxc://voice": SOUND, "mxc://table": b"a,b"}
    async with Record.open(home) as record, app_with(record, make_settings(home / "none"), model) as app:
        if base_url:
            heard = OpenAITranscriber(Transcription(model="openai:ear", base_url=base_url), key="k", base_url=None)
            app.runner._agent = msgspec.structs.replace(app.runner._agent, transcriber=heard)  # noqa: SLF001 - the test's own
        async with gateway_on(app, platform, RECORDING_CAPABILITIES) as play:
            yield play, chat
            await play.settled()
            audit = await play.audit(chat)
            assert audit.ok, audit.differences
        if base_url:
            await heard.close()
        assert (await record.verify()).ok


def remote(name: str, media_type: str, reference: str, data: bytes) -> RemoteFile:
    """A file on the platform."""
    return RemoteFile(reference=reference, name=name, media_type=media_type, size_bytes=len(data))


def last(request: Request) -> UserSaid:
    """What the model was shown last."""
    said = request.messages[-1]
    assert isinstance(said, UserSaid)
    return said


@pytest.mark.loss("F20", "N4", "J9")
@pytest.mark.parametrize("rules", [SEES, BLIND], ids=["sees", "blind"])
async def test_pictures_and_tables(home: Path, rules: ModelRules) -> None:
    """A model that can see is shown a picture's own bytes; one that cannot is told its name; a table is named."""
    model = PlayedModel(["I looked."], rules=rules)
    async with chatting(home, model) as (play, chat):
        files = (
            remote("dot.png", "image/png", "mxc://dot", PICTURE),
            remote("t.csv", "text/csv", "mxc://table", b"a,b"),
            remote("gone.bin", "application/x-thing", "mxc://gone", b"1234"),
        )
        play.platform.say(chat, ANN, "look", to=AGENT, files=files)
        await play.until(lambda: "I looked." in play.texts(chat))
        said = last(model.requests[0])
        assert [image.data for image in said.images] == ([PICTURE] if rules is SEES else [])
        assert f"[Hansard: a file: dot.png, image/png, {len(PICTURE)} bytes]" in said.text
        assert "[Hansard: a file: t.csv, text/csv, 3 bytes]" in said.text
        assert "gone.bin, application/x-thing, 4 bytes, which was not kept]" in said.text
        assert any("gone.bin" in text for text in play.texts(chat)), "the person is told"
        (session,) = await play.record.sessions(source="matrix")
        parts = [part for message in await play.record.load_transcript(session.id) for part in message.parts]
        kept = [await play.record.blobs.read(part.blob) for part in parts if isinstance(part, File) and part.blob]
        assert kept == [PICTURE, b"a,b"]


@pytest.mark.loss("N5", "F20")
async def test_a_voice_note_in_a_room(home: Path) -> None:
    """It is recorded at once, written down, shown in the room as it was understood, and told to the model as Ann's."""
    model = PlayedModel(["Milk, then."])
    async with ears({"text": "Buy milk"}) as heard, chatting(home, model, heard.base_url) as (play, chat):
        play.platform.say(chat, ANN, "", to=AGENT, files=(remote("", "audio/ogg", "mxc://voice", SOUND),))
        await play.until(lambda: "Milk, then." in play.texts(chat))
        assert [upload.data for upload in heard.uploads] == [SOUND]
        said = last(model.requests[0]).text
        assert said.startswith(f"{ANN} says:\n[Hansard: a file: unnamed, audio/ogg, {len(SOUND)} bytes]")
        assert said.endswith("\n> Buy milk")
        assert "The voice note unnamed says:\n\n> Buy milk" in play.texts(chat)
        (session,) = await play.record.sessions(source="matrix")
        roles = [message.role for message in await play.record.load_transcript(session.id)]
        assert roles == [Role.USER, Role.NOTICE, Role.ASSISTANT]
