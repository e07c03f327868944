"""Runs in the environment of a hermes-agent: makes calls of its own stores, as its programs make them.

Standard input: a JSON object with `calls`, each [store, method, arguments, options]; `store` is "db" (SessionDB) or
"gateway" (the gateway's SessionStore, which keeps the logs of old versions). `leave` ends the process without closing
anything, as a crash does. HERMES_HOME names the home.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

home = Path(os.environ["HERMES_HOME"])
given = json.load(sys.stdin)
stores: dict[str, Any] = {}


def open_store(name: str) -> Any:  # noqa: ANN401 - of another program
    """Open a store when it is first called."""
    if name not in stores:
        if name == "db":
            from hermes_state import SessionDB  # type: ignore[import-not-found]  # noqa: PLC0415

            stores[name] = SessionDB(home / "state.db")
        else:
            from gateway.config import GatewayConfig  # type: ignore[import-not-found]  # noqa: PLC0415
            from gateway.session import SessionStore  # type: ignore[import-not-found]  # noqa: PLC0415

            (home / "sessions").mkdir(parents=True, exist_ok=True)
            stores[name] = SessionStore(home / "sessions", GatewayConfig())
    return stores[name]


for store, method, arguments, options in given["calls"]:
    getattr(open_store(store), method)(*arguments, **options)
if given.get("leave"):
    os._exit(0)
for each in stores.values():
    getattr(each, "_db", each).close()
