"""Where one person talks to a scripted model: a home, a script, a terminal; and the screens that they are to see."""

from __future__ import annotations

import difflib
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hansard import Message, Record, Status
from tests.acceptance.fresh_terminal import POLL_SECONDS, WAIT_SECONDS_MAX, Shell, install, machine
from tests.acceptance.stories_program import write_script

SNAPSHOTS = Path(__file__).with_name("snapshots")
WRITES = os.environ.get("HANSARD_SNAPSHOTS") == "write"
"""HANSARD_SNAPSHOTS=write keeps the screens of this run as what is expected. Look at each of them before it is kept."""

STILL_SECONDS = 1.5
"""A screen that did not change for so long is kept: the status line is brought up to date twice a second."""

ROWS = {80: 36, 120: 40}
SCRIPT = "story.toml"

PLACEHOLDERS = (
    (re.compile(r"\b\d{8}-\d{1,6}(?:-[a-z0-9]{0,6})?(?![a-z0-9-])|(?<=· )\d{1,8}-?(?=…)"), "YYYYMMDD-HHMMSS-xxxxxx"),
    (re.compile(r"(?<=· )[2-9abcdefghjkmnpqrstvwxyz]{1,6}(?=…?$)", re.MULTILINE), "xxxxxx"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?: [\d:]{1,5})?"), "YYYY-MM-DD HH:MM"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+"), "PORT"),
)
"""What differs from run to run, and what stands in its place: as wide, so that columns stay where they are, and cut
where the screen cuts it."""

MARKDOWN = """\
# Tea

Some *words* first, with **bold** ones, `code` and a [link](http://example.com/tea). They are \
more than fit on one line, whatever the width of the terminal is, so that one can see where they are broken.

1. Boil the water
2. Warm the pot
   - not for long
   - with some of the water

> Tea is a work of art and needs a master hand to bring out its noblest qualities.

```python
def brew(minutes: int) -> str:
    return "tea" if minutes >= 3 else "water"
```

| Leaf   | Minutes | Note       |
|--------|--------:|------------|
| Assam  |       4 | with milk  |
| Sencha |       2 | never boil |

That is all.
"""

PIECES_BEFORE_STALL = len(MARKDOWN[: MARKDOWN.index("| Sencha")].split())
"""Where the answer stops half-way: in the middle of its table."""

FIGURES = {"input_tokens": 1200, "output_tokens": 134, "cost_micros": 5600}
HALF = {"text": MARKDOWN, "stall": {"after_pieces": PIECES_BEFORE_STALL}}
WHOLE = {"text": MARKDOWN, "usage": FIGURES}
SHORT = {"text": "You said: {last}", "usage": FIGURES}


class Desk(NamedTuple):
    """One person's machine: nothing of whoever runs the tests is there."""

    folder: Path

    @property
    def home(self) -> Path:
        """Where the record is when nobody says otherwise."""
        return self.folder / "user" / ".hansard"

    @property
    def place(self) -> Path:
        """Where the person works."""
        return self.folder / "place"

    def script(self, *answers: Mapping[str, object]) -> None:
        """Let the model answer so."""
        self.place.mkdir(exist_ok=True)
        write_script(self.place / SCRIPT, *answers)

    def shell(self, columns: int = 80, name: str = "terminal", **variables: str) -> Shell:
        """Open a terminal in which `hansard` talks to the script, unless the variables say otherwise."""
        self.place.mkdir(exist_ok=True)
        (self.folder / "user").mkdir(exist_ok=True)
        path = install(self.folder / "bin", Path(sys.executable).with_name("hansard"))
        own = machine(self.folder / "user", PATH=path, TZ="UTC", HANSARD_MODEL=f"scripted:{SCRIPT}")
        given = {key: value for key, value in {**own, **variables}.items() if value}
        return Shell(self.folder / name, self.place, given, columns=columns, rows=ROWS[columns])


async def write_history(home: Path) -> None:
    """Fill a home with four sessions: with a title and without, open and ended, short and long."""
    async with Record.open(home) as record:
        for number, (title, question, answer) in enumerate(HISTORY):
            session_id = f"2026110{number + 1}-090000-hhhhh{number}"
            await record.create_session(id=session_id, source="cli", title=title)
            await record.append(session_id, Message.user(question))
            async with record.turn(session_id) as turn, turn.reply() as reply:
                await reply.write(answer)
            if number == 1:
                await record.end_session(session_id, "new")


HISTORY = (
    (None, "What is the capital of Italy, and why is it not Milan?", "Rome."),
    ("Trip to Rome", "Where shall we go?", "To the **Pantheon**, and then for an ice cream.\n"),
    (None, "A question that is much longer than the room that a list has for it, whatever its width is", "So?"),
    ("Übersetzung 世界", "Translate: the world", "- Deutsch: *die Welt*\n- 日本語: 世界\n"),
)


async def conversation(home: Path) -> list[tuple[str, str, Status]]:
    """Return what was said in the latest session, notices included, and how each message ended."""
    async with Record.open(home) as record:
        latest, *_ = await record.sessions()
        return [(str(m.role), m.text, m.status) for m in await record.load_transcript(latest.id)]


async def assert_clean(home: Path) -> None:
    """Both legs of the record agree."""
    async with Record.open(home) as record:
        report = await record.verify()
    assert report.ok, report.findings


def with_placeholders(screen: str) -> str:
    """Return a screen without what differs from run to run."""
    for found, placeholder in PLACEHOLDERS:
        screen = found.sub(lambda match: placeholder[: len(match[0])], screen)  # noqa: B023 - called at once
    return "\n".join(line.rstrip() for line in screen.rstrip().split("\n")) + "\n"


def assert_shows(shell: Shell, seen: str, name: str, columns: int) -> str:
    """Wait until some words are seen, and then until the screen is the one that is kept under a name; return it."""
    path = SNAPSHOTS / f"{name}-{columns}.txt"
    shell.see(seen)
    if WRITES:
        screen = still(shell)
        path.parent.mkdir(exist_ok=True)
        path.write_text(with_placeholders(screen), encoding="utf-8")
        return screen
    expected = path.read_text(encoding="utf-8")
    until = time.monotonic() + WAIT_SECONDS_MAX
    while with_placeholders(screen := shell.screen()) != expected:
        if time.monotonic() >= until:
            lines = difflib.unified_diff(expected.splitlines(), with_placeholders(screen).splitlines(), "kept", "shown")
            raise AssertionError(f"{path.name} is not what is shown:\n" + "\n".join(lines))
        time.sleep(POLL_SECONDS)
    return screen


def still(shell: Shell) -> str:
    """Wait until the screen has stopped changing; return it."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    screen, since = shell.screen(), time.monotonic()
    while time.monotonic() - since < STILL_SECONDS:
        assert time.monotonic() < until, f"it never stops changing:\n{screen}"
        time.sleep(POLL_SECONDS)
        if (now := shell.screen()) != screen:
            screen, since = now, time.monotonic()
    return screen
