"""S5: a file that is slow to come holds up nobody: not its own message, not `/stop`, not anybody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import File, Role
from hansard.domain.requests import ModelRules, UserSaid
from hansard.domain.settings import TurnLimits
from hansard.errors import ChannelDown
from hansard.intake.files import MESSAGE_FILES_MAX, PERSON_TOGETHER_MAX
from hansard.interop.jsonl import JsonlExport, home_facts
from hansard.ports.channel import Batch, Event, RemoteFile
from hansard.record.api import Record
from hansard.record.fetches import PERSON_OPEN_MAX
from hansard.testing import RECORDING_CAPABILITIES, Platform
from tests.engine.stage import PlayedModel
from tests.gateway.stage import AGENT, Playing, app_with, gateway_on, make_settings
from tests.intake.town import ANN, BOB, HOME_OF_ANN, town
from tests.security.crash_worker import BYTES, doorman, killed_at, play
from tests.tools.samples import PICTURE

SECRET = "mxc://slow#key-of-the-file"  # noqa: S105
SLOW = RemoteFile(reference=SECRET, name="slow.png", media_type="image/png", size_bytes=len(PICTURE))
SEES = ModelRules(images_max=5, image_bytes_max=100_000)


class Slow(Platform):
    """A platform that gives no file before it is let."""

    def __init__(self) -> None:
        """Hang."""
        super().__init__()
        self.asked: list[str] = []
        self.let = asyncio.Event()
        self.files |= {SECRET: PICTURE}

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        """Hang, then give it."""
        self.asked.append(file.name)
        await self.let.wait()
        return await super().fetch(file, bytes_max)


@asynccontextmanager
async def chatting(home: Path, platform: Platform, model: PlayedModel, wait: float) -> AsyncIterator[Playing]:
    """A gateway whose turns wait for files as long as a test wants."""
    settings = msgspec.structs.replace(make_settings(home / "none"), limits=TurnLimits(attachment_wait_seconds=wait))
    async with (
        Record.open(home) as record,
        app_with(record, settings, model) as app,
        gateway_on(app, platform, RECORDING_CAPABILITIES) as here,
    ):
        yield here
        await here.settled()
        assert (await record.verify()).ok


async def user_messages(here: Playing) -> list[tuple[str, ...]]:
    """What people said, by the names of its parts."""
    sessions = await here.record.sessions(source="matrix")
    messages = [each for session in sessions for each in await here.record.load_transcript(session.id)]
    return [
        tuple(getattr(part, "text", "") or getattr(part, "name", "") for part in message.parts)
        for message in messages
        if message.role is Role.USER
    ]


async def test_nobody_waits_for_a_file(home: Path) -> None:
    """The file hangs: its message is recorded, others are answered, `/stop` stops the turn that waits for it."""
    platform = Slow()
    hers, his = platform.create_room(ANN, AGENT), platform.create_room(BOB, AGENT)
    async with chatting(home, platform, PlayedModel(["Hello."]), 600) as here:
        platform.say(hers, ANN, "look", files=(SLOW,))
        await here.until(lambda: platform.asked == ["slow.png"])
        assert await user_messages(here) == [("look", "slow.png")]
        platform.say(his, BOB, "are you there?")
        await here.until(lambda: here.texts(his) == ["Hello."])
        platform.say(hers, ANN, "/stop")
        await here.until(lambda: "Stopped." in here.texts(hers))
        platform.say(hers, ANN, "later words")
        platform.let.set()
        await here.until(lambda: "Hello." in here.texts(hers))


async def test_an_answer_waits_for_its_file(home: Path) -> None:
    """The model is shown the picture that came while the turn waited, and the person is told nothing."""
    platform = Slow()
    chat = platform.create_room(ANN, AGENT)
    model = PlayedModel(["I see."], rules=SEES)
    async with chatting(home, platform, model, 600) as here:
        platform.say(chat, ANN, "look", files=(SLOW,))
        await here.until(lambda: platform.asked == ["slow.png"])
        assert model.requests == []
        platform.let.set()
        await here.until(lambda: here.texts(chat) == ["I see."])
        said = model.requests[0].messages[-1]
        assert isinstance(said, UserSaid)
        assert [image.data for image in said.images] == [PICTURE]


async def test_an_answer_goes_on_without_its_file(home: Path) -> None:
    """After a while the model is told what is missing, and so is the person; the next answer has what came."""
    platform = Slow()
    chat = platform.create_room(ANN, AGENT)
    model = PlayedModel(["I cannot see."], ["Now I see."], rules=SEES)
    async with chatting(home, platform, model, 0) as here:
        platform.say(chat, ANN, "look", files=(SLOW,))
        await here.until(lambda: "I cannot see." in here.texts(chat))
        assert any("not here yet: slow.png" in text for text in here.texts(chat))
        said = model.requests[0].messages[-1]
        assert isinstance(said, UserSaid)
        assert "slow.png" in said.text
        assert "still being fetched" in said.text
        assert said.images == ()
        platform.let.set()
        (session,) = await here.record.sessions(source="matrix")
        await until_kept(here.record, session.id)
        platform.say(chat, ANN, "and now?")
        await here.until(lambda: "Now I see." in here.texts(chat))
        first = model.requests[1].messages[0]
        assert isinstance(first, UserSaid)
        assert [image.data for image in first.images] == [PICTURE]
        assert "still being fetched" not in first.text


def batch_of(event: Event) -> Batch:
    """A batch of one event."""
    return Batch(cursor=f"after {event.id}", events=(event,))


async def until_kept(record: Record, session_id: str) -> None:
    """Wait until no file of a session is awaited."""
    async with asyncio.timeout(60):
        while (await record.conversation(session_id)).awaited:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_every_view_has_the_file_and_no_export_its_keys(home: Path) -> None:
    """Transcript, conversation, search and export have the same file; where it came from stands in none of them."""
    async with town(home) as here:
        here.channel.files[SECRET] = PICTURE
        await here.intake.take_batch(batch_of(here.event("look at this", files=(SLOW,))))
        session_id = await here.session()
        (before,) = await here.messages()
        assert before.parts[1] == File(
            blob="", name="slow.png", media_type="image/png", size_bytes=len(PICTURE), fetch="1"
        )
        for job in here.intake.jobs():
            await job.finish_jobs()
        (message,) = await here.messages()
        kept = message.parts[1]
        assert isinstance(kept, File)
        assert kept.blob
        assert not kept.fetch
        assert await here.record.blobs.read(kept.blob) == PICTURE
        assert (await here.record.conversation(session_id)).waiting[0].message.parts == message.parts
        (hit,) = await here.record.search("look")
        assert hit.message.parts == message.parts
        session = await here.record.sessions.read(session_id)
        export = JsonlExport(lambda _text: None, facts=True)
        lines = [line async for line in export.session(here.record, session)]
        lines += [line async for line in home_facts(here.record)]
        said = [line for line in map(json.loads, lines) if line.get("parts")]
        assert kept.blob in json.dumps(said)
        assert b"key-of-the-file" not in b"".join(lines)
        assert "key-of-the-file" in json.dumps(here.at_home("file.awaited"))
        await here.check()


@pytest.mark.drawn(2)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("point", ["logged", "committed"])
async def test_a_kill_loses_no_file(home: Path, point: str, number: int) -> None:
    """Killed before or after the message or the file was recorded, the next start has both."""
    await asyncio.to_thread(killed_at, home, "files", point, number + 1)
    await play(home, "files", doorman())
    await play(home, "files", again := doorman())
    assert again.fetches == []
    async with town(home) as here:
        (message,) = await here.messages()
        file = message.parts[1]
        assert isinstance(file, File)
        assert await here.record.blobs.read(file.blob) == BYTES
        assert await here.notices() == []
        await here.check()


async def test_many_files_of_one_person(home: Path) -> None:
    """Of one person two files are fetched at once and a hundred wait; Bob's is fetched meanwhile; the rest is named."""
    async with town(home) as here:
        here.channel.files["mxc://1"] = ChannelDown("down")
        here.channel.files["mxc://2"] = BYTES
        many = tuple(RemoteFile(reference="mxc://1", name=f"{number}.txt") for number in range(MESSAGE_FILES_MAX))
        for _ in range(PERSON_OPEN_MAX // MESSAGE_FILES_MAX + 1):
            await here.intake.take_batch(batch_of(here.event("look", files=many)))
        assert len(here.at_home("file.awaited")) == PERSON_OPEN_MAX
        told = await here.notices()
        assert len(told) == MESSAGE_FILES_MAX
        assert all("too many files" in text for text in told)
        bobs = here.event("mine", BOB, HOME_OF_ANN.replace("ann", "bob"), files=(RemoteFile(reference="mxc://2"),))
        await here.intake.take_batch(batch_of(bobs))
        due = await here.record.fetches.list_due(
            "matrix", here.channel.account, person_max=PERSON_TOGETHER_MAX, limit=10
        )
        assert [awaited.reference for awaited in due] == ["mxc://1", "mxc://2", "mxc://1"]
        await here.check()
