"""The worked example of docs/build/channels.md, a folder of text files, keeps the contracts of the channel suite."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
from pathlib import Path

import pytest

from examples.folder_channel import CAPABILITIES, SAID_BYTES_MAX, FolderChannel, locked, open_folder
from hansard.errors import ConfigInvalid
from hansard.ports.channel import Channel, Post
from hansard.testing.channel_suite import CHANNEL_CONTRACTS, Ability, Seen, run_channel_suite, try_contract
from hansard.testing.platform import FaultKind

POLL_SECONDS = 0.005
DOCS = Path(__file__).parents[2] / "docs" / "build" / "channels.md"
EXAMPLE = Path(__file__).parents[2] / "examples" / "folder_channel.py"


class FolderStage:
    """People who drop files."""

    abilities = frozenset({Ability.REMOVAL, Ability.OUTAGES})
    secrets = ()

    def __init__(self, folder: Path) -> None:
        """Begin with no people."""
        self._folder, self._away = folder, folder.with_name("away")
        self._folder.mkdir()
        self._numbers = itertools.count(1)
        self._received = itertools.count(1)

    async def open(self) -> Channel:
        """Open the channel."""
        return FolderChannel(self._folder, poll_seconds=POLL_SECONDS)

    async def direct(self) -> str:
        """Make somebody's folder."""
        name = f"person{next(self._numbers)}"
        (self._folder / name / "in").mkdir(parents=True)
        return f"folder:chat:{name}"

    async def say(self, chat: str, text: str, *, second: bool = False, to_agent: bool = False) -> str:
        """Drop a file, all of it at once."""
        assert not second
        assert not to_agent
        name = chat.rpartition(":")[2]
        draft = self._folder / name / "in" / "draft"
        draft.write_text(text)
        draft.rename(draft.with_name(f"{next(self._numbers)}.txt"))
        return f"{name}/{next(self._received):08}.txt"

    async def seen(self, chat: str) -> list[Seen]:
        """Read what is in somebody's folder."""
        shown = sorted((self._folder / chat.rpartition(":")[2] / "shown").glob("*.txt"))
        return [Seen(text=path.read_bytes().decode(), is_agents=True) for path in shown]

    async def remove(self, chat: str) -> None:
        """Take somebody's folder away."""
        shutil.rmtree(self._folder / chat.rpartition(":")[2])

    async def down(self) -> None:
        """Let the folder not be there, as when a disk is not."""
        self._folder.rename(self._away)

    async def up(self) -> None:
        """Let the folder be back."""
        self._away.rename(self._folder)

    async def room(self) -> str:
        """There are none."""
        raise NotImplementedError

    async def choose(self, chat: str, receipt: str, choice: str, *, second: bool = False) -> None:
        """There are none."""
        raise NotImplementedError

    async def edit(self, chat: str, event_id: str, text: str) -> None:
        """What was received is not written again."""
        raise NotImplementedError

    async def delete(self, chat: str, event_id: str) -> None:
        """What was received stays received."""
        raise NotImplementedError

    async def thread(self, chat: str) -> str:
        """There are none."""
        raise NotImplementedError

    async def send_file(self, chat: str, name: str, data: bytes) -> None:
        """Only texts are received."""
        raise NotImplementedError

    async def fail(self, kind: FaultKind) -> None:
        """A file is there or not."""
        raise NotImplementedError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where people drop files."""
    return tmp_path / "folder"


@pytest.mark.parametrize("name", CHANNEL_CONTRACTS)
async def test_the_folder_keeps_the_contract(name: str, folder: Path) -> None:
    """The folder keeps each contract that applies to it; what does not is skipped with its reason."""
    result = await try_contract(CHANNEL_CONTRACTS[name], FolderStage(folder))
    if result.outcome == "skipped":
        pytest.skip(result.reason)


async def test_which_contracts_apply(folder: Path) -> None:
    """Those that need rooms, threads, files, edits or a network are skipped, and no others."""
    results = await run_channel_suite(FolderStage(folder))
    assert not [result for result in results if result.outcome == "broken"]
    skipped = [result.contract.name for result in results if result.outcome == "skipped"]
    assert len(results) - len(skipped) >= 22, skipped


async def test_what_stays_in_the_folder_was_not_received(folder: Path, tmp_path: Path) -> None:
    """A link, a file that is too large and a folder that is nobody's are left alone; what waits is received."""
    stage = FolderStage(folder)
    chat = await stage.direct()
    person = folder / chat.rpartition(":")[2]
    secret = tmp_path / "secret.txt"
    secret.write_text("nobody's business")
    await stage.say(chat, "waited")
    channel = await stage.open()
    batches = channel.receive("", ())
    assert [event.text for event in (await anext(batches)).events] == ["waited"]
    (person / "in" / "link.txt").symlink_to(secret)
    (person / "said" / "00000099.txt").symlink_to(secret)
    (person / "in" / "large.txt").write_bytes(b"x" * (SAID_BYTES_MAX + 1))
    (folder / "not a person" / "in").mkdir(parents=True)
    (folder / "not a person" / "in" / "a.txt").write_text("hello")
    (person / "said" / "never.txt").write_text("hello")
    await stage.say(chat, "heard\n")
    batch = await anext(batches)
    assert [event.text for event in batch.events] == ["heard"]
    assert sorted(path.name for path in person.glob("in/*.txt")) == ["large.txt", "link.txt"]
    await batches.aclose()


async def test_numbers_are_never_given_again(folder: Path) -> None:
    """A message whose file was taken away does not leave its number, and so its id, to the next one."""
    stage = FolderStage(folder)
    chat = await stage.direct()
    channel = await stage.open()
    batches = channel.receive("0", ())
    assert (await anext(batches)).cursor == "0"
    await stage.say(chat, "one")
    first = await anext(batches)
    shutil.rmtree(folder / chat.rpartition(":")[2] / "said")
    await stage.say(chat, "two")
    second = await anext(batches)
    assert (first.cursor, second.cursor) == ("1", "2")
    assert first.events[0].id != second.events[0].id
    await batches.aclose()


async def test_a_post_that_cannot_be_written_leaves_nothing_half(folder: Path) -> None:
    """Only whole posts have a name that people look at."""
    stage = FolderStage(folder)
    chat = await stage.direct()
    channel = await stage.open()
    text = "x" * CAPABILITIES.text_bytes_max
    await channel.send(Post(key="a", chat=chat, markdown=text))
    assert [each.text for each in await stage.seen(chat)] == [text]
    shown = folder / chat.rpartition(":")[2] / "shown"
    assert [path.name for path in shown.iterdir()] == [path.name for path in shown.glob("*.txt")]


def test_its_options(home: Path, tmp_path: Path) -> None:
    """Without a path the folder is in the home; an option that it does not know is refused."""
    assert open_folder(home, {}, {}).name == "folder"
    assert (home / "folder").is_dir()
    assert open_folder(home, {"path": str(tmp_path)}, {}).account == "agent"
    with pytest.raises(ConfigInvalid):
        open_folder(home, {"folder": str(tmp_path)}, {})


def test_the_documented_code_is_the_example() -> None:
    """What docs/build/channels.md shows as the example is the example, word for word."""
    (shown,) = re.findall(r"<!-- examples/folder_channel.py -->\n```python\n(.*?)```\n", DOCS.read_text(), re.DOTALL)
    assert shown == EXAMPLE.read_text()


async def test_one_look_at_a_time_gives_numbers(folder: Path) -> None:
    """A receiver that was left may still look when the next one does: that one waits for it."""
    stage = FolderStage(folder)
    chat = await stage.direct()
    await stage.say(chat, "hello")
    batches = (await stage.open()).receive("0", ())
    with locked(folder):
        looking = asyncio.ensure_future(anext(batches))
        done, _ = await asyncio.wait({looking}, timeout=0.2)
        assert not done
        assert list(folder.glob("*/in/*.txt"))
    assert [event.text for event in (await looking).events] == ["hello"]
    await batches.aclose()
