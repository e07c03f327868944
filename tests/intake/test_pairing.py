"""Who may talk: nobody until allowed. Strangers are shown a code, and what they say leaves no trace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hansard.domain.access import Grant, read_code
from hansard.domain.notices import ENGLISH
from hansard.domain.settings import Pairing, Settings
from hansard.errors import ChannelDown, ChannelError, ChatGone, NotFound
from hansard.ports.channel import EventKind
from tests.intake.town import ANN, BOB, EVE, HOME_OF_ANN, ROOM, Doorman, Person, Town, settings_of, town

EVES = "matrix:room:!eve:elsewhere.net"
CODE = re.compile(r"hansard pair approve ([a-z0-9]{4}-[a-z0-9]{4})\n")
DECLINED = re.compile(r"`hansard pair approve ([a-z0-9]{4}-[a-z0-9]{4})`")

PEOPLE: dict[str, tuple[tuple[str, ...], str]] = {
    "listed by name": ((EVE,), ""),
    "listed as a person": (("eve",), ""),
    "listed by server": (("*:elsewhere.net",), ""),
    "paired": ((ANN,), "allow"),
    "in a listed room": (("!room:example.org",), ""),
    "unknown": ((ANN,), ""),
    "of a server that only looks like a listed one": (("*:where.net", "*:elsewhere.net.evil.org"), ""),
    "revoked, once listed": ((EVE, "*:elsewhere.net"), "revoke"),
    "revoked, in a listed room": (("!room:example.org",), "revoke"),
}
MEMBERS = {"listed by name", "listed as a person", "listed by server", "paired"}
GUESTS = {"in a listed room"}
BARRED = {"revoked, once listed", "revoked, in a listed room"}


def settings_for(person: str, **fields: object) -> Settings:
    """The settings in which Eve is that."""
    people = {"eve": Person(matrix=(EVE,))} if person == "listed as a person" else {}
    return settings_of(*PEOPLE[person][0], people=people, **fields)


async def make(here: Town, person: str) -> None:
    """What the admin said about Eve."""
    change = PEOPLE[person][1]
    if change == "allow":
        await here.record.access.allow("matrix", EVE)
    elif change == "revoke":
        await here.record.access.revoke("matrix", EVE)


def codes(here: Town, chat: str) -> list[str]:
    """The codes that were shown in a chat."""
    return [found[1] for text in here.told_at_home(chat) if (found := CODE.search(text))]


@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("where", ["direct", "room", "command", "observed", "edit", "unreadable", "invitation"])
async def test_who_may_do_what(home: Path, person: str, where: str) -> None:
    """Every kind of person, and everything that they may try: who may is taken, who may not leaves no word behind."""
    async with town(home, settings_for(person, observe=where == "observed")) as here:
        await make(here, person)
        chat = EVES if where in {"direct", "edit", "invitation"} else ROOM
        text = "/title secret words" if where == "command" else "secret words"
        kinds = {"edit": EventKind.EDIT, "unreadable": EventKind.UNREADABLE, "invitation": EventKind.INVITATION}
        event = here.event(
            text,
            EVE,
            chat,
            kind=kinds.get(where, EventKind.MESSAGE),
            is_for_agent=where in {"room", "command", "unreadable"},
            about="$unknown" if where == "edit" else "",
            raw="secret words",
        )
        await here.take(event, cursor="c1")
        allowed = person in MEMBERS or (person in GUESTS and chat == ROOM)
        if where == "invitation":
            assert here.channel.answers == [(EVES, person in MEMBERS)]
            hears = person not in MEMBERS | BARRED
            assert [bool(DECLINED.search(reason)) for reason in here.channel.reasons] == [hears]
            assert here.told_at_home("") == [reason for reason in here.channel.reasons if reason]
            assert await here.record.deliveries.list_waiting("matrix") == []
            assert await here.count_sessions() == 0
        elif where == "unreadable":
            assert await here.intake.held() == (["secret words"] if allowed else [])
        else:
            assert await here.count_sessions() == int(allowed)
        asks = not allowed and person not in BARRED and where in {"direct", "room", "command", "edit"}
        assert len(codes(here, chat)) == int(asks)
        assert await here.cursor() == "c1"
        if not allowed or where == "invitation":
            written = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
            assert b"secret words" not in written
        await here.check()


async def test_a_code_lets_its_person_in_and_nobody_else(home: Path) -> None:
    """Eve asks, the admin approves, Eve is told and may talk; Mallory, who saw the code, may not, and cannot use it."""
    mallory = "@mallory:elsewhere.net"
    async with town(home) as here:
        await here.say("hello", EVE, ROOM, is_for_agent=True)
        (code,) = codes(here, ROOM)
        await here.say(code, mallory, ROOM, is_for_agent=True)
        access = await here.record.access.approve(f" {code.upper()} ", welcome=ENGLISH.welcome)
        assert (access.identity, access.state, access.by) == (EVE, Grant.ALLOWED, "admin")
        assert here.told_at_home(ROOM)[-1] == ENGLISH.welcome
        assert (await here.record.access.find("matrix", mallory)).state is Grant.ASKED
        assert len(await here.say("hello", EVE, EVES)) == 1
        assert await here.say("hello", mallory, ROOM, is_for_agent=True) == []
        with pytest.raises(NotFound):
            await here.record.access.approve(code)
        await here.check()


async def test_a_code_counts_for_a_while(home: Path) -> None:
    """When its time is over it is worth nothing, also on the second try; the person may ask again."""
    async with town(home, settings_of(pairing=Pairing(code_minutes=10))) as here:
        await here.say("hello", EVE, EVES)
        (code,) = codes(here, EVES)
        here.clock.advance(600)
        for _ in range(2):
            with pytest.raises(NotFound):
                await here.record.access.approve(code)
        await here.say("hello again", EVE, EVES)
        old, new = codes(here, EVES)
        assert old != new
        with pytest.raises(NotFound):
            await here.record.access.approve(old)
        await here.record.access.approve(new)
        await here.check()


async def test_one_code_at_a_time(home: Path) -> None:
    """However often a stranger writes, in however many places, there is one code and one notice until it expires."""
    async with town(home) as here:
        for number in range(10):
            await here.say(f"hello {number}", EVE, EVES if number % 2 else ROOM, is_for_agent=True)
        assert len(codes(here, EVES)) + len(codes(here, ROOM)) == 1
        assert len(here.at_home("access.asked")) == 1


async def test_codes_are_few(home: Path) -> None:
    """One person is shown a few a day, all together a few an hour; later there are some again."""
    pairing = Pairing(code_minutes=1, person_codes_per_day_max=2, codes_per_hour_max=3)
    async with town(home, settings_of(pairing=pairing)) as here:
        for _ in range(5):
            await here.say("hello", EVE, EVES)
            here.clock.advance(61)
        assert len(codes(here, EVES)) == 2
        for number in range(5):
            await here.say("hello", f"@stranger{number}:elsewhere.net", ROOM, is_for_agent=True)
        assert len(codes(here, ROOM)) == 1
        here.clock.advance(86_400)
        await here.say("hello", EVE, EVES)
        assert len(codes(here, EVES)) == 3
        await here.check()


async def test_codes_cannot_be_guessed_in_the_tries_that_there_are(home: Path) -> None:
    """After so many wrong ones not even the right one counts, until the hour is over; what was tried is not kept."""
    pairing = Pairing(tries_per_hour_max=3, code_minutes=600)
    async with town(home, settings_of(pairing=pairing)) as here:
        await here.say("hello", EVE, EVES)
        (code,) = codes(here, EVES)
        for number in range(3):
            with pytest.raises(NotFound, match="no such code waits"):
                await here.record.access.approve(f"zzzzzzz{number}", pairing=pairing)
        with pytest.raises(NotFound, match="too many wrong codes"):
            await here.record.access.approve(code, pairing=pairing)
        assert (await here.record.access.find("matrix", EVE)).state is Grant.ASKED
        assert b"zzzzzzz" not in (home / "home.jsonl").read_bytes()
        here.clock.advance(3600)
        assert (await here.record.access.approve(code, pairing=pairing)).state is Grant.ALLOWED
        await here.check()


async def test_pairing_may_be_off(home: Path) -> None:
    """Then a stranger hears nothing at all."""
    async with town(home, settings_of(pairing=Pairing(enabled=False))) as here:
        await here.say("hello", EVE, EVES)
        assert here.told_at_home(EVES) == []


async def test_access_survives_a_lost_database(home: Path) -> None:
    """Who may talk, who may no longer, and which code waits are rebuilt from the log."""
    async with town(home) as here:
        await here.record.access.allow("matrix", BOB)
        await here.record.access.revoke("matrix", ANN)
        await here.say("hello", EVE, EVES)
        known = await here.record.access.list()
        assert {(access.identity, access.state) for access in known} == {
            (BOB, Grant.ALLOWED),
            (ANN, Grant.REVOKED),
            (EVE, Grant.ASKED),
        }
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink(missing_ok=True)
    async with town(home) as here:
        assert await here.record.access.list() == known
        (code,) = codes(here, EVES)
        assert read_code(code) in {access.code for access in known}
        assert (await here.record.access.approve(code)).identity == EVE
        await here.check()


async def test_revoking_ends_it_at_once(home: Path) -> None:
    """The next word is not taken; what was said before stays, and allowing again takes the chat up where it was."""
    async with town(home) as here:
        await here.ask("one")
        await here.record.access.revoke("matrix", ANN)
        assert await here.say("two") == []
        await here.record.access.allow("matrix", ANN)
        await here.ask("three")
        assert [word for word in await here.words() if word != "ok"] == ["one", "three"]
        assert codes(here, HOME_OF_ANN) == []


async def test_a_barred_person_cannot_edit_and_may_delete(home: Path) -> None:
    """An edit would be talking; a deletion is the platform's word about what everybody sees."""
    async with town(home) as here:
        first = here.event("one")
        await here.take(first)
        await here.record.access.revoke("matrix", ANN)
        await here.take(here.event("two", kind=EventKind.EDIT, about=first.id))
        assert await here.words() == ["one"]
        await here.take(here.event(kind=EventKind.DELETION, about=first.id))
        assert await here.words() == ["(deleted in the chat)"]
        await here.check()


async def test_the_same_invitation_again(home: Path) -> None:
    """Restarts bring invitations again: each is answered the same way."""
    async with town(home) as here:
        for _ in range(2):
            await here.take(here.event(sender=ANN, chat=ROOM, kind=EventKind.INVITATION))
            await here.take(here.event(sender=EVE, chat=EVES, kind=EventKind.INVITATION))
        assert here.channel.answers == [(ROOM, True), (EVES, False)] * 2


async def test_a_stranger_who_invites_is_declined_with_a_code(home: Path) -> None:
    """The reason has the code, the same words while it waits, restart or not; once it is approved, the agent comes."""
    async with town(home) as here:
        for _ in range(3):
            await here.take(here.event(sender=EVE, chat=EVES, kind=EventKind.INVITATION))
        here.new_intake(here.settings)
        await here.take(here.event(sender=EVE, chat=EVES, kind=EventKind.INVITATION))
        (reason,) = set(here.channel.reasons)
        found = DECLINED.search(reason)
        assert found is not None
        assert here.told_at_home("") == [reason]
        assert len(here.at_home("access.asked")) == 1
        access = await here.record.access.approve(found[1], welcome=ENGLISH.welcome)
        assert (access.identity, access.state) == (EVE, Grant.ALLOWED)
        await here.take(here.event(sender=EVE, chat=EVES, kind=EventKind.INVITATION))
        assert here.channel.answers[-1] == (EVES, True)
        assert here.channel.reasons[-1] == ""
        assert len(await here.say("hello", EVE, EVES)) == 1
        assert here.told_at_home("") == [reason]
        await here.check()


async def test_invitations_and_words_share_one_code(home: Path) -> None:
    """Who was shown a code in a room and then invites gets the same one; what the reason says is recorded, too."""
    async with town(home) as here:
        await here.say("hello", EVE, ROOM, is_for_agent=True)
        (code,) = codes(here, ROOM)
        await here.take(here.event(sender=EVE, chat=EVES, kind=EventKind.INVITATION))
        assert DECLINED.findall(here.channel.reasons[0]) == [code]
        assert here.told_at_home("") == here.channel.reasons
        assert len(here.at_home("access.asked")) == 1
        await here.check()


async def test_codes_for_invitations_are_few(home: Path) -> None:
    """The limits are those of other codes; beyond them, and with pairing off, an invitation is declined silently."""
    pairing = Pairing(code_minutes=1, person_codes_per_day_max=2, codes_per_hour_max=3)
    async with town(home, settings_of(pairing=pairing)) as here:
        for _ in range(4):
            await here.take(here.event(sender=EVE, chat=EVES, kind=EventKind.INVITATION))
            here.clock.advance(61)
        for number in range(3):
            await here.take(here.event(sender=f"@s{number}:elsewhere.net", chat=EVES, kind=EventKind.INVITATION))
        assert [bool(reason) for reason in here.channel.reasons] == [True, True, False, False, True, False, False]
        here.new_intake(settings_of(pairing=Pairing(enabled=False)))
        here.clock.advance(86_400)
        await here.take(here.event(sender=EVE, chat=EVES, kind=EventKind.INVITATION))
        assert here.channel.reasons[-1] == ""
        await here.check()


@pytest.mark.parametrize(("error", "answers"), [(ChannelDown("down"), 2), (ChatGone("gone"), 1)])
async def test_an_answer_to_an_invitation_that_fails(home: Path, error: ChannelError, answers: int) -> None:
    """A platform that is down is asked again; a chat that is gone is not, and the stream goes on either way."""

    class Failing(Doorman):
        async def answer(self, chat: str, *, accept: bool, reason: str = "") -> None:
            await super().answer(chat, accept=accept, reason=reason)
            if len(self.answers) == 1:
                raise error

    async with town(home) as here:
        here.channel = Failing()
        here.new_intake(here.settings)
        await here.take(here.event(sender=ANN, chat=ROOM, kind=EventKind.INVITATION), cursor="c1")
        assert (len(here.channel.answers), await here.cursor()) == (answers, "c1")
        assert [reported for _, reported in here.reports] == [error]
