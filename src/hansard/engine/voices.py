"""Voice notes, written down before the model is asked.

Reads: the last exchange, the notes' blobs. Writes: what each says, as a fact and as a notice to people; or why nobody
knows; and what it took.
Invariants: a note is recorded long before, and stays whatever becomes of this; each is tried once; what was sent to a
model once is sent the same way later.
On crash: a note that was not written down yet is, if the turn goes on or is asked for again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.messages import File, Message, Role
from hansard.engine.delimiting import named
from hansard.errors import HansardError
from hansard.ports.transcriber import TranscribedText, Voice
from hansard.record.conversation import last_exchange
from hansard.record.messages.entries import FileTranscribed

if TYPE_CHECKING:
    from hansard.engine.turns import Agent
    from hansard.record.conversation import Conversation
    from hansard.record.turns.holding import Turn

VOICE_TYPE = "audio/"


class VoiceNote(NamedTuple):
    """A voice note, and the message that it came in."""

    message_id: str
    file: File


def unheard(conversation: Conversation) -> list[VoiceNote]:
    """Return the voice notes of the last exchange that nobody has tried to write down."""
    said = [placed.message for placed in last_exchange(conversation)]
    return [
        VoiceNote(message.id, part)
        for message in said
        if message.role == Role.USER and not message.is_observed and not message.is_retracted
        for part in message.parts
        if isinstance(part, File) and part.blob and part.media_type.startswith(VOICE_TYPE)
        if not part.transcript and (message.id, part.blob) not in conversation.heard
    ]


async def write_down(agent: Agent, turn: Turn) -> None:
    """Have the voice notes written down that the next request would only name."""
    if agent.transcriber is None:
        return
    for note in unheard(await agent.record.conversation(turn.session_id)):
        if (note.message_id, note.file.blob) in (await agent.record.conversation(turn.session_id)).heard:
            continue  # the same file twice in one message
        heard = await hear(agent, turn, note.file)
        turn.transcribe(
            FileTranscribed(
                message_id=note.message_id,
                blob=note.file.blob,
                text=heard.text,
                model=agent.transcriber.name,
                failure=heard.failure,
            ),
            heard.usage,
        )
        name = named(note.file.name) or "unnamed"
        told = f"says:\n\n{quoted(heard.text)}" if heard.text else f"could not be written down: {heard.failure}."
        await turn.append(Message.notice(f"The voice note {name} {told}"))


async def hear(agent: Agent, turn: Turn, file: File) -> TranscribedText:
    """Return what one note says, or why nobody knows."""
    transcriber, record = agent.transcriber, agent.record
    assert transcriber is not None
    if file.size_bytes > transcriber.bytes_max:
        return TranscribedText(failure=f"it has {file.size_bytes} bytes, and {transcriber.bytes_max} are the limit")
    if agent.policy.budget.is_set:
        reached = await record.budgets.reached(turn.session_id, turn.id, agent.policy.budget)
        if reached:
            return TranscribedText(failure=f"today's limit is reached ({reached})")
    try:
        data = await record.read_blob(file.blob)
    except HansardError as error:
        return TranscribedText(failure=f"it cannot be read ({error})")
    heard = await transcriber.hear(Voice(data=data, name=file.name, media_type=file.media_type))
    if heard.text or heard.failure:
        return heard
    return TranscribedText(failure="there are no words in it", usage=heard.usage)


def quoted(text: str) -> str:
    """Return a text as people are shown what somebody else wrote down."""
    return "\n".join(f"> {line}" for line in text.splitlines())
