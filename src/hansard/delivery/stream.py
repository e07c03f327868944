"""One message in one chat: posted as soon as it has words, edited as it grows, until all of it is shown.

Reads: the message, from the record, each time; blobs. Writes: deliveries, `message.delivered`; a notice for each file
that was refused, so that people in the chat know of it.
Invariants: what is sent was read from the record, so it is durable; posts cover the text without a gap; the last edit
is the recorded text; a post's stretch is recorded before the call, so a restart goes on where this stopped. Files
follow the words, in the order of the message, a delivery each.
On crash: the next one reads the deliveries and goes on. A notice has its id from the delivery, so it is told once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from enum import StrEnum
from typing import NamedTuple

import msgspec

from hansard.delivery.sending import SETTLED, Sender, Tried, settle_unknown
from hansard.delivery.split import (
    PostSpace,
    PostStretch,
    marked_reading,
    next_post,
    read_as,
    room_of,
    show_bytes,
    with_mark,
)
from hansard.domain.deliveries import Delivery, DeliveryState, Operation, OutboxItem
from hansard.domain.ids import delivery_id
from hansard.domain.messages import File, Message, Role, Status
from hansard.domain.questions import CHOICES, LABELS
from hansard.errors import NotFound, PostRefused, RecordDamaged, SessionEnded
from hansard.ports.channel import Choice, LocalFile, Post
from hansard.record.api import Record

CHOICE_OF = {scope: choice for choice, scope in CHOICES.items()}

NOT_FOLLOWED = "the chat follows this session no longer"

MEGABYTE = 1_000_000


class ShowState(StrEnum):
    """Where a message stands in a chat."""

    DONE = "done"
    """It needs nothing more."""
    GROWS = "grows"
    """What there is has been shown; what comes after it in the chat may be shown meanwhile."""
    HOLDS = "holds"
    """More of it has to be posted before anything after it."""
    BLOCKED = "blocked"
    """The platform takes nothing now."""


class ShowStep(NamedTuple):
    """Where a message stands, and when to look again; infinite: when its session says more."""

    kind: ShowState
    due: float = math.inf


class LastPost(msgspec.Struct, frozen=True, kw_only=True):
    """The last post of a message, as it is shown."""

    start: int
    end: int
    receipt: str
    shown: str = ""
    """Empty when it was sent by another process: then it is what its stretch gives."""
    mark: str = ""
    """What stands above the words; it stays there."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next: a new post, or an edit of the last one. `is_last`: with it, all that was said is shown."""

    post: PostStretch
    is_edit: bool
    is_last: bool


def plan(text: str, tail: LastPost | None, room: PostSpace) -> Move | None:
    """Return what is to be done so that all of a text is shown; None when it is. Blank stretches are not posted."""
    size = len(text.encode())
    start = 0
    if tail is not None:
        post = next_post(text, tail.start, room)
        if (post.end, post.shown) != (tail.end, tail.shown or post.shown):
            return Move(post=post, is_edit=True, is_last=post.end == size)
        start = tail.end
    while start < size:
        post = next_post(text, start, room)
        if post.shown.strip():
            return Move(post=post, is_edit=False, is_last=post.end == size)
        start = post.end
    return None


class Rhythm:
    """When the next edit in a chat may be made."""

    edit_at = 0.0
    busy_until = 0.0
    """The platform wants nothing in this chat before then."""
    has_posted = False
    """Whether something was shown since the chat had its turn: then it gives way to chats that wait."""


class Showing:
    """A message on its way into a chat."""

    def __init__(self, sender: Sender, waiting: OutboxItem, rhythm: Rhythm, woken: asyncio.Event) -> None:
        """`woken` is set when the message has grown, while this waits for that."""
        self.waiting = waiting
        self.is_dropped = False
        self._sender = sender
        self._rhythm = rhythm
        self._woken = woken
        self._bells = ExitStack()
        self._listens = False
        self._loaded = False
        self._tail: LastPost | None = None
        self._unsettled: list[Delivery] = []
        self._failed = ""
        self._number = 0
        self._first_at = 0.0
        self._files: dict[int, Delivery] = {}
        self._choices: tuple[Choice, ...] = ()

    @property
    def has_begun(self) -> bool:
        """Whether anything of it was shown."""
        return self._tail is not None

    async def step(self, *, alone: bool, unshown: Sequence[Showing] = ()) -> ShowStep:
        """Show what there is to show now. `alone`: nothing else waits in this chat, so nothing has to be decided.

        `unshown` is what comes before and had no words a moment ago. Should it have ended since, it comes first.
        """
        if asyncio.get_running_loop().time() < self._rhythm.busy_until:
            return ShowStep(ShowState.BLOCKED, self._rhythm.busy_until)
        if alone and self._tail is not None and asyncio.get_running_loop().time() < self._rhythm.edit_at:
            self.close()
            return ShowStep(ShowState.GROWS, self._rhythm.edit_at)
        self._listen()
        message = await self.read()
        if self.waiting.follows and not (follows := await self._sender.follows(self.waiting)):
            return ShowStep(ShowState.BLOCKED) if follows is None else await self._finish("dropped", NOT_FOLLOWED)
        if (step := await self._settle_all(message)) is not None:
            return step
        if self._failed:
            return await self._finish("set_aside", self._failed)
        return await self._show(message, unshown)

    @property
    def _gives_way(self) -> bool:
        """Whether others come first now: something was shown, and they wait."""
        return self._rhythm.has_posted and self._sender.gate.is_wanted

    async def _settle_all(self, message: Message) -> ShowStep | None:
        """Bring to its end what was begun before; return where the message stands if something has to be waited for."""
        while self._unsettled:
            if self._gives_way:
                return ShowStep(ShowState.HOLDS, 0.0)
            delivery = self._unsettled[0]
            if delivery.state is DeliveryState.PENDING and not delivery.file:
                is_edit, is_open = delivery.operation is Operation.EDIT, message.status is Status.OPEN
                if is_edit and is_open and self._sender.health.is_scarce:
                    return ShowStep(ShowState.GROWS, self._spare_edit())
                delivery = self._lengthen(delivery, message)
            tried = await self._settle_known(delivery, message)
            self._rhythm.has_posted = True
            if not tried.is_settled:
                return self._blocked(tried, self._unsettled[1:])
            self._unsettled.pop(0)
            self._note_tried(tried)
        return None

    def _blocked(self, tried: Tried, others: Sequence[Delivery] = ()) -> ShowStep:
        """Keep what is to be tried again: when the platform is fine, or when this chat may be written to again."""
        self._unsettled = [tried.delivery, *others]
        if not tried.chat_seconds:
            return ShowStep(ShowState.BLOCKED)
        self._rhythm.busy_until = asyncio.get_running_loop().time() + tried.chat_seconds
        return ShowStep(ShowState.BLOCKED, self._rhythm.busy_until)

    async def _show(self, message: Message, unshown: Sequence[Showing]) -> ShowStep:
        """Post and edit until everything is shown, or something has to be waited for."""
        whole = message.status is not Status.OPEN
        capabilities = self._sender.channel.capabilities
        text = message.text if whole or capabilities.edits else ""
        while (move := plan(text, self._tail, room_of(capabilities))) is not None:
            if (step := self._put_off(move, message)) is not None:
                return step
            if not self.has_begun and any([(await each.read()).status is not Status.OPEN for each in unshown]):
                return ShowStep(ShowState.HOLDS, 0.0)
            delivery = self._new(move)
            tried = await self._sender.send(delivery, self._post(delivery, message, move.post.shown))
            self._rhythm.has_posted = True
            if not tried.is_settled:
                return self._blocked(tried)
            self._note_tried(tried, move.post.shown)
            if self._failed:
                break
            if not whole:
                return ShowStep(ShowState.GROWS, self._rhythm.edit_at)
        if self._failed:
            return await self._finish("set_aside", self._failed)
        return await self._show_files(message) if whole else ShowStep(ShowState.GROWS)

    def _put_off(self, move: Move, message: Message) -> ShowStep | None:
        """Return where the message stands if a post or an edit is not made now; None: it is."""
        whole = message.status is not Status.OPEN
        if self._gives_way:
            return ShowStep(ShowState.HOLDS, 0.0)
        if not whole and self._sender.health.is_scarce and (wait_until := self._spared(move)):
            return ShowStep(ShowState.GROWS, wait_until)
        if move.is_edit and asyncio.get_running_loop().time() < self._rhythm.edit_at:
            more = whole and (not move.is_last or len(self._files) < len(files_of(message)))
            return ShowStep(ShowState.HOLDS if more else ShowState.GROWS, self._rhythm.edit_at)
        return None

    def _spared(self, move: Move) -> float:
        """Return until when a post of a growing message is left out while posts are scarce; 0: it is made now.

        First words are shown, after a moment in which the answer may become complete. Of the rest only the end is.
        """
        if move.is_edit:
            return self._spare_edit()
        now = asyncio.get_running_loop().time()
        self._first_at = self._first_at or now + self._sender.pace.first_words_seconds
        return self._first_at if now < self._first_at else 0.0

    def _spare_edit(self) -> float:
        """Leave an edit out; return when to look again whether the answer is complete."""
        pause = self._sender.channel.capabilities.edit_seconds(self.waiting.chat)
        self._rhythm.edit_at = asyncio.get_running_loop().time() + pause
        return self._rhythm.edit_at

    def _lengthen(self, delivery: Delivery, message: Message) -> Delivery:
        """Return words that were surely not shown as they would be now: there may be more of them than there were."""
        move = plan(message.text, self._tail, room_of(self._sender.channel.capabilities))
        is_edit = delivery.operation is Operation.EDIT
        if move is None or move.is_edit is not is_edit or move.post.start != delivery.start_bytes:
            return delivery
        return msgspec.structs.replace(delivery, end_bytes=max(delivery.end_bytes, move.post.end))

    async def _show_files(self, message: Message) -> ShowStep:
        """Show the files, after all words. One that is refused stops neither the next nor what comes after."""
        files = files_of(message)
        for number in range(1, len(files) + 1):
            if number in self._files:
                continue
            if self._gives_way:
                return ShowStep(ShowState.HOLDS, 0.0)
            tried = await self._send_file(self._new(file=number), message)
            self._rhythm.has_posted = True
            if not tried.is_settled:
                return self._blocked(tried)
            self._note_tried(tried)
            if self._failed:
                return await self._finish("set_aside", self._failed)
        refused = [each for each in self._files.values() if each.state is DeliveryState.FAILED]
        for delivery in refused:
            await tell_refused(self._sender.record, delivery, files[delivery.file - 1])
        if refused:
            return await self._finish("set_aside", refused[0].reason)
        return await self._finish("shown" if self._tail is not None or self._files else "empty")

    async def _send_file(self, delivery: Delivery, message: Message) -> Tried:
        """Send a file, or settle whether it was shown. Few are in memory at once."""
        file = files_of(message)[delivery.file - 1]
        async with self._sender.files:
            try:
                local = await read_file(self._sender.record, file, self._sender.channel.capabilities.file_bytes_max)
            except PostRefused as error:
                begun = await self._sender.record.deliveries.create(delivery)
                return await self._sender.refuse(begun, error)
            words = with_mark("", delivery.mark)
            post = Post(key=delivery.id, chat=self.waiting.chat, markdown=words, files=(local,))
            return await self._settle_delivery(delivery, post)

    async def read(self) -> Message:
        """Read the message, and at first what was done for it before, by whichever process."""
        record, waiting = self._sender.record, self.waiting
        if self._loaded:
            return await record.messages.read(waiting.session_id, waiting.message_id)
        message, known = await record.deliveries.load_message(waiting.session_id, waiting.message_id, waiting.chat)
        if message.role is Role.NOTICE and self._sender.channel.capabilities.choices:
            scopes = await self._sender.record.questions.scopes(waiting.message_id, waiting.chat)
            self._choices = tuple(Choice(id=CHOICE_OF[scope], label=LABELS[scope]) for scope in scopes)
        self._tail, self._unsettled, self._failed, self._files = None, [], "", {}
        for delivery in known:
            if delivery.state in SETTLED:
                self._note_tried(Tried(delivery=delivery))
            else:
                self._unsettled.append(delivery)
        if self._unsettled:
            self._failed = ""  # a person asked for another try
        self._number = len(known)
        self._loaded = True
        return message

    async def _settle_known(self, delivery: Delivery, message: Message) -> Tried:
        if delivery.file:
            return await self._send_file(delivery, message)
        shown = show_bytes(message.text, delivery.start_bytes, delivery.end_bytes)
        return await self._settle_delivery(delivery, self._post(delivery, message, shown))

    async def _settle_delivery(self, delivery: Delivery, post: Post) -> Tried:
        if delivery.state is DeliveryState.PENDING:
            return await self._sender.send(delivery, post)
        if delivery.state is DeliveryState.SENDING:
            delivery = await self._sender.move_delivery(
                delivery, DeliveryState.UNKNOWN, reason="it was left on its way"
            )
        return await settle_unknown(self._sender, delivery, post)

    def _note_tried(self, tried: Tried, shown: str = "") -> None:
        delivery = tried.delivery
        if delivery.file and not tried.is_gone:
            self._files[delivery.file] = delivery
            return
        if delivery.state is DeliveryState.FAILED:
            self._failed = delivery.reason or "it was refused"
            return
        receipt, mark = delivery.receipt, delivery.mark
        if delivery.operation is Operation.EDIT and self._tail is not None:
            receipt, mark = self._tail.receipt, self._tail.mark
        self._tail = LastPost(
            start=delivery.start_bytes, end=delivery.end_bytes, receipt=receipt, shown=shown, mark=mark
        )
        if shown:
            pause = self._sender.channel.capabilities.edit_seconds(self.waiting.chat)
            self._rhythm.edit_at = asyncio.get_running_loop().time() + pause

    def _new(self, move: Move | None = None, *, file: int = 0) -> Delivery:
        self._number += 1
        waiting, is_edit = self.waiting, move is not None and move.is_edit
        return Delivery(
            id=delivery_id(waiting.message_id, waiting.chat, self._number),
            session_id=waiting.session_id,
            channel=self._sender.channel.name,
            target=waiting.chat,
            message_id=waiting.message_id,
            operation=Operation.EDIT if is_edit else Operation.POST,
            start_bytes=0 if move is None else move.post.start,
            end_bytes=0 if move is None else move.post.end,
            file=file,
            mark=self._tail.mark if is_edit and self._tail is not None else "",
        )

    def _post(self, delivery: Delivery, message: Message, shown: str) -> Post:
        edits = ""
        if delivery.operation is Operation.EDIT and self._tail is not None:
            edits = self._tail.receipt
        return Post(
            key=delivery.id,
            chat=self.waiting.chat,
            markdown=with_mark(shown, delivery.mark),
            reading=marked_reading(read_as(message.text, delivery.start_bytes, delivery.end_bytes), delivery.mark),
            notice=message.role is Role.NOTICE,
            edits=edits,
            choices=self._choices if delivery.end_bytes == len(message.text.encode()) else (),
        )

    async def _finish(self, outcome: str, reason: str = "") -> ShowStep:
        waiting = self.waiting
        await self._sender.record.deliveries.finish_message(
            waiting.session_id, waiting.message_id, waiting.chat, outcome, reason
        )
        self.close()
        return ShowStep(ShowState.DONE)

    def forget(self) -> None:
        """After an error: read from the record again what was done."""
        self._loaded = False

    def _listen(self) -> None:
        """Have the lane woken when the session says more."""
        if not self._listens:
            self._bells.enter_context(self._sender.record.notify(self._woken, self.waiting.session_id))
            self._listens = True

    def close(self) -> None:
        self._bells.close()
        self._listens = False


def files_of(message: Message) -> tuple[File, ...]:
    """Return a message's files, in their order; the first is number 1."""
    return tuple(part for part in message.parts if isinstance(part, File))


async def read_file(record: Record, file: File, bytes_max: int) -> LocalFile:
    """Return a file as a channel sends it. PostRefused says why it never can be."""
    if not bytes_max:
        raise PostRefused("files cannot be shown here")
    if not file.blob:
        raise PostRefused("it was not kept")
    if file.size_bytes > bytes_max:
        raise PostRefused(too_large(file.size_bytes, bytes_max))
    try:
        data = await record.blobs.read(file.blob)
    except (NotFound, RecordDamaged) as error:
        raise PostRefused(str(error)) from error
    if len(data) > bytes_max:
        raise PostRefused(too_large(len(data), bytes_max))
    return LocalFile(data=data, name=file.name, media_type=file.media_type)


def too_large(size_bytes: int, bytes_max: int) -> str:
    return f"it has {size_bytes / MEGABYTE:.1f} MB, and {bytes_max / MEGABYTE:.1f} MB can be shown here"


async def tell_refused(record: Record, delivery: Delivery, file: File) -> None:
    """Tell in its chat that a file was not shown: once for each time that it was tried."""
    words = record.words
    text = words.file_not_shown.format(name=file.name or words.file_unnamed, why=delivery.reason)
    notice = Message.notice(text, id=f"refused-{delivery.id}-{delivery.attempts}", chat=delivery.target)
    with suppress(SessionEnded):  # nobody is there to be told; `hansard deliveries` lists it
        await record.append(delivery.session_id, notice)
