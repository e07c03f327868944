"""S16: a Bot API that names a file of this machine, another host, or sends without end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from hansard.channels.telegram import TelegramChannel, open_telegram
from hansard.channels.telegram import wire as telegram_wire
from hansard.errors import ChannelDown, ChannelError, NotFound, TooLarge
from hansard.ports.channel import RemoteFile
from tests.channels.telegram.stage import PACE

TOKEN = "12345:AAtestTOKENtestTOKENtestTOKENtest"  # noqa: S105
ENDLESS_BYTES = 64 * 1024 * 1024
BYTES_MAX = 100_000
FILE = RemoteFile(reference="some-file")


class Api:
    """A Bot API that answers getFile as it is told."""

    def __init__(self) -> None:
        self.url = ""
        self.file_path = "documents/a.txt"
        self.redirect = ""
        self.is_endless = False
        self.endless_answer = False
        self.asked: list[str] = []
        self.sent_bytes = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        self.asked.append(request.path)
        if request.path.startswith("/bot"):
            if self.endless_answer:
                return await self._endless(request)
            told = {"file_id": "some-file", "file_unique_id": "u", "file_path": self.file_path}
            return web.json_response({"ok": True, "result": told})
        if self.redirect:
            return web.Response(status=302, headers={"Location": self.redirect})
        return await self._endless(request) if self.is_endless else web.Response(body=b"data")

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        """Send much more than anybody wants, until nobody reads it."""
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        while self.sent_bytes < ENDLESS_BYTES:
            await response.write(b"x" * 65536)
            self.sent_bytes += 65536
        return response


@asynccontextmanager
async def serving() -> AsyncIterator[Api]:
    """A server on this machine."""
    api = Api()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", api.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()


@asynccontextmanager
async def channel_to(api: Api, home: Path) -> AsyncIterator[TelegramChannel]:
    """A bot that asks this server."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    channel = open_telegram(home, {"HANSARD_TELEGRAM_TOKEN": TOKEN}, base_url=api.url, pace=PACE)
    try:
        yield channel
    finally:
        await channel.close()


async def test_a_file_of_this_machine_is_never_read(home: Path, tmp_path: Path) -> None:
    """An answer that names a file here, by whatever spelling, gives nothing of it."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    named = [str(secret), f"//{secret}", f"file://{secret}", f"../../..{secret}", "a/../b", "./a", "a//b", "a?b", "a#b"]
    async with serving() as api, channel_to(api, home) as channel:
        for api.file_path in named:
            api.asked.clear()
            with pytest.raises(NotFound):
                await channel.fetch(FILE, bytes_max=BYTES_MAX)
            assert [each for each in api.asked if each.startswith("/file")] == [], api.file_path


async def test_a_path_that_exists_here_too_is_read_from_the_server(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path names a file of the server, whatever the gateway's folder holds."""
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a.txt").write_bytes(b"secret")
    monkeypatch.chdir(tmp_path)
    async with serving() as api, channel_to(api, home) as channel:
        assert await channel.fetch(FILE, bytes_max=BYTES_MAX) == b"data"
        assert api.asked[-1] == f"/file/bot{TOKEN}/documents/a.txt"


async def test_another_host_is_never_asked(home: Path) -> None:
    """Neither a path that is an address nor a redirect leads to another host, which would be shown the token."""
    async with serving() as api, serving() as other, channel_to(api, home) as channel:
        for api.file_path in (f"{other.url}/x", f"//{other.url.partition('//')[2]}/x", "@127.0.0.1/x"):
            with pytest.raises(NotFound):
                await channel.fetch(FILE, bytes_max=BYTES_MAX)
        api.file_path, api.redirect = "documents/a.txt", f"{other.url}/x"
        with pytest.raises((ChannelDown, NotFound)):
            await channel.fetch(FILE, bytes_max=BYTES_MAX)
        assert other.asked == []


async def test_a_file_without_end_is_read_up_to_the_limit(home: Path) -> None:
    """The size that the server tells is not relied on: reading stops at the limit."""
    async with serving() as api, channel_to(api, home) as channel:
        api.is_endless = True
        with pytest.raises(TooLarge):
            await channel.fetch(FILE, bytes_max=BYTES_MAX)
        assert api.sent_bytes < ENDLESS_BYTES


async def test_an_answer_without_end_is_given_up(home: Path) -> None:
    """Answers of the API itself have a limit, too."""
    async with serving() as api, channel_to(api, home) as channel:
        api.endless_answer = True
        with pytest.raises(ChannelError):
            await channel.fetch(FILE, bytes_max=BYTES_MAX)
        assert telegram_wire.ANSWER_BYTES_MAX < ENDLESS_BYTES
        assert api.sent_bytes < ENDLESS_BYTES
