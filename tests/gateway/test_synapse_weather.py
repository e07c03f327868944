"""Foul weather around `hansard gateway` and a real homeserver: it comes back by itself, and shows only what it has.

One gateway lives through all of it, in a home on a small disk, with a clock that can be set, behind a proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from hansard.record.api import Record
from tests.channels.matrix.people import new_account, peer
from tests.channels.matrix.proxy import Proxy
from tests.channels.matrix.synapse import Synapse
from tests.gateway.matrix_stage import (
    Bot,
    Program,
    Talk,
    check_rooms,
    joined,
    read_timeline,
    rest,
    running,
    start,
    until_healthy,
    write_config,
)
from tests.gateway.stage import entries_of, write_script
from tests.record.helpers_process import fill_disk, small_disk

HOUR_MICROSECONDS = 3_600_000_000
LAST_WORDS = "word by word, to the end."

pytestmark = pytest.mark.slow


class Weather(NamedTuple):
    """A gateway, what can be done to it, and two rooms of it."""

    synapse: Synapse
    proxy: Proxy
    bot: Bot
    process: Program
    plain: Talk
    encrypted: Talk
    clock: Path | None
    """Where the gateway reads what its clock is off by; None where nobody can set it."""
    no_disk: str
    """Why the home is not on a small disk; empty when it is."""

    async def hears(self, talk: Talk, text: str) -> None:
        """Wait until the agent has said something."""
        await talk.person.hears(talk.room_id, self.bot.account.user_id, text)

    async def begins(self, talk: Talk, text: str) -> None:
        """Say something, and wait for the first words of the answer: the others are still to come."""
        known = len(talk.person.heard)
        await talk.say(text)
        await talk.person.hears(talk.room_id, self.bot.account.user_id, after=known)

    async def check(self) -> None:
        """All is well again, and the rooms and the record agree."""
        await until_healthy(self.bot, self.process, lambda health: health.status == "ok")
        await rest(self.bot)
        await check_rooms(self.bot, [self.plain, self.encrypted])

    def set_clock(self, offset: str) -> None:
        """Set the gateway's clock, at once."""
        assert self.clock is not None
        draft = self.clock.with_suffix(".draft")
        draft.write_text(f"{offset}\n")
        draft.replace(self.clock)


def clock_additions(clock: Path) -> tuple[tuple[str, str], ...]:
    """Return what makes a program read its wall clock's offset from a file; nothing where that cannot be done."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        return ()
    clock.write_text("+0\n")
    return (
        ("LD_PRELOAD", str(found[0])),
        ("FAKETIME_TIMESTAMP_FILE", str(clock)),
        ("FAKETIME_NO_CACHE", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
        ("NO_FAKE_STAT", "1"),
    )


def fill_in_use(folder: Path) -> Path:
    """Fill a disk that somebody writes to meanwhile: how much is free has changed when it is to be taken."""
    for _ in range(100):
        with suppress(OSError):
            return fill_disk(folder)
    raise AssertionError("the disk cannot be filled")


@pytest.fixture(scope="module")
async def weather(synapse: Synapse, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Weather]:
    """A gateway that has come to two rooms."""
    folder = tmp_path_factory.mktemp("weather")
    script = write_script(folder / "script", "{last} " + LAST_WORDS, delay_seconds=0.1)
    additions = clock_additions(folder / "clock")
    with ExitStack() as stack:
        no_disk = ""
        try:
            stack.enter_context(small_disk(folder / "home", "24m"))
        except pytest.skip.Exception as reason:
            no_disk = str(reason)
        async with Proxy(synapse.port) as proxy, peer(synapse, folder) as person:
            bot = Bot(new_account(synapse, "agent"), folder / "home", proxy.url, additions)
            write_config(bot, script)
            async with running(bot, start) as process:
                talks = [
                    Talk(person, await person.open_room(bot.account.user_id, encrypted=is_encrypted), [])
                    for is_encrypted in (False, True)
                ]
                for talk in talks:
                    await joined(person, talk.room_id, bot.account.user_id)
                clock = folder / "clock" if additions else None
                plain, encrypted = talks
                yield Weather(synapse, proxy, bot, process, plain, encrypted, clock, no_disk)


@pytest.mark.drawn(1, "synapse weather")
@pytest.mark.loss("E4")
async def test_answers_that_are_lost_on_the_way(weather: Weather) -> None:
    """Connections cut before the answer to a post: what is not known is found out, and nothing is lost or doubled."""
    weather.proxy.lose_answer_to = b"PUT /_matrix/client/v3/rooms/"
    await weather.plain.say("while answers are lost")
    async with asyncio.timeout(120):
        while weather.proxy.lost < 2:  # noqa: ASYNC110 - the proxy has no bell
            await asyncio.sleep(0.05)
    weather.proxy.lose_answer_to = b""
    weather.proxy.cut()
    await weather.hears(weather.plain, f"while answers are lost {LAST_WORDS}")
    await weather.check()


@pytest.mark.drawn(1, "synapse weather")
@pytest.mark.loss("E1", "F9")
async def test_a_dead_homeserver_and_a_storm_of_429(weather: Weather) -> None:
    """The homeserver killed while a reply streams, and back; then rate limits: the reply goes on, and others follow."""
    user_id = weather.bot.account.user_id
    await weather.begins(weather.plain, "before the homeserver dies")
    await asyncio.to_thread(weather.synapse.kill)
    await asyncio.to_thread(weather.synapse.start)
    weather.synapse.throttle(user_id, per_second=1, burst=1)
    # A machine so slow that it posts less than once a second is refused once all the same.
    weather.proxy.refuse_next = b"PUT /_matrix/client/v3/rooms/"
    try:
        await weather.hears(weather.plain, f"dies {LAST_WORDS}")
        await weather.encrypted.say("in the storm")
        await weather.plain.say("in the same storm")
        await weather.hears(weather.plain, f"in the same storm {LAST_WORDS}")
        await weather.hears(weather.encrypted, f"in the storm {LAST_WORDS}")
        await rest(weather.bot)
        assert not weather.proxy.refuse_next, "there was a storm"
    finally:
        weather.synapse.throttle(user_id)
    await weather.check()


@pytest.mark.drawn(1, "synapse weather")
@pytest.mark.loss("I4")
async def test_a_clock_that_is_set_while_a_reply_streams(weather: Weather) -> None:
    """Set forth and back by more than a day: nothing is lost, doubled, late, or in another order."""
    if weather.clock is None:
        pytest.skip("libfaketime is not installed (scripts/system-packages)")
    for offset in ("+30h", "-30h", "+0"):
        text = f"the clock is at {offset}"
        await weather.begins(weather.encrypted, text)
        weather.set_clock(offset)
        await weather.hears(weather.encrypted, f"{text} {LAST_WORDS}")
    await weather.check()
    async with Record.open(weather.bot.home) as record:
        times = [entry.at_microseconds for s in await record.sessions() for entry in await entries_of(record, s.id)]
    assert max(times) - min(times) > 59 * HOUR_MICROSECONDS, "the clock was set"


@pytest.mark.drawn(1, "synapse weather")
@pytest.mark.loss("B2")
async def test_a_disk_that_is_full_for_a_while(weather: Weather) -> None:
    """Full while a reply streams: the gateway says so, shows nothing that is not recorded, and goes on afterwards."""
    if weather.no_disk:
        pytest.skip(weather.no_disk)
    talk = weather.encrypted
    async with Record.open(weather.bot.home) as record:
        await weather.begins(talk, "as the disk fills up")
        ballast = fill_in_use(weather.bot.home)
        try:
            await talk.say("while it is full")
            await until_healthy(weather.bot, weather.process, lambda health: bool(health.record))
            await weather.plain.say("full, here too")
            timeline = await read_timeline(talk.person, talk.room_id)
            stored = [m.text for s in await record.sessions() for m in await record.load_transcript(s.id)]
            for event in timeline.by(weather.bot.account.user_id):
                body = event.source["content"].get("m.new_content", event.source["content"])["body"]
                assert any(body in text for text in stored), "what is shown is recorded"
        finally:
            ballast.unlink()
    await weather.hears(talk, f"while it is full {LAST_WORDS}")
    await weather.hears(weather.plain, f"full, here too {LAST_WORDS}")
    await weather.check()
