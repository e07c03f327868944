"""The context: what a model is told, as a pure function of the conversation; and how it marks the words of others.

Reads: a folded conversation. Writes: nothing.
Invariants: the messages of one request begin those of the next, until something is undone, restored, summed up or
refused, or a file comes after its message was told; roles alternate, people first; every call has its result in the
message after it; no text is empty; reasoning goes to the family of models that made it and to no other (L8). What is
missing is said in the view, and stays in the record.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from hansard.domain.ids import DERIVED_PREFIX
from hansard.domain.messages import (
    SIGNS_TEXT,
    File,
    Message,
    Part,
    Reasoning,
    Role,
    Status,
    Text,
    TextForm,
    ToolCall,
    ToolOutcome,
    ToolResult,
)
from hansard.domain.requests import AssistantSaid, Image, ModelRules, Said, ToolSpec, ToolsSaid, UserSaid, family_of
from hansard.engine import prompts
from hansard.engine.calls import result_id
from hansard.record.conversation import Conversation, End
from hansard.record.memory import Note
from hansard.record.messages.entries import Placed

CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""What every provider accepts as the id of a call."""

TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What every provider accepts as the name of a tool."""

UNSIGNED, PLAIN, HIDDEN = WATERMARKS = ("view.unsigned", "view.plain", "view.hidden")
"""Settings of a session by which it is remembered what a provider refused to read; after a colon, which model did."""

SEQ_DIGITS_MAX = 18


def opening_note(conversation: Conversation) -> str:
    """Return how a conversation begins, or how it goes on after what was summed up."""
    reason = conversation.began.reason if conversation.began is not None else ""
    notes = [prompts.session_began(reason)] if reason else []
    if (compaction := conversation.compaction) is not None:
        notes.append(prompts.summed_up(compaction.covered, harmless(compaction.body.summary)))
    return "\n\n".join(notes)


class RequestStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are said to one model. Each number is the seq up to which something holds."""

    note: str = ""
    """What it begins with."""
    is_private: bool = False
    """Whether one person alone talks in the session."""
    family: str = ""
    """Whose reasoning is given back."""
    unsigned_seq: int = 0
    """Without reasoning, whoever's it is."""
    plain_seq: int = 0
    """In words alone: no calls, no pictures."""
    hidden_seq: int = 0
    """Not at all."""
    has_tools: bool = True
    """Calls are told in words where there are no tools: some providers refuse them then."""


def manner_of(
    conversation: Conversation, rules: ModelRules, marks: Mapping[str, int], *, has_tools: bool
) -> RequestStyle:
    """Return how a conversation is said to a model: by its rules, and by what a provider refused before."""
    unsigned, plain, hidden = (max(watermark(conversation, name), marks.get(name, 0)) for name in WATERMARKS)
    return RequestStyle(
        note=opening_note(conversation),
        is_private=conversation.owner.startswith("person:"),
        family=rules.family if has_tools else "",
        unsigned_seq=unsigned,
        plain_seq=plain,
        hidden_seq=hidden,
        has_tools=has_tools,
    )


def watermark(conversation: Conversation, name: str) -> int:
    """Return the seq up to which a provider's refusal changed the view; 0 when none did."""
    value = conversation.settings.get(name, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= SEQ_DIGITS_MAX else 0


def shown(conversation: Conversation, manner: RequestStyle) -> list[Placed]:
    """Return what is said in full: what no summary stands for, and nobody refuses to read."""
    placed = conversation.placed[conversation.covered :]
    return [each for each in placed if each.seq > manner.hidden_seq] if manner.hidden_seq else placed


def render(
    placed: list[Placed],
    ends: dict[str, End],
    manner: RequestStyle = RequestStyle(),  # noqa: B008
) -> list[Said]:
    """Return the messages that a model is given; they end with something to reply to."""
    rendering = Rendering(ends, manner)
    for message, turn_id, seq in placed:
        if message.status != Status.OPEN:
            rendering.add_message(message, turn_id, seq)
    return rendering.finish()


class OpenCall(NamedTuple):
    """A call that waits for its result: its id in the record and in the request, and the id of its result."""

    recorded_id: str
    own_id: str
    result_id: str


class Rendering:
    """Messages on their way to a model."""

    def __init__(self, ends: dict[str, End], manner: RequestStyle) -> None:
        self.said: list[Said] = []
        self._ends = ends
        self._manner = manner
        self._plain: int | None = None
        self._images: list[Image] = []
        self._turn_id = ""
        self._notes: list[str] = [manner.note] if manner.note else []
        self._orphans: list[str] = []
        self._open: list[OpenCall] = []
        self._results: dict[str, ToolResult] = {}
        self._used_ids: set[str] = set()
        self._cut = False

    def add_message(self, message: Message, turn_id: str, seq: int) -> None:
        if self._plain is None and seq > self._manner.plain_seq and message.role != Role.TOOL:
            self._close_calls()
            self._plain = len(self.said)
        if message.role == Role.TOOL:
            self._take_results(message)
        elif message.role == Role.SYSTEM and not message.parts:
            self._close_calls()
            if self.said and isinstance(self.said[-1], AssistantSaid):
                self._say_between()
        elif message.role == Role.ASSISTANT:
            self._close_calls()
            self._take_reply(tamed(message) if message.is_imported else message, turn_id, seq)
        else:
            self._close_calls()
            self._take_words(message, turn_id)
        self._turn_id = turn_id

    def finish(self) -> list[Said]:
        self._close_calls()
        self._answer_to_something()
        plain = len(self.said) if self._plain is None else self._plain
        if plain and self._manner.plain_seq:
            self.said = merged([*as_text(self.said[:plain]), *self.said[plain:]])
        if not self._manner.has_tools:
            self.said = as_text(self.said, pictures=True)
        if self._manner.hidden_seq:
            self.said[0] = noted(self.said[0], prompts.HIDDEN)
        return self.said

    def _take_words(self, message: Message, turn_id: str) -> None:
        last = self.said[-1] if self.said else None
        if last is not None and not isinstance(last, AssistantSaid) and turn_id != self._turn_id:
            end = self._ends.get(self._turn_id)
            self.said.append(AssistantSaid(prompts.NO_REPLY))
            self._notes = [prompts.turn_without_reply(end.state if end else None, end.reason if end else "")]
        text = "\n\n".join([*self._notes, *self._orphans, words_of(message, is_private=self._manner.is_private)])
        self._notes, self._orphans = [], []
        say(self.said, UserSaid(text, () if message.is_retracted else images_of(message)))

    def _take_reply(self, message: Message, turn_id: str, seq: int) -> None:
        text = "".join(part.text for part in message.parts if isinstance(part, Text))
        called = [part for part in message.parts if isinstance(part, ToolCall)]
        if not text.strip() and not called:
            return
        family = self._manner.family if seq > self._manner.unsigned_seq else ""
        calls = tuple(self._own_call(part, result_id(message.id, index)) for index, part in enumerate(called))
        self._answer_to_something()
        unsigned = tuple(own_signature(call, family) for call in calls)
        thought = thought_parts(message.parts, unsigned, family) if message.status == Status.COMPLETE else ()
        self.said.append(AssistantSaid(text if text.strip() else "", unsigned, thought))
        self._cut = message.status == Status.INTERRUPTED
        end = self._ends.get(turn_id)
        self._notes = [prompts.reply_interrupted(end.reason if end else "")] if self._cut else []

    def _answer_to_something(self) -> None:
        """Let the model's words follow what it was told; results without their calls stand there, too."""
        last = self.said[-1] if self.said else None
        if last is None or isinstance(last, AssistantSaid):
            self._say_between()
        elif self._orphans:
            say(self.said, UserSaid("\n\n".join(self._orphans)))
            self._orphans = []

    def _say_between(self) -> None:
        """Put a note where a person would have spoken."""
        between = prompts.BEGIN if not self.said else prompts.CONTINUE if self._cut else prompts.GO_ON
        notes = [] if self.said else self._notes
        self.said.append(UserSaid("\n\n".join([*notes, *self._orphans, between])))
        self._notes, self._orphans = [], []

    def _own_call(self, call: ToolCall, answer_id: str) -> ToolCall:
        """Return a call with a name and an id that are valid, the id only here; its result is found by the old one."""
        own, number = call.id, len(self._used_ids)
        while not CALL_ID.fullmatch(own) or own in self._used_ids:
            own, number = f"call_{number}", number + 1
        self._used_ids.add(own)
        self._open.append(OpenCall(call.id, own, answer_id))
        return msgspec.structs.replace(call, id=own, name=tool_name(call.name))

    def _take_results(self, message: Message) -> None:
        files = [file_note(part) for part in message.parts if isinstance(part, File)]
        self._images += images_of(message)
        for part in message.parts:
            if not isinstance(part, ToolResult):
                continue
            named = [each for each in self._open if each.recorded_id == part.call_id]
            meant = next((each for each in named if each.result_id == message.id), named[0] if named else None)
            if meant is None:
                orphan = prompts.orphan_result(data_of(part.text, message.id))
                self._orphans.append("\n".join([orphan, *files]))
                continue
            self._open.remove(meant)
            # Its role says that it is data; nothing in it passes for a note but Hansard's own.
            is_own = part.text in {prompts.RESULT_UNKNOWN, prompts.RESULT_NOT_STARTED}
            told = part.text if is_own else harmless(part.text)
            text = "\n".join([*([told] if part.text.strip() else []), *files])
            text = text or prompts.NO_TEXT
            self._results[meant.own_id] = msgspec.structs.replace(part, call_id=meant.own_id, text=text)

    def _close_calls(self) -> None:
        """Give every call of the last reply its result; one that has none gets one that says so."""
        last = self.said[-1] if self.said else None
        if not isinstance(last, AssistantSaid) or not last.calls:
            self._images = []
            return
        results = (
            self._results.get(call.id)
            or ToolResult(call_id=call.id, text=prompts.RESULT_UNKNOWN, outcome=ToolOutcome.UNKNOWN)
            for call in last.calls
        )
        self.said.append(ToolsSaid(tuple(results)))
        if self._images:
            names = [image.name or "unnamed" for image in self._images]
            text = f"[Hansard: pictures that the tools above gave: {', '.join(names)}]"
            self.said.append(UserSaid(text, tuple(self._images)))
        self._open, self._results, self._images = [], {}, []


def tamed(message: Message) -> Message:
    """Return an answer that was given elsewhere: whoever wrote it, nothing in it passes for a note by the program."""
    parts = tuple(Text(harmless(part.text)) if isinstance(part, Text) else part for part in message.parts)
    return msgspec.structs.replace(message, parts=parts)


def tool_name(name: str) -> str:
    """Return a name that every provider accepts: the same, or the nearest to it."""
    if TOOL_NAME.fullmatch(name):
        return name
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:63]
    return cleaned if TOOL_NAME.fullmatch(cleaned) else f"_{cleaned}"


def own_signature(call: ToolCall, family: str) -> ToolCall:
    """Return a call with its signature only when the family of models that gave it is asked."""
    keeps = bool(family) and family_of(call.model) == family
    return call if keeps or not call.signature else msgspec.structs.replace(call, signature="", model="")


def thought_parts(parts: tuple[Part, ...], calls: tuple[ToolCall, ...], family: str) -> tuple[Part, ...]:
    """Return a message's parts as its own family of models is given them back; none without reasoning of its own.

    Reasoning at the end has nothing that it led to, and no provider takes it.
    """
    own = [part for part in parts if isinstance(part, Reasoning) and is_own(part, family)]
    if not own:
        return ()
    following = iter(calls)
    found: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            found.append(next(following))
        elif (isinstance(part, Text) and part.text.strip()) or (isinstance(part, Reasoning) and is_own(part, family)):
            found.append(part)
    while isinstance(found[-1], Reasoning) and found[-1].id != SIGNS_TEXT:
        found.pop()
    return tuple(found)


def is_own(part: Reasoning, family: str) -> bool:
    """Return whether reasoning is signed by the family of models that is asked."""
    return bool(family and part.signature) and family_of(part.model) == family


def images_of(message: Message) -> tuple[Image, ...]:
    return tuple(
        Image(blob=part.blob, media_type=image_type(part), size_bytes=part.size_bytes, name=named(part.name))
        for part in message.parts
        if isinstance(part, File) and part.blob and image_type(part).startswith("image/")
    )


def image_type(part: File) -> str:
    """Return a file's type as providers spell it; people and platforms write some types in other ways."""
    spelt = part.media_type.partition(";")[0].strip().lower()
    return "image/jpeg" if spelt in {"image/jpg", "image/pjpeg"} else spelt


def file_note(part: File) -> str:
    gone = prompts.FILE_AWAITED if part.fetch else ", which was not kept"
    kept = "" if part.blob else gone
    name, media_type = named(part.name) or "unnamed", named(part.media_type)
    note = f"[Hansard: a file: {name}, {media_type}, {part.size_bytes} bytes{kept}]"
    return f"{note}\n{prompts.VOICE}\n{quote(part.transcript)}" if part.transcript.strip() else note


def part_note(part: Part) -> str:
    """Return what a model is told of a part besides the words; empty when nothing."""
    if isinstance(part, Text) and part.form is TextForm.FORWARDED:
        return f"{prompts.FORWARDED}\n{quote(part.text)}"
    if isinstance(part, Text) and part.form is TextForm.FORMATTED:
        return f"{prompts.FORMATTED}\n{quote(part.text.strip())}"
    return file_note(part) if isinstance(part, File) else ""


def words_of(message: Message, *, is_private: bool = False) -> str:
    """Return what somebody said, as a model reads it. Who said it in a chat of one person goes without saying."""
    if message.is_retracted:
        return prompts.RETRACTED
    pieces = [part.text for part in message.parts if isinstance(part, Text) and part.form is TextForm.WORDS]
    files = [note for part in message.parts if (note := part_note(part))]
    text = "\n".join(pieces)
    if message.role == Role.SYSTEM and not message.id.startswith(DERIVED_PREFIX):
        text = said_by(prompts.INSTRUCTION, text)
    elif (author := message.named_author) and not (is_private and message.chat):
        text = said_by(author, text) if text.strip() else f"{named(author)} says:"
    elif message.role != Role.SYSTEM:
        text = harmless(text)
    text = "\n".join([*([text] if text.strip() else []), *files])
    notes = [
        note for note, holds in ((prompts.OBSERVED, message.is_observed), (prompts.EDITED, message.is_edited)) if holds
    ]
    return "\n".join([*notes, text if text.strip() else prompts.NO_TEXT])


def noted(said: Said, note: str) -> Said:
    return msgspec.structs.replace(said, text=f"{note}\n\n{said.text}") if isinstance(said, UserSaid) else said


def as_text(messages: Sequence[Said], *, pictures: bool = False) -> list[Said]:
    """Return the same in words alone: tools that were called and what they gave are told, nothing is signed.

    With `pictures` those stay.
    """
    told: list[Said] = []
    calls: tuple[ToolCall, ...] = ()
    for said in messages:
        if isinstance(said, AssistantSaid):
            calls = tuple(msgspec.structs.replace(each, arguments=harmless(each.arguments)) for each in said.calls)
            told.append(AssistantSaid(said.text if said.text.strip() else prompts.CALLED))
        elif isinstance(said, UserSaid):
            told.append(said if pictures else UserSaid(said.text))
        else:
            names = {call.id: call for call in calls}
            told.append(
                UserSaid(
                    "\n".join(
                        prompts.told_result(names.get(each.call_id), data_of(each.text, each.call_id))
                        for each in said.results
                    )
                )
            )
    return merged(told)


def merged(messages: Sequence[Said]) -> list[Said]:
    """Return messages in which no person speaks twice in a row."""
    found: list[Said] = []
    for said in messages:
        say(found, said)
    return found


def say(before: list[Said], said: Said) -> None:
    """Add a message; a person who spoke last goes on in the same one."""
    last = before[-1] if before else None
    if isinstance(said, UserSaid) and isinstance(last, UserSaid):
        before[-1] = UserSaid(f"{last.text}\n\n{said.text}", (*last.images, *said.images))
    else:
        before.append(said)


def system_prompt(instructions: str, persona: str, notes: Sequence[Note]) -> str:
    """Return what a model is told first: Hansard's own words, the admin's, the room's or person's, the memory.

    It is fixed when a session begins; `/new` takes up what has changed.
    """
    memory = "\n".join([prompts.MEMORY, *(f"- ({note.id}) {harmless(note.text)}" for note in notes)]) if notes else ""
    parts = (prompts.BASE_PROMPT, instructions.strip(), persona.strip(), memory)
    return "\n\n".join(part for part in parts if part)


FORGED = re.compile(r"\[(\s*)Hansard(\s*):", re.IGNORECASE)
"""How Hansard's own notes to the model begin, in whichever spelling a model might read as one."""

MARK_CHARACTERS = 8
NAME_CHARACTERS_MAX = 200


def harmless(text: str) -> str:
    """Return a text in which nothing passes for a note by the program."""
    return FORGED.sub(r"[\1not Hansard\2:", text) if "hansard" in text.lower() else text


def harmless_spec(spec: ToolSpec) -> ToolSpec:
    """Return a tool as a model is told of it: what its server says of it passes for no note either.

    In the schema, a bracket before that name can only stand inside of a text.
    """
    return msgspec.structs.replace(spec, description=harmless(spec.description), parameters=harmless(spec.parameters))


def named(text: str) -> str:
    """Return a name on one line, cut to a length, with nothing that ends the note in which it stands."""
    words = " ".join("".join(sign if sign.isprintable() else " " for sign in text[:NAME_CHARACTERS_MAX]).split())
    return words.replace("[", "(").replace("]", ")")


def said_by(author: str, text: str) -> str:
    """Return what one of several people said: each line is quoted, so that nobody speaks in another's name."""
    return f"{named(author)} says:\n{quote(text)}"


def quote(text: str) -> str:
    """Return a text in lines that nothing in it can leave."""
    return "\n".join(f"> {line}" for line in harmless(text).splitlines() or [""])


def data_of(text: str, message_id: str) -> str:
    """Return a tool's result, told in words, between marks that the tool cannot know: they come from the message's id.

    In its own role a result needs none.
    """
    mark = hashlib.sha256(f"data {message_id}".encode()).hexdigest()[:MARK_CHARACTERS]
    return f"[Hansard: data {mark} begins]\n{harmless(text)}\n[Hansard: data {mark} ends]"
