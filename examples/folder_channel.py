"""A channel that is a folder: whoever can write files in it can talk to the agent. docs/build/channels.md explains it.

FOLDER/ann/in/question.txt       a person drops a file: written elsewhere, then renamed to here
FOLDER/ann/said/00000017.txt     what it becomes when it is received: the number is its place among all messages
FOLDER/ann/shown/0003-KEY.txt    what the agent shows; an edit replaces the file

Only `in` needs to be writable for the person.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hansard.errors import ChannelDown, ChatGone, ConfigInvalid, PostRefused
from hansard.ports.channel import Batch, Capabilities, Event, EventKind, Post

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

NAME: Final = "folder"
PERSON: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
POLL_SECONDS: Final = 0.2
BEAT_SECONDS: Final = 30.0
"""How often to say that there is nothing new: a channel that is silent for minutes counts as ill."""
SAID_BYTES_MAX: Final = 1_000_000
"""Larger files stay where they are, so that their writer sees that nobody received them."""
CAPABILITIES: Final = Capabilities(
    text_bytes_max=60_000,
    edit_seconds_min=0.5,
    # A post is a file that is named after its key, and files stay.
    repeat_seconds=10 * 365 * 86_400,
    company=True,
)


def open_folder(
    home: Path, options: Mapping[str, str | int | float | bool], environment: Mapping[str, str]
) -> FolderChannel:
    """Make the channel: the entry point of the package."""
    del environment
    if set(options) - {"path"}:
        message = f"channels.other.{NAME}.options: path is the only one"
        raise ConfigInvalid(message)
    folder = Path(str(options.get("path", home / NAME)))
    folder.mkdir(parents=True, exist_ok=True)
    return FolderChannel(folder)


class FolderChannel:
    """Folders of text files behind the port of channels: one for each person, who is alone in it with the agent."""

    name = NAME
    account = "agent"
    capabilities = CAPABILITIES

    def __init__(self, folder: Path, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._folder = folder
        self._poll_seconds = poll_seconds
        self.trouble = ""
        """What `hansard gateway status` tells about it."""

    async def receive(self, cursor: str, held: Sequence[str]) -> AsyncGenerator[Batch, None]:
        """Give what was dropped since the cursor, for ever. The cursor is the number of the last message."""
        del held
        quiet_seconds = BEAT_SECONDS  # the first batch is given at once
        while True:
            try:
                last, events = await asyncio.to_thread(self._look, cursor)
            except OSError as error:
                self.trouble = f"the folder cannot be read: {error}"
                await asyncio.sleep(self._poll_seconds)
                continue
            self.trouble = ""
            if events or quiet_seconds >= BEAT_SECONDS:
                cursor, quiet_seconds = str(last), 0.0
                yield Batch(cursor=cursor, events=tuple(events))
            else:
                await asyncio.sleep(self._poll_seconds)
                quiet_seconds += self._poll_seconds

    def _look(self, cursor: str) -> tuple[int, list[Event]]:
        """Number what is new; return the last number, and everything after the cursor. All that it does is rename."""
        with locked(self._folder):
            return self._number(cursor)

    def _number(self, cursor: str) -> tuple[int, list[Event]]:
        people = [each for each in self._folder.iterdir() if PERSON.fullmatch(each.name) and each.is_dir()]
        received = (path for person in people for path in texts_in(person / "said"))
        taken = {int(path.stem): path for path in received if path.stem.isdecimal()}
        # Without a cursor, what was received before is somebody else's; what still lies in `in` is ours.
        after = int(cursor) if cursor else max(taken, default=0)
        # Files may be taken away, but a number that the cursor has seen is never given again.
        last = max([after, *taken])
        for path in sorted((path for person in people for path in texts_in(person / "in")), key=by_time):
            last += 1
            said = path.parents[1] / "said"
            said.mkdir(exist_ok=True)
            taken[last] = path.rename(said / f"{last:08}.txt")
        return last, [event_of(path) for number, path in sorted(taken.items()) if number > after]

    async def send(self, post: Post) -> str:
        """Write a file, or write it anew; return its name."""
        if self.capabilities.size(post.markdown) > self.capabilities.text_bytes_max:
            message = f"a text of more than {self.capabilities.text_bytes_max} bytes"
            raise PostRefused(message)
        try:
            return await asyncio.to_thread(self._write, post)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._folder.is_dir():
                message = f"there is no folder for {post.chat}"
                raise ChatGone(message) from error
            # The last thing that is done is the rename: without it nobody sees anything.
            message = f"the file cannot be written: {error}"
            raise ChannelDown(message) from error

    def _write(self, post: Post) -> str:
        person = self._folder / post.chat.removeprefix(f"{NAME}:chat:")
        shown = person / "shown"
        if not shown.is_dir():
            shown.mkdir()
        name = post.edits or next((path.name for path in shown.glob(f"*-{digest_of(post.key)}.txt")), "")
        name = name or f"{sum(1 for _ in shown.glob('*.txt')) + 1:04}-{digest_of(post.key)}.txt"
        draft = shown / f".{name}"
        with draft.open("wb") as file:
            file.write(post.markdown.encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(shown / name)
        return name

    async def typing(self, chat: str, *, on: bool) -> None:
        """Nobody sees the agent write."""

    async def answer(self, chat: str, *, accept: bool, reason: str = "") -> None:
        """There are no invitations."""

    async def is_direct(self, chat: str) -> bool:
        """Return whether one person is alone there with the agent: nobody shares a folder."""
        del chat
        return True

    async def close(self) -> None:
        """Nothing is held open."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one look at a time give numbers: whoever stops receiving may leave a look behind that still goes on."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def texts_in(folder: Path) -> Iterator[Path]:
    """Give the texts of a folder. A link is none: it could lead to anything on this machine."""
    for path in folder.glob("*.txt"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= SAID_BYTES_MAX:
            yield path


def by_time(path: Path) -> tuple[int, str]:
    """Return by what files that are found together are ordered."""
    return path.stat().st_ctime_ns, path.name


def event_of(path: Path) -> Event:
    """Return what somebody said. The folder is the person: whoever may write there speaks for them."""
    person = path.parents[1].name
    return Event(
        id=f"{person}/{path.name}",
        kind=EventKind.MESSAGE,
        chat=f"{NAME}:chat:{person}",
        sender=person,
        text=path.read_text(encoding="utf-8", errors="replace").removesuffix("\n"),
        sent_at_ms=path.stat().st_mtime_ns // 1_000_000,
        is_direct=True,
        is_for_agent=True,
    )


def digest_of(key: str) -> str:
    """Return what stands for a key in a file's name."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]
