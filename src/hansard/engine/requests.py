"""The requests of one turn: built anew for each model that is asked, with the pictures that it sees.

Reads: the conversation, pictures. Writes: a notice of each refusal; what was refused, as settings of the session, once
a safer view was accepted.
Invariants: a refusal makes the view safer and never less safe, so that a turn asks a bounded number of times; one that
may be about something else is answered once; the record stays as it is. Later turns begin with the view that was
accepted; where none was, with all that was said.
On crash: what was learnt of a refusal is in the record, or is learnt again.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.messages import Message
from hansard.domain.pictures import PictureFacts, look_at
from hansard.domain.requests import FailureKind, ModelRules, UserSaid
from hansard.engine import prompts
from hansard.engine.context import HIDDEN, PLAIN, UNSIGNED, WATERMARKS, build_request, manner_of, shown, watermark
from hansard.engine.views import message_tokens
from hansard.errors import InvalidInput, NotFound
from hansard.record.conversation import exchange_starts

if TYPE_CHECKING:
    from hansard.domain.requests import Failure, Image, Request, Said
    from hansard.ports.model import Model
    from hansard.record.api import Record
    from hansard.record.conversation import Conversation
    from hansard.record.sessions import SessionFrozen
    from hansard.record.turns.holding import Turn

STATUS_HISTORY = frozenset({400, 413, 422})
"""What providers answer when they cannot read a request."""

STATUS_LARGE = 413


class Remedy(IntEnum):
    """How to say the same again, the mildest first. Each includes those before it."""

    UNSIGNED = 1
    """Without reasoning."""
    PLAIN = 2
    """In words alone."""
    HALF = 3
    """Without the older half."""
    LAST = 4
    """Only the last exchange."""


TOLD = {
    Remedy.UNSIGNED: "without its reasoning",
    Remedy.PLAIN: "in words alone, without pictures and with tool calls told as text",
    Remedy.HALF: "without the older half of what was said",
    Remedy.LAST: "with the last exchange alone",
}

ABOUT_SIZE = re.compile(
    r"context.{0,20}(?:length|window|limit|size)|too (?:long|large|many (?:input )?tokens)|maximum.{0,20}tokens"
    r"|exceed\w*.{0,40}(?:token|context|limit|size|length)|(?:token|prompt|input|request|payload).{0,40}exceed",
    re.IGNORECASE,
)
ABOUT_REASONING = re.compile(r"thinking|thought.?signature|signature|reasoning|encrypted_content", re.IGNORECASE)
ABOUT_HISTORY = re.compile(
    r"\bmessages?\b|\broles?\b|\bassistant\b|\btool.?(?:calls?|use|results?|messages?)\b|function.?(?:call|response)"
    r"|\bcontents?\b(?!.?(?:filter|policy))|\bimages?\b|\binput\[|\bconversation\b|\bturns?\b",
    re.IGNORECASE,
)
ABOUT_IMAGE = re.compile(r"\bimages?\b(?!.{0,80}\btokens?\b)", re.IGNORECASE)
ABOUT_SETTINGS = re.compile(
    r"max_(?:completion_|output_)?tokens|temperature|top_p|stream_options|tool_choice|budget_tokens"
    r"|reasoning[._]effort|unsupported (?:parameter|value)"
    r"|(?:unknown|unrecognized) (?:parameter|request argument|field)",
    re.IGNORECASE,
)
ABOUT_ELSE = re.compile(
    r"credit|billing|quota|balance|api.?key|model.{0,40}(?:not (?:found|exist|supported)|does not exist)"
    r"|schema|safety|policy|content.?filter",
    re.IGNORECASE,
)


def diagnose(failure: Failure) -> Remedy | None:
    """Return how to answer a refusal; None when it is not about what was said."""
    if failure.kind is not FailureKind.REFUSED or failure.status not in STATUS_HISTORY:
        return None
    words = failure.text
    if ABOUT_IMAGE.search(words):
        return Remedy.PLAIN
    if failure.status == STATUS_LARGE or ABOUT_SIZE.search(words):
        return Remedy.HALF
    if ABOUT_SETTINGS.search(words):
        return None
    if ABOUT_REASONING.search(words):
        return Remedy.UNSIGNED
    return None if ABOUT_ELSE.search(words) and not ABOUT_HISTORY.search(words) else Remedy.PLAIN


def is_sure(failure: Failure, tried: Remedy | None) -> bool:
    """Return whether a refusal is about what was said, for all that its words tell.

    Who speaks of reasoning when none was sent means a setting.
    """
    words = failure.text
    if failure.status == STATUS_LARGE or ABOUT_SIZE.search(words):
        return True
    if ABOUT_REASONING.search(words):
        return tried is None
    return ABOUT_HISTORY.search(words) is not None and ABOUT_ELSE.search(words) is None


class Requests:
    """What a turn asks."""

    def __init__(self, record: Record, turn: Turn, frozen: SessionFrozen, output_tokens_max: int | None) -> None:
        self._record = record
        self._turn = turn
        self._frozen = frozen
        self._output_tokens_max = output_tokens_max
        self._remedy: Remedy | None = None
        self._guessed = False
        self._marks: dict[str, int] = {}

    def begin(self) -> None:
        """Another model is asked: what one refused may be read by the next."""
        self._marks, self._remedy, self._guessed = {}, None, False

    async def build(self, model: Model) -> Request:
        """Return the request of this moment, as one model takes it."""
        conversation = await self._record.conversation(self._turn.session_id)
        request = build_request(
            conversation,
            self._frozen,
            self._output_tokens_max,
            model.rules,
            uses_tools=model.uses_tools,
            marks=with_remembered(conversation, model, self._marks),
        )
        if not any(isinstance(said, UserSaid) and said.images for said in request.messages):
            return request
        messages = [await self._with_pictures(said, model.rules) for said in request.messages]
        return msgspec.structs.replace(request, messages=tuple(messages))

    async def remedied(self, model: Model, failure: Failure) -> bool:
        """Make the view safer after a refusal, and tell the person; return whether to ask again."""
        remedy, sure = diagnose(failure), is_sure(failure, self._remedy)
        if remedy is None or self._remedy is Remedy.LAST or (self._guessed and not sure):
            return False
        if self._remedy is not None:
            remedy = max(remedy, Remedy(self._remedy + 1))
        conversation = await self._record.conversation(self._turn.session_id)
        if not sure and conversation.was_refused:
            # It was guessed before, too mildly: whatever it is about in what was said, this is without it.
            remedy = Remedy.LAST
        self._remedy, self._guessed = remedy, not sure
        self._marks = watermarks(conversation, remedy, with_remembered(conversation, model, self._marks))
        words = failure.text.rstrip(".")
        told = f"{model.name} could not read the conversation ({words}). Asking again {TOLD[remedy]}."
        if not sure:
            told = f"{model.name}: {words}. It may be the conversation: asking once more {TOLD[remedy]}."
        await self._turn.append(Message.notice(f"{told} The record is unchanged."))
        return True

    async def accepted(self, model: Model) -> None:
        """Remember the view that a model accepted, where it refused another one before."""
        marks, self._marks, self._remedy = self._marks, {}, None
        for name, seq in marks.items():
            await self._record.sessions.set_setting(self._turn.session_id, mark_of(name, model), str(seq))

    async def _with_pictures(self, said: Said, rules: ModelRules) -> Said:
        """Fill in what pictures show. What a picture is, its bytes know better than whoever named it."""
        if not isinstance(said, UserSaid) or not said.images:
            return said
        found, notes = [], []
        for image in said.images:
            data = await self._read(image)
            look = look_at(data) or PictureFacts(image.media_type)
            if not data:
                notes.append(prompts.image_left_out(image.name, prompts.UNREADABLE_IMAGE))
            elif look.media_type not in rules.image_types:
                notes.append(prompts.image_left_out(image.name, prompts.UNKNOWN_IMAGE))
            elif rules.image_side_max and max(look.width, look.height) > rules.image_side_max:
                notes.append(prompts.image_left_out(image.name, prompts.LARGE_IMAGE))
            else:
                found.append(msgspec.structs.replace(image, data=data, media_type=look.media_type))
        return UserSaid("\n".join([said.text, *notes]), tuple(found))

    async def _read(self, image: Image) -> bytes:
        """Return a picture's bytes; none when it is not there or not what was recorded."""
        try:
            data = await self._record.blobs.read(image.blob)
        except (NotFound, InvalidInput):
            return b""
        return data if len(data) == image.size_bytes else b""


def mark_of(name: str, model: Model) -> str:
    """Return the setting by which it is remembered what one model refuses: others may read it."""
    return f"{name}:{model.name}"[:NAME_CHARACTERS_MAX]


def with_remembered(conversation: Conversation, model: Model, marks: dict[str, int]) -> dict[str, int]:
    """Return up to where a model refuses what was said, by what it did now and in earlier turns."""
    return {name: max(watermark(conversation, mark_of(name, model)), marks.get(name, 0)) for name in WATERMARKS}


def watermarks(conversation: Conversation, remedy: Remedy, before: dict[str, int]) -> dict[str, int]:
    """Return the marks of a remedy: up to which seq it holds. `before` are those of the remedies before it."""
    head = conversation.seq
    marks = {UNSIGNED: head}
    if remedy >= Remedy.PLAIN:
        marks[PLAIN] = head
    if remedy >= Remedy.HALF:
        marks[HIDDEN] = hidden_seq(conversation, remedy, before)
    return marks


def hidden_seq(conversation: Conversation, remedy: Remedy, before: dict[str, int]) -> int:
    """Return up to which seq nothing is said any more: the older half in tokens, or all but the last exchange."""
    placed = shown(conversation, manner_of(conversation, ModelRules(), before, has_tools=True))
    starts = exchange_starts(placed)
    sizes = [message_tokens(each.message) for each in placed]
    kept = starts[-1] if starts else 0
    if remedy is Remedy.HALF:
        kept = next((start for start in starts if sum(sizes[:start]) * 2 >= sum(sizes)), kept)
    return min((each.seq for each in placed[kept:]), default=conversation.seq) - 1
