"""The requests of one turn: the context cut to what one model takes, in a safer view after each refusal.

Reads: the conversation, pictures, the rules of a model. Writes: a notice of each refusal; what was refused, as settings
of the session, once a safer view was accepted.
Invariants: messages alternate, calls have their results. What is left out is said where it stood, and goes in steps,
so that most requests begin with the one before. A refusal makes the view safer and never less safe, so that a turn asks
a bounded number of times; one that may be about something else is answered once; the record stays as it is. Later turns
begin with the view that was accepted; where none was, with all that was said.
On crash: what was learnt of a refusal is in the record, or is learnt again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import accumulate
from typing import Final

import msgspec

from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.messages import File, Message, ToolCall
from hansard.domain.requests import (
    AssistantSaid,
    Failure,
    FailureKind,
    Image,
    ModelRules,
    PictureFacts,
    Request,
    Said,
    ToolsSaid,
    UserSaid,
    look_at,
)
from hansard.engine import prompts
from hansard.engine.context import (
    HIDDEN,
    PLAIN,
    UNSIGNED,
    WATERMARKS,
    manner_of,
    noted,
    render,
    shown,
    watermark,
)
from hansard.errors import InvalidInput, NotFound
from hansard.ports.model import Model
from hansard.record.api import Record
from hansard.record.conversation import Conversation, exchange_starts
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
    """What a turn asks one model. Another one is asked anew: what the first refused may be read by the next."""

    def __init__(
        self, record: Record, turn: Turn, frozen: SessionFrozen, model: Model, output_tokens_max: int | None
    ) -> None:
        self._record = record
        self._turn = turn
        self._frozen = frozen
        self._model = model
        self._output_tokens_max = output_tokens_max
        self._remedy: Remedy | None = None
        self._guessed = False
        self._marks: dict[str, int] = {}

    async def build(self) -> Request:
        model = self._model
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

    async def remedied(self, failure: Failure) -> bool:
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
        self._marks = watermarks(conversation, remedy, with_remembered(conversation, self._model, self._marks))
        words = failure.text.rstrip(".")
        told = f"{self._model.name} could not read the conversation ({words}). Asking again {TOLD[remedy]}."
        if not sure:
            told = f"{self._model.name}: {words}. It may be the conversation: asking once more {TOLD[remedy]}."
        await self._turn.append(Message.notice(f"{told} The record is unchanged."))
        return True

    async def accepted(self) -> None:
        """Remember the view that the model accepted, where it refused another one before."""
        for name, seq in self._marks.items():
            await self._record.sessions.set_setting(self._turn.session_id, mark_of(name, self._model), str(seq))

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


BYTES_PER_TOKEN = 4
"""What a token is of most texts; it is only used where no provider has counted."""

IMAGE_TOKENS = 1600
"""What a picture of ordinary size takes at any provider."""

MESSAGE_TOKENS = 4
"""What the marks around one message take."""

ANSWER_TOKENS = 4096
"""What is kept free for an answer that has no limit of its own."""

TEXT_CHARACTERS_MIN = 200
"""Texts are not shortened below this: a result that says nothing looks like a failure."""


def estimate_tokens(text: str) -> int:
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN + 1 if text else 0


def said_tokens(said: Said) -> int:
    return MESSAGE_TOKENS + sum(map(estimate_tokens, texts_of(said))) + IMAGE_TOKENS * len(said_images(said))


def message_tokens(message: Message) -> int:
    """Return about how many tokens a message of the record is, all of its parts together."""
    tokens = MESSAGE_TOKENS
    for part in message.parts:
        if isinstance(part, File):
            tokens += IMAGE_TOKENS if part.media_type.startswith("image/") else MESSAGE_TOKENS
            tokens += estimate_tokens(part.transcript)
        elif isinstance(part, ToolCall):
            tokens += estimate_tokens(part.name) + estimate_tokens(part.arguments)
        else:
            tokens += estimate_tokens(part.text)
    return tokens


def texts_of(said: Said) -> list[str]:
    if isinstance(said, ToolsSaid):
        return [result.text for result in said.results]
    if isinstance(said, UserSaid):
        return [said.text]
    calls = [text for call in said.calls for text in (call.name, call.arguments, call.signature)]
    reasoning = [text for part in said.reasoning for text in (part.text, part.signature)]
    return [said.text, *calls, *reasoning]


def said_images(said: Said) -> tuple[Image, ...]:
    return said.images if isinstance(said, UserSaid) else ()


def fit(request: Request, rules: ModelRules) -> Request:
    """Return the request as a model takes it: its pictures, then its size."""
    messages = fit_images(request.messages, rules)
    limits = []
    if rules.request_bytes_max:
        pictures = sum(image.size_bytes * 4 // 3 for said in messages for image in said_images(said))
        limits.append(max(0, rules.request_bytes_max * 3 // 4 - pictures) // BYTES_PER_TOKEN)
    if rules.window_tokens:
        answer = min(request.output_tokens_max or ANSWER_TOKENS, rules.window_tokens // 8)
        limits.append(rules.window_tokens - answer)
    if limits:
        told = estimate_tokens(request.system) + sum(
            estimate_tokens(f"{tool.name}{tool.description}{tool.parameters}") for tool in request.tools
        )
        messages = fit_window(messages, max(min(limits) - told, min(limits) // 4))
    return msgspec.structs.replace(request, messages=tuple(messages))


def fit_images(messages: Sequence[Said], rules: ModelRules) -> list[Said]:
    """Leave out pictures that a model does not take, and the oldest where there are too many or too much of them."""
    takes = [image for said in messages for image in said_images(said) if not why_unseen(image, rules)]
    step = max(1, rules.images_max // 2)
    spare = max(0, -(-(len(takes) - rules.images_max) // step)) * step
    if rules.request_bytes_max:
        sizes = list(accumulate((image.size_bytes for image in reversed(takes)), initial=0))
        room = rules.request_bytes_max * 3 // 8
        spare = max(spare, len(takes) - max(count for count, size in enumerate(sizes) if size <= room))
    fitted: list[Said] = []
    for said in messages:
        if not isinstance(said, UserSaid) or not said.images:
            fitted.append(said)
            continue
        shown, notes = [], []
        for image in said.images:
            why = why_unseen(image, rules)
            if not why and spare > 0:
                spare -= 1
                why = prompts.TOO_MANY_IMAGES
            if not why:
                shown.append(image)
            elif rules.images_max:
                notes.append(prompts.image_left_out(image.name, why))
        fitted.append(UserSaid("\n".join([said.text, *notes]), tuple(shown)))
    return fitted


def why_unseen(image: Image, rules: ModelRules) -> str:
    """Return why a model cannot be shown a picture; empty when it can."""
    if not rules.images_max or image.media_type not in rules.image_types:
        return prompts.UNKNOWN_IMAGE
    if not 0 < image.size_bytes <= (rules.image_bytes_max or image.size_bytes):
        return prompts.LARGE_IMAGE
    return ""


def fit_window(messages: Sequence[Said], tokens_max: int) -> list[Said]:
    """Leave out the oldest exchanges of what does not fit, whole ones; then shorten texts."""
    sizes = [said_tokens(said) for said in messages]
    excess = sum(sizes) - tokens_max
    if excess <= 0:
        return list(messages)
    step = max(1, tokens_max // 4)
    wanted = -(-excess // step) * step
    before = list(accumulate(sizes, initial=0))
    # Exchanges begin with a person's words after the model's last ones. There is always one.
    starts = [
        index
        for index, said in enumerate(messages)
        if isinstance(said, UserSaid) and (index == 0 or isinstance(messages[index - 1], AssistantSaid))
    ] or [0]
    start = next((start for start in starts if before[start] >= wanted), starts[-1])
    kept = list(messages[start:])
    if start:
        kept[0] = noted(kept[0], prompts.left_out(start))
    return shorten_texts(kept, tokens_max)


def shorten_texts(messages: list[Said], tokens_max: int) -> list[Said]:
    """Shorten the longest texts until all fits; the model's own reasoning and calls stay as they are."""
    characters = max((len(text) for said in messages for text in texts_of(said)), default=0)
    while sum(map(said_tokens, messages)) > tokens_max and characters > TEXT_CHARACTERS_MIN:
        characters = max(characters // 2, TEXT_CHARACTERS_MIN)
        messages = [shortened(said, characters) for said in messages]
    return messages


def shortened(said: Said, characters_max: int) -> Said:
    """Return a message whose texts are no longer than that, a note in their middle."""
    if isinstance(said, ToolsSaid):
        results = [
            msgspec.structs.replace(result, text=cut_middle(result.text, characters_max)) for result in said.results
        ]
        return ToolsSaid(tuple(results))
    if isinstance(said, AssistantSaid) and said.thought:
        return said
    return msgspec.structs.replace(said, text=cut_middle(said.text, characters_max))


def cut_middle(text: str, characters_max: int) -> str:
    if len(text) <= characters_max:
        return text
    note = prompts.shortened(len(text))
    head = max(1, (characters_max - len(note)) * 3 // 4)
    return f"{text[:head]}{note}{text[len(text) - head // 3 :]}"


NO_MARKS: Final[Mapping[str, int]] = {}


def build_request(
    conversation: Conversation,
    frozen: SessionFrozen,
    output_tokens_max: int | None,
    rules: ModelRules = ModelRules(),  # noqa: B008
    *,
    uses_tools: bool = True,
    marks: Mapping[str, int] = NO_MARKS,
) -> Request:
    """Return the next request of a conversation, as one model takes it.

    `marks` are up to where this model refuses it.
    """
    tools = frozen.tools if uses_tools else ()
    manner = manner_of(conversation, rules, marks, has_tools=bool(tools))
    messages = render(shown(conversation, manner), conversation.ends, manner)
    request = Request(system=frozen.system, tools=tools, messages=tuple(messages), output_tokens_max=output_tokens_max)
    return fit(request, rules)
