"""S21: an address of a file that leaves the media path, and a homeserver that sends readers elsewhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from hansard.channels.matrix import media
from hansard.channels.matrix.wire import MatrixWire, path
from hansard.errors import ChannelDown, NotFound, PostRefused
from hansard.ports.channel import RemoteFile

TOKEN = "secret-token"  # noqa: S105


class Host:
    """A host that notes what it is asked, and answers every file with its name or a redirect."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tokens: list[str] = []
        self.redirect = ""
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        self.asked.append(request.raw_path)
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.redirect:
            return web.Response(status=307, headers={"Location": self.redirect})
        return web.Response(body=b"data")


@asynccontextmanager
async def serving() -> AsyncIterator[Host]:
    """A host on this machine."""
    host = Host()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", host.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield host
    finally:
        await runner.cleanup()


@asynccontextmanager
async def wire_to(host: Host) -> AsyncIterator[MatrixWire]:
    """Requests to a host, with a token."""
    wire = MatrixWire(host.url)
    wire.token = TOKEN
    try:
        yield wire
    finally:
        await wire.close()


def file_at(url: str) -> RemoteFile:
    """A file as a message names it."""
    return RemoteFile(reference=json.dumps({"url": url}))


BAD = [
    "mxc://../x",
    "mxc://./x",
    "mxc://example.org/..",
    "mxc://example.org/.",
    "mxc://example.org/",
    "mxc://example.org/a/b",
    "mxc://example.org/a%2F..",
    "mxc://example.org/a?b",
    "mxc://example.org/a#b",
    "mxc://user@example.org/a",
    "mxc://example.org:port/a",
    "mxc:///a",
    "mxc://exa mple.org/a",
    "https://example.org/a",
    "",
]


@pytest.mark.parametrize("url", BAD)
async def test_an_address_that_is_none_is_never_asked_for(url: str) -> None:
    """Server name and media id are those of the specification, or nothing is fetched and no request is made."""
    async with serving() as host, wire_to(host) as wire:
        with pytest.raises(NotFound):
            await media.fetch(wire, file_at(url), bytes_max=99)
        assert host.asked == []


@pytest.mark.parametrize("server", ["example.org", "example.org:8448", "10.0.0.1:8448", "[2001:db8::1]:8448", "a-b.c"])
async def test_an_address_is_asked_for_below_the_media_path(server: str) -> None:
    """Every server name that the specification allows is read from this account's own homeserver."""
    async with serving() as host, wire_to(host) as wire:
        assert await media.fetch(wire, file_at(f"mxc://{server}/aB_-9"), bytes_max=99) == b"data"
        assert [each.split("?")[0].startswith("/_matrix/client/v1/media/download/") for each in host.asked] == [True]
        assert host.asked[0].split("?")[0].endswith("/aB_-9")


async def test_a_redirect_is_not_followed() -> None:
    """Neither a file nor an answer is read from where the homeserver points to, on another host or on this one."""
    async with serving() as host, serving() as other, wire_to(host) as wire:
        for target in (f"{other.url}/x", f"{host.url}/elsewhere"):
            host.asked.clear()
            host.redirect = target
            with pytest.raises(ChannelDown):
                await media.fetch(wire, file_at("mxc://example.org/a"), bytes_max=99)
            with pytest.raises(ChannelDown):
                await wire.ask("GET", path("account", "whoami"))
            assert "/elsewhere" not in host.asked
            assert (other.asked, other.tokens) == ([], [])


@pytest.mark.parametrize("part", ["..", "."])
def test_no_part_of_an_address_climbs(part: str) -> None:
    """Ids come from the platform: one that would change the path of a request is refused."""
    with pytest.raises(PostRefused):
        path("rooms", part, "members")
    assert path("rooms", "!a/../b?c#d:e", "members").endswith("/rooms/%21a%2F..%2Fb%3Fc%23d%3Ae/members")
