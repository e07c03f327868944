"""`hansard gateway status`, `hansard deliveries`, `hansard audit`: what people see of delivery, from a shell."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hansard.domain.deliveries import DeliveryState
from hansard.domain.messages import Message
from hansard.errors import ChannelDown, InvalidInput
from hansard.gateway.logs import JsonFormatter, error_fields, log
from hansard.record.api import Record
from hansard.testing import Platform
from tests.acceptance.shown.program import run_forked
from tests.delivery.stage import AGENT, ANN, staged
from tests.gateway.stage import make_settings, playing, write_script

LATE = """
import sys
import hansard.cli.gateway
print({"telegram", "httpx", "aiohttp", "nio"} & {name.partition(".")[0] for name in sys.modules})
"""


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command, as people do."""
    return run_forked("--home", home, *arguments, variables=os.environ)


async def test_what_was_not_shown_is_listed_retried_and_dropped(home: Path) -> None:
    """A room that is gone leaves deliveries that people see; a retry shows them, and a drop ends them."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        stage.platform.room(chat).is_gone = True
        for text in ("first", "second"):
            await stage.record.append(session_id, Message.notice(text, chat=chat))
        await stage.drained()
        listed = await asyncio.to_thread(run, home, "deliveries", "--json")
        assert listed.returncode == 1, listed.stderr
        found = json.loads(listed.stdout)
        assert [each["state"] for each in found] == ["failed", "failed"]
        assert (await asyncio.to_thread(run, home, "deliveries")).stdout.count(chat) == 2
        stage.platform.room(chat).is_gone = False
        by_text = {}
        for each in found:
            message = await stage.record.messages.read(session_id, each["message_id"])
            by_text[message.text] = each["id"]
        retried = await asyncio.to_thread(run, home, "deliveries", "retry", by_text["first"])
        assert retried.returncode == 0, retried.stderr
        await stage.until(lambda: stage.texts(chat) == ["first"])
        await stage.drained()
        dropped = await asyncio.to_thread(run, home, "deliveries", "drop", by_text["second"], "--json")
        assert dropped.returncode == 0, dropped.stderr
        assert json.loads(dropped.stdout)[0]["state"] == DeliveryState.FAILED
        unknown = await asyncio.to_thread(run, home, "deliveries", "retry", "nothing")
        assert unknown.returncode == 2
        assert "no delivery" in unknown.stderr
    assert stage.texts(chat) == ["first"]


async def test_the_status_of_a_gateway(home: Path, tmp_path: Path) -> None:
    """While one runs it says how it does, for people and for scripts; afterwards it says that none does."""
    assert (await asyncio.to_thread(run, home, "gateway", "status")).returncode == 2
    platform = Platform()
    async with playing(home, make_settings(write_script(tmp_path / "script")), platform) as play:
        await play.until(lambda: platform.calls["poll"] > 1)
        found = await asyncio.to_thread(run, home, "gateway", "status", "--json")
        assert found.returncode == 0, found.stdout + found.stderr
        health = json.loads(found.stdout)
        assert (health["status"], health["channels"][0]["account"]) == ("ok", AGENT)
        told = await asyncio.to_thread(run, home, "gateway", "status")
        assert "connected" in told.stdout
    assert json.loads((await asyncio.to_thread(run, home, "gateway", "status", "--json")).stdout) == {
        "status": "not running"
    }


async def test_a_gateway_without_a_channel_says_what_to_set(home: Path) -> None:
    """Nothing is configured: the message names the settings."""
    refused = await asyncio.to_thread(run, home, "gateway")
    assert refused.returncode == 2
    assert "channels.matrix.homeserver" in refused.stderr
    assert "channels.other" in refused.stderr
    assert refused.stderr.endswith("\nWrite it into config.toml: `hansard config path` prints where that is.\n")


async def test_an_audit_of_nothing_is_refused(home: Path) -> None:
    """Without a record, or of something that is no room, it could not run."""
    assert (await asyncio.to_thread(run, home, "audit", "matrix:!room:example.org")).returncode == 2
    async with Record.open(home):
        pass
    refused = await asyncio.to_thread(run, home, "audit", "nonsense")
    assert refused.returncode == 2
    assert "names no room" in refused.stderr


@pytest.fixture
def logged() -> io.StringIO:
    """Where a logger of this test writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    for name in ("hansard.test_logs", "nio.test_logs"):
        logging.getLogger(name).handlers = [handler]
        logging.getLogger(name).setLevel(logging.INFO)
        logging.getLogger(name).propagate = False
    return stream


def test_logs_are_json_and_hold_no_words(logged: io.StringIO) -> None:
    """One object a line; of other libraries only their name; of an error that quotes somebody only its kind."""
    own = logging.getLogger("hansard.test_logs")
    log(own, logging.WARNING, "trouble", channel="matrix", **error_fields(ChannelDown("refused")))
    log(own, logging.WARNING, "trouble", **error_fields(InvalidInput("not 'my secret words'")))
    log(own, logging.WARNING, "trouble", **error_fields(ValueError("my secret words")))
    logging.getLogger("nio.test_logs").warning("decrypted: %s", "my secret words")
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert [line["logger"] for line in lines] == ["hansard.test_logs"] * 3 + ["nio.test_logs"]
    assert (lines[0]["error"], lines[0]["why"], lines[0]["channel"]) == ("ChannelDown", "refused", "matrix")
    assert "secret" not in logged.getvalue()


def test_no_library_of_a_platform_is_loaded_before_it_is_used() -> None:
    """`hansard gateway` without Telegram does not pay for Telegram: its library is not even imported."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "set()\n"
