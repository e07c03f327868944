"""What the contracts of the channel suite share: the stage that an adapter's tests set, and a scene played on it.

A stage stands for everything that is not the channel: people with clients of their own, the platform, the network. What
it tells of a chat is what a person sees there, never what the channel believes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from inspect import cleandoc
from typing import TYPE_CHECKING, Protocol

import msgspec

from hansard.errors import ChannelError
from hansard.ports.channel import Batch, Channel, Event, EventKind, Post
from hansard.testing.conformance_kit import ContractBroken, require, require_equal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from hansard.testing.platform import FaultKind

    Check = Callable[["Scene"], Awaitable[None]]
    ChatCheck = Callable[["Scene", str], Awaitable[None]]

HEAR_SECONDS_MAX = 120.0
"""How long a contract waits for an event before it calls the contract broken."""

GREET_SECONDS = 0.3
"""Between two greetings to a channel that has only begun to listen: what was said before it did is not for it."""

LEAVE_SECONDS_MAX = 60.0
WAIT_SECONDS_MAX = 3600.0

WORDS = frozenset({EventKind.MESSAGE, EventKind.EDIT, EventKind.DELETION, EventKind.ANSWER})


class Ability(StrEnum):
    """What a stage can do beyond one person who speaks in a direct chat."""

    ROOMS = "rooms"
    """Two people and the agent in one chat."""
    THREADS = "threads"
    EDITS = "edits by people"
    DELETIONS = "deletions"
    FILES = "files from people"
    CHOICES = "choices made by people"
    REMOVAL = "removal of the agent from a chat"
    OUTAGES = "outages"
    BUSY = "requests to wait"
    CUT_BEFORE = "connections that break before a post is shown"
    CUT_AFTER = "connections that break after a post was shown"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a chat, as a person sees it now, with its latest edit."""

    text: str = ""
    """The words that are read, without any markup."""
    is_agents: bool = False
    markup: str = ""
    """What a client is given to render, where that is more than the words; such as HTML."""
    rings: bool = False
    """Whether it calls anybody by name."""
    file: bytes | None = None


class Talking(Protocol):
    """What people do."""

    async def direct(self) -> str:
        """Return a new chat of one person and the agent, in which nothing was said."""

    async def room(self) -> str:
        """Return a new chat of two people and the agent; needs `Ability.ROOMS`."""

    async def say(self, chat: str, text: str, *, second: bool = False, to_agent: bool = False) -> str:
        """Let a person say something, the second one of a room, or to the agent by name; return the event's id."""

    async def edit(self, chat: str, event_id: str, text: str) -> None:
        """Let the person change what they said; needs `Ability.EDITS`."""

    async def delete(self, chat: str, event_id: str) -> None:
        """Let the person delete what they said; needs `Ability.DELETIONS`."""


class Looking(Protocol):
    """What people see, and what else they do."""

    async def seen(self, chat: str) -> list[Seen]:
        """Return what a person sees in a chat now, in order."""

    async def thread(self, chat: str) -> str:
        """Return the chat of a new thread, in which nothing was said; needs `Ability.THREADS`."""

    async def send_file(self, chat: str, name: str, data: bytes) -> None:
        """Let a person send a file; needs `Ability.FILES`."""

    async def choose(self, chat: str, receipt: str, choice: str, *, second: bool = False) -> None:
        """Let a person make a choice beside a post; needs `Ability.CHOICES`."""

    async def remove(self, chat: str) -> None:
        """Take the agent out of a chat, or the chat away; needs `Ability.REMOVAL`."""


class StageFaults(Protocol):
    """What goes wrong."""

    async def fail(self, kind: FaultKind) -> None:
        """Let the next post meet with this; needs `Ability.BUSY`, `CUT_BEFORE`, `CUT_AFTER`."""

    async def down(self) -> None:
        """Let the platform be away; needs `Ability.OUTAGES`."""

    async def up(self) -> None: ...


class ChannelStage(Talking, Looking, StageFaults, Protocol):
    """Where a channel is tried. `open` is called again for the next process, as it were: the same account and home."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """What it can do. A contract that needs more is skipped, with that as its reason."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no error, name or cursor may hold: the token, the password."""

    async def open(self) -> Channel: ...


class Overheard(logging.Handler):
    """Remembers everything that anybody logs, of any level, with the errors that were logged beside it."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.text = ""
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.text += f"{self.format(record)}\n"


class Scene:
    """A stage, a channel that is open on it, and a task that receives as a gateway does."""

    def __init__(self, stage: ChannelStage, channel: Channel, overheard: Overheard) -> None:
        self.stage = stage
        self.channel = channel
        self.overheard = overheard
        self.cursor = ""
        self._events: list[Event] = []
        self._changed = asyncio.Condition()
        self._listening: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        """Receive from the cursor on, in the background."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async with aclosing(self.channel.receive(self.cursor, ())) as batches:
            async for batch in batches:
                self.cursor = batch.cursor
                self._events += batch.events
                async with self._changed:
                    self._changed.notify_all()

    async def pause(self) -> None:
        """Receive no more, and require that this ends soon; the cursor stays where it is."""
        listening, self._listening = self._listening, None
        if listening is None:
            return
        listening.cancel()
        try:
            async with asyncio.timeout(LEAVE_SECONDS_MAX):
                await listening
        except asyncio.CancelledError:
            return
        except TimeoutError:
            raise ContractBroken(f"receiving did not end within {LEAVE_SECONDS_MAX:g} s of being cancelled") from None

    async def begin(self) -> None:
        """Listen for the first time, and greet until that is heard: an empty cursor means from now on."""
        chat = await self.stage.direct()
        await self.listen()
        await self._wait(lambda: bool(self.cursor))
        greetings = []
        for _ in range(round(HEAR_SECONDS_MAX / GREET_SECONDS)):
            greetings.append(await self.stage.say(chat, "hello"))
            if await self._wait(lambda: bool(self._of(chat))):
                await self._until(lambda: greetings[-1] in {event.id for event in self._of(chat)}, "the last greeting")
                return
        raise ContractBroken(f"nothing was received in {HEAR_SECONDS_MAX:g} s although somebody kept greeting")

    async def _wait(self, done: Callable[[], bool]) -> bool:
        """Wait a short while for something."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GREET_SECONDS), self._changed:
                await self._changed.wait_for(done)
        return done()

    async def reopen(self) -> None:
        """Be the next process: close the channel and open it again. Nobody listens yet."""
        await self.pause()
        await self.channel.close()
        self.channel = await self.stage.open()

    async def hear(self, chat: str, count: int) -> list[Event]:
        """Return what was said in a chat and its threads, once it is so much; more breaks the contract."""
        await self.listen()
        await self._until(lambda: len(self._of(chat)) >= count, f"{count} events of {chat}")
        found = self._of(chat)
        require_equal([event.text for event in found[count:]], [], "what is received beyond what was said")
        return found

    def _of(self, chat: str) -> list[Event]:
        """Return what was said in a chat and its threads."""
        return [event for event in self._events if event.kind in WORDS and f"{event.chat}:".startswith(f"{chat}:")]

    async def _until(self, done: Callable[[], bool], what: str) -> None:
        listening = self._listening
        try:
            async with asyncio.timeout(HEAR_SECONDS_MAX), self._changed:
                await self._changed.wait_for(lambda: done() or (listening is not None and listening.done()))
        except TimeoutError:
            message = f"{what} did not come in {HEAR_SECONDS_MAX:g} s; received: {self._events[-20:]!r:.2000}"
            raise ContractBroken(message) from None
        require(done(), f"receiving goes on; it ended, before {what}")

    async def first_batch(self, chat: str) -> Batch:
        """Receive from the cursor until a batch has something of a chat; return that batch, and ask for no other."""
        require(self._listening is None, "nobody else receives")
        message = "receiving never ends by itself"
        try:
            async with asyncio.timeout(HEAR_SECONDS_MAX), aclosing(self.channel.receive(self.cursor, ())) as batches:
                async for batch in batches:
                    found = tuple(event for event in batch.events if event.chat == chat and event.kind in WORDS)
                    if found:
                        return Batch(cursor=batch.cursor, events=found)
        except TimeoutError:
            message = f"nothing of {chat} was received from the cursor in {HEAR_SECONDS_MAX:g} s"
        raise ContractBroken(message)

    async def show(self, chat: str, text: str, **more: object) -> str:
        """Post something under a key of its own; return the receipt."""
        receipt = await self.channel.send(make_post(chat, text, **more))
        require(receipt, "a receipt")
        return receipt

    async def shown(self, chat: str) -> list[str]:
        """Return the words that a person sees of the agent in a chat."""
        return [each.text for each in await self.stage.seen(chat) if each.is_agents and each.file is None]

    async def refusal(self, post: Post, *kinds: type[ChannelError]) -> ChannelError:
        """Break the contract unless sending raises one of these, with no secret in it; return the error."""
        try:
            await self.channel.send(post)
        except kinds as error:
            require_no_secret(self.stage.secrets, told_by(error), "the error")
            return error
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ContractBroken(f"expected {names}, and nothing was raised")

    async def cut(self, chat: str, kind: FaultKind, *errors: type[ChannelError]) -> tuple[Post, ChannelError]:
        """Show "one", and let the post of "two" fail; return it and its error."""
        await self.show(chat, "one")
        post = make_post(chat, "two")
        await self.stage.fail(kind)
        return post, await self.refusal(post, *errors)


def make_post(chat: str, text: str, **more: object) -> Post:
    """Return a post under a key that no other has."""
    return msgspec.structs.replace(Post(key=f"suite-{secrets.token_hex(8)}", chat=chat, markdown=text), **more)


def told_by(error: BaseException | None) -> str:
    """Return everything that a log would show of an error: its text, its form, and those it came from."""
    told = ""
    while error is not None:
        told += f"{error}\n{error!r}\n"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return told


def require_no_secret(hidden: tuple[str, ...], text: str, what: str) -> None:
    """Break the contract if a secret is in a text, without repeating it."""
    require(not any(secret in text for secret in hidden), f"{what} holds no secret")


@dataclass(frozen=True, kw_only=True)
class ChannelContract:
    """One promise of every channel: what it is called, what it claims, and the code that tries to break it."""

    name: str
    claim: str
    run: Check
    needs: tuple[Ability | str, ...] = ()
    """Abilities of the stage, and capabilities of the channel by their names."""

    def missing(self, scene: Scene) -> str:
        """Return what would have to be there for this contract to be tried; empty when all is."""
        return ", ".join(need for need in self.needs if not has(scene, need))


def has(scene: Scene, need: Ability | str) -> bool:
    """Return whether the stage can do something, or the channel says that its platform can."""
    if isinstance(need, Ability):
        return need in scene.stage.abilities
    if need == "fetches":
        return scene.channel.capabilities.fetches or scene.channel.capabilities.timeline
    return bool(getattr(scene.channel.capabilities, need))


CHANNEL_CONTRACTS: dict[str, ChannelContract] = {}
"""Every contract by its name, `group.claim`."""


def contract(group: str, *needs: Ability | str) -> Callable[[Check], Check]:
    """Enter a coroutine function into the table of contracts; its docstring states the claim."""

    def enter(run: Check) -> Check:
        name = f"{group}.{getattr(run, '__name__', '')}"
        CHANNEL_CONTRACTS[name] = ChannelContract(name=name, claim=cleandoc(run.__doc__ or ""), run=run, needs=needs)
        return run

    return enter


def chat_contract(group: str, *needs: Ability | str) -> Callable[[ChatCheck], ChatCheck]:
    """Enter a contract whose function is given a new chat of one person and the agent."""

    def enter(run: ChatCheck) -> ChatCheck:
        @wraps(run)
        async def run_in_chat(scene: Scene) -> None:
            await run(scene, await scene.stage.direct())

        contract(group, *needs)(run_in_chat)
        return run

    return enter


@asynccontextmanager
async def opened(stage: ChannelStage) -> AsyncGenerator[Scene, None]:
    """Open the channel of a stage and begin to receive; close it at the end. Meanwhile everything is logged."""
    root, overheard = logging.getLogger(), Overheard()
    level = root.level
    root.addHandler(overheard)
    root.setLevel(logging.DEBUG)
    try:
        scene = Scene(stage, await stage.open(), overheard)
        try:
            await scene.begin()
            yield scene
        finally:
            await scene.pause()
            await scene.channel.close()
    finally:
        root.setLevel(level)
        root.removeHandler(overheard)
