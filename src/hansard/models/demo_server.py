"""The demo model's server: llama.cpp's own HTTP server, in a process of its own that never outlives its parent.

It is started by `hansard.models.demo` as `python -m hansard.models.demo_server`. The first line of standard input is
the key that requests must carry; after that standard input says nothing, and its end means that the parent is gone.
Once the server answers, one line of JSON on standard output names its port. Only the standard library is imported
here, and xllamacpp from the folder that is given: each start pays for every import.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

HOST: Final = "127.0.0.1"

MODEL_ALIAS: Final = "SmolLM2-135M-Instruct"
"""What the server calls its model; any name in a request is answered."""

CONTEXT_TOKENS: Final = 4096
"""Question and answer together. More would cost memory that is taken at the start (23 KB a token)."""

THREADS_MAX: Final = 4
"""More threads than this make a model of this size hardly faster."""

HEALTH_SECONDS_MAX: Final = 5.0
"""How long the server may take to answer its first question, once the model is loaded."""

ERRORS_ONLY: Final = 1
"""llama.cpp's verbosity: what was said belongs in the record and nowhere else, so nothing but errors is logged."""

PR_SET_PDEATHSIG: Final = 1
"""Linux: the kernel sends this process a signal when its parent dies, however it dies."""

LINE_BYTES_MAX: Final = 4096
"""The key's line: far more than a key."""


def die_with_parent() -> None:
    """Ask the kernel to end this process with its parent. Other systems have the end of standard input alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_for_end() -> None:
    """Read standard input until it ends, then leave at once: there is nothing to save."""
    while os.read(sys.stdin.fileno(), LINE_BYTES_MAX):
        pass
    os._exit(0)


def threads() -> int:
    """Return how many threads to compute with: half of the processors that this process may use, within the limit.

    The threads wait for one another by spinning. As soon as other programs want the same processors, two threads on
    two of them are many times slower than one.
    """
    available = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(available // 2, THREADS_MAX))


def serve(model: str, key: str) -> tuple[object, int]:
    """Load the model and serve it. Returns the server, which lives as long as it is held, and its port.

    One slot: requests are answered one after another, each with the whole context. The sampling is as careful as so
    small a model needs: hardly any chance, and a price on repeating itself.
    """
    library = importlib.import_module("xllamacpp")
    parameters = library.CommonParams()
    parameters.model.path = model
    parameters.model_alias = {MODEL_ALIAS}
    parameters.hostnames = [HOST]
    parameters.port = 0
    parameters.api_keys = [key]
    parameters.cors_origins = ""
    parameters.ui = False
    parameters.endpoint_slots = False
    parameters.offline = True
    parameters.verbosity = ERRORS_ONLY
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.cache_ram_mib = 0
    parameters.warmup = False
    parameters.cpuparams.n_threads = threads()
    parameters.cpuparams_batch.n_threads = threads()
    parameters.sampling.temp = 0.2
    parameters.sampling.top_p = 0.9
    parameters.sampling.penalty_repeat = 1.1
    parameters.sampling.dry_multiplier = 0.8
    server = library.Server(parameters)
    port = urlsplit(server.listening_address).port
    assert port is not None
    return server, port


def healthy(port: int) -> bool:
    import http.client  # not at the top: the terminal imports this module before its prompt

    connection = http.client.HTTPConnection(HOST, port, timeout=HEALTH_SECONDS_MAX)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    finally:
        connection.close()


def read_key() -> str:
    """Read the key's line, byte by byte, so that nothing behind it is taken."""
    line = b""
    while not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            break
        line += byte
    return line.decode().strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until standard input ends or the parent dies."""
    parser = argparse.ArgumentParser(prog="hansard.models.demo_server", description="Serve the demo model.")
    parser.add_argument("--model", required=True, help="the GGUF file")
    parser.add_argument("--library", help="a folder with xllamacpp; without it, the environment's own is taken")
    options = parser.parse_args(arguments)
    die_with_parent()
    key = read_key()
    if not key:
        return 1
    watcher = threading.Thread(target=wait_for_end, daemon=True)
    watcher.start()
    # Whatever the library prints goes to the log; the announcement has standard output to itself.
    announcement = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if options.library:
        sys.path.insert(0, options.library)
    server, port = serve(options.model, key)
    if not healthy(port):
        return 1
    os.write(announcement, json.dumps({"port": port}).encode() + b"\n")
    watcher.join()
    del server
    return 0


if __name__ == "__main__":
    sys.exit(main())
