"""A model that answers from a file: the same words every time, with delays, tool calls, failures and stalls on demand.

The script is TOML, because people write it: text over several lines needs no escapes, comments are allowed, and the
reader comes with Python. A program that makes scripts can write every string as JSON does; TOML reads that as well.

    [[answers]]                      # the first answer of every conversation
    text = "You said: {last}"        # {last}: what the person said last; {result}: what the last tool gave
    pieces = "words"                 # or "characters", "whole", or a list of pieces in place of a text
    delay_seconds = 0.05             # before each piece

    [[answers]]                      # the second, and every later one: the last answer repeats
    reasoning = "A tool would know."
    calls = [{ name = "clock", arguments = '{"zone": "UTC"}' }]
    failures = [{ kind = "busy", retry_after_seconds = 1, attempts = [1] }]

The number of an answer is the number of times that the model has spoken in the request. So nothing is remembered
between requests: a restart goes on where it was, and sessions side by side do not disturb one another. Only attempts
are counted in memory, for each answer, so that a script can fail once and then succeed.
"""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal

import msgspec

from hansard.domain.budgets import Usage
from hansard.domain.messages import ToolCall
from hansard.domain.requests import (
    AssistantSaid,
    Called,
    Delta,
    Failed,
    Failure,
    FailureKind,
    Finished,
    FinishReason,
    ModelEvent,
    ModelRules,
    Request,
    ToolsSaid,
    UserSaid,
)
from hansard.errors import ConfigInvalid

WORDS = re.compile(r"\s*\S+(?:\s+\Z)?|\s+")
NOTES = re.compile(
    r"^\[Hansard: (?:[^\n]*The summary:\]\n.*?^\[Hansard: the summary ends[^\n]*\]|[^\n]*\]|[^\n]*:\n.*?^\])(?:\n+|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""Notes for the model, as the system prompt describes them, with the empty lines after them."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of everything in a script: a key that nobody knows is a mistake, and is said to be one."""


class ScriptedCall(Part, frozen=True):
    """A tool call. Arguments are a table, or text that is given as it stands, valid or not."""

    name: str
    arguments: str | dict[str, Any] = "{}"
    id: str = ""


class ScriptedFailure(Part, frozen=True):
    """A failure after so many pieces of text: at every attempt, or at those that are listed, the first being 1."""

    kind: FailureKind
    text: str = ""
    retry_after_seconds: float | None = None
    after_pieces: int = 0
    attempts: tuple[int, ...] = ()


class ScriptedStall(Part, frozen=True):
    """Silence after so many pieces of text: for some time, or until the reader leaves."""

    after_pieces: int = 0
    seconds: float | None = None


class ScriptedUsage(Usage, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of an answer."""


class ScriptedAnswer(Part, frozen=True):
    """One answer."""

    text: str = ""
    pieces: Literal["words", "characters", "whole"] | tuple[str, ...] = "words"
    delay_seconds: float = 0.0
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    failures: tuple[ScriptedFailure, ...] = ()
    stall: ScriptedStall | None = None
    finish: FinishReason | None = None
    usage: ScriptedUsage | None = None

    def __post_init__(self) -> None:
        if self.text and not isinstance(self.pieces, str):
            raise ValueError("an answer has a text or a list of pieces, not both")


class Script(Part, frozen=True):
    """A whole script."""

    answers: tuple[ScriptedAnswer, ...]
    uses_tools: bool = True
    window_tokens: int = 0

    def __post_init__(self) -> None:
        if not self.answers:
            raise ValueError("a script has at least one of [[answers]]")


SCRIPT_HINT = "Correct that file, or name another model: with -m, or as `model` in config.toml."


def read_script(path: Path) -> Script:
    """Read a script; a mistake in it is named with its place."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Script)
    except OSError as error:
        raise ConfigInvalid(f"the script {path} cannot be read: {error.strerror}", SCRIPT_HINT) from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"the script {path} is not right: {error}", SCRIPT_HINT) from error


class ScriptedModel:
    """The model `scripted:FILE`."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path).expanduser()
        self._script = read_script(path)
        self.name = f"scripted:{path}"
        self.uses_tools = self._script.uses_tools
        self.rules = ModelRules(window_tokens=self._script.window_tokens)
        """Without limits, when the script says nothing."""
        self._attempts: Counter[int] = Counter()

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        number = sum(isinstance(said, AssistantSaid) for said in request.messages)
        answer = self._script.answers[min(number, len(self._script.answers) - 1)]
        attempt = self._attempts[number] = self._attempts[number] + 1
        failure = next((each for each in answer.failures if not each.attempts or attempt in each.attempts), None)
        given = 0
        pieces = split(answer, request)
        for position in range(len(pieces) + 1):
            if answer.stall is not None and answer.stall.after_pieces == position:
                await stall(answer.stall)
            if failure is not None and min(failure.after_pieces, len(pieces)) == position:
                yield failed(failure, usage_of(answer, request, given))
                return
            if position == 0:
                for piece in WORDS.findall(filled(answer.reasoning, request)):
                    await asyncio.sleep(answer.delay_seconds)
                    yield Delta(piece, "reasoning")
            if position < len(pieces):
                await asyncio.sleep(answer.delay_seconds)
                yield Delta(pieces[position])
                given += 1
        for event in calls_of(answer, number):
            yield event
        reason = answer.finish or (FinishReason.TOOLS if answer.calls else FinishReason.STOP)
        yield Finished(reason=reason, usage=usage_of(answer, request, given))

    async def close(self) -> None:
        """Nothing is held."""


def failed(failure: ScriptedFailure, usage: Usage) -> Failed:
    text = failure.text or f"The script fails here ({failure.kind})."
    value = Failure(kind=failure.kind, text=text, retry_after_seconds=failure.retry_after_seconds)
    return Failed(failure=value, usage=usage)


async def stall(silence: ScriptedStall) -> None:
    """Say nothing for a while, or until the reader leaves."""
    if silence.seconds is None:
        await asyncio.get_running_loop().create_future()
    else:
        await asyncio.sleep(silence.seconds)


def split(answer: ScriptedAnswer, request: Request) -> list[str]:
    if not isinstance(answer.pieces, str):
        return [filled(piece, request) for piece in answer.pieces]
    text = filled(answer.text, request)
    if answer.pieces == "words":
        return WORDS.findall(text)
    return list(text) if answer.pieces == "characters" else [text] * bool(text)


def filled(text: str, request: Request) -> str:
    """Return the text with what was said last in its places. In one pass: what people say is not read for places."""
    if "{" not in text:
        return text
    told = next((said.text for said in reversed(request.messages) if isinstance(said, UserSaid)), "")
    results = next((said.results for said in reversed(request.messages) if isinstance(said, ToolsSaid)), ())
    values = {"{told}": told, "{last}": NOTES.sub("", told), "{result}": results[-1].text if results else ""}
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], text)


def calls_of(answer: ScriptedAnswer, number: int) -> list[Called]:
    """Return an answer's calls. Those without an id get one that is the same at every run."""
    return [
        Called(
            ToolCall(
                id=call.id or f"call-{number + 1}-{position}",
                name=call.name,
                arguments=call.arguments
                if isinstance(call.arguments, str)
                else msgspec.json.encode(call.arguments).decode(),
            )
        )
        for position, call in enumerate(answer.calls, 1)
    ]


def usage_of(answer: ScriptedAnswer, request: Request, given: int) -> Usage:
    """Return the figures of the script; else words for tokens, so that displays have something to show."""
    if answer.usage is not None:
        return Usage(**msgspec.structs.asdict(answer.usage))
    heard = sum(len(said.text.split()) for said in request.messages if not isinstance(said, ToolsSaid))
    return Usage(input_tokens=len(request.system.split()) + heard, output_tokens=given)
