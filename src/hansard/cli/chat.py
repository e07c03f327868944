"""`hansard` in a terminal: what is on the screen is what a follower read from the record."""

from __future__ import annotations

import asyncio
import shutil
import sys

import click
from prompt_toolkit.completion import Completion

from hansard.app.wiring import App
from hansard.cli.printing import wants_colour
from hansard.cli.process import EXIT_DONE, Options, run
from hansard.cli.talk import Talk, find_session, opened, owner_of
from hansard.cli.terminal.completion import SessionChoice, complete
from hansard.cli.terminal.picker import pick
from hansard.cli.terminal.screen import Screen
from hansard.errors import HansardError
from hansard.intake.commands import registry as commands
from hansard.intake.commands.sessions import first_words
from hansard.tasks import wait_for_first
from hansard.tools.mcp import ServerTrouble

PICKED_MAX = 200
"""Sessions offered by the picker."""

COMPLETED_MAX = 20
"""Sessions offered as completions."""

WELCOME = "Hansard. /help lists the commands; Ctrl-C interrupts, twice leaves."
DEMO = "This is a small demo model without tools: it talks, and knows little. hansard models shows how to use another."
NOT_TAKEN = "Your message was not taken; the arrow key up brings it back."
"""Fixed notices without words of a conversation: all that is shown before it is recorded; it is once it can be."""


class TerminalChat:
    """A conversation in a terminal."""

    def __init__(self, app: App, options: Options) -> None:
        self._app = app
        self.talk = Talk(app)
        self._stopping: set[asyncio.Task[None]] = set()
        self.screen = Screen(
            submit=self.talk.submit,
            interrupt=self._interrupt,
            status=self.talk.status,
            completions=self._complete,
            history_path=options.home / "history",
            colour=wants_colour(app.settings.terminal.colour),
            reasoning=app.settings.terminal.reasoning,
        )
        self.talk.show, self.talk.drawn = self.screen.show, self.screen.drawn

    async def run(self) -> None:
        tasks = [
            asyncio.create_task(self.screen.run()),
            asyncio.create_task(self.talk.take_typed(self._refuse)),
            asyncio.create_task(self.talk.keep_status(self.screen.refresh, self._label)),
            asyncio.create_task(self.talk.failed()),
        ]
        try:
            await wait_for_first(*tasks)
        finally:
            await self.talk.close()

    def _refuse(self, error: HansardError) -> None:
        words = str(error)
        self.note(f"{words[:1].upper()}{words[1:]}. {NOT_TAKEN}")

    def _label(self) -> None:
        self.note(DEMO)

    def note(self, text: str) -> None:
        """Show one of the notices that are shown before they are recorded."""
        self.screen.note(text)
        self.talk.told(text)

    def report(self, error: BaseException) -> None:
        """Show what went wrong beyond a turn's own failure, which is in the record.

        What a server of tools says on its standard error is for this terminal alone: a chat may follow the session.
        """
        if isinstance(error, ServerTrouble):
            self.screen.note(f"{error}")
        else:
            self.note(f"{error}")

    def _interrupt(self) -> bool:
        if not self.talk.answering:
            return False
        task = asyncio.create_task(self.talk.interrupt())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
        return True

    async def _complete(self, text: str) -> list[Completion]:
        """Return what a line may become: commands, and after /resume the sessions."""
        wants_sessions = text.startswith("/resume ")
        sessions = await session_lines(self._app, COMPLETED_MAX) if wants_sessions else []
        return complete(text, commands=commands.summaries(), sessions=sessions)


async def session_lines(app: App, limit: int) -> list[SessionChoice]:
    return [
        SessionChoice(
            id=session.id,
            title=session.title or "",
            text=await first_words(app.record, session.id),
            when=session.active_at.astimezone().strftime("%Y-%m-%d %H:%M"),
            messages=session.messages,
            source=session.source,
        )
        for session in await app.record.sessions(owner=owner_of(app), limit=limit)
    ]


async def choose(app: App) -> str | None:
    colour = wants_colour(app.settings.terminal.colour)
    return await pick(await session_lines(app, PICKED_MAX), title="Resume a session", colour=colour)


async def chat(options: Options) -> int:
    chats: list[TerminalChat] = []

    def report(_session_id: str, error: BaseException) -> None:
        for each in chats:
            each.report(error)

    async with opened(options, report, tells_trouble=False) as app:
        resume = options.resume
        if resume == "":
            resume = await choose(app)
            if resume is None:
                return EXIT_DONE
        conversation = TerminalChat(app, options)
        chats.append(conversation)
        if resume or options.continued:
            await conversation.talk.enter(await find_session(app, resume, follow=options.follow))
        else:
            conversation.note(WELCOME)
        if conversation.screen.history_trouble:
            conversation.note(conversation.screen.history_trouble)
        await conversation.run()
    if conversation.talk.session_id:
        click.echo(
            f"{sys.argv[0] if '/' in sys.argv[0] and not shutil.which('hansard') else 'hansard'} -c goes on with this."
        )
    return EXIT_DONE


def main(options: Options) -> int:
    return run(lambda: chat(options))
