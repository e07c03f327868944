"""Another process that spends from the same day: `python -m tests.engine.spender HOME LIMIT NUMBER SESSIONS`.

It says `ready`, waits for a line, asks in all its sessions at once, and writes how each turn ended as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from hansard.domain.budgets import Allowance, Budget, Usage
from hansard.domain.messages import Message
from hansard.domain.policy import Policy
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.record.api import Record
from tests.engine.stage import QUICK, PlayedModel, fixed

USED = Usage(input_tokens=60, output_tokens=40, cost_micros=10_000)

BUDGETS = {
    "turns": Budget(together=Allowance(turns=10)),
    "tokens": Budget(person=Allowance(tokens=1000)),
    "dollars": Budget(together=Allowance(cost_micros=100_000)),
}
"""Ten turns each, of a hundred tokens and a cent."""


async def spend(home: Path, limit: str, number: int, sessions: int) -> list[str]:
    """Ask in all sessions at once; return how each turn ended."""
    errors: list[BaseException] = []
    async with Record.open(home) as record:
        model = PlayedModel(["ok", USED])
        agent = Agent(
            record=record, models=fixed([model]), tools={}, limits=QUICK, policy=Policy(budget=BUDGETS[limit])
        )
        runner = Runner(agent, lambda _session_id, error: errors.append(error))
        ids = [f"2026-{number}-{each}" for each in range(sessions)]
        for session_id in ids:
            await record.create_session(id=session_id, source="test", owner="person:ann")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)

        async def ask(session_id: str) -> None:
            accepted = await record.accept([(session_id, Message.user("go"))], queue_turn=True)
            runner.wake(session_id, accepted.turns[0].id)

        await asyncio.gather(*(ask(session_id) for session_id in ids))
        async with asyncio.timeout(120):
            await runner.idle()
        await runner.close()
        assert errors == [], errors
        return [(await record.turns.list(session_id))[-1].state.value for session_id in ids]


def main() -> None:
    """Spend."""
    home, limit, number, sessions = sys.argv[1:]
    states = asyncio.run(spend(Path(home), limit, int(number), int(sessions)))
    sys.stdout.write(json.dumps(states) + "\n")


if __name__ == "__main__":
    main()
