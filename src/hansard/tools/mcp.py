"""Tools of other servers, by the Model Context Protocol: programs that are started here, or addresses.

One task keeps each connection, so that what the library opens and closes happens in one place. A server that dies is
started again when a tool of it is next called, after a pause that grows; its failure is the result of the call.
The library takes a while to import, so that happens when the first server is wanted.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from hansard.domain.http_answers import AnswerRefused
from hansard.domain.permissions import FOREIGN_PREFIX
from hansard.domain.requests import ToolSpec
from hansard.domain.text import clean_text, clean_value
from hansard.errors import HansardError
from hansard.ports.tool import Attachment, Tool, ToolOutput
from hansard.tasks import backoff_seconds, cancel_all
from hansard.tools.confined import NOT_CONFINED
from hansard.tools.mcp_ways import STDERR_CHARACTERS, LastWords, address_streams, program_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mcp import ClientSession

    from hansard.domain.settings.agent import McpServer


PAUSE_SECONDS = 0.5
"""Before a server that failed is started again; each further time twice as long."""

PAUSE_SECONDS_MAX = 60.0

WAIT_SECONDS_MAX = 5.0
"""A pause that a call waits for; during a longer one it is told that the server is down."""

ENDED = "it ended while it was called, and the call may have had an effect"

TOOLS_MAX = 200
"""Tools that are taken from one server: each is told to the model."""

PAGES_MAX = 20


class McpError(Exception):
    """A server cannot be used just now; the text is for the model and for people."""


class ServerTrouble(Exception):
    """What is wrong with a server, with its own last words: for the log and the terminal, for no chat and no record."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"the server of tools {server}: {why}")
        self.server = server
        self.why = why


class McpTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server: what the server calls it, and how it is described here."""

    server: McpConnection
    own_name: str
    spec: ToolSpec
    repeatable: bool

    async def run(self, arguments: dict[str, object]) -> ToolOutput:
        return await self.server.call(self.own_name, arguments)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What servers are started with, and who hears of their failures."""

    environment: Mapping[str, str]
    """Hansard's own: a program gets the variables of it that are named for it."""
    hidden: Sequence[str]
    """Paths that programs may not see."""
    tell: Callable[[ServerTrouble], None] | None
    pause_seconds: float


class McpConnection:
    """One server and the connection to it, if there is one."""

    def __init__(self, name: str, settings: McpServer, surroundings: Surroundings) -> None:
        self.name = name
        self._settings = settings
        self._around = surroundings
        self._last_words = ""
        self._words: LastWords | None = None
        self._lock = asyncio.Lock()
        self._session: ClientSession | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._failures = 0
        self._not_before = 0.0
        self.trouble = ""
        """Why it failed, in words of Hansard's own."""
        self._detail = ""
        self.tools: dict[str, Tool] = {}

    async def connect(self) -> ClientSession:
        """Return the connection, made if there is none; McpError when it cannot be, or not yet again."""
        async with self._lock:
            if self._session is not None and self._keeping is not None and not self._keeping.done():
                return self._session
            wait = self._not_before - asyncio.get_running_loop().time()
            if 0 < wait <= WAIT_SECONDS_MAX:
                await asyncio.sleep(wait)
            elif wait > 0:
                raise McpError(f"The server {self.name} failed ({self.trouble}); it is tried again in {wait:.0f} s.")
            return await self._start()

    async def _start(self) -> ClientSession:
        """Start the task that holds the connection, and wait until it is there."""
        ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._keeping = asyncio.create_task(self._keep(ready, self._leave), name=f"mcp {self.name}")
        try:
            async with asyncio.timeout(self._settings.start_seconds_max):
                session = await asyncio.shield(ready)
        except TimeoutError:
            why = f"it did not answer within {self._settings.start_seconds_max:g} s"
            await cancel_all(self._keeping)
            raise self._failed(why) from None
        except Exception as error:  # noqa: BLE001  # boundary: tool call
            await cancel_all(self._keeping)
            raise self._failed(*why_not_started(self.name, self._settings, error)) from None
        self._session, self._failures, self.trouble = session, 0, ""
        return session

    async def _keep(self, ready: asyncio.Future[ClientSession], leave: asyncio.Event) -> None:
        """Hold a connection until it is closed. Every error of the connection is caught here."""
        try:
            async with AsyncExitStack() as stack:
                errlog = stack.enter_context(self._hear_last_words()) if self._settings.command is not None else None
                session = await open_session(self._settings, self._around, stack, errlog)
                await session.initialize()
                self.tools = {tool.spec.name: tool for tool in await list_tools(self, session)}
                if not ready.done():
                    ready.set_result(session)
                self._tell_unconfined()
                await leave.wait()
        except Exception as error:  # noqa: BLE001  # boundary: tool call
            if not ready.done():
                ready.set_exception(error)
            self.trouble, self._detail = plain(error), told(error)
        finally:
            self._session = None
            if not ready.done():
                ready.cancel()
            elif not ready.cancelled():
                ready.exception()  # seen: nobody may wait for it any more

    @contextmanager
    def _hear_last_words(self) -> Iterator[TextIO]:
        """Give the file for a program's standard error. Its end is known once the program has ended."""
        with LastWords() as words:
            self._words = words
            try:
                yield words.file
            finally:
                self._last_words = words.read_rest()

    def _tell_unconfined(self) -> None:
        """Say so when the system offered no way to confine a program that runs now."""
        if self._words is not None and self._around.tell is not None and NOT_CONFINED in self._words.read_rest():
            self._around.tell(ServerTrouble(self.name, NOT_CONFINED))

    def _failed(self, why: str, detail: str = "") -> McpError:
        """Note a failure: the next start waits, longer each time. Details and last words are for the log alone."""
        self._failures += 1
        pause = backoff_seconds(self._failures, self._around.pause_seconds, PAUSE_SECONDS_MAX)
        self._not_before = asyncio.get_running_loop().time() + pause
        self.trouble = why
        if self._around.tell is not None:
            begin = detail if detail.startswith(why) else why
            parts = dict.fromkeys(part for part in (begin, detail, self._last_words) if part)
            self._around.tell(ServerTrouble(self.name, "; ".join(parts)))
        self._last_words = ""
        return McpError(f"The server {self.name} failed: {why}.")

    async def call(self, own_name: str, arguments: dict[str, object]) -> ToolOutput:
        """Call a tool. A server that dies meanwhile is a failure of this call, and is started again for a later one."""
        session = await self.connect()
        keeping = self._keeping
        calling = asyncio.create_task(session.call_tool(own_name, arguments))
        watched = {calling, keeping} if keeping is not None else {calling}
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if not calling.done():
                return self._ended()
            return output_of(calling.result())
        except Exception as error:  # noqa: BLE001  # boundary: tool call
            if is_closed(error):
                await self.close()
                return self._ended()
            return ToolOutput(text=f"The server {self.name} {own_words(error)}", is_error=True)
        finally:
            await cancel_all(calling)

    def _ended(self) -> ToolOutput:
        """Return the result of a call in which the connection ended, with the reason, where one is known."""
        why = f"{self.trouble}; {ENDED}" if self.trouble else ENDED
        return ToolOutput(text=str(self._failed(why, self._detail)), is_unknown=True)

    async def close(self) -> None:
        """End the connection, and the program with it. A later call makes a new one."""
        keeping, self._session = self._keeping, None
        if keeping is not None and not keeping.done():
            self._leave.set()
            await asyncio.wait({keeping}, timeout=LEAVE_SECONDS)
            await cancel_all(keeping)


LEAVE_SECONDS = 8.0
"""For a program to end by itself; the library ends it after that."""


class McpServers:
    """All servers of the settings. Their tools are known once they have answered."""

    def __init__(
        self,
        settings: Mapping[str, McpServer],
        environment: Mapping[str, str],
        tools: dict[str, Tool],
        *,
        hidden: Sequence[str] = (),
        tell: Callable[[ServerTrouble], None] | None = None,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """Nothing is started. `tools` is what the agent has; those of the servers are added to it.

        Programs cannot see the `hidden` paths. `tell` hears why a server failed, with words that are not for chats.
        """
        around = Surroundings(environment=environment, hidden=hidden, tell=tell, pause_seconds=pause_seconds)
        self._servers = {
            name: McpConnection(name, each, around) for name, each in sorted(settings.items()) if each.enabled
        }
        self._tools = tools

    async def prepare(self) -> list[str]:
        """Start what was not started yet, all at once; return which servers could not be, and why."""
        await asyncio.gather(*(self._try(server) for server in self._servers.values() if not server.tools))
        return [
            f"The tools of {name} are missing: {server.trouble}."
            for name, server in self._servers.items()
            if not server.tools and server.trouble
        ]

    async def _try(self, server: McpConnection) -> None:
        with suppress(McpError):
            await server.connect()
        self._tools.update(server.tools)

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))


async def open_session(
    settings: McpServer, around: Surroundings, stack: AsyncExitStack, errlog: TextIO | None
) -> ClientSession:
    """Open the way to a server. A program gets the variables that are named for it, and the few that programs need."""
    from mcp import ClientSession

    environment = around.environment
    if settings.command is not None and errlog is not None:
        given = {name: environment[name] for name in settings.env if name in environment}
        streams = await stack.enter_async_context(program_streams(settings, given, errlog, around.hidden))
    else:
        token = environment.get(settings.token_variable or "", "")
        streams = await stack.enter_async_context(address_streams(str(settings.url), token))
    return await stack.enter_async_context(ClientSession(*streams[:2]))


async def list_tools(server: McpConnection, session: ClientSession) -> list[McpTool]:
    from mcp.types import PaginatedRequestParams

    found: list[McpTool] = []
    taken: set[str] = set()
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        for tool in page.tools:
            found.append(read_tool(server, tool, taken))
            taken.add(found[-1].spec.name)
        cursor = page.next_cursor
        if not cursor or len(found) >= TOOLS_MAX:
            break
    return found[:TOOLS_MAX]


def is_closed(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(is_closed(each) for each in error.exceptions)
    name = type(error).__name__
    return isinstance(error, ConnectionError | EOFError) or name in CLOSED or "onnection closed" in str(error)


CLOSED = frozenset({"ClosedResourceError", "BrokenResourceError", "EndOfStream", "ConnectError", "RemoteProtocolError"})
"""Errors of the libraries below, by name: they are imported late."""


def why_not_started(name: str, settings: McpServer, error: BaseException) -> tuple[str, str]:
    """Return why in words of our own, which may be shown in any chat; and for log and terminal, with all details."""
    setting = f"mcp.{name}.{'url' if settings.command is None else 'command'} in config.toml"
    if why := plain(error):
        return why, told(error)
    if settings.command is None:
        why, more = "it cannot be reached" if is_closed(error) else "it did not answer as it must", told(error)
    elif isinstance(first_of(error), FileNotFoundError | PermissionError):
        why, more = "its program cannot be started", f"there is no program {settings.command} here that may be run"
    elif is_closed(error):
        why, more = "its program ended before it answered", ""
    else:
        why, more = "it did not start", told(error)
    return why, f"{why}{f': {more}' if more else ''} ({setting})"


def first_of(error: BaseException) -> BaseException:
    """Return an error, or the first of a group for all of them."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def plain(error: BaseException) -> str:
    """Return the reason for a failure when it is in words of our own, which may be shown in any chat; else nothing."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(plain, error.exceptions)), "")
    return str(error) if isinstance(error, AnswerRefused) else ""


def own_words(error: BaseException) -> str:
    """Return what a server answered in place of a result; of any other error the reason, if it is in our own words."""
    if type(error).__name__ == "MCPError":
        return f"says: {told(error)}"
    why = plain(error)
    return f"could not be asked: {why}" if why else "could not be asked."


def told(error: BaseException) -> str:
    """Return an error in words, the first of a group for all of them; what it is called where it says nothing."""
    error = first_of(error)
    words = " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())
    return words[:STDERR_CHARACTERS].rstrip(".")


ADDRESS_CHARACTERS = 500


def output_of(result: Any) -> ToolOutput:  # noqa: ANN401 - the library's
    """Return a result: its texts in their order, and each picture, sound and file."""
    pieces = [piece_of(block) for block in result.content]
    texts = [piece for piece in pieces if isinstance(piece, str)]
    files = [piece for piece in pieces if isinstance(piece, Attachment)]
    if not texts and not files and result.structured_content is not None:
        texts.append(msgspec.json.encode(result.structured_content).decode())
    return ToolOutput(text="\n".join(texts), files=tuple(files), is_error=bool(result.is_error))


def piece_of(block: Any) -> str | Attachment:  # noqa: ANN401
    """Return what one block holds. An address is told as text: nobody fetches it."""
    kind = str(getattr(block, "type", ""))
    if kind == "text":
        return str(block.text)
    if kind in {"image", "audio"}:
        return attachment(block.data, f"{kind} of the result", block.mime_type)
    if kind == "resource":
        resource = block.resource
        name = str(resource.uri)[:ADDRESS_CHARACTERS]
        if getattr(resource, "text", None) is not None:
            return f"{name}:\n{resource.text}"
        return attachment(resource.blob, name.rpartition("/")[2] or name, resource.mime_type)
    if kind == "resource_link":
        return f"(a link, not fetched: {str(block.uri)[:ADDRESS_CHARACTERS]})"
    return f"(a part of the kind {kind[:40]!r}, which is not known here)"


def attachment(data: str, name: str, media_type: str | None) -> str | Attachment:
    """Return a file from its base64; text that says so when it is none."""
    try:
        decoded = base64.b64decode(data, validate=True)
    except ValueError:
        return f"({name} could not be read: it is not base64)"
    return Attachment(data=decoded, name=name, media_type=media_type or "application/octet-stream")


NAME_CHARACTERS_MAX = 64
"""What every provider takes as the name of a tool."""

DIGEST_CHARACTERS = 6

DESCRIPTION_CHARACTERS_MAX = 1000
"""A server's own words about a tool: they are told to the model in every request, and they are not ours."""

SCHEMA_BYTES_MAX = 32_768
EMPTY_SCHEMA = '{"type":"object","properties":{}}'


def tool_name(server: str, own_name: str, taken: Collection[str] = ()) -> str:
    """Return `mcp__SERVER__TOOL`, of signs that every provider takes; one that is cut or taken ends with a digest."""
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "_", own_name) or "tool"
    name = f"{FOREIGN_PREFIX}{server}__{cleaned}"
    if len(name) <= NAME_CHARACTERS_MAX and name not in taken:
        return name
    digest = hashlib.sha256(own_name.encode(errors="replace")).hexdigest()[:DIGEST_CHARACTERS]
    return f"{name[: NAME_CHARACTERS_MAX - DIGEST_CHARACTERS - 1]}_{digest}"


def read_tool(server: McpConnection, tool: Any, taken: Collection[str]) -> McpTool:  # noqa: ANN401 - the library's
    """Return how a tool is described to a model, and whether it may be run twice, as its server says."""
    hints = tool.annotations
    repeatable = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
    words = " ".join(
        "".join(sign if sign.isprintable() else " " for sign in clean_text(tool.description or "")).split()
    )
    description = words[:DESCRIPTION_CHARACTERS_MAX] or tool.name
    spec = ToolSpec(
        name=tool_name(server.name, tool.name, taken),
        description=f"From the server {server.name}: {description}",
        parameters=schema_of(tool.input_schema),
    )
    return McpTool(server=server, own_name=tool.name, spec=spec, repeatable=repeatable)


def schema_of(schema: object) -> str:
    """Return a schema as text; one that is no object, or too large, is left out, and the server checks by itself."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return EMPTY_SCHEMA
    try:
        text = msgspec.json.encode(clean_value({**schema, "type": "object"})).decode()
    except HansardError:
        return EMPTY_SCHEMA
    return text if len(text) <= SCHEMA_BYTES_MAX else EMPTY_SCHEMA
