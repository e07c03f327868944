"""The token: where it is read from, and that it is nowhere else."""

from __future__ import annotations

import asyncio
import io
import logging
import traceback
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path

import pytest

from hansard.app.channels import channel_openers
from hansard.channels.telegram import open_telegram
from hansard.channels.telegram.keeping import read_token
from hansard.domain.settings import Channels, Settings
from hansard.domain.settings.channels import Telegram
from hansard.errors import ConfigInvalid, HansardError
from hansard.gateway.logs import log_as_json
from hansard.ports.channel import LocalFile, Post, RemoteFile
from tests.channels.telegram.bot_api import BotApi, Fault, FaultKind
from tests.channels.telegram.stage import PACE, channel_on, until

GOOD = "12345:AAtestTOKENtestTOKENtestTOKENtest"


def write_token(home: Path, text: str = f"{GOOD}\n", mode: int = 0o600) -> Path:
    """Put a token where a person puts it."""
    path = home / "telegram" / "token"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_token_is_read_from_the_environment_or_a_file(home: Path) -> None:
    """The variable comes first; the account is the number that the token begins with."""
    write_token(home)
    assert read_token(home, "").account == "12345"
    assert read_token(home, " 678:AAtestTOKENtestTOKENtest ").account == "678"
    settings = Settings(channels=Channels(telegram=Telegram(enabled=True)))
    (opened,) = channel_openers(home, settings, {}).values()
    channel = opened()
    assert (channel.name, channel.account) == ("telegram", "12345")


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        (None, 0, "There is no token for Telegram"),
        ("hello", 0o600, "is no token of a bot"),
        (f"token = {GOOD}", 0o600, "is no token of a bot"),
        (GOOD, 0o644, "chmod 600"),
    ],
)
def test_what_is_wrong_with_a_token_is_said_without_it(home: Path, text: str | None, mode: int, told: str) -> None:
    """Missing, malformed, readable by others: the person is told what to do, and the token is not repeated."""
    if text is not None:
        write_token(home, text, mode)
    with pytest.raises(ConfigInvalid) as raised:
        read_token(home, "")
    assert told in str(raised.value)
    assert GOOD not in "".join(traceback.format_exception(raised.value))


@contextmanager
def everything_logged() -> Iterator[io.StringIO]:
    """Whatever any library logs, at any level, as the gateway writes it, and as it came."""
    stream, plain = io.StringIO(), logging.getLogger()
    before = (plain.handlers, plain.level)
    log_as_json(logging.StreamHandler(stream))
    logging.getLogger("hansard").setLevel(logging.DEBUG)
    plain.setLevel(logging.DEBUG)
    raw = logging.StreamHandler(stream)
    plain.addHandler(raw)
    try:
        yield stream
    finally:
        plain.handlers, plain.level = before


async def test_nothing_that_is_said_or_logged_has_the_token(api: BotApi, home: Path) -> None:
    """Through every fault, with every logger open: not in logs, errors, their causes, names, or what health tells."""
    ann = api.world.person("Ann")
    said: list[str] = []
    causes: list[BaseException | None] = []
    chat = f"telegram:chat:{ann}"
    with everything_logged() as logged:
        async with channel_on(api, home) as channel:
            for kind in (*set(FaultKind) - {FaultKind.HELD}, None):
                for method in ("sendMessage", "getFile", "sendDocument"):
                    api.faults.extend([Fault(kind, method)] if kind else [])
                    for call in (
                        channel.send(Post(key="k", chat=chat, markdown="hello")),
                        channel.fetch(RemoteFile(reference="none"), bytes_max=9),
                        channel.send(Post(key="k", chat=chat, markdown="", files=(LocalFile(data=b"x"),))),
                    ):
                        try:
                            said.append(repr(await call))
                        except HansardError as error:
                            causes.append(error.__cause__)
                            said.append("".join(traceback.format_exception(error)) + repr(error))
                    api.faults.clear()
            said.append(repr(channel) + repr(vars(channel)))
            await api.down()
            with suppress(HansardError):
                await channel.send(Post(key="k", chat=chat, markdown="hello"))
        await api.up()
        other = open_telegram(home, {"HANSARD_TELEGRAM_TOKEN": api.token + "-revoked"}, base_url=api.url, pace=PACE)
        async with aclosing(other.receive("", ())) as batches:
            waiting = asyncio.ensure_future(anext(batches))
            await until(lambda: "does not take the token" in other.trouble)
            said.append(other.trouble)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
        await other.close()
    secret = api.token.partition(":")[2]
    assert len(said) > 40
    assert set(causes) == {None}, "what a library raised is not carried along"
    assert "nothing is received" in logged.getvalue()
    for text in (*said, logged.getvalue()):
        assert secret not in text
        assert api.token not in text
