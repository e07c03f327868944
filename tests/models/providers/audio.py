"""OpenAI's `/audio/transcriptions` on loopback: takes a form with a file, as the real one does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, NamedTuple

ENDINGS = {"flac", "m4a", "mp3", "mp4", "mpeg", "mpga", "oga", "ogg", "wav", "webm"}
"""The formats that the real one takes, by the end of the file's name."""


class Upload(NamedTuple):
    """One request."""

    key: str
    model: str
    name: str
    data: bytes


class Ears:
    """The server: every request, and what is answered to the next ones; the last answer repeats."""

    def __init__(self, *answers: dict[str, Any] | int | str) -> None:
        """A dict is an answer, a number a status that refuses, text a body as it stands, "" silence."""
        self._answers = list(answers)
        self.uploads: list[Upload] = []
        self.base_url = ""
        self.asked = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while True:
                status, body = await self._reply(*await read_request(reader))
                head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _reply(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        fields = form_of(headers["content-type"], body)
        name, data = fields["file"]
        self.uploads.append(Upload(headers.get("authorization", ""), fields["model"][1].decode(), name, data))
        self.asked.set()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer == "":
            await asyncio.Event().wait()
        if name.rpartition(".")[2] not in ENDINGS:
            answer = 400
        if isinstance(answer, int):
            return answer, json.dumps({"error": {"message": f"refused, says the fake of sk-secret: {name}"}}).encode()
        return 200, answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()


async def read_request(reader: asyncio.StreamReader) -> tuple[dict[str, str], bytes]:
    """Read one request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    assert first.startswith("POST /v1/audio/transcriptions "), first
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return headers, await reader.readexactly(int(headers["content-length"]))


def form_of(content_type: str, body: bytes) -> dict[str, tuple[str, bytes]]:
    """Return the fields of a form, each with the name of its file."""
    parsed = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    fields: dict[str, tuple[str, bytes]] = {}
    for part in parsed.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        payload = part.get_payload(decode=True)
        assert isinstance(payload, bytes)
        fields[name] = (part.get_filename() or "", payload)
    return fields


@contextlib.asynccontextmanager
async def ears(*answers: dict[str, Any] | int | str) -> AsyncIterator[Ears]:
    """Run the server for as long as a test needs it."""
    served = Ears(*answers)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(served.answer(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    served.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield served
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
