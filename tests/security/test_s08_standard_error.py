"""S8: what a server of tools writes to its standard error is for the log and the terminal, never for a chat."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from hansard.app.logs import log_as_json
from hansard.cli.gateway import report
from hansard.tools.mcp import ServerTrouble

PASSWORD = "hunter2-in-standard-error"  # noqa: S105 - what must not be shown

DIES_AT_ONCE = f"import sys; print('\\x1b[31mpassword={PASSWORD}', file=sys.stderr); sys.exit(1)"

DIES_WHEN_CALLED = f"""
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {{"protocolVersion": message.get("params", {{}}).get("protocolVersion"), "capabilities": {{"tools": {{}}}},
              "serverInfo": {{"name": "t", "version": "1"}}}}
    if message["method"] == "tools/list":
        result = {{"tools": [{{"name": "look", "inputSchema": {{"type": "object"}}}}]}}
    if message["method"] == "tools/call":
        sys.exit("password={PASSWORD}")
    if "id" in message:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
"""


@pytest.mark.parametrize("program", [DIES_AT_ONCE, DIES_WHEN_CALLED], ids=["at once", "when called"])
def test_last_words_stay_out_of_the_record(tmp_path: Path, program: str) -> None:
    """The terminal's standard error has them, harmless; what is shown, recorded and so sent to chats has them not."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    script = tmp_path / "script.toml"
    script.write_text(
        '[[answers]]\ncalls = [{ name = "mcp__t__look", arguments = {} }]\n[[answers]]\ntext = "{result}"\n'
    )
    (home / "config.toml").write_text(
        f'model = "scripted:{script}"\n[mcp.t]\ncommand = {json.dumps(sys.executable)}\n'
        f'args = ["-c", {json.dumps(program)}]\n[[tools.rules]]\ntool = "mcp__t__*"\ndo = "allow"\n'
    )
    (home / "config.toml").chmod(0o600)
    words = [sys.executable, "-m", "hansard.cli.main", "--home", str(home), "-p", "Look."]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL)
    assert PASSWORD in done.stderr
    assert "\x1b" not in done.stderr
    assert "hansard: the server of tools t failed" in done.stderr
    assert PASSWORD not in done.stdout
    recorded = [path for path in home.rglob("*") if path.is_file() and path.name != "config.toml"]
    assert any(b"Look." in path.read_bytes() for path in recorded)
    assert not [path for path in recorded if PASSWORD.encode() in path.read_bytes()]
    logs = "".join(path.read_text() for path in home.rglob("*.jsonl"))
    assert "The tools of t are missing" in logs or "The server t failed" in logs


def test_the_gateway_logs_them() -> None:
    """The gateway's log names the server and has its last words."""
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    try:
        log_as_json(stream)
        report("", ServerTrouble("t", f"it did not start; password={PASSWORD}"))
    finally:
        root.handlers = handlers
        root.setLevel(level)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["server"]) == ("a server of tools failed", "t")
    assert PASSWORD in line["why"]
