"""How a conversation is shown to one model: pictures that it can see, as much as it reads, nothing that it refuses.

Reads: messages that are valid for every provider, and the rules of one model. Writes: nothing.
Invariants: what comes in alternates and has its pairs, and so has what goes out. What is left out is said where it
stood. It goes in steps, so that most requests begin with the one before.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from hansard.domain.messages import File, ToolCall
from hansard.domain.requests import AssistantSaid, ToolsSaid, UserSaid
from hansard.engine import prompts
from hansard.engine.prompts import data_of, harmless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.domain.messages import Message
    from hansard.domain.requests import Image, ModelRules, Request, Said

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
    """Return about how many tokens a text is."""
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN + 1 if text else 0


def said_tokens(said: Said) -> int:
    """Return about how many tokens a message is."""
    return MESSAGE_TOKENS + sum(map(estimate_tokens, texts_of(said))) + IMAGE_TOKENS * len(images_of(said))


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
    """Return every text of a message."""
    if isinstance(said, ToolsSaid):
        return [result.text for result in said.results]
    if isinstance(said, UserSaid):
        return [said.text]
    calls = [text for call in said.calls for text in (call.name, call.arguments, call.signature)]
    reasoning = [text for part in said.reasoning for text in (part.text, part.signature)]
    return [said.text, *calls, *reasoning]


def images_of(said: Said) -> tuple[Image, ...]:
    """Return the pictures of a message."""
    return said.images if isinstance(said, UserSaid) else ()


def fit(request: Request, rules: ModelRules) -> Request:
    """Return the request as a model takes it: its pictures, then its size."""
    messages = fit_images(request.messages, rules)
    limits = []
    if rules.request_bytes_max:
        pictures = sum(image.size_bytes * 4 // 3 for said in messages for image in images_of(said))
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
    takes = [image for said in messages for image in images_of(said) if not why_unseen(image, rules)]
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
    starts = exchange_starts(messages)
    start = next((start for start in starts if before[start] >= wanted), starts[-1])
    kept = list(messages[start:])
    if start:
        kept[0] = noted(kept[0], prompts.left_out(start))
    return shorten_texts(kept, tokens_max)


def exchange_starts(messages: Sequence[Said]) -> list[int]:
    """Return where exchanges begin: with a person's words after the model's last ones. There is always one."""
    return [
        index
        for index, said in enumerate(messages)
        if isinstance(said, UserSaid) and (index == 0 or isinstance(messages[index - 1], AssistantSaid))
    ] or [0]


def noted(said: Said, note: str) -> Said:
    """Return what people said with a note before it."""
    return msgspec.structs.replace(said, text=f"{note}\n\n{said.text}") if isinstance(said, UserSaid) else said


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
    if isinstance(said, AssistantSaid):
        if said.thought:
            return said
        return msgspec.structs.replace(said, text=cut_middle(said.text, characters_max))
    return msgspec.structs.replace(said, text=cut_middle(said.text, characters_max))


def cut_middle(text: str, characters_max: int) -> str:
    """Return the beginning and the end of a text that is too long."""
    if len(text) <= characters_max:
        return text
    note = prompts.shortened(len(text))
    head = max(1, (characters_max - len(note)) * 3 // 4)
    return f"{text[:head]}{note}{text[len(text) - head // 3 :]}"


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
        last = found[-1] if found else None
        if isinstance(said, UserSaid) and isinstance(last, UserSaid):
            found[-1] = UserSaid(f"{last.text}\n\n{said.text}", (*last.images, *said.images))
        else:
            found.append(said)
    return found
