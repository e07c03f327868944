"""What is not known to have been shown: the same key again, or the platform's own memory, or a mark for people.

Reads: deliveries, the platform's timeline. Writes: moves of deliveries.
Invariants: nothing is posted again unless its key makes that harmless, or the timeline shows that it is not there, or
it says of itself that it may be there twice; that it does is in the record before anybody sees it.
On crash: it stays unknown, and is settled the next time.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from hansard.delivery.sending import Fate, Tried, describe
from hansard.delivery.split import PostSpace
from hansard.domain.deliveries import Delivery, Operation
from hansard.errors import ChatGone, PostRefused
from hansard.ports.channel import Reading, file_key

if TYPE_CHECKING:
    from collections.abc import Collection

    from hansard.delivery.sending import Sender
    from hansard.ports.channel import Capabilities, Post, Timeline, TimelineEvent

SLACK_MS = 15 * 60 * 1000
"""How much earlier than our clock says the platform may have dated a post."""

UNSETTLED = "it may have been shown, and the platform cannot tell"

MARK = "↻"
"""Above words which may be shown twice; once more for each further time. It needs no translation."""

MARKS_MAX = 5
"""Each try of which nobody knows the end may be one more copy. After so many a person decides."""


def with_mark(markdown: str, mark: str) -> str:
    """Return what is shown of words with a mark: it has a line of its own, so that they stay what they are."""
    return f"{mark}\n\n{markdown}" if mark and markdown else mark or markdown


def marked_reading(reading: Reading, mark: str) -> Reading:
    """Return how words with a mark are read: below it, what begins in the middle of a line would begin a line."""
    return Reading.LITERAL if mark and reading is Reading.CONTINUED else reading


def without_mark(markdown: str, mark: str) -> str:
    """Return the words alone."""
    return "" if mark and markdown == mark else markdown.removeprefix(f"{mark}\n\n" if mark else "")


def room_of(capabilities: Capabilities) -> PostSpace:
    """Return how much of a message fits into one post: where a mark may be needed, there is room for it."""
    kept = 0 if is_recognised(capabilities) else capabilities.size(with_mark("-", MARK * MARKS_MAX)) - 1
    return PostSpace(capabilities.text_bytes_max - kept, capabilities.size)


def is_recognised(capabilities: Capabilities) -> bool:
    """Return whether the platform can tell that a post is there: by its key, or from its timeline."""
    return capabilities.repeat_seconds > 0 or capabilities.timeline


async def settle_unknown(sender: Sender, delivery: Delivery, post: Post) -> Tried:
    """Find out whether an unknown delivery was shown, and send it if it was not."""
    created = await sender.record.outbox.created_at(delivery)
    age_seconds = abs(sender.record.store.clock.now_microseconds() - created) / 1_000_000
    is_good = age_seconds < sender.channel.capabilities.repeat_seconds * sender.pace.repeat_margin
    if not is_good and sender.timeline is not None:
        return await _settle_by_timeline(sender, sender.timeline, delivery, post, created // 1000)
    if is_good or delivery.operation is Operation.EDIT:
        return await sender.send(delivery, post)  # an edit shows the same words in the same place
    if is_recognised(sender.channel.capabilities) or delivery.mark == MARK * MARKS_MAX:
        return await sender.refuse(delivery, PostRefused(UNSETTLED))
    return await _send_marked(sender, delivery, post)


async def _send_marked(sender: Sender, delivery: Delivery, post: Post) -> Tried:
    """The platform knows no keys and tells nothing of the past: rather twice, and saying so, than never."""
    mark = delivery.mark + MARK
    words = with_mark(without_mark(post.markdown, delivery.mark), mark)
    reading = marked_reading(post.reading, mark)
    return await sender.send(
        msgspec.structs.replace(delivery, mark=mark), msgspec.structs.replace(post, markdown=words, reading=reading)
    )


async def _settle_by_timeline(
    sender: Sender, timeline: Timeline, delivery: Delivery, post: Post, created_ms: int
) -> Tried:
    """The key is good no longer: look whether the platform has it."""
    known = {each.receipt for each in await sender.record.outbox.deliveries_to(delivery.target) if each.receipt}
    try:
        receipt = await find_shown(timeline, sender.channel.account, post, known, created_ms)
    except ChatGone as error:
        return await sender.refuse(delivery, error)
    except Exception as error:  # noqa: BLE001  # boundary: channel call
        sender.weather.down(describe(error))
        return Tried(Fate.BLOCKED, delivery)
    if receipt:
        return Tried(Fate.SENT, await sender.settle_delivery(delivery, receipt))
    return await sender.send(delivery, post)


async def find_shown(timeline: Timeline, account: str, post: Post, known: Collection[str], created_ms: int) -> str:
    """Return the platform's id of a post, by its key or by its words; empty when it is not there."""
    key = post.key if post.markdown else file_key(post.key, 1)
    async with aclosing(timeline.history(post.chat)) as events:
        async for shown in events:
            if shown.key == key:
                return shown.id
            if shown.id not in known and is_same(shown, account, post):
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
