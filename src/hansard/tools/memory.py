"""`memory`: short notes that the model is told in later sessions of the same owner, and in nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.limits import NOTE_CHARACTERS_MAX, NOTES_MAX
from hansard.domain.requests import ToolSpec
from hansard.errors import HansardError

if TYPE_CHECKING:
    from hansard.ports.tool import ToolScene
    from hansard.record.memory import Memory

PARAMETERS = (
    '{"type":"object","properties":{'
    '"action":{"type":"string","enum":["add","edit","forget","list"]},'
    '"text":{"type":"string","description":"What to remember: one short fact. For add and edit."},'
    '"id":{"type":"string","description":"Which note. For edit and forget."}},'
    '"required":["action"],"additionalProperties":false}'
)


class MemoryTool:
    """Remembers, for the owner of the session in which it is called."""

    repeatable = True
    spec = ToolSpec(
        name="memory",
        description="Remember short facts about the person or the room for later sessions, when they ask for it: add, "
        f"edit, forget or list notes. At most {NOTES_MAX} notes of {NOTE_CHARACTERS_MAX} characters.",
        parameters=PARAMETERS,
    )

    def __init__(self, memory: Memory) -> None:
        """The notes of all owners; a call sees those of one."""
        self._memory = memory

    def at(self, scene: ToolScene) -> OwnMemory:
        return OwnMemory(self._memory, scene)

    async def run(self, arguments: dict[str, object]) -> str:
        del arguments
        message = "the memory belongs to an owner, and none is known here"
        raise RuntimeError(message)


class OwnMemory:
    """The memory of one owner. Which owner that is no argument can say."""

    repeatable = MemoryTool.repeatable
    spec = MemoryTool.spec

    def __init__(self, memory: Memory, scene: ToolScene) -> None:
        """What is done is done in the name of those who asked."""
        self._memory = memory
        self._owner = scene.owner
        self._by = f"model, for {', '.join(scene.people)}"

    async def run(self, arguments: dict[str, object]) -> str:
        action, text, note_id = (str(arguments.get(name) or "") for name in ("action", "text", "id"))
        try:
            if action == "add":
                note = await self._memory.add(self._owner, text, by=self._by)
                return f"Noted as {note.id}. It is told to you in sessions that begin from now on."
            if action == "edit":
                note = await self._memory.edit(note_id, text, owner=self._owner, by=self._by)
                return f"The note {note.id} now says: {note.text}"
            if action == "forget":
                note = await self._memory.forget(note_id, owner=self._owner, by=self._by)
                return f"Forgotten: {note.text}"
        except HansardError as error:
            return f"{error}."
        notes = await self._memory.list(self._owner)
        return "\n".join(f"({note.id}) {note.text}" for note in notes) or "Nothing is remembered."
