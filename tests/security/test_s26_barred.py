"""S26: who is barred is barred as a person: on every account that is known to be theirs, and with what waits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hansard.cli.main import cli
from hansard.domain.access import Grant
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Person
from hansard.record.api import Record
from tests.engine.stage import WAIT_SECONDS_MAX, Gate, PlayedModel
from tests.intake.places import PHONE, PHONE_OF_ANN, places, settings_with
from tests.intake.town import ANN, BOB, EVE, HOME_OF_ANN, ROOM, settings_of, town

ACCOUNTS = {("matrix", ANN), ("telegram", PHONE)}


async def barred(record: Record) -> set[tuple[str, str]]:
    """Everybody who is barred now."""
    return {(each.channel, each.identity) for each in await record.access.list() if each.state is Grant.REVOKED}


@pytest.mark.parametrize("named", list(ACCOUNTS))
async def test_linked_accounts_are_barred_together(home: Path, named: tuple[str, str]) -> None:
    """Whichever account is named: both are silent afterwards, and nobody else is."""
    async with places(home) as here:
        await here.link()
        found = await here.record.access.revoke(*named)
        assert (found[0].channel, found[0].identity) == named
        assert await barred(here.record) == ACCOUNTS
        for chat in (HOME_OF_ANN, PHONE_OF_ANN):
            before = await here.record.routes.read(chat)
            await here.say("let me in", chat)
            assert await here.record.routes.read(chat) == before
        assert "let me in" not in "".join(path.read_text() for path in home.rglob("*.jsonl"))
        await here.check()


async def test_accounts_of_a_name_are_barred_together(home: Path) -> None:
    """Also where the settings, and no code, make them one person."""
    async with places(home, settings_with({"ann": Person(matrix=(ANN,), telegram=(42,))})) as here:
        await here.record.access.revoke("telegram", PHONE)
        assert await barred(here.record) == ACCOUNTS
        await here.record.access.allow("matrix", ANN)
        assert await barred(here.record) == {("telegram", PHONE)}


async def test_a_code_of_who_is_barred_counts_no_longer(home: Path) -> None:
    """Nobody comes back through an account that enters a code which was shown before."""
    async with places(home) as here:
        code = await here.code(HOME_OF_ANN)
        await here.record.access.revoke("matrix", ANN)
        assert "no such code" in (await here.command(f"/link {code}", PHONE_OF_ANN)).lower()
        assert await here.record.people.circle(f"person:telegram:{PHONE}") == (f"person:telegram:{PHONE}",)


async def test_what_waits_is_dropped(home: Path) -> None:
    """Turns that wait or run for the barred person alone end; one that others asked for too goes on."""
    gate = Gate()
    thread, other = f"{ROOM}:thread:$t", f"{ROOM}:thread:$o"
    async with town(home, settings_of(ANN, BOB, EVE), PlayedModel(["begun ", gate, "not said"])) as here:
        (runs,) = await here.say("mine", EVE, thread, is_for_agent=True, is_direct=False)
        here.runner.wake(runs.session_id, runs.turn_id)
        await gate.reached()
        (own,) = await here.say("mine, too", EVE, ROOM, is_for_agent=True)
        (both,) = await here.say("ours", EVE, other, is_for_agent=True, is_direct=False)
        await here.say("ours, too", ANN, other, is_for_agent=True, is_direct=False)
        (others,) = await here.say("Bob's", BOB, "matrix:room:!bob:example.org")
        await here.record.access.revoke("matrix", EVE)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await here.runner.settled(runs.session_id)
        ends = (await here.record.conversation(runs.session_id)).ends
        assert [end.state for end in ends.values()] == [TurnState.INTERRUPTED]
        assert not (await here.record.conversation(own.session_id)).queued
        assert (await here.record.conversation(both.session_id)).queued == both.turn_id
        assert (await here.record.conversation(others.session_id)).queued == others.turn_id
        await here.check()


@pytest.mark.parametrize("who", ["ann", "person:ann", "@ann:example.org", "42", "telegram:42"])
def test_the_shell_bars_the_person(home: Path, who: str) -> None:
    """`hansard pair revoke` takes an account or a name of [people], and bars every account of that name."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "config.toml").write_text('[people.ann]\nmatrix = ["@ann:example.org"]\ntelegram = [42]\n')

    async def make() -> None:
        async with Record.open(home) as record:
            await record.create_session(source="cli")

    asyncio.run(make())
    result = CliRunner().invoke(cli, ["--home", str(home), "pair", "revoke", who, "--json"])
    assert result.exit_code == 0, result.output
    found = {(each["channel"], each["identity"]) for each in json.loads(result.output)["people"]}
    assert found == {("matrix", "@ann:example.org"), ("telegram", "42")}
