"""A follower of the crash ring: `python -m tests.crash.follower HOME [--positions JSON]`.

It follows every session of a home from the start, or from the positions it is given, and writes each entry and chunk
to standard output as one JSON line. What has left through that pipe is what was shown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from pathlib import Path

from hansard import Chunk, Record

LOOK_SECONDS = 0.05


def show(facts: dict[str, object]) -> None:
    """Show one item, and when: one line, one write."""
    os.write(1, json.dumps({"at": time.monotonic(), **facts}).encode() + b"\n")


async def follow(record: Record, session: str, after: str | int) -> None:
    """Show everything that a session is given from a position on."""
    async for item in record.follow(session, after):
        facts: dict[str, object] = {"session": session, "position": item.position, "text": item.text}
        if isinstance(item, Chunk):
            facts |= {"message": item.message_id, "offset": item.offset}
        else:
            facts |= {"id": item.id, "seq": item.seq, "kind": item.kind}
            if item.kind == "message.sealed":
                facts |= {"message": getattr(item.body, "message_id", ""), "status": getattr(item.body, "status", "")}
        show(facts)


async def main() -> None:
    """Follow until killed; sessions that appear later are followed too."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--positions", type=json.loads, default={})
    options = parser.parse_args()
    known: set[str] = set()
    async with Record.open(options.home) as record, asyncio.TaskGroup() as group:
        show({"what": "ready", "session": ""})
        while True:
            for session in await record.sessions():
                if session.id not in known:
                    known.add(session.id)
                    group.create_task(follow(record, session.id, options.positions.get(session.id, 0)))
            await asyncio.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    asyncio.run(main())
