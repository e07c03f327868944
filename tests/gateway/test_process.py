"""`hansard gateway` as people run it: reload, status, logs and metrics of a process, and what a newer Hansard does."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner, Result

from hansard.cli.main import cli
from hansard.errors import GatewaySilent, RecordTooNew
from hansard.gateway.health import Running, ask_health, write_status
from hansard.journal.locks import HostOwners
from hansard.record.api import Record
from hansard.record.schema import SCHEMA
from tests.gateway.care import write_config
from tests.gateway.exposition import ask, parse
from tests.gateway.program import PASSWORD, PROGRAM, environment, running
from tests.gateway.stage import until, write_script


async def hansard(home: Path, *arguments: str) -> Result:
    """Run a command beside the gateway, to its end."""
    runner = CliRunner(env={"HANSARD_HOME": "", "HANSARD_MATRIX_PASSWORD": PASSWORD})
    return await asyncio.to_thread(runner.invoke, cli, ["--home", str(home), *arguments])


def migrate_further(home: Path) -> None:
    """Do what a newer Hansard does that changed nothing but its number."""
    owners = HostOwners(home)
    owners.join()
    connection = apsw.Connection(str(home / "state.db"))
    connection.set_busy_timeout(10_000)
    connection.pragma("user_version", SCHEMA.version + 1)
    connection.close()
    owners.ring()
    owners.leave(killed=False)


async def test_a_gateway_that_does_not_answer_is_not_told_as_gone(tmp_path: Path) -> None:
    """One that is stopped, or too busy to answer, is named; "no gateway runs" is said only when none does."""
    home = tmp_path / "home"
    write_config(home, write_script(tmp_path / "script"))
    async with running(home) as process:
        process.send_signal(signal.SIGSTOP)
        try:
            # Linux tells that a process is stopped once it is; only its parent may wait for that.
            await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            told = await hansard(home, "gateway", "status")
            as_json = await hansard(home, "gateway", "status", "--json")
            reloaded = await hansard(home, "gateway", "reload")
        finally:
            process.send_signal(signal.SIGCONT)
        assert await ask_health(home) is not None
    why = f"the gateway is stopped (process {process.pid})"
    advised = f"{why}\nLet it go on: kill -CONT {process.pid}\n"
    assert (told.exit_code, told.stdout) == (1, advised)
    assert json.loads(as_json.stdout) == {"status": "stopped", "pid": process.pid, "why": why}
    assert (as_json.exit_code, reloaded.exit_code, reloaded.stderr) == (1, 1, advised)


async def test_a_gateway_that_is_busy(home: Path) -> None:
    """Its process runs and does not answer within the time: exit code 1, for "none runs" would be untrue."""
    home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        write_status(home, Running(pid=os.getpid(), port=deaf.getsockname()[1]))
        with pytest.raises(GatewaySilent, match=rf"\(process {os.getpid()}\) did not answer within 0.2 s") as told:
            await ask_health(home, seconds_max=0.2)
    assert (told.value.pid, told.value.is_stopped) == (os.getpid(), False)


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    """A gateway whose health port somebody else listens on says so, with the setting, and does not start."""
    home = tmp_path / "home"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        write_config(home, write_script(tmp_path / "script"), more=f"[gateway]\nhealth_port = {port}\n")
        command = [*PROGRAM, "gateway"]
        done = await asyncio.to_thread(
            subprocess.run, command, env=environment(home), capture_output=True, text=True, check=False, timeout=120
        )
    assert done.returncode == 2
    told = f"gateway.health_port: port {port} of 127.0.0.1 cannot be listened on: {os.strerror(errno.EADDRINUSE)}"
    assert told in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_gateway_is_reloaded_and_looked_at(home: Path, tmp_path: Path) -> None:
    """Reload says what became of it, status when it was taken up; the log is a private file of JSON lines."""
    script, log_file = write_script(tmp_path / "script"), tmp_path / "gateway.log"
    write_config(home, script)
    assert (await hansard(home, "gateway", "reload")).exit_code == 2
    async with running(home, "--log-file", str(log_file)) as process:
        write_config(home, script, more="[gateway]\nhealth_port = 4\n")
        done = await hansard(home, "gateway", "reload")
        taken = f"taken up by process {process.pid}\nfrom the next start on: gateway.health_port\n"
        assert (done.exit_code, done.stdout) == (0, taken)
        (home / "config.toml").write_text('model = "nonsense"\n')
        done = await hansard(home, "gateway", "reload")
        assert done.exit_code == 1
        assert done.stderr.startswith(f"nothing was changed:\n{home / 'config.toml'}, line 1: model must be one of")
        shown = (await hansard(home, "gateway", "status")).stdout
        assert "the last one was refused, `hansard config check` says why" in shown
        health = await ask_health(home)
        assert health is not None
        assert f"configuration taken up at {health.config.taken_up_at}" in shown
        assert health.config.readings == 2
        _, page = await ask(home, "/metrics")
        assert parse(page)["hansard_config_valid"].samples["hansard_config_valid", ()] == 0
        process.send_signal(signal.SIGTERM)
        await until(lambda: process.poll() is not None)
        assert process.returncode == 143
        assert process.stderr is not None
        assert process.stderr.read() == ""
    events = [json.loads(line) for line in log_file.read_text().splitlines()]
    told = [event["event"] for event in events]
    assert told.count("configuration taken up") == 1
    assert told.count("configuration refused") == 1
    assert told[-1] == "stopped"
    assert log_file.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in log_file.read_text()


@pytest.mark.loss("M1")
async def test_a_newer_hansard_ends_an_old_gateway(home: Path, tmp_path: Path) -> None:
    """A gateway that does nothing notices a migrated record within seconds, says so, and ends with exit code 3."""
    write_config(home, write_script(tmp_path / "script"))
    async with running(home) as process:
        before = (home / "home.jsonl").read_bytes()
        migrate_further(home)
        await until(lambda: process.poll() is not None)
        assert process.returncode == 3
        assert process.stderr is not None
        said = process.stderr.read()
        assert '"event":"the record was migrated"' in said
        version = SCHEMA.version + 1
        told = (
            f"hansard: state.db was migrated to schema version {version} by a newer Hansard; this one must be restarted"
        )
        assert told in said
        assert "Start this program again" in said.splitlines()[-1]
        assert (home / "home.jsonl").read_bytes() == before
    with pytest.raises(RecordTooNew):
        async with Record.open(home):
            pass


@pytest.mark.loss("M1")
async def test_a_newer_hansard_ends_a_talk(home: Path, tmp_path: Path) -> None:
    """Somebody who talks through a pipe is told that it was not taken, and what to do; nothing is written."""
    write_config(home, write_script(tmp_path / "script"))
    process = subprocess.Popen(
        PROGRAM,
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("hello\n")
        process.stdin.flush()
        said = await asyncio.to_thread(process.stdout.readline)
        assert said == "You said: hello\n"
        migrate_further(home)
        logs = {path: path.read_bytes() for path in home.rglob("*.jsonl")}
        output, errors = await asyncio.to_thread(process.communicate, "and this?\n", 60)
        assert "and this?" not in output
        assert "Start this program again" in errors
        assert process.returncode != 0
        assert {path: path.read_bytes() for path in home.rglob("*.jsonl")} == logs
    finally:
        process.kill()
        process.wait()
