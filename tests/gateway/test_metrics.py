"""The page of numbers: Prometheus can read it, the numbers are true, and it names nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hansard import Record, __version__
from hansard.domain.deliveries import DeliveryState
from hansard.gateway.health import ChannelHealth, Health, Readings, metrics_text
from hansard.journal.queue import BOUNDS_SECONDS, Latency
from hansard.testing import Platform
from tests.gateway.exposition import ask, one, parse
from tests.gateway.stage import AGENT, ANN, make_settings, playing, write_script

WORDS = "the quiet pangolin"


async def test_the_numbers_are_true_and_name_nobody(home: Path, tmp_path: Path) -> None:
    """While an answer runs and after it, the page says what is so; no word, person or chat is in it."""
    platform = Platform()
    script = write_script(tmp_path / "script", f"{WORDS} " * 60, delay_seconds=0.02)
    chat = platform.create_room(ANN, AGENT)
    async with playing(home, make_settings(script), platform) as play:
        await play.until(lambda: platform.calls["poll"] > 1)
        platform.say(chat, ANN, WORDS)
        await play.until(lambda: len(play.texts(chat)) == 1)
        head, body = await ask(home, "/metrics")
        assert head.startswith("HTTP/1.1 200 OK\r\n")
        assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
        families = parse(body)
        assert one(families, "hansard_turns_running") == 1
        assert one(families, "hansard_turns_queued") == 0
        assert one(families, "hansard_messages_waiting", channel="matrix") >= 1
        await play.settled()
        head, body = await ask(home, "/metrics")
        families = parse(body)
        assert one(families, "hansard_turns_running") == 0
        assert one(families, "hansard_messages_waiting", channel="matrix") == 0
        assert one(families, "hansard_delivery_lag_seconds", channel="matrix") == 0
        assert one(families, "hansard_events_received_total", channel="matrix") == 1
        assert 0 <= one(families, "hansard_receive_quiet_seconds", channel="matrix") < 60
        assert one(families, "hansard_channel_up", channel="matrix") == 1
        assert one(families, "hansard_record_up") == 1
        assert one(families, "hansard_deliveries", channel="matrix", state="failed") == 0
        assert families["hansard_events_received_total"].kind == "counter"
        async with Record.open(home) as record:
            sent = await record.deliveries.list(state=DeliveryState.SENT)
        assert one(families, "hansard_deliveries_sent_total", channel="matrix") == len(sent) > 1
        assert families["hansard_record_commit_seconds"].samples["hansard_record_commit_seconds_count", ()] >= 5
        assert one(families, "hansard_build_info", version=__version__) == 1
        pages = Path("/proc/self/statm").read_text().split()[1]
        resident = int(pages) * os.sysconf("SC_PAGE_SIZE")
        assert 0.5 < one(families, "process_resident_memory_bytes") / resident < 2
        assert one(families, "process_open_fds") > 3
        assert all(family.help for family in families.values())
        for private in ("pangolin", "example.org", "room", "!", "@", str(home)):
            assert private not in body.lower(), private


async def test_pages_and_methods(home: Path, tmp_path: Path) -> None:
    """Health is at both of its names; what is not a page is not found, and nothing can be sent."""
    platform = Platform()
    async with playing(home, make_settings(write_script(tmp_path / "script")), platform) as play:
        await play.until(lambda: platform.calls["poll"] > 1)
        for path in ("/health", "/healthz", "/healthz?verbose"):
            head, body = await ask(home, path)
            assert head.startswith("HTTP/1.1 200 OK")
            assert '"status":"ok"' in body
        head, body = await ask(home, "/metrics", "HEAD")
        assert (head.startswith("HTTP/1.1 200 OK"), body) == (True, "")
        for path, method in (("/other", "GET"), ("/metrics", "POST"), ("/%zz\xff", "GET")):
            head, body = await ask(home, path, method)
            assert head.startswith("HTTP/1.1 404")


def test_trouble_shows_in_numbers() -> None:
    """A channel with trouble, a record that cannot be written and an unread queue: 0, 0, and no number at all."""
    channel = ChannelHealth(name='odd"\\\nname', account="x", trouble="gone", deliveries={"unknown": 3})
    health = Health(status="degraded", pid=1, started_at="", record="the disk is full", channels=(channel,))
    families = parse(metrics_text(health, Readings(0, None, Latency())).decode())
    label = {"channel": 'odd"\\\nname'}
    assert one(families, "hansard_channel_up", **label) == 0
    assert one(families, "hansard_record_up") == 0
    assert one(families, "hansard_deliveries", **label, state="unknown") == 3
    assert "hansard_turns_queued" not in families
    assert "disk" not in metrics_text(health, Readings(0, None, Latency())).decode()


@pytest.mark.parametrize(("seconds", "place"), [(0.0, 0), (0.001, 0), (0.0011, 1), (5.0, 11), (9.0, 12)])
def test_a_commit_is_counted_in_its_bucket(seconds: float, place: int) -> None:
    """A bound belongs to its bucket, and what is slower than all counts only in the sum of all."""
    latency = Latency()
    latency.note(seconds)
    counted = latency.read()
    assert counted.within == tuple(int(number >= place) for number in range(len(BOUNDS_SECONDS)))
    assert (counted.commits, counted.seconds) == (1, seconds)
