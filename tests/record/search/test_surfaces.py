"""Every surface of search finds the same: the record, the command line, /search, and the model's tool."""

from __future__ import annotations

import random
import re
from pathlib import Path

import msgspec
import pytest

from hansard import Message, Record
from hansard.app.wiring import make_tools
from hansard.cli.search import find
from hansard.domain.messages import Text, ToolCall, ToolOutcome
from hansard.domain.settings import TurnLimits
from hansard.engine.calls import run_call
from hansard.errors import NotFound
from hansard.intake.commands.registry import run_command
from hansard.intake.commands.scene import CommandScene
from hansard.intake.speak import CommandLine, parse
from hansard.ports.tool import PlacedTool, ToolScene
from hansard.tools.builtin import SessionSearch
from tests.record.search.samples import WORDS
from tests.record.search.scene import index_all, index_held

ADA, BOB, ROOM = "person:ada", "person:bob", "room:!x:server"
OWNERS = {"ada1": ADA, "ada2": ADA, "bob": BOB, "room": ROOM}


async def run_in(tool: SessionSearch, session_id: str, arguments: dict[str, object]) -> str:
    """Call the tool as it is called in a session."""
    return (
        await tool.at(ToolScene(session_id=session_id, owner=OWNERS.get(session_id, "person:admin"))).run(arguments)
    ).text


async def fill(record: Record, rng: random.Random) -> None:
    """Let several people and a room talk in words of every script."""
    for name, owner in OWNERS.items():
        await record.create_session(id=name, source="test", owner=owner)
        said = [(name, Message.user(" ".join(rng.choices(WORDS, k=5)), id=f"{name}-{number}")) for number in range(30)]
        await record.accept(said)


@pytest.mark.loss("K7", "J6")
async def test_surfaces_agree(home: Path, seed: int) -> None:
    """On a hundred queries the tool and /search find what `Record.search` finds for that owner, in that order."""
    rng = random.Random(seed)
    async with Record.open(home) as record:
        await fill(record, rng)
        index_all(record)
        tool = SessionSearch(record)
        with index_held(home):  # weights change when something is indexed, and with them the order
            for _ in range(100):
                query, session = rng.choice(WORDS), rng.choice(list(OWNERS))
                owner = OWNERS[session]
                hits = [(hit.session_id, hit.seq) for hit in await record.search(query, limit=10, owner=owner)]
                told = await run_in(tool, session, {"query": query})
                assert re.findall(r"^(\w+) #(\d+) ", told, re.MULTILINE) == [(name, str(seq)) for name, seq in hits]
                found = await find(record, query, None, {"owner": owner, "limit": 10})
                assert [(hit.session_id, hit.seq) for hit in found.hits] == hits
                outcome = await run_command(
                    CommandScene(record=record, session_id=session, owner=owner),
                    f"/search {query}",
                    CommandLine("search", query),
                )
                assert list(outcome.listed) == [name for name, _ in hits]
                assert {OWNERS[name] for name, _ in hits} <= {owner}


@pytest.mark.loss("J6")
async def test_the_tool_sees_what_the_owner_may_see(home: Path) -> None:
    """In a room only that room's words are searched, read or listed; a person's are that person's."""
    async with Record.open(home) as record:
        for name, owner in OWNERS.items():
            await record.create_session(id=name, source="test", owner=owner, title=f"title of {name}")
            await record.append(name, Message.user(f"secret of {name}"))
        tool = SessionSearch(record)
        for here, owner in OWNERS.items():
            own = {name for name, other in OWNERS.items() if other == owner}
            searched, listed = await run_in(tool, here, {"query": "secret"}), await run_in(tool, here, {})
            for name in OWNERS:
                assert (f"secret of {name}" in searched) == (name in own)
                assert (f"title of {name}," in listed) == (name in own)
                for asked in (name, f"title of {name}"):
                    if name in own:
                        assert f"secret of {name}" in await run_in(tool, here, {"session": asked})
                        assert f"secret of {name}" in await run_in(tool, here, {"session": asked, "query": "secret"})
                    else:
                        with pytest.raises(NotFound):
                            await run_in(tool, here, {"session": asked, "query": "secret"})
                        with pytest.raises(NotFound):
                            await run_in(tool, here, {"session": asked, "around": 2})


@pytest.mark.loss("D19")
async def test_the_tool_reads_around_what_it_found(home: Path) -> None:
    """The number of a hit is where to read: the message whole, those around it, and nothing that was undone."""
    async with Record.open(home) as record:
        await record.create_session(id="s", source="test", title="Trip")
        for number in range(40):
            await record.append("s", Message.user(f"message {number} " + "x" * 1000 * (number == 20), id=f"m{number}"))
        async with record.turn("s") as turn, turn.reply() as reply:
            await reply.write("an answer about the harbour")
        await record.messages.undo("s", ["m19"])
        tool = SessionSearch(record)
        found = await run_in(tool, "s", {"query": '"message 20"', "session": "Trip"})
        number = int(re.findall(r"s #(\d+)", found)[0])
        read = await run_in(tool, "s", {"session": "s", "around": number})
        assert "x" * 1000 in read
        assert re.findall(r"user: message (\d+)", read) == [str(each) for each in range(11, 29) if each != 19]
        assert "message 39" in await run_in(tool, "s", {"session": "s"})
        harbour = await run_in(tool, "s", {"query": "harbour"})
        read = await run_in(tool, "s", {"session": "s", "around": int(re.findall(r"s #(\d+)", harbour)[0])})
        assert "assistant: an answer about the harbour" in read
        assert await run_in(tool, "s", {"query": "nowhere", "tools": True}) == "Nothing was found."
        assert "(" not in (await run_in(tool, "s", {})).splitlines()[-1].replace("(nothing said)", "(")


async def test_the_tool_looks_into_tools_when_asked(home: Path) -> None:
    """Calls and results of tools are found when the model asks for them."""
    async with Record.open(home) as record:
        await record.create_session(id="s", source="test")
        call = ToolCall(id="c", name="read_file", arguments='{"path": "/etc/hosts"}')
        await record.append("s", Message.assistant([Text("let me look"), call]))
        tool = SessionSearch(record)
        assert "tool calls and their results were not looked into" in await run_in(tool, "s", {"query": "hosts"})
        assert "/etc/hosts" in await run_in(tool, "s", {"query": "hosts", "tools": True})


async def test_the_tool_is_wired(home: Path) -> None:
    """The model is offered the tool, and a call of it runs in the session of the turn; without one it sees nothing."""
    async with Record.open(home) as record:
        await record.create_session(id="s", source="test", owner=ADA)
        await record.append("s", Message.user("a word"))
        tools = make_tools(record)
        tool = tools["session_search"]
        assert isinstance(tool, PlacedTool)
        call = ToolCall(id="c", name="session_search", arguments='{"query": "word"}')
        here = {"session_search": tool.at(ToolScene(session_id="s", owner=ADA))}
        outcome, output = await run_call(call, here, TurnLimits())
        assert (outcome, "user: a word" in output.text) == (ToolOutcome.OK, True)
        assert (await run_call(call, tools, TurnLimits()))[0] == ToolOutcome.ERROR
        missing = ToolCall(id="c", name="session_search", arguments='{"session": "nowhere"}')
        assert (await run_call(missing, here, TurnLimits()))[0] == ToolOutcome.ERROR


async def test_the_command_says_what_to_do_next(home: Path) -> None:
    """/search lists what was found, each with a number that /resume takes; alone, it says how to use it."""
    async with Record.open(home) as record:
        for name in ("here", "there"):
            await record.create_session(id=name, source="test", owner=ADA)
        await record.append("there", Message.user("long ago, " * 30 + "the ferry was late"))
        scene = CommandScene(record=record, session_id="here", owner=ADA)

        async def command(text: str, scene: CommandScene = scene) -> tuple[str, tuple[str, ...], str]:
            parsed = parse(text)
            assert parsed is not None
            outcome = await run_command(scene, text, parsed)
            return outcome.text, outcome.listed, outcome.session_id

        text, listed, _ = await command("/search ferry")
        assert re.match(r" 1\. there  \d{4}-\d\d-\d\d  user: ….*the ferry was late\n/resume NUMBER", text)
        assert listed == ("there",)
        assert (await command("/resume 1", msgspec.structs.replace(scene, listed=listed)))[2] == "there"
        assert (await command("/search"))[0] == "Say what to look for: /search WORDS"
        assert (await command("/search nowhere"))[0] == "Nothing was found."
        assert await record.search("ferry", owner=ADA, role="notice")
        assert len(await record.search("ferry", owner=ADA)) == 1
