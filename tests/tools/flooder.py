"""A program that speaks just enough of the protocol, and then writes a gigabyte without the end of a line.

    python -m tests.tools.flooder FILE

FILE gets a line for each megabyte that somebody read.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
FLOOD_MIB = 1024
BABBLE_MIB = 16

SCHEMA = {"type": "object", "properties": {}}


def answer(asked: dict[str, Any], ran: Path) -> dict[str, Any] | None:
    """Return what is answered to a message; nothing to a notification."""
    method = asked.get("method")
    if method == "initialize":
        version = asked["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "f", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": "flood", "inputSchema": SCHEMA}]}
    if method == "tools/call":
        for _ in range(BABBLE_MIB):
            os.write(2, b"y" * MIB)
        for number in range(FLOOD_MIB):
            with ran.open("a") as file:
                file.write(f"{number}\n")
            os.write(1, b"x" * MIB)
    return None


def main() -> None:
    """Serve until told to stop."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        result = answer(asked, Path(sys.argv[1]))
        if result is None:
            reply = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "not here"}}
        else:
            reply = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        os.write(1, json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main()
