"""A process that appends as much as it is told to: `python -m tests.record.search.writer HOME NAME SEED`.

Each line of its standard input is a number of messages to append. It writes one line for each of them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from pathlib import Path

from hansard import Message, Record
from tests.record.search.samples import WORDS

SHARED = "shared"


async def write(home: Path, name: str, seed: int) -> None:
    """Append messages of random words to a session of one's own and to a shared one; take some back."""
    rng = random.Random(seed)
    async with Record.open(home) as record:
        await record.create_session(id=name, source="test")
        await record.create_session(id=SHARED, source="test")
        numbers = itertools.count()
        while count := int(await asyncio.to_thread(sys.stdin.readline) or 0):
            for number in itertools.islice(numbers, count):
                await append(record, name, number, rng)


async def append(record: Record, name: str, number: int, rng: random.Random) -> None:
    """Append one message, and tell so."""
    session = rng.choice((name, SHARED))
    text = " ".join(rng.choices(WORDS, k=6))
    message = Message.user(f"{text} said by {name}", id=f"{name}-{number}")
    await record.append(session, message)
    if rng.random() < 0.1:
        await record.messages.undo(session, [message.id])
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
