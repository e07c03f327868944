"""Files that come with messages: stored before the message is, or named and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.domain.messages import File
from hansard.domain.notices import ENGLISH
from hansard.errors import ChannelDown, NotFound, PostRefused, TooLarge
from hansard.intake.receive import ChannelIntake
from hansard.ports.channel import Batch, RemoteFile
from tests.intake.town import settings_of, town


def photo(**fields: object) -> RemoteFile:
    """A file on the platform."""
    given: dict[str, object] = {"reference": "mxc://1", "name": "photo.png", "media_type": "image/png", **fields}
    return RemoteFile(**given)  # type: ignore[arg-type]


@pytest.mark.loss("J9", "F20")
async def test_a_file_is_stored_before_its_message(home: Path) -> None:
    """Name, type, size and bytes are there, and nothing is told."""
    async with town(home) as here:
        here.channel.files["mxc://1"] = b"bytes"
        await here.say("look", files=(photo(),))
        (message,) = await here.messages()
        file = message.parts[1]
        assert isinstance(file, File)
        assert (file.name, file.media_type, file.size_bytes) == ("photo.png", "image/png", 5)
        assert await here.record.blobs.read(file.blob) == b"bytes"
        assert await here.notices() == []
        await here.check()


@pytest.mark.loss("F20")
@pytest.mark.parametrize(
    ("found", "size", "why"),
    [
        (b"x" * 11, 0, "it has more than 10 bytes"),
        (b"x", 11, "it has more than 10 bytes"),
        (PostRefused("gone"), 0, "it could not be fetched"),
        (NotFound("gone"), 0, "it could not be fetched"),
        (TooLarge("too large"), 0, "it has more than 10 bytes"),
    ],
)
async def test_a_file_that_cannot_be_kept_is_named_and_told(
    home: Path, found: bytes | BaseException, size: int, why: str
) -> None:
    """Too large, by its own word or in truth, or gone: the message is taken, the name is there, the person is told."""
    async with town(home, settings_of(attachment_bytes_max=10)) as here:
        here.channel.files["mxc://1"] = found
        assert len(await here.say("", files=(photo(size_bytes=size),))) == 1
        (message,) = await here.messages()
        assert message.parts == (File(blob="", name="photo.png", media_type="image/png", size_bytes=size),)
        assert await here.notices() == [ENGLISH.tell_file_not_kept("photo.png", why)]
        await here.check()


async def test_a_fetch_is_tried_again(home: Path) -> None:
    """A server that is down for a moment costs no file."""
    async with town(home) as here:
        attempts: list[str] = []

        class Shaky(dict[str, bytes | BaseException]):
            def __getitem__(self, key: str) -> bytes | BaseException:
                attempts.append(key)
                return ChannelDown("down") if len(attempts) == 1 else b"bytes"

        here.channel.files = Shaky()
        await here.say("look", files=(photo(),))
        assert (len(attempts), await here.notices()) == (2, [])


async def test_a_channel_without_files(home: Path) -> None:
    """A platform that cannot give files: the name is recorded, and the person is told."""
    async with town(home) as here:
        intake = ChannelIntake(here.record, here.channel, here.settings)
        await intake.take_batch(Batch(cursor="c1", events=(here.event("look", files=(photo(),)),)))
        assert await here.notices() == [ENGLISH.tell_file_not_kept("photo.png", "this channel cannot fetch files")]


async def test_files_of_strangers_are_not_fetched(home: Path) -> None:
    """Nobody fills the disk who may not talk."""
    async with town(home) as here:
        await here.say("look", "@eve:elsewhere.net", files=(photo(),))
        assert here.channel.fetches == []
