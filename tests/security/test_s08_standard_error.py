"""S8: what a server of tools writes to its standard error is for the log and the terminal, never for a chat."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from hansard.cli.gateway import report
from hansard.domain.settings.agent import McpServer
from hansard.gateway.logs import log_as_json
from hansard.tools.confined import NOT_CONFINED
from hansard.tools.mcp import McpServers, ServerTrouble
from tests.acceptance.fresh_desk import Desk
from tests.acceptance.fresh_terminal import needs_tmux

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
    assert "hansard: the server of tools t: " in done.stderr
    assert PASSWORD not in done.stdout
    recorded = [path for path in home.rglob("*") if path.is_file() and path.name != "config.toml"]
    assert any(b"Look." in path.read_bytes() for path in recorded)
    assert not [path for path in recorded if PASSWORD.encode() in path.read_bytes()]
    logs = "".join(path.read_text() for path in home.rglob("*.jsonl"))
    assert "The tools of t are missing" in logs or "The server t failed" in logs


@needs_tmux
async def test_in_a_terminal(tmp_path: Path) -> None:
    """They are on the screen and not in the record. Keys in the environment change nothing about the terminal."""
    desk = Desk(tmp_path)
    desk.script({"text": "You said: {last}"}, {"text": "One two three.", "stall": {"after_pieces": 2}})
    desk.home.mkdir(parents=True, mode=0o700)
    (desk.home / "config.toml").write_text(
        f"[mcp.t]\ncommand = {json.dumps(sys.executable)}\nargs = ['-c', {json.dumps(DIES_AT_ONCE)}]\n"
    )
    with desk.shell(OPENAI_API_KEY="sk-of-a-person") as shell:
        shell.type("hansard")
        shell.see("record: in order")
        shell.type("Hello.")
        shell.see(PASSWORD)
        shell.see("You said: Hello.")
        shell.keys("H", "e", "l", "l", "p", "BSpace", "o", "!", "Enter")
        shell.see("One two")
        shell.keys("C-c")
        shell.see("interrupted")
        shell.keys("C-d")
        assert shell.prompt() == 0
    assert PASSWORD not in "".join(path.read_text() for path in desk.home.rglob("*.jsonl"))
    assert "Hello!" in "".join(path.read_text() for path in desk.home.rglob("*.jsonl"))


def test_the_gateway_logs_them() -> None:
    """The gateway's log names the server and has its last words."""
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    try:
        log_as_json(logging.StreamHandler(stream))
        report("", ServerTrouble("t", f"it did not start; password={PASSWORD}"))
    finally:
        root.handlers = handlers
        root.setLevel(level)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["server"]) == ("a server of tools has trouble", "t")
    assert PASSWORD in line["why"]


async def test_a_program_that_is_not_confined_is_told() -> None:
    """Where the system cannot confine a program, it runs, and the log and the terminal say so."""
    program = f"import sys; print({NOT_CONFINED!r}, file=sys.stderr, flush=True)\n{DIES_WHEN_CALLED}"
    troubles: list[ServerTrouble] = []
    settings = McpServer(command=sys.executable, args=("-c", program), start_seconds_max=120)
    servers = McpServers({"t": settings}, {}, {}, tell=troubles.append)
    assert await servers.prepare() == []
    await servers.close()
    assert [trouble.why for trouble in troubles] == [NOT_CONFINED]
