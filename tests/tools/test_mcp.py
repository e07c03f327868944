"""Tools of other servers: both transports, slow, dying and huge ones, strange names, pictures."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx2
import msgspec
import pytest

from hansard.domain.limits import MIB
from hansard.domain.messages import File, Role, ToolOutcome
from hansard.domain.permissions import CallVerdict, ToolRule
from hansard.domain.policy import Policy
from hansard.domain.settings import TurnLimits
from hansard.domain.settings.agent import McpServer
from hansard.engine.turns import run_turn
from hansard.ports.tool import Attachment, Tool, ToolOutput
from hansard.tools.mcp import EMPTY_SCHEMA, McpServers, ServerTrouble, output_of, schema_of, tool_name
from hansard.tools.mcp_ways import MESSAGE_BYTES_MAX, LastWords, MessageTooLarge, bound
from tests.engine.stage import Answer, PlayedModel, Stage, call, stage
from tests.tools.flooder import FLOOD_MIB
from tests.tools.samples import HUGE_LINES, PICTURE
from tests.tools.servers import by_http, by_stdio, environment

SLEEP = "import time; time.sleep(60)"

ALLOWED = Policy(rules=(ToolRule(do=CallVerdict.ALLOW, tool="mcp__t__*"),))


@contextmanager
def served(transport: str, ran: Path) -> Iterator[McpServer]:
    """The test server, reached in one of the two ways."""
    if transport == "stdio":
        yield by_stdio(ran)
    else:
        with by_http(ran) as server:
            yield server.settings


@asynccontextmanager
async def connected(settings: McpServer) -> AsyncIterator[tuple[dict[str, Tool], McpServers]]:
    """The tools of a server, started."""
    tools: dict[str, Tool] = {}
    servers = McpServers({"t": settings}, environment(), tools)
    try:
        assert await servers.prepare() == []
        yield tools, servers
    finally:
        await servers.close()


async def output(tools: dict[str, Tool], name: str, **arguments: object) -> ToolOutput:
    """Run a tool, and return what it gave."""
    async with asyncio.timeout(120):
        given = await tools[f"mcp__t__{name}"].run(arguments)
    assert isinstance(given, ToolOutput)
    return given


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_both_transports(tmp_path: Path, transport: str) -> None:
    """Every tool has a name that providers take, and gives text, errors or pictures; calls run side by side."""
    ran = tmp_path / "ran"
    with served(transport, ran) as settings:
        async with connected(settings) as (tools, _):
            assert {name.removeprefix("mcp__t__") for name in tools} >= {"echo", "slow", "die", "huge", "weather"}
            assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in tools)
            assert (await output(tools, "echo", text="Grüße\n😀")).text == "Grüße\n😀"
            assert (await output(tools, "fail")).is_error
            assert (await output(tools, "echo", wrong=1)).is_error
            picture = await output(tools, "picture")
            assert picture.text == "a dot"
            assert [(file.data, file.media_type) for file in picture.files] == [(PICTURE, "image/png")]
            assert (await output(tools, "huge")).text.endswith(f"line {HUGE_LINES} of {HUGE_LINES}")
            odd = next(name for name in tools if "odd" in name)
            assert (await output(tools, odd.removeprefix("mcp__t__"))).text == "odd"
            met = await asyncio.gather(*(output(tools, "meet", count=6) for _ in range(6)))
            assert {each.text for each in met} == {"met"}
            assert tools["mcp__t__echo"].repeatable
            assert not tools["mcp__t__delete"].repeatable


async def test_a_program_that_dies_is_started_again(tmp_path: Path) -> None:
    """Its failure is the result of the call that it died in; the next call finds it running."""
    async with connected(by_stdio(tmp_path / "ran")) as (tools, _):
        died = await output(tools, "die")
        assert died.is_unknown
        assert "may have had an effect" in died.text
        assert (await output(tools, "echo", text="again")).text == "again"
        assert (tmp_path / "ran").read_text().splitlines() == ["die", "echo again"]


async def test_a_program_that_floods_is_ended(tmp_path: Path) -> None:
    """A gigabyte without an end of line is not read: the program waits for a reader, and is ended.

    What it writes to its standard error never makes it wait, and of that only the end is kept.
    """
    ran = tmp_path / "ran"
    arguments = ("-m", "tests.tools.flooder", str(ran))
    settings = McpServer(command=sys.executable, args=arguments, env=("PYTHONPATH",))
    async with connected(settings) as (tools, _):
        flooded = await output(tools, "flood")
        assert flooded.is_unknown
        assert "more than 32 MiB" in flooded.text
        assert len(flooded.text) < 1000
        assert MESSAGE_BYTES_MAX // MIB <= len(ran.read_text().splitlines()) <= 3 * MESSAGE_BYTES_MAX // MIB


async def test_an_answer_that_floods_is_not_read() -> None:
    """What an address answers in one piece is bounded, too; a stream of events is bounded event by event."""

    async def body() -> AsyncIterator[bytes]:
        for _ in range(FLOOD_MIB):
            sent.append(1)
            yield b"x" * MIB

    sent: list[int] = []
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(200, content=body()))
    async with httpx2.AsyncClient(transport=transport, event_hooks={"response": [bound]}) as client:
        with pytest.raises(MessageTooLarge):
            await client.get("http://127.0.0.1/")
    assert len(sent) == MESSAGE_BYTES_MAX // MIB + 1


async def test_a_server_that_died_is_left_alone_for_a_while(tmp_path: Path) -> None:
    """It is not started again and again: a call during a long pause is told how long that is."""
    tools: dict[str, Tool] = {}
    servers = McpServers({"t": by_stdio(tmp_path / "ran")}, environment(), tools, pause_seconds=60.0)
    try:
        assert await servers.prepare() == []
        assert (await output(tools, "die")).is_unknown
        assert "it is tried again in 60 s" in await result_of(tools, "echo", text="x")
        assert (tmp_path / "ran").read_text().splitlines() == ["die"]
    finally:
        await servers.close()


async def test_an_address_that_comes_back_is_used_again(tmp_path: Path) -> None:
    """While the server is away calls fail with words; when it is back they work."""
    with by_http(tmp_path / "ran") as server:
        async with connected(server.settings) as (tools, _):
            assert (await output(tools, "echo", text="one")).text == "one"
            server.stop()
            away = await result_of(tools, "echo", text="two")
            assert "server t" in away
            server.start()
            async with asyncio.timeout(120):
                while (now := await result_of(tools, "echo", text="three")) != "three":
                    assert "server t" in now
                    await asyncio.sleep(0.2)


async def result_of(tools: dict[str, Tool], name: str, **arguments: object) -> str:
    """Run a tool, and return its words or those of its failure."""
    try:
        return (await output(tools, name, **arguments)).text
    except Exception as error:  # noqa: BLE001  # boundary: tool call
        return str(error)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            McpServer(command="/does/not/exist"),
            ": there is no program /does/not/exist here that may be run (mcp.t.command in config.toml)",
        ),
        (
            McpServer(command=sys.executable, args=("-c", "import sys; sys.exit('no key is set')")),
            "its program ended before it answered (mcp.t.command in config.toml); no key is set",
        ),
        (McpServer(command=sys.executable, args=("-c", SLEEP), start_seconds_max=0.3), "did not answer within"),
        (McpServer(url="http://127.0.0.1:9/mcp", start_seconds_max=20), " (mcp.t.url in config.toml)"),
    ],
    ids=["missing", "failing", "silent", "unreachable"],
)
async def test_a_server_that_does_not_start_is_named(settings: McpServer, why: str) -> None:
    """Whatever is wrong with one server, others have their tools, people are told which is missing, and the log why."""
    tools: dict[str, Tool] = {}
    troubles: list[ServerTrouble] = []
    servers = McpServers({"t": settings}, environment(), tools, tell=troubles.append)
    try:
        async with asyncio.timeout(120):
            (told,) = await servers.prepare()
        assert told.startswith("The tools of t are missing")
        (trouble,) = troubles
        assert why in trouble.why
        assert not re.search(r"\w+Error\b|the log", told + trouble.why)
        assert tools == {}
    finally:
        await servers.close()


async def test_last_words_are_read_although_nobody_had_time_to() -> None:
    """What a program wrote just before it ended is told, although the event loop has not come to reading it."""
    for number in range(100):
        with LastWords() as words:
            os.write(words.file.fileno(), f"no key is set {number}".encode())
            assert words.read_rest() == f"no key is set {number}"


async def test_a_program_gets_only_the_variables_that_are_named_for_it() -> None:
    """Keys of Hansard's own environment stay there."""
    program = "import os, sys; sys.exit(' '.join(sorted(os.environ)))"
    settings = McpServer(command=sys.executable, args=("-c", program), env=("WANTED",))
    secrets = {**environment(), "WANTED": "1", "OPENAI_API_KEY": "sk-1"}
    troubles: list[ServerTrouble] = []
    servers = McpServers({"t": settings}, secrets, {}, tell=troubles.append)
    await servers.prepare()
    (trouble,) = troubles
    assert "WANTED" in trouble.why
    assert "OPENAI_API_KEY" not in trouble.why
    await servers.close()


@asynccontextmanager
async def talking(
    home: Path, settings: McpServer, *answers: Answer, limits: TurnLimits | None = None, policy: Policy = ALLOWED
) -> AsyncIterator[Stage]:
    """A stage whose agent has the tools of a server."""
    tools: dict[str, Tool] = {}
    servers = McpServers({"t": settings}, environment(), tools)
    async with stage(home, PlayedModel(*answers)) as on:
        on.agent = msgspec.structs.replace(
            on.agent, tools=tools, prepare=servers.prepare, policy=policy, limits=limits or on.agent.limits
        )
        try:
            async with asyncio.timeout(300):
                yield on
        finally:
            await servers.close()


async def long_run(on: Stage, text: str) -> None:
    """Say something and run its turn; starting a program may take a while."""
    await on.queue(text)
    await run_turn(on.agent, on.session_id)


async def test_a_turn_with_a_server(home: Path, tmp_path: Path) -> None:
    """Slow, dying and huge: each is a result, all of a huge one is kept as a blob, and the model goes on."""
    slow: Answer = [call("mcp__t__slow", '{"seconds":600}', id="slow")]
    both: Answer = [call("mcp__t__huge", "{}", id="huge"), call("mcp__t__picture", "{}", id="picture")]
    answers: list[Answer] = [slow, ["late"], both, [call("mcp__t__die", "{}", id="die")], ["done"]]
    async with talking(home, by_stdio(tmp_path / "ran"), *answers, limits=TurnLimits(tool_seconds_max=1)) as on:
        await long_run(on, "go")
        on.agent = msgspec.structs.replace(on.agent, limits=TurnLimits())
        await long_run(on, "go on")
        outcomes = await on.outcomes()
        assert outcomes == {
            "slow": ToolOutcome.UNKNOWN,
            "huge": ToolOutcome.OK,
            "picture": ToolOutcome.OK,
            "die": ToolOutcome.UNKNOWN,
        }
        results = {result.call_id: result for result in await on.results()}
        whole = (await on.record.blobs.read(results["huge"].blob)).decode()
        assert whole.count("\n") == HUGE_LINES - 1
        assert len(results["huge"].text) < 20_000
        files = [part for message in await on.transcript(Role.TOOL) for part in message.parts if isinstance(part, File)]
        assert [await on.record.blobs.read(file.blob) for file in files] == [PICTURE]
        assert (await on.texts(Role.ASSISTANT))[-1] == "done"
        await on.check()


async def test_tools_of_servers_are_denied_by_default(home: Path, tmp_path: Path) -> None:
    """Without a rule the model is not told of them, and a call of one is not run."""
    ran = tmp_path / "ran"
    async with talking(home, by_stdio(ran), [call("mcp__t__delete", "{}")], ["done"], policy=Policy()) as on:
        await long_run(on, "go")
        assert await on.outcomes() == {"c1": ToolOutcome.NOT_STARTED}
        assert not ran.exists()
        frozen = (await on.conversation()).frozen
        assert frozen is not None
        assert frozen.tools == ()


async def test_a_missing_server_is_told_once(home: Path) -> None:
    """A session that begins without a server's tools says so, and goes on."""
    async with talking(home, McpServer(command="/does/not/exist"), ["hello"]) as on:
        await long_run(on, "go")
        await long_run(on, "again")
        (told,) = await on.notices()
        assert "The tools of t are missing" in told


def test_names_are_clean_and_different() -> None:
    """Whatever a server calls its tools, names are valid, bounded and told apart."""
    names: list[str] = []
    for own in ("a b", "a/b", "a.b", "x" * 100, "x" * 101, "", "ü"):
        names.append(tool_name("srv", own, names))
    assert len(set(names)) == len(names)
    assert all(len(name) <= 64 and name.isascii() and name.startswith("mcp__srv__") for name in names)


def test_schemas_are_objects_or_left_out() -> None:
    """A schema that no provider takes is left out; the server checks its arguments by itself."""
    assert schema_of({"type": "object", "properties": {"a": {"type": "string"}}}).startswith('{"type":"object"')
    large, strange = {"type": "object", "x": "y" * 100_000}, {"type": "object", "x": object()}
    odd_ones: list[object] = [None, [], {"type": "string"}, large, strange]
    assert {schema_of(odd) for odd in odd_ones} == {EMPTY_SCHEMA}


def test_parts_that_cannot_be_read_are_said() -> None:
    """Broken pictures, links and kinds of a later protocol are words; nothing is fetched."""
    blocks = [
        SimpleNamespace(type="image", data="no base64!", mime_type="image/png"),
        SimpleNamespace(type="resource_link", uri="https://evil.test/x"),
        SimpleNamespace(type="hologram"),
        SimpleNamespace(type="resource", resource=SimpleNamespace(uri="file:///a.txt", text="words")),
        SimpleNamespace(
            type="resource", resource=SimpleNamespace(uri="file:///b.bin", text=None, blob="AAE=", mime_type=None)
        ),
    ]
    given = output_of(SimpleNamespace(content=blocks, structured_content=None, is_error=False))
    assert "not base64" in given.text
    assert "not fetched: https://evil.test/x" in given.text
    assert "'hologram'" in given.text
    assert "words" in given.text
    assert given.files == (Attachment(data=b"\x00\x01", name="b.bin"),)
