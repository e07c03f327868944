"""The context: what a model is asked, as a pure function of the conversation.

Reads: a folded conversation. Writes: nothing.
Invariants: the messages of one request begin those of the next, until something is undone or restored; roles alternate,
people first; every call has its result in the message after it; no text is empty (L8). What is missing is said in the
view, never changed in the record.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.domain.messages import File, Message, Role, Status, Text, ToolCall, ToolOutcome, ToolResult
from hansard.domain.requests import AssistantSaid, Request, Said, ToolsSaid, UserSaid
from hansard.engine import prompts
from hansard.engine.calls import result_id

if TYPE_CHECKING:
    from hansard.domain.conversation import Conversation, End, Placed
    from hansard.domain.entries import SessionFrozen

CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider accepts as the id of a call."""


def build_request(conversation: Conversation, frozen: SessionFrozen, output_tokens_max: int | None) -> Request:
    """Return the next request of a conversation."""
    return Request(
        system=frozen.system,
        tools=frozen.tools,
        messages=tuple(render(conversation.placed, conversation.ends, opening_of(conversation))),
        output_tokens_max=output_tokens_max,
    )


class Opening(NamedTuple):
    """What is known from a session's beginning on: a note to begin with, and whether one person alone talks in it."""

    note: str = ""
    is_private: bool = False


def opening_of(conversation: Conversation) -> Opening:
    """Return how a conversation begins. It never changes, so every request begins with it."""
    reason = conversation.began.reason if conversation.began is not None else ""
    return Opening(prompts.session_began(reason) if reason else "", conversation.owner.startswith("person:"))


def render(placed: list[Placed], ends: dict[str, End], opening: Opening = Opening()) -> list[Said]:  # noqa: B008
    """Return the messages that a model is given; they end with something to reply to."""
    rendering = Rendering(ends, opening)
    for message, turn_id, _ in placed:
        if message.status != Status.OPEN:
            rendering.take(message, turn_id)
    return rendering.finish()


class OpenCall(NamedTuple):
    """A call that waits for its result: its id in the record and in the request, and the id of its result."""

    recorded_id: str
    own_id: str
    result_id: str


class Rendering:
    """Messages on their way to a model."""

    def __init__(self, ends: dict[str, End], opening: Opening) -> None:
        """Begin with none."""
        self.said: list[Said] = []
        self._ends = ends
        self._is_private = opening.is_private
        self._turn_id = ""
        self._notes: list[str] = [opening.note] if opening.note else []
        self._open: list[OpenCall] = []
        self._results: dict[str, ToolResult] = {}
        self._used_ids: set[str] = set()
        self._cut = False

    def take(self, message: Message, turn_id: str) -> None:
        """Add a message."""
        if message.role == Role.TOOL:
            self._take_results(message)
        elif message.role == Role.SYSTEM and not message.parts:
            self._close_calls()
            if self.said and isinstance(self.said[-1], AssistantSaid):
                self._say_between()
        elif message.role == Role.ASSISTANT:
            self._close_calls()
            self._take_reply(message, turn_id)
        else:
            self._close_calls()
            self._take_words(message, turn_id)
        self._turn_id = turn_id

    def finish(self) -> list[Said]:
        """Return all of it."""
        self._close_calls()
        if not self.said or isinstance(self.said[-1], AssistantSaid):
            self._say_between()
        return self.said

    def _take_words(self, message: Message, turn_id: str) -> None:
        last = self.said[-1] if self.said else None
        if last is not None and not isinstance(last, AssistantSaid) and turn_id != self._turn_id:
            end = self._ends.get(self._turn_id)
            self.said.append(AssistantSaid(prompts.NO_REPLY))
            self._notes = [prompts.turn_without_reply(end.state if end else None, end.reason if end else "")]
            last = None
        text = "\n\n".join([*self._notes, words_of(message, is_private=self._is_private)])
        self._notes = []
        if isinstance(last, UserSaid):
            self.said[-1] = UserSaid(f"{last.text}\n\n{text}")
        else:
            self.said.append(UserSaid(text))

    def _take_reply(self, message: Message, turn_id: str) -> None:
        text = "".join(part.text for part in message.parts if isinstance(part, Text))
        called = [part for part in message.parts if isinstance(part, ToolCall)]
        calls = tuple(self._own_id(part, result_id(message.id, index)) for index, part in enumerate(called))
        if not text.strip() and not calls:
            return
        if not self.said or isinstance(self.said[-1], AssistantSaid):
            self._say_between()
        self.said.append(AssistantSaid(text if text.strip() else "", calls))
        self._cut = message.status == Status.INTERRUPTED
        end = self._ends.get(turn_id)
        self._notes = [prompts.reply_interrupted(end.reason if end else "")] if self._cut else []

    def _say_between(self) -> None:
        """Put a note where a person would have spoken."""
        between = prompts.BEGIN if not self.said else prompts.CONTINUE if self._cut else prompts.GO_ON
        notes = [] if self.said else self._notes
        self.said.append(UserSaid("\n\n".join([*notes, between])))
        self._notes = []

    def _own_id(self, call: ToolCall, answer_id: str) -> ToolCall:
        """Return a call with an id that is valid and the only one of its name; its result is found by the old one."""
        own, number = call.id, len(self._used_ids)
        while not CALL_ID.fullmatch(own) or own in self._used_ids:
            own, number = f"call_{number}", number + 1
        self._used_ids.add(own)
        self._open.append(OpenCall(call.id, own, answer_id))
        return msgspec.structs.replace(call, id=own)

    def _take_results(self, message: Message) -> None:
        for part in message.parts:
            if not isinstance(part, ToolResult):
                continue
            named = [each for each in self._open if each.recorded_id == part.call_id]
            meant = next((each for each in named if each.result_id == message.id), named[0] if named else None)
            if meant is None:
                self._notes.append(prompts.orphan_result(part.text))
                continue
            self._open.remove(meant)
            text = part.text if part.text.strip() else prompts.NO_TEXT
            self._results[meant.own_id] = msgspec.structs.replace(part, call_id=meant.own_id, text=text)

    def _close_calls(self) -> None:
        """Give every call of the last reply its result; one that has none gets one that says so."""
        last = self.said[-1] if self.said else None
        if not isinstance(last, AssistantSaid) or not last.calls:
            return
        self.said.append(ToolsSaid(tuple(self._results.get(call.id) or unknown_result(call) for call in last.calls)))
        self._open, self._results = [], {}


def unknown_result(call: ToolCall) -> ToolResult:
    """Return the result of a call of which nothing is known."""
    return ToolResult(call_id=call.id, text=prompts.RESULT_UNKNOWN, outcome=ToolOutcome.UNKNOWN)


def words_of(message: Message, *, is_private: bool = False) -> str:
    """Return what somebody said, as a model reads it. Who said it in a chat of one person goes without saying."""
    if message.is_retracted:
        return prompts.RETRACTED
    pieces = []
    for part in message.parts:
        if isinstance(part, Text):
            pieces.append(part.text)
        elif isinstance(part, File):
            kept = "" if part.blob else ", which was not kept"
            name = part.name or "unnamed"
            pieces.append(f"[Hansard: a file: {name}, {part.media_type}, {part.size_bytes} bytes{kept}]")
    text = "\n".join(pieces)
    if message.author and text and not (is_private and message.chat):
        text = f"{message.author}: {text}"
    notes = [
        note for note, holds in ((prompts.OBSERVED, message.is_observed), (prompts.EDITED, message.is_edited)) if holds
    ]
    return "\n".join([*notes, text if text.strip() else prompts.NO_TEXT])
