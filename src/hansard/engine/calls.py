"""Running the tools that a model called.

Reads: the calls of a sealed message. Writes: one result a call, as soon as it is there; large outputs as blobs.
Invariants: a call is recorded before it runs, its result before the model sees it; every call has exactly one result.
On crash: a call without a result reads as "outcome unknown" in the next context.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from hansard.domain.messages import Message, Role, ToolCall, ToolOutcome, ToolResult
from hansard.domain.text import clean_text
from hansard.engine import prompts
from hansard.engine.tasks import run_all
from hansard.ports.tool import SessionTool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hansard.domain.settings import TurnLimits
    from hansard.ports.tool import Tool
    from hansard.record.api import Record
    from hansard.record.turn import Turn

PARALLEL_MAX = 8
"""Calls of one step that run at a time."""


def result_id(message_id: str, index: int) -> str:
    """Return the id of a result's message: one for each call, whoever writes it."""
    return f"{message_id}.{index}"


class Calls:
    """The calls of one message, and what became of each."""

    def __init__(self, message_id: str, calls: tuple[ToolCall, ...]) -> None:
        """None has begun."""
        self._message_id = message_id
        self._calls = calls
        self._begun: set[int] = set()
        self._done: set[int] = set()

    def unfinished(self) -> list[Message]:
        """Return a result for each call that has none: not started, or outcome unknown."""
        return [
            self._result(index, ToolOutcome.UNKNOWN, prompts.RESULT_UNKNOWN)
            if index in self._begun
            else self._result(index, ToolOutcome.NOT_STARTED, prompts.RESULT_NOT_STARTED)
            for index in range(len(self._calls))
            if index not in self._done
        ]

    async def run(self, turn: Turn, record: Record, tools: Mapping[str, Tool], limits: TurnLimits) -> None:
        """Run them side by side and record each result as it comes."""
        room = asyncio.Semaphore(PARALLEL_MAX)

        async def run_one(index: int) -> None:
            async with room:
                self._begun.add(index)
                outcome, output = await run_call(self._calls[index], tools, limits, turn.session_id)
                text, blob = await shorten(record, output, limits.tool_output_bytes_max)
                await turn.append(self._result(index, outcome, text, blob))
                self._done.add(index)

        await run_all(run_one(index) for index in range(len(self._calls)))

    def _result(self, index: int, outcome: ToolOutcome, text: str, blob: str = "") -> Message:
        result = ToolResult(call_id=self._calls[index].id, text=text, outcome=outcome, blob=blob)
        return Message.make(Role.TOOL, [result], id=result_id(self._message_id, index))


async def run_call(
    call: ToolCall, tools: Mapping[str, Tool], limits: TurnLimits, session_id: str
) -> tuple[ToolOutcome, str]:
    """Run one call; whatever goes wrong is a result that the model can act on."""
    tool = tools.get(call.name)
    if tool is None:
        return ToolOutcome.ERROR, f"There is no tool {call.name!r}. There are: {', '.join(sorted(tools)) or 'none'}."
    try:
        arguments = msgspec.json.decode(call.arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        return ToolOutcome.ERROR, f"The arguments are not a JSON object: {error}"
    try:
        async with asyncio.timeout(limits.tool_seconds_max) as deadline:
            called = tool.run_in(session_id, arguments) if isinstance(tool, SessionTool) else tool.run(arguments)
            return ToolOutcome.OK, await called
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return ToolOutcome.ERROR, "The tool cancelled itself."
    except Exception as error:  # noqa: BLE001  # boundary: tool call
        if isinstance(error, TimeoutError) and deadline.expired():
            late = f"No result within {limits.tool_seconds_max:g} s; it may still have had an effect."
            return ToolOutcome.UNKNOWN, late
        return ToolOutcome.ERROR, f"{type(error).__name__}: {error}"


async def shorten(record: Record, output: str, bytes_max: int) -> tuple[str, str]:
    """Return what the model is given of an output, and the blob that holds all of it when that is less."""
    data = clean_text(output).encode()
    if len(data) <= bytes_max:
        return data.decode(), ""
    blob = await record.put_blob(data)
    head = data[: bytes_max * 3 // 4].decode(errors="ignore")
    tail = data[-(bytes_max // 4) :].decode(errors="ignore")
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return (
        f"{head}\n[Hansard: {left_out} of {len(data)} bytes left out here; all of it is kept as {blob}]\n{tail}",
        blob,
    )
