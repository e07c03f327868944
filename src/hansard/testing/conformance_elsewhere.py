"""Another process for the conformance suite: `elsewhere(open_record)` runs a coroutine function of a contract there.

The function, its arguments and `open_record` travel by pickle, so all of them must be importable by name. What the
function tells with `tell` comes back line by line, also when the process is killed: so a contract knows what was
acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from typing import TYPE_CHECKING, Any

from hansard.testing.conformance_kit import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hansard.testing.conformance_kit import Elsewhere, OpenRecord

ELSEWHERE_SECONDS_MAX = 120.0


def elsewhere(open_record: OpenRecord) -> Elsewhere:
    """Return a runner of coroutine functions `f(record, *arguments)` in a process that opens the record itself.

    It returns the lines that the function told. A process that ends in another way than by returning or by `die`
    breaks the contract.
    """

    async def run(function: Callable[..., Awaitable[None]], *arguments: str) -> list[str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(ELSEWHERE_SECONDS_MAX):
                told, trouble = await process.communicate(pickle.dumps((open_record, function, arguments)))
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode not in {0, -signal.SIGKILL}:
            message = f"{function.__name__} in another process ended with {process.returncode}: {trouble.decode()}"
            raise ContractBroken(message)
        return told.decode().splitlines()

    return run


def tell(line: str) -> None:
    """Say something to the process that started this one; it arrives also when this one dies next."""
    sys.stdout.buffer.write(f"{line}\n".encode())
    sys.stdout.buffer.flush()


def die() -> None:
    """Die as a crash does: nothing is flushed, closed or caught."""
    os.kill(os.getpid(), signal.SIGKILL)


async def _main() -> None:
    work: tuple[OpenRecord, Callable[..., Awaitable[None]], tuple[Any, ...]]
    work = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - from the process that started this one
    open_record, function, arguments = work
    async with open_record() as record:
        await function(record, *arguments)


if __name__ == "__main__":
    asyncio.run(_main())
