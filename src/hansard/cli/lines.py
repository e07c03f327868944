"""`hansard` without a terminal: a line of standard input is a message, and is answered before the next is read.

Standard output is the assistant's text, as with `-p`; all else goes to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading

from hansard.app.wiring import App
from hansard.cli.once import Output
from hansard.cli.process import EXIT_DONE, EXIT_FAILED, EXIT_READER_GONE, Options, run, silence_stdout
from hansard.cli.talk import Talk, find_session, opened
from hansard.domain.limits import ENTRY_BYTES_MAX
from hansard.errors import InvalidInput
from hansard.record.messages.entries import Chunk, Entry
from hansard.tasks import cancel_all, wait_for_first

READ_BYTES = 65536


class InputLines:
    """Lines of standard input, read from the descriptor by a daemon thread: nobody has to wait for it at the end.

    (Python's own buffered input is locked by whoever reads it, and aborts a process that leaves meanwhile.)
    """

    def __init__(self) -> None:
        self._rest = b""

    async def next(self) -> str | None:
        """Return the next line, or None at the end of the input."""
        while b"\n" not in self._rest and len(self._rest) <= ENTRY_BYTES_MAX:
            data = await self._read()
            if not data:
                break
            self._rest += data
        line, newline, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r") if line or newline else None

    @staticmethod
    async def _read() -> bytes:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[bytes] = loop.create_future()

        def give(data: bytes, why_not: str) -> None:
            if found.done():
                return
            if why_not:
                found.set_exception(InvalidInput(f"standard input cannot be read: {why_not}"))
            else:
                found.set_result(data)

        def read() -> None:
            data, why_not = b"", ""
            try:
                data = os.read(sys.stdin.fileno(), READ_BYTES)
            except OSError as error:
                why_not = error.strerror or type(error).__name__
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(give, data, why_not)

        threading.Thread(target=read, daemon=True).start()
        return await found


class OutputItems:
    """Items on their way to standard output, in order; `idle` when all of them are there."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._items: asyncio.Queue[Entry | Chunk] = asyncio.Queue()

    def put(self, item: Entry | Chunk) -> None:
        self._items.put_nowait(item)

    async def write(self) -> None:
        while True:
            item = await self._items.get()
            await self._output.show(item)
            self._items.task_done()

    async def idle(self) -> None:
        """Wait until everything that was taken is written."""
        await self._items.join()


async def converse_in_lines(app: App, talk: Talk, shown: OutputItems, *, follow: bool) -> None:
    """Answer line after line; who follows goes on when there is nothing more to say."""
    await answered(app, talk, shown)
    lines = InputLines()
    while (line := await lines.next()) is not None:
        await talk.take_line(line)
        await answered(app, talk, shown)
    if follow:
        await asyncio.Event().wait()


async def answered(app: App, talk: Talk, shown: OutputItems) -> None:
    """Wait until nothing runs, or what runs waits for an answer, and everything that is recorded was written."""
    waits = [asyncio.create_task(app.runner.settled(talk.session_id)), asyncio.create_task(talk.asked.wait())]
    await wait_for_first(*waits)
    await talk.caught_up()
    await shown.idle()


async def talk_in_lines(options: Options) -> int:
    async with opened(options) as app:
        shown = OutputItems(Output(json=options.json))
        talk = Talk(app, shown.put, shown.idle)
        tasks: list[asyncio.Task[None]] = [asyncio.create_task(shown.write()), asyncio.create_task(talk.failed())]
        try:
            if options.resume == "":
                raise InvalidInput("name the session to resume: hansard -r ID")
            if options.resume or options.continued:
                await talk.enter(await find_session(app, options.resume, follow=options.follow))
            tasks.append(asyncio.create_task(converse_in_lines(app, talk, shown, follow=options.follow)))
            await wait_for_first(*tasks)
        except BrokenPipeError:
            silence_stdout()
            return EXIT_READER_GONE
        finally:
            await cancel_all(*tasks)
            await talk.close()
    return EXIT_FAILED if talk.failed_turns else EXIT_DONE


def main(options: Options) -> int:
    return run(lambda: talk_in_lines(options))
