"""A server on loopback that answers without end, packs gigabytes into little, or leads elsewhere.

It stops when the client hangs up, and counts what it sent until then.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat

MIB = 1 << 20
SENT_BYTES_MAX = 4096 * MIB
"""A client that has not hung up by then reads everything."""

PIECE = "x" * 65_536


def chat(delta: dict[str, object]) -> bytes:
    """Return one event of Chat Completions."""
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    event = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def arguments() -> Iterator[bytes]:
    """Give one call of a tool whose arguments have no end."""
    function = {"name": "clock", "arguments": '{"zone": "'}
    yield chat({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]})
    yield from repeat(chat({"tool_calls": [{"index": 0, "function": {"arguments": PIECE}}]}))


def packed() -> Iterator[bytes]:
    """Give one gzip stream that unpacks to a thousand times as much."""
    packer = zlib.compressobj(wbits=31)
    while True:
        yield packer.compress(b"\0" * (64 * MIB)) + packer.flush(zlib.Z_SYNC_FLUSH)


def bodies(kind: str) -> Iterator[bytes]:
    """Give the body of an answer of a kind, without end."""
    if kind == "arguments":
        return arguments()
    if kind == "reasoning":
        return repeat(chat({"reasoning_content": PIECE}))
    if kind == "text":
        return repeat(chat({"content": PIECE}))
    if kind == "lines":
        return repeat(b"data: " + PIECE.encode() + b"\n")
    if kind in {"packed", "packed-events"}:
        return packed()
    return iter((b"data: ", *repeat(PIECE.encode(), SENT_BYTES_MAX // len(PIECE))))


class Handler(BaseHTTPRequestHandler):
    """`/KIND/…` answers in that way."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.headers.append(dict(self.headers.items()))
        kind = self.path.split("/")[1]
        self.close_connection = True
        if kind == "redirect":
            self.send_response(307)
            self.send_header("location", f"http://localhost:{self.server.server_port}/elsewhere{self.path}")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        self.send_response(500 if kind == "error" else 200)
        self.send_header("content-type", "application/json" if kind in {"packed", "error"} else "text/event-stream")
        if kind.startswith("packed"):
            self.send_header("content-encoding", "gzip")
        self.send_header("connection", "close")
        self.end_headers()
        with suppress(OSError):
            for data in bodies(kind):
                self.wfile.write(data)
                self.server.sent_bytes += len(data)
                if self.server.sent_bytes > SENT_BYTES_MAX:
                    return

    do_GET = do_POST  # noqa: N815 - the library's name

    def log_message(self, *_arguments: object) -> None:
        """Be quiet."""


class Server(ThreadingHTTPServer):
    """Answers each request in a thread."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen on a free port."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.sent_bytes = 0
        self.headers: list[dict[str, str]] = []


@contextmanager
def endless() -> Iterator[Server]:
    """Run it for as long as a test needs it."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
