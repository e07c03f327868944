"""The line protocol of a worker: one JSON request a line on standard input, one JSON answer a line on standard output.

A worker is one process that holds one subject (the record, a floor or a peer). The harness tells it what to do and
when; the measuring happens here, inside the worker, so that no pipe is ever inside a measured time.
"""

import argparse
import asyncio
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from worker_operations import OPERATIONS
from worker_subject import Subject


def serve(make_subject: Callable[[argparse.Namespace], Subject]) -> None:
    """Answer requests until standard input ends. Options such as `--group 100` choose a variant of the subject."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--group", type=int, default=1, help="messages a transaction (floors)")
    parser.add_argument("--decoder", choices=("json", "msgspec"), default="json", help="how raw rows are decoded")
    arguments = parser.parse_args()
    # Libraries may print; only answers may reach the pipe that the harness reads.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    asyncio.run(_serve(make_subject(arguments), answers.write))


async def _serve(subject: Subject, answer: Callable[[str], object]) -> None:
    """Read in a thread: the event loop stays alive between requests, as it does in a program that uses the subject."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        operation: Callable[..., Awaitable[Any]] = OPERATIONS[request["operation"]]
        try:
            reply = {"ok": True, "result": await operation(subject, **request["arguments"])}
        except Exception as error:  # noqa: BLE001 - the process edge: the harness reports it and goes on with others
            traceback.print_exc()
            reply = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        answer(json.dumps(reply) + "\n")
