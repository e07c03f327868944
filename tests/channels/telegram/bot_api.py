"""A Bot API on this machine: the methods that a channel needs, with the semantics that Telegram's has, and its faults.

Updates come again until a higher offset is asked for; a second program that asks ends the first one's waiting (409);
limits are counted after the entities are parsed, in UTF-16. What people do is in `api.world`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, NamedTuple

from aiohttp import web

from tests.channels.telegram.entities import (
    CAPTION_UNITS_MAX,
    NOT_PARSED,
    TEXT_UNITS_MAX,
    Json,
    RefusedText,
    Rich,
    read_text,
)
from tests.channels.telegram.world import CALLBACK_BYTES_MAX, Chat, Posted, World, words_json

HOST = "127.0.0.1"
UPDATES_MAX = 100
DOWNLOAD_BYTES_MAX = 20 * 1024 * 1024
UPLOAD_BYTES_MAX = 50 * 1000 * 1000
PICTURES = (b"\x89PNG", b"\xff\xd8\xff")
NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a "
    "current content and reply markup of the message"
)
OTHER_POLL = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
WEBHOOK = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"


class FaultKind(StrEnum):
    """What goes wrong with a call."""

    BUSY = "busy"
    """429, with how long to wait."""
    BROKEN = "broken"
    """500, and nothing was done."""
    CUT_BEFORE = "cut_before"
    """The connection breaks, and nothing was done."""
    CUT_AFTER = "cut_after"
    """The connection breaks, and it was done."""
    HELD = "held"
    """It was done, and nobody is told: the answer waits until `release` is set."""


class Fault(NamedTuple):
    """A fault for the next call of a method whose name begins so."""

    kind: FaultKind
    method: str = ""
    seconds: int = 1


class Refused(Exception):
    """An answer that is not ok."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:  # noqa: ANN401
        """Keep what is answered."""
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


class Given(NamedTuple):
    """What a call brought along."""

    fields: dict[str, str]
    files: dict[str, tuple[str, bytes]]

    def text(self, name: str) -> str:
        """Return a text."""
        return self.fields.get(name, "")

    def number(self, name: str) -> int:
        """Return a number; 0 when there is none."""
        value = self.fields.get(name, "")
        return int(value) if value.removeprefix("-").isdecimal() else 0

    def parsed(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return what is given as JSON; None when it is not given."""
        return json.loads(self.fields[name]) if name in self.fields else None


class BotApi:
    """The server."""

    def __init__(self, world: World, token: str = "") -> None:
        """Serve a world. Nothing listens yet."""
        self.world = world
        self.token = token or f"{world.bot.id}:AAtestTOKENtestTOKENtestTOKENtest-xyz"
        self.port = 0
        self.faults: deque[Fault] = deque()
        self.storm_seconds = 0
        """While above 0, whatever shows something is answered with 429 and this."""
        self.webhook = ""
        self.refuses_html = False
        """Whether no formatting is understood."""
        self.calls: Counter[str] = Counter()
        self.asked: list[tuple[str, dict[str, str]]] = []
        """Calls as they came, but for getUpdates."""
        self.offsets: list[int] = []
        self.held = asyncio.Event()
        self.release = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._polling: asyncio.Future[None] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{HOST}:{self.port}"

    # Up and down.

    async def up(self) -> None:
        """Listen: at the beginning, and again."""
        app = web.Application(client_max_size=UPLOAD_BYTES_MAX * 2)
        app.router.add_route("*", "/bot{token}/{method}", self._serve)
        app.router.add_get("/file/bot{token}/{path:.*}", self._serve_file)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    def is_taken(self) -> bool:
        """Return whether the bot has confirmed every update: it asks for those after the last one."""
        return self.offsets[-1:] == [self.world.next_update]

    async def down(self) -> None:
        """Be gone: connections break, and no new ones are taken."""
        runner, self._runner = self._runner, None
        if runner is not None:
            self._end_polling()
            await runner.cleanup()

    # HTTP.

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        self.calls[method] += 1
        try:
            if request.match_info["token"] != self.token:
                raise Refused(401, "Unauthorized")
            given = await read_given(request)
            if method != "getUpdates":
                self.asked.append((method, given.fields))
            fault = self._fault(method)
            kind = fault.kind if fault is not None else None
            if kind is FaultKind.CUT_BEFORE:
                return cut(request)
            self._refuse(method, fault)
            result = await self._call(method, given)
            if kind is FaultKind.CUT_AFTER:
                return cut(request)
            if kind is FaultKind.HELD:
                self.held.set()
                await self.release.wait()
        except RefusedText as error:
            return answer(400, {"ok": False, "error_code": 400, "description": str(error)})
        except Refused as error:
            told: Json = {"ok": False, "error_code": error.code, "description": error.description}
            return answer(error.code, told | ({"parameters": error.parameters} if error.parameters else {}))
        return answer(200, {"ok": True, "result": result})

    async def _serve_file(self, request: web.Request) -> web.StreamResponse:
        data = self.world.files.get(request.match_info["path"].rpartition("/")[2])
        if request.match_info["token"] != self.token or data is None:
            return answer(404, {"ok": False, "error_code": 404, "description": "Not Found"})
        return web.Response(body=data)

    def _refuse(self, method: str, fault: Fault | None) -> None:
        """Refuse a call, if it is to be: before anything is done."""
        seconds = self.storm_seconds if method.startswith(("send", "edit")) else 0
        if fault is not None and fault.kind is FaultKind.BUSY:
            seconds = fault.seconds
        if seconds:
            raise Refused(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)
        if fault is not None and fault.kind is FaultKind.BROKEN:
            raise Refused(500, "Internal Server Error")

    def _fault(self, method: str) -> Fault | None:
        if self.faults and method.startswith(self.faults[0].method) and method != "getUpdates":
            return self.faults.popleft()
        if self.faults and self.faults[0].method == method:
            return self.faults.popleft()
        return None

    async def _call(self, method: str, given: Given) -> Any:  # noqa: ANN401 - JSON
        found = METHODS.get(method)
        if found is None:
            raise Refused(404, "Not Found")
        return await found(self, given)

    # Methods.

    async def get_me(self, given: Given) -> Json:
        """Say who the bot is."""
        del given
        return self.world.bot.json() | {
            "can_join_groups": True,
            "can_read_all_group_messages": not self.world.is_private_mode,
            "supports_inline_queries": False,
        }

    async def get_updates(self, given: Given) -> list[Json]:
        """Give what happened, once anything has."""
        if self.webhook:
            raise Refused(409, WEBHOOK)
        self._end_polling()
        allowed = given.parsed("allowed_updates")
        if allowed:
            self.world.allowed = tuple(allowed)
        offset, limit = given.number("offset"), min(given.number("limit") or UPDATES_MAX, UPDATES_MAX)
        self.offsets.append(offset)
        found = self.world.take_updates(offset, limit)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._polling = mine
        deadline = asyncio.get_running_loop().time() + given.number("timeout")
        while not found and (rest := deadline - asyncio.get_running_loop().time()) > 0:
            self.world.changed.clear()
            bell = asyncio.ensure_future(self.world.changed.wait())
            waited: set[asyncio.Future[Any]] = {bell, mine}
            await asyncio.wait(waited, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
            bell.cancel()
            if mine.done():
                raise Refused(409, OTHER_POLL)
            found = self.world.take_updates(offset, limit)
        if self._polling is mine:
            self._polling = None
        return found

    def _end_polling(self) -> None:
        if self._polling is not None and not self._polling.done():
            self._polling.set_result(None)
        self._polling = None

    async def send_message(self, given: Given) -> Json:
        """Show words."""
        chat = self._chat(given)
        rich = self._rich(given, "text", "entities", TEXT_UNITS_MAX, "message")
        if not rich.text:
            raise Refused(400, "Bad Request: message text is empty")
        return self._post(chat, given, words_json(rich, "text") | keyboard_of(given))

    async def edit_message_text(self, given: Given) -> Json:
        """Show other words."""
        chat = self._chat(given)
        posted = chat.find(given.number("message_id"))
        if posted is None:
            raise Refused(400, "Bad Request: message to edit not found")
        if posted.sender != self.world.bot.id:
            raise Refused(400, "Bad Request: message can't be edited")
        if "text" not in posted.message:
            raise Refused(400, "Bad Request: there is no text in the message to edit")
        rich = self._rich(given, "text", "entities", TEXT_UNITS_MAX, "message")
        if not rich.text:
            raise Refused(400, "Bad Request: message text is empty")
        if rich.text == posted.text and list(rich.entities) == posted.message.get("entities", []):
            raise Refused(400, NOT_MODIFIED)
        self.world.change(chat, posted, rich)
        return posted.message

    async def send_document(self, given: Given) -> Json:
        """Show a file."""
        return self._post_file(given, "document")

    async def send_photo(self, given: Given) -> Json:
        """Show a picture."""
        if not self._file(given, "photo")[1].startswith(PICTURES):
            raise Refused(400, "Bad Request: IMAGE_PROCESS_FAILED")
        return self._post_file(given, "photo")

    async def answer_callback_query(self, given: Given) -> bool:
        """Let a button look released again."""
        press = given.text("callback_query_id")
        if press not in self.world.pressing:
            raise Refused(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        self.world.pressing.discard(press)
        return True

    async def send_chat_action(self, given: Given) -> bool:
        """Show that the bot writes."""
        self._chat(given).actions.append(given.text("action"))
        return True

    async def send_message_draft(self, given: Given) -> bool:
        """Show a preview that nobody keeps."""
        chat = self._chat(given)
        if chat.kind != "private" or not given.number("draft_id"):
            raise Refused(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
        self._rich(given, "text", "entities", TEXT_UNITS_MAX, "message")
        return True

    async def get_file(self, given: Given) -> Json:
        """Say where a file can be fetched."""
        file_id = given.text("file_id")
        data = self.world.files.get(file_id)
        if data is None:
            raise Refused(400, "Bad Request: invalid file_id")
        if len(data) > DOWNLOAD_BYTES_MAX:
            raise Refused(400, "Bad Request: file is too big")
        told = {"file_id": file_id, "file_unique_id": f"u-{file_id}", "file_size": len(data)}
        return told | {"file_path": f"documents/{file_id}"}

    async def get_chat(self, given: Given) -> Json:
        """Say what a chat is."""
        gifts = ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels")
        told = {"accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": dict.fromkeys(gifts, True)}
        return self._chat(given).json() | told

    async def leave_chat(self, given: Given) -> bool:
        """Leave a group."""
        chat = self._chat(given)
        chat.members.discard(self.world.bot.id)
        return True

    # Parts of methods.

    def _chat(self, given: Given) -> Chat:
        """Return a chat that the bot may write to."""
        chat = self.world.chats.get(given.number("chat_id"))
        if chat is None or chat.is_gone:
            raise Refused(400, "Bad Request: chat not found")
        if chat.migrated_to:
            description = "Bad Request: group chat was upgraded to a supergroup chat"
            raise Refused(400, description, migrate_to_chat_id=chat.migrated_to)
        if chat.kind == "private" and chat.id in self.world.blocked:
            raise Refused(403, "Forbidden: bot was blocked by the user")
        if self.world.bot.id not in chat.members:
            raise Refused(403, f"Forbidden: bot was kicked from the {chat.kind} chat")
        return chat

    def _rich(self, given: Given, name: str, entities: str, units_max: int, what: str) -> Rich:
        if self.refuses_html and given.text("parse_mode"):
            raise RefusedText(f"{NOT_PARSED}: Unsupported start tag")
        listed = given.parsed(entities) or []
        return read_text(given.text(name), given.text("parse_mode"), listed, units_max, what)

    def _post(self, chat: Chat, given: Given, content: Json) -> Json:
        reply = given.parsed("reply_parameters") or {}
        return self._own(chat, given, content, int(reply.get("message_id", 0))).message

    def _own(self, chat: Chat, given: Given, content: Json, reply_to: int) -> Posted:
        topic = given.number("message_thread_id")
        if topic and not chat.is_forum:
            raise Refused(400, "Bad Request: message thread not found")
        return self.world.post(chat.id, self.world.bot.id, content, topic=topic, reply_to=reply_to)

    def _file(self, given: Given, kind: str) -> tuple[str, bytes]:
        attached = given.text(kind).removeprefix("attach://") or kind
        if attached not in given.files:
            raise Refused(400, f"Bad Request: there is no {kind} in the request")
        return given.files[attached]

    def _post_file(self, given: Given, kind: str) -> Json:
        chat = self._chat(given)
        name, data = self._file(given, kind)
        if len(data) > UPLOAD_BYTES_MAX:
            raise Refused(413, "Request Entity Too Large")
        if not data:
            raise Refused(400, "Bad Request: file must be non-empty")
        caption = self._rich(given, "caption", "caption_entities", CAPTION_UNITS_MAX, "message caption")
        content = self.world.file_json(kind, data, name) | words_json(caption, "caption")
        return self._post(chat, given, content)


METHODS = {
    "getMe": BotApi.get_me,
    "getUpdates": BotApi.get_updates,
    "sendMessage": BotApi.send_message,
    "editMessageText": BotApi.edit_message_text,
    "sendDocument": BotApi.send_document,
    "sendPhoto": BotApi.send_photo,
    "answerCallbackQuery": BotApi.answer_callback_query,
    "sendChatAction": BotApi.send_chat_action,
    "sendMessageDraft": BotApi.send_message_draft,
    "getFile": BotApi.get_file,
    "getChat": BotApi.get_chat,
    "leaveChat": BotApi.leave_chat,
}


def keyboard_of(given: Given) -> Json:
    """Return the buttons of a message, as the message tells of them."""
    markup = given.parsed("reply_markup")
    if not markup:
        return {}
    for button in [button for row in markup.get("inline_keyboard", []) for button in row]:
        data = button.get("callback_data", "")
        if not button.get("text") or not 1 <= len(data.encode()) <= CALLBACK_BYTES_MAX:
            raise Refused(400, "Bad Request: BUTTON_DATA_INVALID")
    return {"reply_markup": markup}


async def read_given(request: web.Request) -> Given:
    """Read what a call brings, in any of the forms that Telegram takes."""
    if request.content_type == "application/json":
        body = await request.json()
        fields = {name: value if isinstance(value, str) else json.dumps(value) for name, value in body.items()}
        return Given(fields, {})
    fields, files = dict[str, str](request.query), dict[str, tuple[str, bytes]]()
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            files[name] = (value.filename, value.file.read())
        else:
            fields[name] = str(value)
    return Given(fields, files)


def answer(status: int, body: Json) -> web.Response:
    """Answer."""
    return web.json_response(body, status=status)


def cut(request: web.Request) -> web.Response:
    """Break the connection in place of an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@asynccontextmanager
async def bot_api(world: World | None = None) -> AsyncIterator[BotApi]:
    """Serve a Bot API for as long as this lasts."""
    api = BotApi(world or World())
    await api.up()
    try:
        yield api
    finally:
        await api.down()
