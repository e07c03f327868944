"""A configuration that changes while the gateway runs: taken up whole or not at all, and no message is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from hansard.gateway.health import ask_health, read_status
from hansard.testing import Platform
from tests.gateway.care import cared, write_config
from tests.gateway.stage import AGENT, ANN, BOB, settled, until, write_script

OTHER = "@other:example.org"


async def test_who_may_talk_and_in_which_words_is_taken_up(home: Path, tmp_path: Path) -> None:
    """Bob may talk from the next message on, and is told of resets in other words; the channel stays open."""
    platform = Platform()
    script = write_script(tmp_path / "script")
    write_config(home, script, allow=ANN)
    chat = platform.create_room(BOB, AGENT)
    async with cared(home, platform) as play:
        platform.say(chat, BOB, "may I?")
        await play.until(lambda: "hansard pair approve" in "".join(play.texts(chat)))
        write_config(home, script)
        (home / "notices.toml").write_text('session_new = "A fresh start: {new}"\n')
        await play.renew()
        platform.say(chat, BOB, "and now?")
        await play.until(lambda: play.texts(chat)[-1] == "You said: and now?")
        platform.say(chat, BOB, "/new")
        await play.until(lambda: play.texts(chat)[-1].startswith("A fresh start: "))
        await play.settled()
        assert len(play.doors.opened) == 1
        health = await ask_health(home)
        assert health is not None
        assert (health.config.readings, health.config.refused, health.config.fixed) == (1, "", ())


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"config.toml": 'model = "nonsense"\n'}, "line 1: model must be"),
        ({"config.toml": "[channels.matrix\n"}, "it is not TOML"),
        ({"notices.toml": 'late = "{when}"\n'}, "notices.toml, line 1: late names {when}"),
        ({"keys.toml": "openai = 5\n"}, "keys.toml, line 1: a key is text"),
    ],
)
async def test_what_is_wrong_changes_nothing(home: Path, tmp_path: Path, files: dict[str, str], what: str) -> None:
    """A file with a mistake is named with its line in the health; everything goes on as before, and heals."""
    platform = Platform()
    script = write_script(tmp_path / "script")
    write_config(home, script)
    chat = platform.create_room(ANN, AGENT)
    async with cared(home, platform) as play:
        before = (await play.gateway.health()).config.taken_up_at
        for name, text in files.items():
            (home / name).write_text(text)
            (home / name).chmod(0o600)
        await play.renew()
        health = await play.gateway.health()
        assert what in health.config.refused
        assert (health.status, health.config.taken_up_at) == ("ok", before)
        platform.say(chat, ANN, "still there?")
        await play.until(lambda: play.texts(chat) == ["You said: still there?"])
        for name in files:
            (home / name).unlink()
        write_config(home, script)
        await play.renew()
        assert (await play.gateway.health()).config.refused == ""


async def test_another_account_opens_that_channel_again(home: Path, tmp_path: Path) -> None:
    """The old account's channel is closed after its last batch, the new one receives; nobody is answered twice."""
    platform = Platform()
    script = write_script(tmp_path / "script")
    write_config(home, script)
    chats = [platform.create_room(ANN, AGENT), platform.create_room(ANN, OTHER)]
    async with cared(home, platform) as play:
        platform.say(chats[0], ANN, "first")
        await play.until(lambda: play.texts(chats[0]) == ["You said: first"])
        write_config(home, script, matrix=f'user_id = "{OTHER}"')
        await play.renew()
        assert [channel.account for channel in play.doors.opened] == [AGENT, OTHER]
        assert [channel.is_closed for channel in play.doors.opened] == [True, False]
        await settled(play.record, platform, OTHER, lambda: play.app.runner.busy)
        platform.say(chats[1], ANN, "second")
        await play.until(lambda: (OTHER, "You said: second") in platform.seen(chats[1]))
        health = await play.gateway.health()
        assert [channel.account for channel in health.channels] == [OTHER]
        await settled(play.record, platform, OTHER, lambda: play.app.runner.busy)


async def test_a_running_answer_goes_on_with_what_it_began_with(home: Path, tmp_path: Path) -> None:
    """A model that is changed while it answers finishes its answer; the next one is the new model's."""
    platform = Platform()
    slow = write_script(tmp_path / "slow", "one two three four five six seven eight", delay_seconds=0.1)
    quick = write_script(tmp_path / "quick", "from the new one")
    write_config(home, slow)
    chat = platform.create_room(ANN, AGENT)
    async with cared(home, platform) as play:
        platform.say(chat, ANN, "count")
        await play.until(lambda: len(play.texts(chat)) == 1)
        write_config(home, quick, more='busy = "queue"\n[limits]\nsteps_max = 3\n')
        await play.renew()
        platform.say(chat, ANN, "and?")
        await play.until(lambda: play.texts(chat) == ["one two three four five six seven eight", "from the new one"])
        await play.settled()


@pytest.mark.loss("L5")
async def test_many_reloads_take_nothing_away(home: Path, tmp_path: Path) -> None:
    """However often the configuration is read, and the channel opened again: every session and every entry stays."""
    platform = Platform()
    script = write_script(tmp_path / "script")
    write_config(home, script)
    chats = [platform.create_room(ANN, AGENT) for _ in range(3)]
    async with cared(home, platform) as play:
        for chat in chats:
            platform.say(chat, ANN, "hello")
        await play.until(lambda: all(play.texts(chat) for chat in chats))
        await play.settled()
        before = [(each.id, each.messages, each.state) for each in await play.record.sessions()]
        shown = [platform.seen(chat) for chat in chats]
        for number in range(40):
            write_config(home, script, address=f"http://127.0.0.1:{number // 4 + 1}")
            await play.renew()
        await play.settled()
        assert [(each.id, each.messages, each.state) for each in await play.record.sessions()] == before
        assert [platform.seen(chat) for chat in chats] == shown
        assert len(play.doors.opened) == 10


async def test_what_cannot_change_while_it_runs_is_named(home: Path, tmp_path: Path) -> None:
    """The port stays as it is, and the health says that it counts from the next start on."""
    platform = Platform()
    script = write_script(tmp_path / "script")
    write_config(home, script)
    async with cared(home, platform) as play:
        write_config(home, script, more="[gateway]\nhealth_port = 1\n")
        await play.renew()
        assert (await play.gateway.health()).config.fixed == ("gateway.health_port",)
        assert await ask_health(home) is not None


async def test_the_same_account_elsewhere_is_opened_without_a_gap(home: Path, tmp_path: Path) -> None:
    """Another address for the account opens the channel again, while people talk: each is answered once."""
    platform = Platform()
    script = write_script(tmp_path / "script")
    write_config(home, script, more='busy = "queue"')
    chats = [platform.create_room(ANN, AGENT) for _ in range(4)]
    async with cared(home, platform) as play:
        for number in range(12):
            platform.say(chats[number % 4], ANN, f"message-{number}")
            if number % 4 == 3:
                write_config(home, script, more='busy = "queue"', matrix=f"allow_http = {str(number == 3).lower()}")
                await play.renew()
            await asyncio.sleep(0.01)
        await play.settled()
        assert len(play.doors.opened) == 3
        assert [channel.is_closed for channel in play.doors.opened] == [True, True, False]
        said = []
        for session in await play.record.sessions(source="matrix"):
            said += [m.text for m in await play.record.load_transcript(session.id) if m.role == "user"]
        assert sorted(said) == sorted(f"message-{number}" for number in range(12))
        for chat in chats:
            audit = await play.audit(chat)
            assert audit.ok, audit.differences


async def test_a_stop_does_not_wait_for_a_reload(home: Path, tmp_path: Path) -> None:
    """Told to stop while a reload waits for the record's lock, the gateway leaves, and the old settings stand."""
    platform = Platform()
    write_config(home, write_script(tmp_path / "script"))
    async with cared(home, platform) as play:
        stranger = apsw.Connection(str(home / "state.db"))
        stranger.set_busy_timeout(5000)
        stranger.execute("BEGIN IMMEDIATE")
        write_config(home, tmp_path / "script", more='[people.ann]\nmatrix = ["@ann:example.org"]\n')
        play.gateway.renew()
        await until(lambda: bool(play.record.trouble))
        play.stop.set()
        await until(lambda: read_status(home) is None)
        stranger.execute("ROLLBACK")
        stranger.close()
        assert (await play.gateway.health()).config.readings == 0
