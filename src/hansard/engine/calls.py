"""Running the tools that a model called.

Reads: the calls of a sealed message. Writes: one result a call, as soon as it is there; large outputs and files as
blobs.
Invariants: a call is recorded before it runs, its result before the model sees it; every call has exactly one result;
none is run that the rules, or the people who asked, do not allow.
On crash: a call without a result reads as "outcome unknown" in the next context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import msgspec

from hansard.domain.limits import BLOB_BYTES_MAX, NAME_CHARACTERS_MAX
from hansard.domain.messages import File, Message, Role, ToolCall, ToolOutcome, ToolResult
from hansard.domain.settings import TurnLimits
from hansard.domain.text import clean_text
from hansard.engine import prompts
from hansard.engine.asking import Permits
from hansard.ports.tool import Attachment, PlacedTool, Tool, ToolOutput
from hansard.record.api import Record
from hansard.record.turns.holding import Turn
from hansard.tasks import run_all

PARALLEL_MAX = 8
"""Calls of one step that run at a time."""

FILES_MAX = 20
"""Files that one call may give; how many more there were is said."""


def result_id(message_id: str, index: int) -> str:
    """Return the id of a result's message: one for each call, whoever writes it."""
    return f"{message_id}.{index}"


class Calls:
    """The calls of one message, and what became of each."""

    def __init__(self, message_id: str, calls: tuple[ToolCall, ...], done: Collection[int] = ()) -> None:
        """None has begun; those that are done have their results already."""
        self._message_id = message_id
        self._calls = calls
        self._begun: set[int] = set()
        self._done: set[int] = set(done)

    def unfinished(self) -> list[Message]:
        """Return a result for each call that has none: not started, or outcome unknown."""
        return [
            self._result(index, ToolOutcome.UNKNOWN, prompts.RESULT_UNKNOWN)
            if index in self._begun
            else self._result(index, ToolOutcome.NOT_STARTED, prompts.RESULT_NOT_STARTED)
            for index in range(len(self._calls))
            if index not in self._done
        ]

    async def run(
        self, turn: Turn, record: Record, tools: Mapping[str, Tool], limits: TurnLimits, permits: Permits
    ) -> None:
        """Run them side by side, as far as each is allowed, and record each result as it comes.

        Whatever has no result when this ends gets one with the turn's end.
        """
        room = asyncio.Semaphore(PARALLEL_MAX)

        async def run_one(index: int) -> None:
            call = self._calls[index]
            refusal = await permits.refusal(call)
            async with room:
                if refusal:
                    outcome, output = ToolOutcome.NOT_STARTED, ToolOutput(text=refusal)
                else:
                    self._begun.add(index)
                    outcome, output = await run_call(call, placed(tools, permits), limits)
                text, blob = await shorten(record, output.text, limits.tool_output_bytes_max)
                files = await keep_files(record, output.files)
                result = ToolResult(call_id=call.id, text=text, outcome=outcome, blob=blob, sources=output.sources)
                await turn.append(Message.make(Role.TOOL, [result, *files], id=result_id(self._message_id, index)))
                self._done.add(index)

        turn.settle_calls(self._message_id, self.unfinished())
        try:
            await run_all(run_one(index) for index in range(len(self._calls)) if index not in self._done)
        finally:
            turn.settle_calls(self._message_id, self.unfinished())

    def _result(self, index: int, outcome: ToolOutcome, text: str) -> Message:
        result = ToolResult(call_id=self._calls[index].id, text=text, outcome=outcome)
        return Message.make(Role.TOOL, [result], id=result_id(self._message_id, index))


def placed(tools: Mapping[str, Tool], permits: Permits) -> dict[str, Tool]:
    """Return the tools as they are where a call is made."""
    scene = permits.scene
    return {name: tool.at(scene) if isinstance(tool, PlacedTool) else tool for name, tool in tools.items()}


async def run_call(call: ToolCall, tools: Mapping[str, Tool], limits: TurnLimits) -> tuple[ToolOutcome, ToolOutput]:
    """Run one call; whatever goes wrong is a result that the model can act on."""
    tool = tools.get(call.name)
    if tool is None:
        return failed(f"There is no tool {call.name!r}. There are: {', '.join(sorted(tools)) or 'none'}.")
    try:
        arguments = msgspec.json.decode(call.arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        return failed(f"The arguments are not a JSON object: {error}")
    try:
        async with asyncio.timeout(limits.tool_seconds_max) as deadline:
            given = await tool.run(arguments)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return failed("The tool cancelled itself.")
    except Exception as error:  # noqa: BLE001  # boundary: tool call
        if isinstance(error, TimeoutError) and deadline.expired():
            late = f"No result within {limits.tool_seconds_max:g} s; it may still have had an effect."
            return ToolOutcome.UNKNOWN, ToolOutput(text=late)
        return failed(f"{type(error).__name__}: {error}")
    output = given if isinstance(given, ToolOutput) else ToolOutput(text=given)
    wrong = ToolOutcome.UNKNOWN if output.is_unknown else ToolOutcome.ERROR
    return (wrong if output.is_error or output.is_unknown else ToolOutcome.OK), output


def failed(text: str) -> tuple[ToolOutcome, ToolOutput]:
    return ToolOutcome.ERROR, ToolOutput(text=text)


async def keep_files(record: Record, attachments: tuple[Attachment, ...]) -> tuple[File, ...]:
    """Store the files that a call gave; one that is too large, or too many, is only named."""
    kept = []
    for number, attachment in enumerate(attachments[: FILES_MAX + 1], 1):
        left = len(attachments) - FILES_MAX
        name = f"{left} more files" if number > FILES_MAX else clean_text(attachment.name)[:NAME_CHARACTERS_MAX]
        fits = number <= FILES_MAX and len(attachment.data) <= BLOB_BYTES_MAX
        blob = await record.blobs.put(attachment.data) if fits else ""
        media_type = clean_text(attachment.media_type)[:NAME_CHARACTERS_MAX]
        kept.append(File(blob=blob, name=name, media_type=media_type, size_bytes=len(attachment.data)))
    return tuple(kept)


async def shorten(record: Record, output: str, bytes_max: int) -> tuple[str, str]:
    """Return what the model is given of an output, and the blob that holds all of it when that is less."""
    data = clean_text(output).encode()
    if len(data) <= bytes_max:
        return output, ""
    blob = await record.blobs.put(data) if len(data) <= BLOB_BYTES_MAX else ""
    head = data[: bytes_max * 3 // 4].decode(errors="ignore")
    tail = data[-(bytes_max // 4) :].decode(errors="ignore")
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    kept = f"all of it is kept as {blob}" if blob else "it is too large to be kept"
    return f"{head}\n[… {left_out} of {len(data)} bytes left out here; {kept} …]\n{tail}", blob
