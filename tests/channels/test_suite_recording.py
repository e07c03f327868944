"""The recording channel keeps every contract of the channel suite, and the suite finds out channels that do not."""

from __future__ import annotations

import logging
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence

import pytest
from msgspec import structs

from hansard.errors import PostRefused, PostUnknown
from hansard.ports.channel import Batch, Channel, Event, Post, RemoteFile
from hansard.testing.channel import RecordingChannel
from hansard.testing.channel_suite import CHANNEL_CONTRACTS, Ability, Seen, run_channel_suite, try_contract
from hansard.testing.conformance_kit import ContractBroken
from hansard.testing.platform import Fault, FaultKind, Platform

ACCOUNT, ANN, BEN = "@agent:example.org", "@ann:example.org", "@ben:example.org"
LOSSES = {"receive": ("F8", "F15", "F18", "J8"), "send": ("E4", "E5", "E6")}
"""What each group of contracts covers of docs/proof/losses.md."""


class PlatformStage:
    """People on the platform in memory."""

    abilities = frozenset(Ability)
    secrets = ("the token that nobody has",)

    def __init__(self) -> None:
        """Begin without chats."""
        self.platform = Platform()
        self._numbers = 0

    async def open(self) -> Channel:
        """Open the channel."""
        return RecordingChannel(self.platform, ACCOUNT)

    async def direct(self) -> str:
        """Make a room of two."""
        return self.platform.create_room(ANN, ACCOUNT)

    async def room(self) -> str:
        """Make a room of three."""
        return self.platform.create_room(ANN, BEN, ACCOUNT)

    async def say(self, chat: str, text: str, *, second: bool = False, to_agent: bool = False) -> str:
        """Let somebody speak."""
        return self.platform.say(chat, BEN if second else ANN, text, to=ACCOUNT if to_agent else "")

    async def edit(self, chat: str, event_id: str, text: str) -> None:
        """Let somebody change their words."""
        self.platform.edit(chat, ANN, event_id, text)

    async def delete(self, chat: str, event_id: str) -> None:
        """Let somebody take back their words."""
        self.platform.delete(chat, ANN, event_id)

    async def seen(self, chat: str) -> list[Seen]:
        """Read the timeline that every member sees; a thread has none of its own."""
        latest = {shown.edits: shown.text for shown in self.platform.timeline(chat) if shown.edits}
        found = []
        for shown in self.platform.timeline(chat):
            if not shown.edits and not shown.is_deleted:
                file = self.platform.shown_files.get(shown.id)
                text, data = latest.get(shown.id, shown.text), file.data if file is not None else None
                found.append(Seen(text=text, is_agents=shown.sender == ACCOUNT, file=data))
        return found

    async def thread(self, chat: str) -> str:
        """Name a thread."""
        self._numbers += 1
        return f"{chat}:thread:$root{self._numbers}"

    async def send_file(self, chat: str, name: str, data: bytes) -> None:
        """Let somebody send a file."""
        self.platform.files[name] = data
        self.platform.say(chat, ANN, "", files=(RemoteFile(reference=name, name=name, size_bytes=len(data)),))

    async def choose(self, chat: str, receipt: str, choice: str, *, second: bool = False) -> None:
        """Let somebody choose an answer."""
        self.platform.choose(chat, BEN if second else ANN, receipt, choice)

    async def remove(self, chat: str) -> None:
        """Take the agent out of a room."""
        self.platform.room(chat).members.discard(ACCOUNT)

    async def fail(self, kind: FaultKind) -> None:
        """Let the next post fail."""
        self.platform.faults.append(Fault(kind, 1.5))

    async def down(self) -> None:
        """Let the platform be away."""
        self.platform.is_down = True

    async def up(self) -> None:
        """Let it be back."""
        self.platform.is_down = False


def parameters() -> list[object]:
    """Return each contract's name, marked with the losses that its group covers."""
    losses = {name: LOSSES.get(name.partition(".")[0], ()) for name in CHANNEL_CONTRACTS}
    return [pytest.param(name, marks=pytest.mark.loss(*ids) if ids else ()) for name, ids in losses.items()]


@pytest.mark.parametrize("name", parameters())
async def test_the_recording_channel_keeps_the_contract(name: str) -> None:
    """The recording channel keeps each contract; its docstring states the claim. None is skipped."""
    assert (await try_contract(CHANNEL_CONTRACTS[name], PlatformStage())).outcome == "kept"


def test_every_contract_states_its_claim() -> None:
    """Each contract has a claim of its own."""
    claims = [contract.claim for contract in CHANNEL_CONTRACTS.values()]
    assert len(claims) >= 25
    assert all(len(claim) > 20 for claim in claims)
    assert len(set(claims)) == len(claims)


def test_the_suite_needs_no_pytest() -> None:
    """Whoever writes a channel can run the suite without the tools of this repository."""
    code = (
        "import sys, hansard.testing.channel_suite; sys.exit(any(m in sys.modules for m in ('pytest', 'hypothesis')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Lagging(RecordingChannel):
    """Gives the last event of a batch once more with the next one, and everything in another form when asked again."""

    async def receive(self, cursor: str, held: Sequence[str]) -> AsyncGenerator[Batch, None]:
        """Repeat."""
        last: tuple[Event, ...] = ()
        async for batch in super().receive(cursor, held):
            events = tuple(structs.replace(event, reply_to=secrets.token_hex(4)) for event in batch.events)
            yield Batch(cursor=batch.cursor, events=last + events)
            last = events[-1:]


class Optimist(RecordingChannel):
    """Tells an unknown outcome as a refusal, with everything that it knows."""

    async def send(self, post: Post) -> str:
        """Refuse what is unknown."""
        try:
            return await super().send(post)
        except PostUnknown as error:
            raise PostRefused("the token that nobody has is wrong") from error


class Cutter(RecordingChannel):
    """Shows the beginning of what is too long."""

    async def send(self, post: Post) -> str:
        """Cut."""
        size_max = self.capabilities.text_bytes_max - 1
        return await super().send(Post(key=post.key, chat=post.chat, markdown=post.markdown[:size_max]))


class Talkative(RecordingChannel):
    """Logs all that it knows."""

    async def send(self, post: Post) -> str:
        """Log the token."""
        logging.getLogger("hansard.talkative").debug("sending with %s", PlatformStage.secrets[0])
        return await super().send(post)


class Deaf(RecordingChannel):
    """Takes its own posts for words of others."""

    async def send(self, post: Post) -> str:
        """Hear oneself."""
        receipt = await super().send(post)
        platform = self._platform
        assert isinstance(platform, Platform)
        platform.say(post.chat, ACCOUNT, post.markdown)
        return receipt


class BrokenStage(PlatformStage):
    """A stage for a channel that breaks contracts."""

    def __init__(self, kind: type[RecordingChannel]) -> None:
        """Open this kind."""
        super().__init__()
        self._kind = kind

    async def open(self) -> Channel:
        """Open the channel."""
        return self._kind(self.platform, ACCOUNT)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Lagging, "receive.what_was_said_meanwhile_comes"),
        (Lagging, "receive.the_same_cursor_gives_the_same_events"),
        (Deaf, "receive.own_posts_do_not_come_back"),
        (Talkative, "secrets.logs_tell_no_secret"),
        (Optimist, "send.a_break_before_the_effect"),
        (Optimist, "send.a_break_after_the_effect_is_unknown"),
        (Cutter, "send.the_longest_text_is_shown_whole"),
        (Cutter, "send.a_text_that_is_too_long_is_refused"),
        (Cutter, "send.an_edit_replaces_what_was_shown"),
        (Cutter, "files.a_file_is_shown_whole"),
    ],
)
async def test_a_broken_channel_is_found_out(kind: type[RecordingChannel], name: str) -> None:
    """A channel that repeats, pretends, cuts or blabs breaks the contract that forbids it."""
    with pytest.raises((ContractBroken, PostRefused)):
        await try_contract(CHANNEL_CONTRACTS[name], BrokenStage(kind))


async def test_what_does_not_apply_is_skipped_with_its_reason() -> None:
    """Contracts that need what a stage cannot do are skipped, each with what it lacks; the others are tried."""

    class Plain(PlatformStage):
        """People who only speak."""

        abilities = frozenset[Ability]()

    results = await run_channel_suite(Plain())
    assert {result.outcome for result in results} == {"kept", "skipped"}
    assert all(result.reason for result in results if result.outcome == "skipped")
    reasons = {result.contract.name: result.reason for result in results}
    assert Ability.ROOMS in reasons["receive.a_room_is_not_direct"]
    assert reasons["send.a_post_is_shown"] == ""
