"""Files of the last exchange: a turn waits a while for those on their way, and has voice notes written down.

Reads: the record, in which files are settled by whoever fetches them. Writes: a notice that names what is missing.
Invariants: a turn waits for each file once; the model is told of every file that is not there.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.messages import File, Message, Role
from hansard.engine.context import named
from hansard.errors import HansardError
from hansard.ports.model import TranscribedText, Transcriber, Voice
from hansard.record.conversation import Conversation, last_exchange
from hansard.record.messages.entries import Entry, FileFetched, FileTranscribed

if TYPE_CHECKING:
    from hansard.engine.turns import Agent
    from hansard.record.turns.holding import Turn


Key = tuple[str, str]
"""A message, and the name of a file of it."""


class SentFile(NamedTuple):
    """A file, and the message that it came in."""

    message_id: str
    file: File


def last_files(conversation: Conversation) -> list[SentFile]:
    """Return the files of the last exchange that were sent to the agent."""
    return [
        SentFile(message.id, part)
        for message in (placed.message for placed in last_exchange(conversation))
        if message.role == Role.USER and not message.is_observed and not message.is_retracted
        for part in message.parts
        if isinstance(part, File)
    ]


def missing_files(conversation: Conversation) -> dict[Key, str]:
    return {
        (message_id, file.fetch): named(file.name) or "a file without a name"
        for message_id, file in last_files(conversation)
        if (message_id, file.fetch) in conversation.awaited
    }


async def await_files(agent: Agent, turn: Turn, told: set[Key]) -> None:
    """Wait until every file of the last exchange is settled, or as long as the limit says; tell what is missing.

    `told` are the files that this turn went on without before.
    """
    conversation = await agent.record.conversation(turn.session_id)
    if not missing_files(conversation).keys() - told:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(agent.limits.attachment_wait_seconds):
            await _settled(agent, turn, conversation.seq, told)
    missing = missing_files(await agent.record.conversation(turn.session_id))
    new = [name for key, name in missing.items() if key not in told]
    told |= missing.keys()
    if new:
        are, them = ("file is", "it") if len(new) == 1 else ("files are", "them")
        text = f"The {are} not here yet: {', '.join(new)}. I answer without {them}; my next answer has what came."
        await turn.append(Message.notice(text))


async def _settled(agent: Agent, turn: Turn, after: int, told: set[Key]) -> None:
    """Wait until nothing is missing that this turn has not gone on without."""
    async with aclosing(agent.record.follow(turn.session_id, after, chunks=False)) as items:
        async for item in items:
            if isinstance(item, Entry) and isinstance(item.body, FileFetched):
                conversation = await agent.record.conversation(turn.session_id)
                if not missing_files(conversation).keys() - told:
                    return


def unheard(conversation: Conversation) -> list[SentFile]:
    """Return the voice notes of the last exchange that nobody has tried to write down."""
    return [
        SentFile(message_id, file)
        for message_id, file in last_files(conversation)
        if file.blob and file.media_type.startswith("audio/")
        if not file.transcript and (message_id, file.blob) not in conversation.heard
    ]


async def write_down(agent: Agent, turn: Turn, transcriber: Transcriber) -> None:
    """Have the voice notes written down that the next request would only name."""
    for note in unheard(await agent.record.conversation(turn.session_id)):
        if (note.message_id, note.file.blob) in (await agent.record.conversation(turn.session_id)).heard:
            continue  # the same file twice in one message
        heard = await hear(agent, turn, transcriber, note.file)
        turn.transcribe(
            FileTranscribed(
                message_id=note.message_id,
                blob=note.file.blob,
                text=heard.text,
                model=transcriber.name,
                failure=heard.failure,
            ),
            heard.usage,
        )
        name = named(note.file.name) or "unnamed"
        told = f"says:\n\n{quoted(heard.text)}" if heard.text else f"could not be written down: {heard.failure}."
        await turn.append(Message.notice(f"The voice note {name} {told}"))


async def hear(agent: Agent, turn: Turn, transcriber: Transcriber, file: File) -> TranscribedText:
    """Return what one note says, or why nobody knows."""
    record = agent.record
    if file.size_bytes > transcriber.bytes_max:
        return TranscribedText(failure=f"it has {file.size_bytes} bytes, and {transcriber.bytes_max} are the limit")
    if agent.policy.budget is not None:
        reached = await record.budgets.reached(turn.session_id, turn.id, agent.policy.budget)
        if reached:
            return TranscribedText(failure=f"today's limit is reached ({reached})")
    try:
        data = await record.blobs.read(file.blob)
    except HansardError as error:
        return TranscribedText(failure=f"it cannot be read ({error})")
    heard = await transcriber.hear(Voice(data=data, name=file.name, media_type=file.media_type))
    if heard.text or heard.failure:
        return heard
    return TranscribedText(failure="there are no words in it", usage=heard.usage)


def quoted(text: str) -> str:
    """Return a text as people are shown what somebody else wrote down."""
    return "\n".join(f"> {line}" for line in text.splitlines())
