"""One post or edit: whether it may be shown now, sent when it is its turn, and settled when its outcome is unknown.

Reads: routes, circles, access; deliveries; the settings; who is in the chat; the platform's timeline. Writes:
deliveries and their moves.
Invariants: `sending` is durable before the call; a receipt is recorded, however long the record makes it wait. A chat
that only follows a session is asked about at the moment of showing. A few chats have the platform at once, by the rule
of `hansard.tasks.FairQueue`; while the platform asks to wait, nobody has. Nothing is posted again unless its key makes
that harmless, or the timeline shows that it is not there, or it says of itself that it may be there twice; that it does
is in the record before anybody sees it.
On crash: the delivery is unknown; whoever delivers next settles it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final, cast

import msgspec

from hansard.delivery.split import MARK, MARKS_MAX, is_recognised, marked_reading, with_mark
from hansard.domain.access import Action, may
from hansard.domain.deliveries import Delivery, DeliveryState, Operation, OutboxItem
from hansard.domain.people import People
from hansard.errors import (
    ChannelBusy,
    ChannelDown,
    ChannelError,
    ChatGone,
    HansardError,
    OutcomeUnknown,
    PostRefused,
    PostUnknown,
    RecordUnavailable,
    WrongState,
)
from hansard.ports.channel import Channel, Company, Post, Timeline, TimelineEvent, file_key
from hansard.record.api import Record
from hansard.tasks import HALF, Askers, Bounds, FairQueue, Ticket, backoff_seconds

logger = logging.getLogger(__name__)

Report = Callable[[str, BaseException], None]
"""Hears where something went wrong, and what."""

SCARCE = (
    "the server limits how often this account may post, so answers are shown by their first words and, once complete, "
    "as a whole; the documentation of the channel says how to raise the limit"
)


class DeliveryTiming(msgspec.Struct, frozen=True, kw_only=True):
    """How a dispatcher waits. Tests make it impatient."""

    down_seconds_min: float = 0.5
    """The first pause while the platform cannot be reached."""
    down_seconds_max: float = 60.0
    """The longest one."""
    busy_seconds_max: float = 600.0
    """The longest that a platform may ask to wait."""
    careful_seconds: float = 5.0
    """For how long after that one chat at a time is written to."""
    scarce_seconds: float = 120.0
    """For how long after that posts are scarce: answers are shown by their first words and their ends alone."""
    first_words_seconds: float = 5.0
    """While posts are scarce, the first words of an answer wait this long: a short answer is then a single post."""
    heal_seconds: float = 1.0
    """Pause before another try while the record cannot be written."""
    look_seconds: float = 0.01
    """The shortest pause between two looks at the outbox."""
    full_look_seconds: float = 5.0
    """How often the whole outbox is looked at: what was dropped elsewhere is noticed."""
    again_seconds: float = 0.1
    """The shortest pause before the whole outbox is looked at again for what found no room."""
    lanes_max: int = 1000
    """Chats that are served at the same time."""
    calls_max: int = 64
    """Chats for which the platform is talked to at the same time."""
    person_share: int = 4
    """One person has at most one in so many of those chats, and of those calls."""
    lane_messages_max: int = 100
    """Messages of one chat in memory; what comes after them waits in the record."""
    files_max: int = 2
    """Files in memory at the same time."""
    repeat_margin: float = 0.8
    """How much of the time for which a key is good is trusted: clocks differ."""


class PlatformHealth:
    """Whether the platform takes anything now. Every lane of a channel lives in the same one.

    After trouble one lane at a time tries (`ChannelGate`): a platform that was down is not met by all of them, and each
    try is two entries of the record.
    """

    def __init__(self, pace: DeliveryTiming) -> None:
        self._pace = pace
        self.until = 0.0
        """When there is nothing to wait for any more."""
        self._careful_until = 0.0
        self._scarce_until = 0.0
        self._failures = 0
        self.trouble = ""
        """What is waited for; empty when nothing is."""

    @property
    def note(self) -> str:
        """What people should know although all is well; empty when there is nothing."""
        return SCARCE if self.is_scarce else ""

    @property
    def is_scarce(self) -> bool:
        """Whether the platform lately took fewer posts than there were: edits of a growing answer are left out."""
        return asyncio.get_running_loop().time() < self._scarce_until

    @property
    def is_fine(self) -> bool:
        return asyncio.get_running_loop().time() >= self.until

    @property
    def is_careful(self) -> bool:
        """Whether one chat at a time should try."""
        return self._failures > 0 or asyncio.get_running_loop().time() < self._careful_until

    def busy(self, seconds: float, trouble: str) -> None:
        asked = min(max(seconds, 0.0), self._pace.busy_seconds_max)
        self._wait(asked * (1 + random.random() / 10), trouble)  # noqa: S311 - spread, not secrecy
        self._careful_until = self.until + self._pace.careful_seconds
        self._scarce_until = self.until + self._pace.scarce_seconds

    def down(self, trouble: str) -> None:
        """The platform cannot be reached: wait longer each time. Many lanes notice it at once; that counts once."""
        if self.is_fine:
            self._failures += 1
            first, longest = self._pace.down_seconds_min, self._pace.down_seconds_max
            self._wait(backoff_seconds(self._failures, first, longest, spread=HALF), trouble)

    def _wait(self, seconds: float, trouble: str) -> None:
        self.until = max(self.until, asyncio.get_running_loop().time() + seconds)
        self.trouble = trouble

    def fine(self) -> None:
        if self.is_fine:
            self._failures = 0
            self.trouble = ""


SETTLED: Final = frozenset({DeliveryState.SENT, DeliveryState.FAILED})


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery as it stands after a try. Unless it is settled, the platform's health says when to try again."""

    delivery: Delivery
    is_gone: bool = False
    """Whether it failed because the chat is gone."""
    chat_seconds: float = 0.0
    """How long this chat alone has to wait; the others do not."""

    @property
    def is_settled(self) -> bool:
        return self.delivery.state in SETTLED


class Sender:
    """Sends for every lane of a channel."""

    def __init__(
        self, record: Record, channel: Channel, timeline: Timeline | None, pace: DeliveryTiming, report: Report
    ) -> None:
        """`report` hears of errors that are not the channel's own."""
        self.record = record
        self.channel = channel
        self.timeline = timeline
        self.pace = pace
        self.health = PlatformHealth(pace)
        self.gate = ChannelGate(self.health, pace)
        self.people: People | None = None
        """Whom the settings allow; until they are known, no chat follows."""
        self.sent = 0
        """Posts and edits that the platform took from this process."""
        self.report = report
        self.files = asyncio.Semaphore(pace.files_max)

    async def follows(self, waiting: OutboxItem) -> bool | None:
        """Return whether a chat that only follows a session still does; None: the platform cannot say now."""
        if self.people is None:
            return False
        try:
            return await may_follow(self.record, self.channel, self.people, waiting.session_id, waiting.chat)
        except ChatGone:
            return False
        except ChannelError as error:
            self.health.down(str(error))
            return None

    async def send(self, delivery: Delivery, post: Post) -> Tried:
        """Send a post, or an edit, that is new, or was surely not shown, or whose key is still good."""
        begun = await self.record.deliveries.begin(delivery)
        try:
            receipt = await self.channel.send(post)
        except (ChannelBusy, ChannelDown) as error:
            return await self._wait(begun, error)
        except (ChatGone, PostRefused) as error:
            return await self.refuse(begun, error)
        except asyncio.CancelledError:
            with suppress(HansardError):  # then the next process finds that its sender is gone
                await self.record.deliveries.move(
                    begun.session_id, begun.id, DeliveryState.UNKNOWN, reason="the program was left"
                )
            raise
        except Exception as error:  # noqa: BLE001  # boundary: channel call
            if not isinstance(error, PostUnknown):
                self.report(delivery.target, error)
            self.health.down(describe(error))
            return Tried(delivery=await self.move_delivery(begun, DeliveryState.UNKNOWN, reason=describe(error)))
        self.health.fine()
        self.sent += 1
        return Tried(delivery=await self.move_delivery(begun, DeliveryState.SENT, receipt=receipt))

    async def _wait(self, begun: Delivery, error: ChannelBusy | ChannelDown) -> Tried:
        """Surely nothing was shown: it is as if it had not been tried."""
        chat_seconds = 0.0
        if not isinstance(error, ChannelBusy):
            self.health.down(str(error))
        elif error.is_of_chat:
            chat_seconds = min(max(error.seconds, 0.0), self.pace.busy_seconds_max)
        else:
            if not self.health.is_scarce:
                logger.warning("%s %s: %s", self.channel.name, self.channel.account, SCARCE)
            self.health.busy(error.seconds, str(error))
        moved = await self.move_delivery(begun, DeliveryState.PENDING, reason=str(error))
        return Tried(delivery=moved, chat_seconds=chat_seconds)

    async def refuse(self, delivery: Delivery, error: ChannelError) -> Tried:
        """No other attempt helps."""
        moved = await self.move_delivery(delivery, DeliveryState.FAILED, reason=str(error))
        return Tried(delivery=moved, is_gone=isinstance(error, ChatGone))

    async def move_delivery(
        self, delivery: Delivery, state: DeliveryState, *, receipt: str = "", reason: str = ""
    ) -> Delivery:
        """Record what became of it, however long that takes: nobody else knows."""
        while True:
            try:
                return await self.record.deliveries.move(
                    delivery.session_id, delivery.id, state, receipt=receipt, reason=reason
                )
            except (RecordUnavailable, OutcomeUnknown) as error:
                self.report(delivery.target, error)
                await asyncio.sleep(self.pace.heal_seconds)
            except WrongState:
                known = await self.record.deliveries.list_of_message(
                    delivery.session_id, delivery.message_id, delivery.target
                )
                found = next(each for each in known if each.id == delivery.id)
                if found.state != state:
                    raise
                return found  # an earlier try of the same move had been written after all


def describe(error: BaseException) -> str:
    """Return an error as it may stand in the record and in a log: a stranger's words are left out."""
    return str(error) if isinstance(error, HansardError) else type(error).__name__


ALONE = Bounds(together=1, person=1)


async def may_follow(record: Record, channel: Channel, people: People, session_id: str, chat: str) -> bool:
    """Return whether a chat follows a session now. A channel that cannot say who is there shows nothing.

    The record is asked again once the platform has answered, which may have taken a while.
    """
    if not channel.capabilities.company or not await is_follower(record, people, session_id, chat):
        return False
    return await cast("Company", channel).is_direct(chat) and await is_follower(record, people, session_id, chat)


async def is_follower(record: Record, people: People, session_id: str, chat: str) -> bool:
    follower = await record.routes.find_follower(session_id, chat)
    return follower is not None and may(Action.TALK, people.standing(follower.identity, chat), follower.grant)


class ChannelGate:
    """Places before one channel, and the line for them."""

    def __init__(self, health: PlatformHealth, pace: DeliveryTiming) -> None:
        self._health = health
        self._bounds = Bounds(pace.calls_max, max(1, pace.calls_max // pace.person_share))
        self._line = FairQueue()
        self._bells: dict[Ticket, asyncio.Event] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits: whoever has shown something gives way."""
        return bool(self._bells)

    @asynccontextmanager
    async def place(self, people: Askers) -> AsyncIterator[None]:
        """Wait until it is worth trying and one's turn; hold the place while this lasts."""
        ticket = self._line.join(people)
        bell = self._bells[ticket] = asyncio.Event()
        try:
            self._call()
            await bell.wait()
            yield
        finally:
            self._bells.pop(ticket, None)
            self._line.leave(ticket)
            self._call()

    def _call(self) -> None:
        """Give the free places; while the platform asks to wait, do so when it no longer does."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._bells:
            return
        if not self._health.is_fine:
            self._timer = asyncio.get_running_loop().call_at(self._health.until, self._call)
            return
        while (ticket := self._line.call(ALONE if self._health.is_careful else self._bounds)) is not None:
            self._bells.pop(ticket).set()


SLACK_MS = 15 * 60 * 1000
"""How much earlier than our clock says the platform may have dated a post."""

UNSETTLED = "it may have been shown, and the platform cannot tell"


async def settle_unknown(sender: Sender, delivery: Delivery, post: Post) -> Tried:
    """Find out whether an unknown delivery was shown, and send it if it was not."""
    created = await sender.record.deliveries.read_time(delivery)
    age_seconds = abs(sender.record.clock.now_microseconds() - created) / 1_000_000
    is_good = age_seconds < sender.channel.capabilities.repeat_seconds * sender.pace.repeat_margin
    if not is_good and sender.timeline is not None:
        return await _settle_by_timeline(sender, sender.timeline, delivery, post, created // 1000)
    if is_good or delivery.operation is Operation.EDIT:
        return await sender.send(delivery, post)  # an edit shows the same words in the same place
    if is_recognised(sender.channel.capabilities) or delivery.mark == MARK * MARKS_MAX:
        return await sender.refuse(delivery, PostRefused(UNSETTLED))
    # The platform knows no keys and tells nothing of the past: rather twice, and saying so, than never.
    mark = delivery.mark + MARK
    words = MARK + post.markdown if delivery.mark else with_mark(post.markdown, MARK)  # marks stand at the beginning
    reading = marked_reading(post.reading, mark)
    return await sender.send(
        msgspec.structs.replace(delivery, mark=mark), msgspec.structs.replace(post, markdown=words, reading=reading)
    )


async def _settle_by_timeline(
    sender: Sender, timeline: Timeline, delivery: Delivery, post: Post, created_ms: int
) -> Tried:
    """The key is good no longer: look whether the platform has it."""
    known = {each.receipt for each in await sender.record.deliveries.list_of_chat(delivery.target) if each.receipt}
    try:
        receipt = await find_shown(timeline, sender.channel.account, post, known, created_ms)
    except ChatGone as error:
        return await sender.refuse(delivery, error)
    except Exception as error:  # noqa: BLE001  # boundary: channel call
        sender.health.down(describe(error))
        return Tried(delivery=delivery)
    if receipt:
        return Tried(delivery=await sender.move_delivery(delivery, DeliveryState.SENT, receipt=receipt))
    return await sender.send(delivery, post)


async def find_shown(timeline: Timeline, account: str, post: Post, known: Collection[str], created_ms: int) -> str:
    """Return the platform's id of a post, by its key or by its words; empty when it is not there."""
    key = post.key if post.markdown else file_key(post.key, 1)
    async with aclosing(timeline.history(post.chat)) as events:
        async for shown in events:
            if shown.key == key or (shown.id not in known and is_same(shown, account, post)):
                return shown.id
            if shown.sent_at_ms and shown.sent_at_ms < created_ms - SLACK_MS:
                break
    return ""


def is_same(shown: TimelineEvent, account: str, post: Post) -> bool:
    """Return whether an event without a key says what a post says, in the same place. Files are known by name."""
    if shown.key or shown.sender != account or shown.edits != post.edits:
        return False
    if post.files:
        return shown.file == post.files[0].name
    return not shown.file and shown.text == post.markdown
