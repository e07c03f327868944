"""Files of a message: read from the record when they are to be shown, and refused where they cannot be.

Reads: blobs. Writes: a notice for each file that was refused, so that people in the chat know of it.
Invariants: one delivery a file, after all words, in the order of the message.
On crash: the deliveries tell which were shown; a notice has its id from the delivery, so it is told once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hansard.domain.messages import File, Message
from hansard.errors import NotFound, PostRefused, RecordDamaged, SessionEnded
from hansard.ports.channel import LocalFile

if TYPE_CHECKING:
    from hansard.domain.deliveries import Delivery
    from hansard.domain.notices import Notices
    from hansard.record.api import Record

MEGABYTE = 1_000_000


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
        data = await record.read_blob(file.blob)
    except (NotFound, RecordDamaged) as error:
        raise PostRefused(str(error)) from error
    if len(data) > bytes_max:
        raise PostRefused(too_large(len(data), bytes_max))
    return LocalFile(data=data, name=file.name, media_type=file.media_type)


def too_large(size_bytes: int, bytes_max: int) -> str:
    """Return why a large file is not shown."""
    return f"it has {size_bytes / MEGABYTE:.1f} MB, and {bytes_max / MEGABYTE:.1f} MB can be shown here"


async def tell_refused(record: Record, delivery: Delivery, file: File, notices: Notices) -> None:
    """Tell in its chat that a file was not shown: once for each time that it was tried."""
    text = notices.file_not_shown.format(name=file.name or notices.file_unnamed, why=delivery.reason)
    notice = Message.notice(text, id=f"refused-{delivery.id}-{delivery.attempts}", chat=delivery.target)
    with suppress(SessionEnded):  # nobody is there to be told; `hansard deliveries` lists it
        await record.append(delivery.session_id, notice)
