"""An older copy of the encryption keys that was put back: its ratchets were used since, so it is never used again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from hansard.channels.matrix.crypto import Crypto
from hansard.channels.matrix.keeping import Keeping, Login, store_name
from hansard.channels.matrix.wire import MatrixWire
from hansard.errors import ChannelDown, PostRefused
from hansard.ports.channel import Post
from tests.channels.matrix.people import Agent, channel_of, new_account, peer
from tests.channels.matrix.published import published_keys, until_signed_anew
from tests.channels.matrix.synapse import Synapse

LOGIN = Login(user_id="@bot:example.org", device_id="DEVICE")


@pytest.mark.parametrize("copied", ["before the last start", "while it ran"])
async def test_an_older_copy_is_put_back(synapse: Synapse, home: Path, tmp_path: Path, copied: str) -> None:
    """Nothing is encrypted with it; with the password a new device logs in, and what was said stays readable."""
    bot, copy = new_account(synapse, "bot"), tmp_path / "copy.db"
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id, encrypted=True)
            chat = await agent.come()
            await ann.say(room_id, "before")
            assert (await agent.next()).text == "before"
            before = Keeping(home).login()
            assert before is not None
            store = home / "matrix" / store_name(before.device_id)
            shutil.copy(store, copy)
            if copied == "while it ran":
                await agent.channel.send(Post(key="a", chat=chat, markdown="good day"))
        cursor = agent.cursor
        if copied == "before the last start":
            async with Agent(channel_of(bot, synapse.url, home, {}), cursor) as again:
                await again.ready()
                assert again.channel.trouble == "", "an ordinary restart is not an older copy"
            shutil.copy(copy, store)
        else:
            copy.rename(store)
        known = await published_keys(ann, bot, before.device_id)
        for _ in range(2):
            async with Agent(channel_of(bot, synapse.url, home, {}), cursor) as old:
                await old.ready()
                assert str(store) in old.channel.trouble
                assert "HANSARD_MATRIX_PASSWORD" in old.channel.trouble
                with pytest.raises(PostRefused):
                    await old.channel.send(Post(key="b", chat=chat, markdown="hello"))
            assert await published_keys(ann, bot, before.device_id) == known
        async with Agent(channel_of(bot, synapse.url, home), cursor) as mended:
            await mended.ready()
            await until_signed_anew(ann, bot, home, before)
            assert mended.channel.trouble == ""
            await ann.say(room_id, "after")
            assert (await mended.next()).text == "after"
            await mended.channel.send(Post(key="c", chat=chat, markdown="here again"))
            shown = [message.text async for message in mended.channel.history(chat)]
            assert shown[0] == "here again"
            assert shown[-1] == "before"
        assert (await ann.sees(room_id))[-1].body == "here again"


class Killed(OSError):
    """The process ended here."""


class Mortal(Keeping):
    """A folder whose process is killed before or after one of the writes of the stamp's file."""

    def __init__(self, home: Path, write: int, *, before: bool) -> None:
        super().__init__(home)
        self._write_number, self._before, self._writes = write, before, 0

    def keep_stamps(self, device_id: str, stamps: Sequence[int]) -> None:
        """Write, and die when it is time."""
        self._writes += 1
        dies = self._writes == self._write_number
        if not (dies and self._before):
            super().keep_stamps(device_id, stamps)
        if dies:
            raise Killed


def opened(home: Path) -> Crypto:
    """Open the device's keys, as a start does."""
    return Crypto(MatrixWire("http://127.0.0.1:9"), Keeping(home), LOGIN)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("write", [1, 2])
def test_a_kill_is_not_an_older_copy(home: Path, tmp_path: Path, write: int, *, before: bool) -> None:
    """A kill between any two writes leaves the keys usable; a copy from before is noticed after the next start."""
    (home / "matrix").mkdir(parents=True, mode=0o700)
    opened(home).close()
    store = home / "matrix" / store_name(LOGIN.device_id)
    shutil.copy(store, tmp_path / "copy.db")
    with pytest.raises(Killed):
        Crypto(MatrixWire("http://127.0.0.1:9"), Mortal(home, write, before=before), LOGIN)
    again = opened(home)
    assert not again.is_older
    again.close()
    shutil.copy(tmp_path / "copy.db", store)
    older = opened(home)
    assert older.is_older
    older.close()


@pytest.mark.parametrize("accident", ["garbage", "a directory", "the stamps are gone"])
def test_damage_names_the_file(home: Path, accident: str) -> None:
    """A store that is no database, and one whose age cannot be told."""
    (home / "matrix").mkdir(parents=True, mode=0o700)
    opened(home).close()
    store = home / "matrix" / store_name(LOGIN.device_id)
    if accident == "the stamps are gone":
        next((home / "matrix").glob("stamp-*.json")).unlink()
        assert opened(home).is_older
        return
    if accident == "garbage":
        store.write_bytes(b"no database" * 1000)
    else:
        store.unlink()
        store.mkdir()
    with pytest.raises((ChannelDown, OSError), match=store.name):
        opened(home)
