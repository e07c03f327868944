"""What outlives turns, when the settings change: new turns get what is set now, others keep theirs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec

from hansard import Record
from hansard.app.wiring import AgentWiring, Models
from hansard.domain.settings import Person, Settings, TurnLimits
from hansard.domain.settings.agent import Transcription
from hansard.ports.tool import ToolOutput
from tests.gateway.stage import write_script
from tests.tools.servers import by_stdio, environment

ECHO = "mcp__t__echo"


def children() -> set[int]:
    """The processes that this one started and that still run."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # that thread has ended
            found |= {int(each) for each in (task / "children").read_text().split()}
    return found


async def test_servers_of_before_serve_the_turns_of_before(home: Path, tmp_path: Path) -> None:
    """A server that is taken out of the settings is offered no longer, runs on for turns that began, and then ends."""
    # Beside the home, names that are made later cannot be used where Landlock confines.
    (ran := tmp_path / "ran").touch()
    before = Settings(model=f"scripted:{write_script(tmp_path / 'script')}", mcp={"t": by_stdio(ran)})
    after = msgspec.structs.replace(
        before,
        mcp={},
        limits=TurnLimits(person_turns_day_max=7),
        people={"ann": Person(persona="Be brief.")},
        transcription=Transcription(model="openai:whisper"),
    )
    over = asyncio.Event()
    known = children()
    async with Record.open(home) as record:
        wiring = AgentWiring(home, record, Models(home, before, {}), before, environment())
        old = wiring.agent()
        assert old.prepare is not None
        assert await old.prepare() == []
        assert ECHO in old.tools
        assert children() > known
        wiring.apply_settings(after, over.wait)
        new = wiring.agent()
        assert (ECHO in new.tools, new.prepare) == (False, None)
        assert new.policy.budget is not None
        assert new.policy.budget.person.turns == 7
        assert new.policy.choice("person:ann").persona == "Be brief."
        assert (old.transcriber, new.transcriber is None) == (None, False)
        output = await old.tools[ECHO].run({"text": "still here"})
        assert isinstance(output, ToolOutput)
        assert "still here" in output.text
        over.set()
        async with asyncio.timeout(120):
            while children() - known:  # noqa: ASYNC110 - a process ends when it ends
                await asyncio.sleep(0.05)
        await wiring.close()


async def test_leaving_ends_what_was_about_to_be_ended(home: Path, tmp_path: Path) -> None:
    """A process that is left while turns of before still run leaves no program behind, old or new."""
    settings = Settings(model=f"scripted:{write_script(tmp_path / 'script')}", mcp={"t": by_stdio(tmp_path / "ran")})
    known = children()
    async with Record.open(home) as record:
        wiring = AgentWiring(home, record, Models(home, settings, {}), settings, environment())
        for mcp in ({"u": by_stdio(tmp_path / "other")}, {}):
            agent = wiring.agent()
            assert agent.prepare is not None
            assert await agent.prepare() == []
            wiring.apply_settings(msgspec.structs.replace(settings, mcp=mcp), asyncio.Event().wait)
        assert children() > known
        await wiring.close()
        async with asyncio.timeout(120):
            while children() - known:  # noqa: ASYNC110 - a process ends when it ends
                await asyncio.sleep(0.05)
