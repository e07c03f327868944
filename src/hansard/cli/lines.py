"""`hansard` without a terminal: a line of standard input is a message, and is answered before the next is read.

Standard output is the assistant's text, as with `-p`; all else goes to standard error.
"""

from __future__ import annotations

import asyncio

from hansard.app.wiring import App
from hansard.cli.once import Output
from hansard.cli.process import EXIT_DONE, EXIT_FAILED, EXIT_READER_GONE, Options, run, silence_stdout
from hansard.cli.talk import Talk, find_session, opened
from hansard.cli.terminal.plain import input_lines
from hansard.errors import InvalidInput
from hansard.record.messages.entries import Chunk, Entry
from hansard.tasks import cancel_all, wait_for_first

Shown = asyncio.Queue[Entry | Chunk]
"""Items on their way to standard output, in order; it is joined when all of them are there."""


async def write_items(shown: Shown, output: Output) -> None:
    while True:
        item = await shown.get()
        await output.show(item)
        shown.task_done()


async def converse_in_lines(app: App, talk: Talk, shown: Shown, *, follow: bool) -> None:
    """Answer line after line; who follows goes on when there is nothing more to say."""
    await answered(app, talk, shown)
    async for line in input_lines():
        await talk.take_line(line)
        await answered(app, talk, shown)
    if follow:
        await asyncio.Event().wait()


async def answered(app: App, talk: Talk, shown: Shown) -> None:
    """Wait until nothing runs, or what runs waits for an answer, and everything that is recorded was written."""
    waits = [asyncio.create_task(app.runner.settled(talk.session_id)), asyncio.create_task(talk.asked.wait())]
    await wait_for_first(*waits)
    await talk.caught_up()
    await shown.join()


async def talk_in_lines(options: Options) -> int:
    async with opened(options) as app:
        shown = Shown()
        talk = Talk(app, shown.put_nowait, shown.join)
        writing = asyncio.create_task(write_items(shown, Output(json=options.json)))
        tasks: list[asyncio.Task[None]] = [writing, asyncio.create_task(talk.failed())]
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
