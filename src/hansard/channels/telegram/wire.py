"""Requests to the Bot API, by python-telegram-bot's `Bot`, and what each failure means for what was asked.

A request is made once: waiting and repeating are the business of whoever knows what the request was for.
Invariants: the token stands in every address, so nothing that the libraries say of a request leaves this module: not
their errors, not their logs. Errors are raised from None.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hansard.channels import Json
from hansard.domain.http_answers import UNPACKED
from hansard.errors import (
    ChannelBusy,
    ChannelDown,
    ChannelError,
    ChatGone,
    NotFound,
    PostRefused,
    PostUnknown,
    TooLarge,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    import httpx
    from telegram import Bot
    from telegram.request import BaseRequest

    from hansard.channels.telegram.keeping import Token

CONNECT_SECONDS_MAX: Final = 10.0
ANSWER_SECONDS_MAX: Final = 30.0
UPLOAD_SECONDS_MAX: Final = 300.0
DOWNLOAD_SECONDS_MAX: Final = 600.0
ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of one answer of the Bot API: a hundred updates are far smaller."""
CONNECTIONS_MAX: Final = 64
"""At once. More requests wait for a free one."""
RETRY_SECONDS: Final = 5.0
"""When Telegram asks to wait and does not say how long."""

GET_UPDATES: Final = "get_Updates"
"""The library's own method parses all updates at once: a single one that it does not understand would hold up all the
others for ever. Spelled so, the method counts as one that the library does not know, and its answer comes as it is."""

LOGGERS: Final = ("telegram", "httpx", "httpcore")
"""Whose logs hold addresses, and with them the token."""

FILE_PATH: Final = re.compile(r"(?!\.)[A-Za-z0-9_.-]{1,255}(?:/(?!\.)[A-Za-z0-9_.-]{1,255}){0,9}")
"""Where a file is, below the address of the bot's files. Anything else could name a file of this machine."""

GONE: Final = (
    "chat not found",
    "user not found",
    "peer_id_invalid",
    "chat_write_forbidden",
    "not enough rights",
    "have no rights",
    "need administrator rights",
    "bot is not a member",
    "group chat was deactivated",
    "message thread not found",
    "topic_closed",
    "topic_deleted",
    "chat_restricted",
)
"""What Telegram says, in answers of 400, of a chat in which nothing can be shown."""

ACCOUNT_REFUSED: Final = (
    "Telegram does not take the token of bot {account}. Put the present one, from BotFather, into the file "
    "telegram/token of the home or into HANSARD_TELEGRAM_TOKEN, and start the gateway again."
)
CONFLICT: Final = (
    "Another program receives what is sent to this bot, so Hansard cannot: {why}. End the other program, or give it a "
    "bot of its own; a webhook is taken away by deleteWebhook. Nothing is lost meanwhile; Hansard goes on by itself."
)


class Me(NamedTuple):
    """Who the bot is."""

    id: int
    username: str


class NotParsed(PostRefused):
    """Telegram does not understand the formatting of a text; without it, it would."""


class NotModified(PostRefused):
    """What is to be shown is what is shown already."""


class GroupMoved(PostRefused):
    """The group has another id now."""

    def __init__(self, new_id: int) -> None:
        super().__init__("the group became a supergroup, with another id")
        self.new_id = new_id


class TelegramWire:
    """One bot, and how it is reached."""

    def __init__(self, token: Token, base_url: str) -> None:
        self._token = token
        self._base_url = base_url.rstrip("/")
        self._bot: Bot | None = None
        self._requests: list[BaseRequest] = []
        self._context: ssl.SSLContext | None = None
        self._files: httpx.AsyncClient | None = None
        self._me: Me | None = None
        self.trouble = ""
        """What a person has to do before this works again; empty when nothing."""

    def __repr__(self) -> str:
        return f"TelegramWire({self._token.account})"

    async def me(self) -> Me:
        if self._me is None:
            found = await self.ask(lambda bot: bot.get_me(), "asking who the bot is")
            self._me = Me(int(found.id), str(found.username or ""))
        return self._me

    async def updates(self, offset: int | None, poll_seconds: int, kinds: list[str]) -> list[Json]:
        """Return what happened from an offset on, as it came; what is below the offset, Telegram forgets."""
        asked: Json = {"timeout": poll_seconds, "limit": 100, "allowed_updates": kinds}
        if offset is not None:
            asked["offset"] = offset
        seconds = poll_seconds + ANSWER_SECONDS_MAX
        found = await self.ask(
            lambda bot: bot.do_api_request(GET_UPDATES, api_kwargs=asked, read_timeout=seconds), "receiving"
        )
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    async def ask(self, call: Callable[[Bot], Awaitable[Any]], what: str) -> Any:  # noqa: ANN401 - of any method
        """Ask for something that shows nothing; a failure is ChannelDown, or what Telegram says."""
        try:
            return await self.post(call, what)
        except PostUnknown as error:
            raise ChannelDown(str(error)) from None

    async def post(self, call: Callable[[Bot], Awaitable[Any]], what: str) -> Any:  # noqa: ANN401 - of any method
        """Make one request: ChannelDown when it was surely not made, PostUnknown when its answer did not come."""
        try:
            result = await call(self._open())
        except Exception as error:  # noqa: BLE001  # boundary: channel call
            raise self._error_of(error, what) from None
        self.trouble = ""
        return result

    async def download(self, file_id: str, *, bytes_max: int) -> bytes:
        """Return a file; TooLarge when it is, NotFound when Telegram does not give it."""

        async def fetch(bot: Bot) -> bytes:
            found = await bot.get_file(file_id)
            if (found.file_size or 0) > bytes_max:
                raise TooLarge(f"The file has {found.file_size} bytes; the limit is {bytes_max}.")
            return await self._read_file(bot.base_file_url, found.file_path or "", bytes_max)

        try:
            data: bytes = await self.ask(fetch, "fetching a file")
        except PostRefused as error:
            if "too big" in str(error):
                raise TooLarge("The file is larger than Telegram gives to bots.") from None
            raise NotFound("Telegram does not give the file any more.") from None
        return data

    async def _read_file(self, base_url: str, address: str, bytes_max: int) -> bytes:
        """Read a file from the bot's own address, up to the limit. The library reads files of this machine, too."""
        import httpx

        path = address.removeprefix(f"{base_url}/")
        if FILE_PATH.fullmatch(path) is None:
            raise NotFound("Telegram does not say where the file is.")
        if self._files is None:
            timeout = httpx.Timeout(ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
            self._files = httpx.AsyncClient(
                timeout=timeout, verify=self._verify(), headers=UNPACKED, follow_redirects=False
            )
        read = bytearray()
        try:
            async with (
                asyncio.timeout(DOWNLOAD_SECONDS_MAX),
                self._files.stream("GET", f"{base_url}/{path}") as response,
            ):
                if response.status_code == HTTPStatus.NOT_FOUND:
                    raise NotFound("Telegram does not give the file any more.")
                if response.status_code != HTTPStatus.OK or not is_plain(response):
                    raise ChannelDown(f"fetching a file: the server answered {response.status_code}")
                async for piece in response.aiter_raw():
                    read += piece
                    if len(read) > bytes_max:
                        raise TooLarge(f"The file has more than {bytes_max} bytes, which is the limit.")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise ChannelDown(f"fetching a file: {type(error).__name__}") from None
        return bytes(read)

    async def close(self) -> None:
        requests, self._requests, self._bot = self._requests, [], None
        for request in requests:
            await request.shutdown()
        files, self._files = self._files, None
        if files is not None:
            await files.aclose()

    def _verify(self) -> ssl.SSLContext | bool:
        """What certificates are checked by: made once, because it takes long; not where nothing is encrypted."""
        import httpx

        if self._context is None and self._base_url.startswith("https:"):
            self._context = httpx.create_ssl_context()
        return self._context or False

    def _open(self) -> Bot:
        from telegram import Bot
        from telegram.request import HTTPXRequest

        if self._bot is None:
            silence()
            kwargs = {
                "verify": self._verify(),
                "headers": UNPACKED,
                "follow_redirects": False,
                "event_hooks": {"response": [bound_answer]},
            }
            # Times as times, which the library gives from its next version on, and until then warns of.
            os.environ.setdefault("PTB_TIMEDELTA", "true")
            self._requests = [
                HTTPXRequest(
                    connection_pool_size=size,
                    connect_timeout=CONNECT_SECONDS_MAX,
                    read_timeout=ANSWER_SECONDS_MAX,
                    write_timeout=ANSWER_SECONDS_MAX,
                    pool_timeout=ANSWER_SECONDS_MAX,
                    media_write_timeout=UPLOAD_SECONDS_MAX,
                    httpx_kwargs=kwargs,
                )
                for size in (1, CONNECTIONS_MAX)
            ]
            self._bot = Bot(
                self._token.secret,
                base_url=f"{self._base_url}/bot",
                base_file_url=f"{self._base_url}/file/bot",
                get_updates_request=self._requests[0],
                request=self._requests[1],
            )
        return self._bot

    def _error_of(self, error: Exception, what: str) -> Exception:
        """Say what a failure means. `what` is what was tried, for people."""
        from telegram import error as errors

        said = self._said(error)
        found: Exception = PostUnknown(f"{what}: {type(error).__name__}")
        if isinstance(error, ChannelError | TooLarge | NotFound):
            found = error
        elif isinstance(error, errors.RetryAfter):
            found = ChannelBusy(f"{what}: Telegram asks to wait", seconds_of(error))
        elif isinstance(error, errors.ChatMigrated):
            found = GroupMoved(int(error.new_chat_id))
        elif isinstance(error, errors.Forbidden):
            found = ChatGone(f"{what}: {said}")
        elif isinstance(error, errors.InvalidToken | errors.EndPointNotFound):
            self.trouble = ACCOUNT_REFUSED.format(account=self._token.account)
            found = ChannelDown(self.trouble)
        elif isinstance(error, errors.Conflict):
            found = ChannelDown(CONFLICT.format(why=said))
        elif isinstance(error, errors.BadRequest):
            found = refusal_of(f"{what}: {said}")
        elif isinstance(error, errors.NetworkError):
            found = outage_of(error, what, said)
        return found

    def _said(self, error: Exception) -> str:
        """Return what Telegram said, without the token, should that be in there."""
        said = " ".join(str(error).split()).replace(self._token.secret, "…")[:300]
        return said.replace(self._token.secret.partition(":")[2], "…")


async def bound_answer(response: httpx.Response) -> None:
    """See that an answer is read only up to the limit: the library reads whatever comes."""
    import httpx

    if not is_plain(response):
        raise httpx.DecodingError("an answer is packed, although nobody asked for that", request=response.request)

    class BoundedTelegramStream(httpx.AsyncByteStream):
        """The bytes of an answer, counted."""

        def __init__(self, stream: httpx.AsyncByteStream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            count = 0
            async for piece in self._stream:
                count += len(piece)
                if count > ANSWER_BYTES_MAX:
                    raise httpx.ReadError("an answer is larger than any should be", request=response.request)
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    if isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = BoundedTelegramStream(response.stream)


def is_plain(response: httpx.Response) -> bool:
    """Whether an answer came as it is. A packed one could unpack to more than anybody has room for."""
    return str(response.headers.get("Content-Encoding", "identity")).casefold() == "identity"


def seconds_of(error: Any) -> float:  # noqa: ANN401 - the library's, which is imported late
    value = error.retry_after
    return float(value.total_seconds() if hasattr(value, "total_seconds") else value)


def refusal_of(text: str) -> ChannelError:
    said = text.casefold()
    if "can't parse entities" in said:
        return NotParsed(text)
    if "message is not modified" in said:
        return NotModified(text)
    return (ChatGone if any(sign in said for sign in GONE) else PostRefused)(text)


def outage_of(error: Exception, what: str, said: str) -> ChannelError:
    """Return what it means that no answer came, or one of a server that is not well."""
    import httpx

    cause = error.__cause__
    if isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.InvalidURL):
        return ChannelDown(f"{what}: Telegram cannot be reached ({type(cause).__name__})")
    if cause is not None:
        return PostUnknown(f"{what}: {type(cause).__name__}")
    if said.startswith("Too Many Requests"):
        return ChannelBusy(f"{what}: Telegram asks to wait", RETRY_SECONDS)
    if "Entity Too Large" in said:
        return PostRefused(f"{what}: it is larger than Telegram takes")
    return PostUnknown(f"{what}: {said}")


def silence() -> None:
    """Turn off the logs of the libraries: they hold addresses with the token. Callers report each failure."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
