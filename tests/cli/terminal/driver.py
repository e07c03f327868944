"""A conversation without a record, to look at the screen: what is typed is shown, and some words start a play.

`python -m tests.cli.terminal.driver LOG [plain]` writes every submitted text, as JSON, to the file LOG.
The text `words 0.01 70` plays "words" with that many seconds between its pieces, and after "word70" waits for the file
LOG.go before it plays on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from prompt_toolkit.completion import Completion

from hansard.cli.terminal.completion import SessionChoice, complete
from hansard.cli.terminal.picker import pick
from hansard.cli.terminal.screen import Screen
from hansard.domain.messages import Role, Status, ToolCall
from tests.cli.terminal.items import added, chunk, opened, sealed
from tests.cli.terminal.samples import CJK, RICH, listing, paragraph

PLAYS = {
    "rich": RICH,
    "code": listing(5000),
    "long": paragraph(3000),
    "cjk": CJK,
    "words": paragraph(400),
    "escape": "before \x1b[2J\x1b]0;owned\x07 after \u202eevil\n",
}
COMMANDS = {"/resume": "go on with another session", "/retry": "answer again", "/help": "what there is"}
SESSIONS = [
    SessionChoice(
        id="20261115-201233-k3v9qd",
        title="Trip to Rome",
        text="where to go",
        when="yesterday",
        messages=12,
        source="cli",
    ),
    SessionChoice(
        id="20261114-101010-aaaaaa", title="", text="how do I boil an egg", when="Friday", messages=2, source="matrix"
    ),
]
PIECE_CHARACTERS = 6


class Conversation:
    """The other side of the screen."""

    def __init__(self, log: Path, *, colour: bool) -> None:
        """Nothing plays yet."""
        self.log = log
        self.playing: asyncio.Task[None] | None = None
        self.background: set[asyncio.Task[None]] = set()
        self.plays = 0
        self.screen = Screen(
            submit=self.submit,
            interrupt=self.interrupt,
            status=lambda: f"driver · {self.plays} plays · record: in order",
            completions=self.complete,
            history_path=log.with_suffix(".history"),
            colour=colour,
        )

    def write(self, text: str) -> None:
        """Keep what happened where a test can read it."""
        with self.log.open("a") as file:
            file.write(json.dumps(text) + "\n")

    def submit(self, text: str) -> None:
        """Show what was typed as if it were read back, and play if it names a play."""
        self.write(text)
        self.screen.show(added(Role.USER, text))
        word, _, rest = text.partition(" ")
        pace, _, number = rest.partition(" ")
        if word == "fail":
            message = "the handler failed"
            raise RuntimeError(message)
        if word in PLAYS:
            self.plays += 1
            self.playing = asyncio.create_task(self.play(PLAYS[word], float(pace or 0), number))
            self.background.add(self.playing)

    async def play(self, text: str, pause_seconds: float, number: str) -> None:
        """Stream a text as a model would. After the word of that number wait for LOG.go."""
        message_id = f"m{self.plays}"
        self.screen.show(opened(message_id))
        shown = ""
        status = Status.INTERRUPTED
        try:
            for start in range(0, len(text), PIECE_CHARACTERS):
                piece = text[start : start + PIECE_CHARACTERS]
                self.screen.show(chunk(piece, len(shown.encode()), message_id=message_id))
                shown += piece
                while number and f"word{number}" in shown and not self.is_to_go_on():  # noqa: ASYNC110 - a file
                    await asyncio.sleep(0.01)
                await asyncio.sleep(pause_seconds)
            status = Status.COMPLETE
        finally:
            call = ToolCall(id="c1", name="done", arguments='{"play": true}')
            self.screen.show(sealed(shown, call, message_id=message_id, status=status))
            self.screen.refresh()
            self.write("played")

    def is_to_go_on(self) -> bool:
        """Whether a play that waits in the middle may play on."""
        return self.log.with_suffix(".go").exists()

    def interrupt(self) -> bool:
        """Stop the play."""
        if self.playing is None or self.playing.done():
            return False
        self.write("interrupted")
        return self.playing.cancel()

    async def complete(self, text: str) -> list[Completion]:
        """Complete commands and sessions."""
        return complete(text, commands=COMMANDS, sessions=SESSIONS)


async def main(arguments: list[str]) -> None:
    """Pick a session or talk."""
    log = Path(arguments[0])
    if "pick" in arguments:
        many = [SessionChoice(id=f"20261101-0000{number:02}-zzzzzz", title=f"Session {number}") for number in range(60)]
        chosen = await pick([*SESSIONS, *many], title="Which session?")
        log.write_text(json.dumps(chosen) + "\n")
        return
    conversation = Conversation(log, colour="plain" not in arguments)
    conversation.screen.note("ready")
    try:
        await conversation.screen.run()
        conversation.write("left")
    except RuntimeError as error:
        print(f"raised: {error}")  # noqa: T201 - what the terminal shows after the screen is restored
    print("goodbye")  # noqa: T201 - as above


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
