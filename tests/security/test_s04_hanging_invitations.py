"""S4: an invitation whose answer hangs holds up nobody, and a kill loses none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hansard.errors import ChatGone
from hansard.ports.channel import Batch, EventKind
from hansard.record.invitations import SOURCE_OPEN_MAX
from hansard.testing import Platform
from tests.gateway.stage import AGENT, make_settings, playing, until, write_script
from tests.intake.town import ANN, BOB, EVE, HOME_OF_ANN, ROOM, Doorman, town
from tests.security.crash_worker import EVES, doorman, killed_at, play

NEW_ROOM = "matrix:room:!new:example.org"


class Hanging(Platform):
    """A platform that answers no invitation before it is let."""

    def __init__(self) -> None:
        """Hang."""
        super().__init__()
        self.asked: list[str] = []
        self.let = asyncio.Event()

    async def answer(self, account: str, chat: str, *, accept: bool, reason: str = "") -> None:
        """Hang, then do it."""
        self.asked.append(chat)
        await self.let.wait()
        await super().answer(account, chat, accept=accept, reason=reason)


async def test_a_hanging_answer_holds_up_nobody(home: Path, tmp_path: Path) -> None:
    """A stranger's and a member's invitation hang; a person who says something afterwards is answered."""
    platform = Hanging()
    chat = platform.create_room(ANN, AGENT)
    hers, strange = platform.create_room(ANN), platform.create_room(EVE)
    settings = make_settings(write_script(tmp_path / "script.toml"))
    async with playing(home, settings, platform) as here:
        await here.until(lambda: platform.calls["poll"] > 1)
        platform.invite(strange, EVE)
        platform.invite(hers, ANN)
        await here.until(lambda: set(platform.asked) == {hers, strange})
        platform.say(chat, ANN, "are you there?")
        await here.until(lambda: "You said: are you there?" in here.texts(chat))
        assert AGENT not in platform.room(hers).members
        platform.let.set()
        await here.until(lambda: AGENT in platform.room(hers).members and bool(platform.reasons))
        await here.settled()
        assert [chat for chat, _ in platform.reasons] == [strange]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("point", ["logged", "committed"])
async def test_a_kill_loses_no_invitation(home: Path, point: str, number: int) -> None:
    """Killed before or after any of the commits, the next start answers what was not answered, with the same words."""
    await asyncio.to_thread(killed_at, home, "invitations", point, number + 1)  # the first commit makes the home
    channel = doorman()
    await play(home, "invitations", channel)
    await play(home, "invitations", again := doorman())
    assert again.answers == []
    async with town(home) as here:
        facts = {body["event_id"]: body for body in here.at_home("invitation.received")}
        assert (
            {body["event_id"] for body in here.at_home("invitation.answered")} == set(facts) == {"$invited", "$strange"}
        )
        assert here.told_at_home("") == [facts["$strange"]["text"]]
        assert set(channel.answers) <= {(ROOM, True), (EVES, False)}
        assert {reason for reason in channel.reasons if reason} <= {facts["$strange"]["text"]}
        await here.check()


async def test_one_who_invites_for_ever_is_taken_so_often(home: Path) -> None:
    """Hanging answers of one server's strangers fill neither the record nor the places of others."""
    async with town(home) as here:
        for number in range(SOURCE_OPEN_MAX + 5):
            event = here.event(sender=f"@s{number}:elsewhere.net", chat=EVES, kind=EventKind.INVITATION)
            await here.intake.take_batch(Batch(cursor="", events=(event,)))
        event = here.event(sender=ANN, chat=ROOM, kind=EventKind.INVITATION)
        await here.intake.take_batch(Batch(cursor="c1", events=(event,)))
        assert len(here.at_home("invitation.received")) == SOURCE_OPEN_MAX + 1
        due = await here.record.invitations.list_due("matrix", here.channel.account, source_max=2, limit=16)
        assert sorted(received.accept for received in due) == [False, False, True]
        await here.check()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_replaced_chat_is_followed_beside(home: Path, *, fails: bool) -> None:
    """The person's session goes on in the new room, where people are told; the old one is told when that fails."""

    class Gone(Doorman):
        async def answer(self, chat: str, *, accept: bool, reason: str = "") -> None:
            await super().answer(chat, accept=accept, reason=reason)
            if fails:
                raise ChatGone("no such room")

    async with town(home) as here:
        here.channel = Gone()
        here.new_intake(here.settings)
        await here.say("hello")
        session_id = await here.session()
        await here.take(here.event(sender=EVE, about=NEW_ROOM, kind=EventKind.REPLACED))
        assert here.channel.answers == [], "a stranger leads the agent nowhere"
        await here.take(here.event(sender=ANN, about=NEW_ROOM, kind=EventKind.REPLACED))
        assert here.channel.answers == [(NEW_ROOM, True)]
        assert await here.session(NEW_ROOM) == session_id
        (told,) = await here.notices(session_id)
        assert ("I cannot follow" in told) == fails
        (body,) = here.at_home("invitation.answered")
        assert bool(body.get("failure")) == fails


async def test_a_flood_of_one_person_keeps_nobody_waiting(home: Path) -> None:
    """Ann's invitations hang, as many as she likes; Bob's is answered meanwhile."""

    class Slow(Doorman):
        let = asyncio.Event()

        async def answer(self, chat: str, *, accept: bool, reason: str = "") -> None:
            await super().answer(chat, accept=accept, reason=reason)
            if chat != ROOM:
                await self.let.wait()

    async with town(home) as here:
        here.channel = Slow()
        here.new_intake(here.settings)
        for number in range(SOURCE_OPEN_MAX):
            event = here.event(sender=ANN, chat=f"matrix:room:!r{number}:example.org", kind=EventKind.INVITATION)
            await here.intake.take_batch(Batch(cursor="", events=(event,)))
        event = here.event(sender=BOB, chat=ROOM, kind=EventKind.INVITATION)
        await here.intake.take_batch(Batch(cursor="", events=(event,)))
        working = asyncio.create_task(here.intake.invitations.beside.finish_jobs())
        await until(lambda: (ROOM, True) in here.channel.answers)
        assert len(here.channel.answers) <= 3
        Slow.let.set()
        async with asyncio.timeout(60):
            await working
        assert len(here.channel.answers) == SOURCE_OPEN_MAX + 1
        assert HOME_OF_ANN not in dict(here.channel.answers)
