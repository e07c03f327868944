"""A flood by one guest delays an owner's turn by at most two of the guest's, and memory stays bounded.

The guest writes in many threads, with files that do not come, sends what cannot be decrypted, and invites the agent
into rooms whose server does not answer; strangers invite it as well. Small counts here; a thousand threads, and how
long it took, in `make prove`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from pathlib import Path

import msgspec
import pytest

from hansard.domain.settings import TurnLimits
from hansard.gateway.health import resident_bytes
from hansard.ports.channel import Event, EventKind, RemoteFile
from hansard.testing import Platform
from tests.counts import PROVE, times
from tests.proof import REPORTS
from tests.security.crowd import GUEST, OWNER, Crowd, crowd, crowd_settings

THREADS = times(test=25, long=200, prove=1000)
FILES = times(test=10, long=50, prove=200)
EVENTS = times(test=25, long=200, prove=1000)
INVITATIONS = times(test=20, long=100, prove=500)
FOREIGN = ("hansard.record", "hansard.testing")
LIMITS = TurnLimits(person_sessions_hour_max=10_000, person_files_hour_max=10_000)
"""The flood comes through: it is not stopped by what one person may bring in an hour."""
MEMORY_BYTES_MAX = 256 * 1024 * 1024
"""What a thousand threads may take, with everything that is kept for later turns."""


def note(**figures: float) -> None:
    """Keep figures of a proof: how long it took, how much memory."""
    if PROVE:
        REPORTS.mkdir(exist_ok=True)
        with (REPORTS / "flood.txt").open("a") as report:
            report.write(f"{THREADS} threads: {figures}\n")


class Unwilling(Platform):
    """A platform that gives no file and answers to no invitation before it is let."""

    def __init__(self) -> None:
        """Hang."""
        super().__init__()
        self.let = asyncio.Event()
        self.hanging: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def _hang(self, what: str) -> None:
        self.hanging[what] += 1
        self.most[what] = max(self.most[what], self.hanging[what])
        await self.let.wait()
        self.hanging[what] -= 1

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        """Hang, then give it."""
        await self._hang("file")
        return await super().fetch(file, bytes_max)

    async def answer(self, account: str, chat: str, *, accept: bool, reason: str = "") -> None:
        """Hang, then take it."""
        await self._hang("invitation")
        await super().answer(account, chat, accept=accept, reason=reason)


def send_unreadable(here: Crowd, chat: str, count: int) -> None:
    """Let the guest send what cannot be decrypted."""
    for number in range(count):
        event_id = f"$unreadable{number}:{chat}"
        event = Event(id=event_id, kind=EventKind.UNREADABLE, chat=chat, sender=GUEST, raw="{}", is_direct=True)
        here.platform._tell(event)  # noqa: SLF001 - what a homeserver tells


def flood(here: Crowd) -> None:
    """Let the guest, and strangers, do all that they can at once."""
    chat = here.chat(GUEST)
    threads = here.threads(chat, THREADS + FILES)
    for number, thread in enumerate(threads[:THREADS]):
        here.platform.say(thread, GUEST, f"guest {number}")
    here.platform.files["slow"] = b"at last"
    for number, thread in enumerate(threads[THREADS:]):
        slow = RemoteFile(reference="slow", name=f"{number}.bin", media_type="application/octet-stream", size_bytes=7)
        here.platform.say(thread, GUEST, f"guest file {number}", files=(slow,))
    send_unreadable(here, chat, EVENTS)
    for number in range(INVITATIONS):
        here.platform.invite(here.platform.create_room(GUEST), GUEST)
        here.platform.invite(here.platform.create_room(), f"@stranger{number}:elsewhere.net")


@pytest.mark.timeout(900)
async def test_an_owner_is_answered_during_a_flood(home: Path) -> None:
    """While all that the guest did hangs, the owner's turn begins, is answered, and what it says is shown."""
    platform = Unwilling()
    async with crowd(home, crowd_settings(LIMITS), platform) as here:
        owner = here.chat(OWNER)
        flood(here)
        await here.until(lambda: len(here.model.begun) == 2)
        began = time.monotonic()
        platform.say(owner, OWNER, "owner")
        await here.until(lambda: "owner" in here.model.begun)
        begun_after = time.monotonic() - began
        assert len(here.model.begun) == 3, "none of the guest's turns came before it"
        here.model.let(3)
        await here.until(lambda: here.play.texts(owner) == ["to owner"])
        note(seconds_until_begun=begun_after, seconds_until_answered=time.monotonic() - began)
        platform.let.set()
        await here.answered()
        assert here.model.most["guest"] == 2
        assert len(here.model.begun) == THREADS + FILES + 1
        assert 0 < platform.most["file"] <= 4
        assert 0 < platform.most["invitation"] <= 16


async def test_with_every_place_taken_an_owner_comes_next(home: Path) -> None:
    """The guest has every place there is; the owner's turn begins when the first of them is free."""
    platform = Unwilling()
    async with crowd(home, crowd_settings(msgspec.structs.replace(LIMITS, turns_running_max=2)), platform) as here:
        owner = here.chat(OWNER)
        flood(here)
        await here.until(lambda: len(here.model.begun) == 2)
        for number in range(3):
            await ask_between(here, owner, f"owner {number}")
        platform.let.set()
        await here.answered()


async def ask_between(here: Crowd, chat: str, words: str) -> None:
    """Let the owner ask while the guest has every place: at most two of the guest's turns begin before the owner's."""
    here.platform.say(chat, OWNER, words)
    await here.until_taken()
    before = len(here.model.begun)
    here.model.let()
    await here.until(lambda: words in here.model.begun)
    begun = here.model.begun[before:]
    assert len([said for said in begun if said.startswith("guest")]) <= 2, begun
    here.model.let(2)
    await here.until(lambda: f"to {words}" in here.play.texts(chat))


async def test_what_is_kept_does_not_grow_with_the_flood(home: Path) -> None:
    """When the flood is over, the gateway holds what it held before, but for what is kept by a number."""
    platform = Unwilling()
    async with crowd(home, crowd_settings(LIMITS), platform) as here:
        platform.say(here.chat(GUEST), GUEST, "guest before")
        await here.until(lambda: len(here.model.begun) == 1)
        here.model.let()
        await here.play.settled()
        before, bytes_before = kept(here.play.gateway), resident_bytes()
        flood(here)
        await here.until_taken()
        platform.let.set()
        await here.answered()
        grown = {name: count for name, count in (kept(here.play.gateway) - before).items() if count > 8}
        assert grown.keys() <= {"BesideTurns._titled", "ChannelIntake._held"}
        note(memory_grew_by_bytes=resident_bytes() - bytes_before)
        assert resident_bytes() - bytes_before < MEMORY_BYTES_MAX


def kept(root: object) -> Counter[str]:
    """Return how much each part of Hansard that is reached from here holds, but for the record: `Class.attribute`."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    waiting = deque([root])
    while waiting:
        each = waiting.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, (list, tuple, set, frozenset, deque)):
            waiting.extend(each)
        elif isinstance(each, msgspec.Struct):
            waiting.extend(getattr(each, name) for name in each.__struct_fields__)
        elif is_part(each):
            for name, value in vars(each).items():
                waiting.append(value)
                if isinstance(value, (dict, list, set, deque)):
                    found[f"{type(each).__name__}.{name}"] += len(value)
    return found


def is_part(each: object) -> bool:
    """Return whether this is an object of Hansard's gateway: not of the record, which has its own bounds, or a test."""
    module = type(each).__module__
    return hasattr(each, "__dict__") and module.startswith("hansard.") and not module.startswith(FOREIGN)


async def test_what_is_counted(home: Path) -> None:
    """The count above reaches the parts that could grow: it would not be worth much if it missed them."""
    async with crowd(home) as here:
        assert {"Runner._tasks", "FairQueue._waiting", "Dispatcher._known", "ChannelIntake._held"} <= set(
            kept(here.play.gateway)
        )
