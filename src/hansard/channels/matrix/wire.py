"""Requests to a homeserver, and what each failure means for what was asked.

Redirects are not followed: what is asked, and the token, are for the homeserver alone.
A request is made once: waiting and repeating are the business of whoever knows what the request was for.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, Unpack
from urllib.parse import quote

import msgspec

from hansard.channels import Json, text_of
from hansard.errors import ChannelBusy, ChannelDown, ChannelError, ChatGone, PostRefused, PostUnknown, TooLarge

if TYPE_CHECKING:
    import aiohttp

Query = dict[str, str]

SOME_REQUEST: Final = "a request"

CLIENT: Final = "/_matrix/client/v3"
CONNECT_SECONDS_MAX: Final = 10.0
"""A homeserver that does not take the connection by then is not there."""
ANSWER_SECONDS_MAX: Final = 60.0
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of one JSON answer; a first sync of a large account may be long."""
MEDIA_SECONDS_MAX: Final = 600.0
CONNECTIONS_MAX: Final = 64
"""At once, to the one homeserver. More requests wait for a free one."""
RETRY_SECONDS: Final = 5.0
"""When the homeserver asks to wait and does not say how long."""
RETRY_SECONDS_MAX: Final = 3600.0

TOKEN_CODES: Final = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"})
PASSING_CODES: Final = frozenset(
    {"M_RESOURCE_LIMIT_EXCEEDED", "M_USER_LOCKED", "M_USER_SUSPENDED", "M_CONSENT_NOT_GIVEN", "M_SERVER_NOT_TRUSTED"}
)
"""Refusals that are about the account or the server, and pass once a person puts that right."""

CLIMBING: Final = frozenset({".", ".."})
"""Parts of a path that name another folder. Quoting leaves them as they are."""


class MatrixResponse(NamedTuple):
    """What the homeserver said."""

    status: int
    body: Json
    retry_seconds: float = RETRY_SECONDS

    @property
    def is_good(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def code(self) -> str:
        """Matrix's own name of the error, such as M_FORBIDDEN; empty when something else answered."""
        return text_of(self.body, "errcode")

    @property
    def is_token_refused(self) -> bool:
        return self.status == HTTPStatus.UNAUTHORIZED and self.code in TOKEN_CODES


def path(*parts: str) -> str:
    """Join the parts of a path of the client-server API, each quoted. None may climb: some come from other people."""
    if not CLIMBING.isdisjoint(parts):
        raise PostRefused("an id of the platform is no id")
    return "/".join([CLIENT, *(quote(part, safe="") for part in parts)])


def error_of(answer: MatrixResponse, what: str) -> ChannelError:
    """Say what a refusal means. `what` is what was tried, for people."""
    text = f"{what}: the homeserver answered {answer.status} {answer.code}".rstrip()
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS or answer.code == "M_LIMIT_EXCEEDED":
        return ChannelBusy(text, answer.retry_seconds)
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return PostUnknown(text)
    if answer.is_token_refused or answer.code in PASSING_CODES:
        return ChannelDown(text)
    if answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or answer.code == "M_TOO_LARGE":
        return PostRefused(text)
    if not answer.code:
        # Not a homeserver's answer: a proxy's, or that of a wrong address.
        return ChannelDown(text)
    return (ChatGone if answer.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND} else PostRefused)(text)


def asking_error_of(answer: MatrixResponse, what: str) -> ChannelError:
    """Say what a refusal of something means that shows nothing: its outcome is never unknown."""
    error = error_of(answer, what)
    return ChannelDown(str(error)) if isinstance(error, PostUnknown) else error


def retry_seconds_of(body: Json, header: str | None) -> float:
    """How long the homeserver asks to wait: its header first, then the older field."""
    for value, unit_seconds in ((header, 1.0), (body.get("retry_after_ms"), 0.001)):
        try:
            seconds = float(str(value)) * unit_seconds
        except ValueError:
            continue
        if 0 <= seconds <= RETRY_SECONDS_MAX:
            return seconds
    return RETRY_SECONDS


class RequestOptions(TypedDict, total=False):
    """What a request is for, in words for people; how long it may take; the query of its address; what the body is."""

    what: str
    seconds: float
    query: Query
    media_type: str


class MatrixWire:
    """One homeserver, and the token by which it knows us."""

    def __init__(self, homeserver: str) -> None:
        self.homeserver = homeserver.rstrip("/")
        self.token = ""
        self.is_token_refused = False
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, method: str, path: str, body: object = None, **options: Unpack[RequestOptions]) -> Json:
        """Ask for something that shows nothing; a failure is ChannelDown, or what the homeserver says."""
        answer = await self.try_ask(method, path, body, **options)
        if not answer.is_good:
            raise asking_error_of(answer, options.get("what", SOME_REQUEST))
        return answer.body

    async def try_ask(
        self, method: str, path: str, body: object = None, **options: Unpack[RequestOptions]
    ) -> MatrixResponse:
        """Ask for something that shows nothing, and return whatever is answered."""
        try:
            return await self.post(method, path, body, **options)
        except PostUnknown as error:
            raise ChannelDown(str(error)) from error

    async def post(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        what: str = SOME_REQUEST,
        seconds: float = ANSWER_SECONDS_MAX,
        query: Query | None = None,
        media_type: str = "application/json",
    ) -> MatrixResponse:
        """Make one request: ChannelDown when it was surely not made, PostUnknown when its answer did not come."""
        import aiohttp

        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS_MAX)
        try:
            async with self._open().request(
                method,
                self.homeserver + path,
                data=data,
                headers=self._headers() | ({"Content-Type": media_type} if data is not None else {}),
                params=query,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                answer = await answer_of(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise ChannelDown(f"{what}: {reason(error)}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PostUnknown(f"{what}: {reason(error)}") from error
        self.is_token_refused = self.is_token_refused or answer.is_token_refused
        return answer

    async def upload(self, data: bytes, *, name: str, media_type: str) -> str:
        """Store a file on the homeserver; return its mxc address."""
        options: RequestOptions = {"what": "storing a file", "seconds": MEDIA_SECONDS_MAX, "media_type": media_type}
        if name:
            options["query"] = {"filename": name}
        answer = await self.ask("POST", "/_matrix/media/v3/upload", data, **options)
        return str(answer.get("content_uri", ""))

    async def download(self, path: str, *, bytes_max: int) -> bytes | MatrixResponse:
        """Read a file; TooLarge once it is seen to be larger. What is not a file is returned as an answer."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=MEDIA_SECONDS_MAX, sock_connect=CONNECT_SECONDS_MAX, sock_read=60.0)
        try:
            async with self._open().get(
                self.homeserver + path,
                headers=self._headers(),
                params={"allow_redirect": "false"},
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                if response.status != HTTPStatus.OK:
                    return await answer_of(response)
                if (response.content_length or 0) > bytes_max:
                    raise TooLarge(f"The file has {response.content_length} bytes; the limit is {bytes_max}.")
                read = bytearray()
                async for piece in response.content.iter_chunked(64 * 1024):
                    read += piece
                    if len(read) > bytes_max:
                        raise TooLarge(f"The file has more than {bytes_max} bytes, which is the limit.")
                return bytes(read)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ChannelDown(f"fetching a file: {reason(error)}") from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            # The transports of closed connections end with the next turns of the loop.
            await asyncio.sleep(0)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def reason(error: BaseException) -> str:
    """What went wrong, without anything that was sent."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def answer_of(response: aiohttp.ClientResponse) -> MatrixResponse:
    """Read an answer. What is not a JSON object counts as an empty one: something else than Matrix answered."""
    read = bytearray()
    async for piece in response.content.iter_chunked(64 * 1024):
        read += piece
        if len(read) > ANSWER_BYTES_MAX:
            return MatrixResponse(HTTPStatus.INTERNAL_SERVER_ERROR, {})
    try:
        body = msgspec.json.decode(read, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A proxy's page in place of an answer: nothing is known about what became of the request.
        status = response.status if response.status >= HTTPStatus.MULTIPLE_CHOICES else HTTPStatus.INTERNAL_SERVER_ERROR
        return MatrixResponse(status, {}, retry_seconds_of({}, response.headers.get("Retry-After")))
    return MatrixResponse(response.status, body, retry_seconds_of(body, response.headers.get("Retry-After")))
