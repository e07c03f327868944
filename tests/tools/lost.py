"""A process that dies in the middle of a turn, for tests of what becomes of it.

python -m tests.tools.lost HOME OPTIONS_AS_JSON
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hansard.domain.messages import Message, ToolCall
from hansard.record.api import Record
from hansard.record.questions import QuestionAsked
from tests.tools.servers import ROOT, environment

EXIT_CODE = 9


def lose_turn(
    home: Path,
    *,
    words: str = "",
    calls: Sequence[tuple[str, str, str]] = (),
    asked: str = "",
    claim_only: bool = False,
) -> None:
    """Let a process begin a turn in session s1, say this, call these tools (name, arguments, id), ask, and die."""
    options = json.dumps({"words": words, "calls": list(calls), "asked": asked, "claim_only": claim_only})
    ended = subprocess.run(
        [sys.executable, "-m", "tests.tools.lost", str(home), options],
        cwd=ROOT,
        env=environment(),
        timeout=120,
        check=False,
    )
    assert ended.returncode == EXIT_CODE


async def die(home: Path, words: str, calls: list[tuple[str, str, str]], asked: str, *, claim_only: bool) -> None:
    """Begin a turn and leave without a word of farewell."""
    async with Record.open(home) as record:
        if not claim_only:
            await record.create_session(id="s1", source="test", owner="person:admin")
            await record.accept([("s1", Message.user("go", author="person:admin"))], queue_turn=True)
        async with record.turn("s1", waiting="") as turn:
            if calls:
                async with turn.reply() as reply:
                    await reply.write(words)
                    for name, arguments, call_id in calls:
                        reply.add(ToolCall(id=call_id, name=name, arguments=arguments))
            elif words:
                async with turn.reply() as reply:
                    await reply.write(words)
                    await seen(record, words)
                    os._exit(EXIT_CODE)
            if asked:
                question = QuestionAsked(turn_id="", call_id=asked, message_id="", people=(("", ""),))
                await turn.ask(Message.notice("May I?"), question)
            os._exit(EXIT_CODE)


async def seen(record: Record, words: str) -> None:
    """Wait until words are durable."""
    async for item in record.follow("s1", 0):
        if words in getattr(item, "text", ""):
            return


if __name__ == "__main__":
    asyncio.run(die(Path(sys.argv[1]), **json.loads(sys.argv[2])))
