"""Commands about what the agent may do and knows: /yes, /no, /memory, and what is left of the day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.budgets import left_text
from hansard.domain.chats import person_owner
from hansard.domain.questions import NOTHING_WAITS, read_command
from hansard.intake import handlers
from hansard.intake.handlers import Outcome

if TYPE_CHECKING:
    from hansard.domain.questions import Given
    from hansard.intake.handlers import Scene

MEMORY_HELP = "/memory lists; /memory add TEXT, /memory edit ID TEXT, /memory forget ID."


async def yes(scene: Scene, argument: str) -> Outcome:
    """Let the call be run that waits for it: once, or as the argument says."""
    return Outcome(await answer(scene, read_command(argument, yes=True)), scene.session_id)


async def no(scene: Scene, argument: str) -> Outcome:
    """Let the call not be run that waits for it; the model is given the reason."""
    return Outcome(await answer(scene, read_command(argument, yes=False)), scene.session_id)


async def memory(scene: Scene, argument: str) -> Outcome:
    """Show or change what is remembered for the owner of this session."""
    return Outcome(await remember(scene, argument), scene.session_id)


async def usage(scene: Scene, argument: str) -> Outcome:
    """Show what this session took, and what is left of the day."""
    outcome = await handlers.usage(scene, argument)
    return outcome._replace(text="\n".join([outcome.text, *await day_lines(scene)]))


async def file(scene: Scene, argument: str) -> Outcome:
    """At the terminal the program itself hands a file in; in a chat nobody reads files of this machine."""
    del argument
    return Outcome("Send the file in this chat itself; /file is for the terminal.", scene.session_id)


async def answer(scene: Scene, given: Given) -> str:
    """Answer the question that waits in this session, at the terminal. In chats the record takes answers as they come.

    A command that comes here from a chat is too old to answer anything.
    """
    if scene.chat:
        return NOTHING_WAITS
    return await scene.record.books.questions.answer(scene.session_id, given, author=scene.asker, by=scene.owner)


async def remember(scene: Scene, argument: str) -> str:
    """List, add, change or forget notes of the owner of this session."""
    book = scene.record.books.memory
    owner = (await scene.record.session(scene.session_id)).owner
    by = scene.author or scene.owner
    action, _, rest = argument.partition(" ")
    note_id, _, text = rest.strip().partition(" ")
    if action == "add" and rest.strip():
        note = await book.add(owner, rest, by=by)
        return f"Noted as {note.id}: {note.text}. The model is told in sessions that begin from now on (/new)."
    if action == "edit" and text.strip():
        note = await book.edit(note_id, text, owner=owner, by=by)
        return f"The note {note.id} now says: {note.text}"
    if action == "forget" and note_id:
        note = await book.forget(note_id, owner=owner, by=by)
        return f"Forgotten: {note.text}. This session was told it before; the next one is not."
    if action:
        return MEMORY_HELP
    notes = await book.list(owner)
    return "\n".join([*(f"{note.id}  {note.text}" for note in notes)] or ["Nothing is remembered."])


async def day_lines(scene: Scene) -> list[str]:
    """Return what is left of the day, for the person who asks and for everybody; nothing where nothing is limited."""
    budget = scene.budget
    if not budget.is_set:
        return []
    channel = scene.chat.partition(":")[0]
    person = person_owner(channel, scene.author) if scene.chat and scene.author else scene.owner
    day = await scene.record.books.ledger.day(person, budget)
    left = [("left today", budget.person, day.person), ("left today for all", budget.together, day.together)]
    return [f"{name}: {text}" for name, allowance, spent in left if (text := left_text(allowance, spent))]
