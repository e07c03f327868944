"""Files that are still on their way when a turn begins: it waits for them, for a while, and then goes on without.

Reads: the record, in which files are settled by whoever fetches them. Writes: a notice that names what is missing.
Invariants: a turn waits for each file once; the model is told of every file that is not there.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from hansard.domain.messages import File, Message, Role
from hansard.engine.delimiting import named
from hansard.record.conversation import last_exchange
from hansard.record.entries import Entry
from hansard.record.messages.entries import FileFetched

if TYPE_CHECKING:
    from hansard.engine.turns import Agent
    from hansard.record.conversation import Conversation
    from hansard.record.turns.holding import Turn

Key = tuple[str, str]
"""A message, and the name of a file of it."""


def missing_files(conversation: Conversation) -> dict[Key, str]:
    """Return the files of the last exchange that are still being fetched, with their names."""
    said = [placed.message for placed in last_exchange(conversation)]
    return {
        (message.id, part.fetch): named(part.name) or "a file without a name"
        for message in said
        if message.role == Role.USER and not message.is_observed and not message.is_retracted
        for part in message.parts
        if isinstance(part, File) and (message.id, part.fetch) in conversation.awaited
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
