"""One person, one history: what was said on Matrix is there in the terminal, for whom the settings link."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from hansard.cli.main import cli
from hansard.domain.access import Standing
from hansard.domain.arrivals import Arrival, IntakeRules, Origin
from hansard.domain.chats import message_id_of, person_owner
from hansard.domain.messages import Message
from hansard.record.api import Record

ANN = "@ann:example.org"
AGENT = "@hansard:example.org"
CHAT = "matrix:room:!ann:example.org"


async def say_on_matrix(home: Path, name: str) -> str:
    """Ann says something in her chat, and nobody answers; return the session."""
    origin = Origin(
        channel="matrix",
        account=AGENT,
        event_id="$1",
        key=CHAT,
        chat=CHAT,
        owner=person_owner("matrix", ANN, name),
        identity=ANN,
        standing=Standing.LISTED,
    )
    message = Message.user("from Matrix", id=message_id_of("matrix", AGENT, "$1"), author=ANN, chat=CHAT)
    arrival = Arrival(origin=origin, said=(("", message),))
    async with Record.open(home) as record:
        received = await record.intake.receive(arrival, IntakeRules())
        await record.turns.stop(received.session_id, "nobody answers", queued=True)
        return received.session_id


async def words(home: Path, session_id: str) -> list[str]:
    """What people said in a session."""
    async with Record.open(home) as record:
        return [message.text for message in await record.load_transcript(session_id) if message.role == "user"]


@pytest.mark.parametrize(("name", "is_linked"), [("ann", True), ("", False)])
def test_continue_finds_what_was_said_on_matrix(home: Path, name: str, *, is_linked: bool) -> None:
    """`hansard -c` goes on in the session of the chat when [people] links both; otherwise there is none."""
    session_id = asyncio.run(say_on_matrix(home, name))
    (home / "answers.toml").write_text('[[answers]]\ntext = "hello"\n')
    if is_linked:
        (home / "config.toml").write_text(f'[people.{name}]\nmatrix = ["{ANN}"]\nterminal = true\n')
    model = f"scripted:{home / 'answers.toml'}"
    CliRunner().invoke(
        cli, ["--home", str(home), "-c", "-m", model, "-p", "from the terminal"], env={"HANSARD_HOME": ""}
    )
    found = asyncio.run(words(home, session_id))
    assert found == (["from Matrix", "from the terminal"] if is_linked else ["from Matrix"])
