"""S11: with `rooms = "per_person"`, what one person in a room said is that person's, and nobody else's there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.domain.chats import SessionKey, parse_key, parse_owner
from hansard.domain.policy import policy_of, room_of
from hansard.domain.settings import Channels, Settings
from hansard.domain.settings.agent import RoomSettings
from hansard.domain.settings.channels import Matrix, RoomSharing
from hansard.errors import NotFound
from tests.intake.town import ANN, BOB, EVE, ROOM, Town, settings_of, town

APART = settings_of(ANN, "!room:example.org", rooms=RoomSharing.PER_PERSON)
SHARED = settings_of(ANN, "!room:example.org")


def key_of(sender: str) -> str:
    """Where a person's conversation in the room is."""
    return f"{ROOM}:person:{sender}"


async def command(here: Town, text: str, sender: str) -> str:
    """Somebody gives a command in the room; return its reply."""
    await here.ask(text, sender, ROOM, is_for_agent=True)
    return (await here.notices(await here.session(key_of(sender))))[-1]


@pytest.mark.loss("J6")
@pytest.mark.parametrize("other", [EVE, BOB, ANN])
async def test_nobody_reaches_anothers_session(home: Path, other: str) -> None:
    """Whatever the rank: another's session in the room is not listed, found, resumed or renamed; one's own is."""
    author = ANN if other != ANN else EVE
    async with town(home, APART) as here:
        await here.ask("the secret harbour", author, ROOM, is_for_agent=True)
        theirs = await here.session(key_of(author))
        await here.record.set_title(theirs, "Harbour")
        await here.ask("hello", other, ROOM, is_for_agent=True)
        own = await here.session(key_of(other))
        for text in ("/sessions", "/search harbour", "/resume"):
            reply = await command(here, text, other)
            assert theirs not in reply
            assert "secret" not in reply
        for text in (f"/resume {theirs}", "/resume Harbour", f"/resume {theirs[:15]}"):
            await command(here, text, other)
            assert await here.session(key_of(other)) == own
        await command(here, "/title Mine", other)
        assert (await here.record.sessions.read(theirs)).title == "Harbour"
        assert (await here.record.sessions.read(own)).title == "Mine"
        assert theirs in await command(here, "/search harbour", author)
        await here.check()


async def test_what_is_remembered_is_apart(home: Path) -> None:
    """A guest may note something in a session that is theirs alone; nobody else in the room is told."""
    async with town(home, APART) as here:
        assert "Noted" in await command(here, "/memory add Eve likes tea", EVE)
        assert "Eve likes tea" in await command(here, "/memory", EVE)
        assert "Eve likes tea" not in await command(here, "/memory", ANN)


async def test_older_sessions_stay_the_rooms(home: Path) -> None:
    """A session from before belongs to the room: nobody there goes on with it, and the admin's record has it."""
    owner = "room:matrix:!room:example.org"
    async with town(home, APART) as here:
        old = await here.record.create_session(source="matrix", owner=owner, title="Before")
        await here.record.routes.move(key_of(EVE), old.id, reason="first")
        await here.ask("hello", EVE, ROOM, is_for_agent=True)
        assert await here.session(key_of(EVE)) != old.id
        assert "belongs to somebody else" in " ".join(await here.notices(await here.session(key_of(EVE))))
        for sender in (EVE, ANN):
            await command(here, "/resume Before", sender)
            assert await here.session(key_of(sender)) != old.id
        with pytest.raises(NotFound):
            await here.record.resolve("Before", owner=f"{owner}:person:{EVE}")
        assert (await here.record.resolve("Before")).id == old.id


OWNERS = (
    ("room:matrix:!r:h", SessionKey(channel="matrix", place="!r:h")),
    ("room:matrix:!r:h:person:@ann:h", SessionKey(channel="matrix", place="!r:h", part="", person="@ann:h")),
    (
        "room:matrix:!r:h:person:@a:person:@b:h",
        SessionKey(channel="matrix", place="!r:h", part="", person="@a:person:@b:h"),
    ),
    ("room:telegram:-5:person:42", SessionKey(channel="telegram", place="-5", part="", person="42")),
    ("room:irc:#tea:person:ann", SessionKey(channel="irc", place="#tea", part="", person="ann")),
)


@pytest.mark.parametrize(("owner", "key"), OWNERS)
def test_an_owner_is_read_back(owner: str, key: SessionKey) -> None:
    """An owner is made of a room and maybe a person, and says the same when it is read."""
    assert parse_owner(owner) == key
    assert key.person_room_owner == owner
    assert parse_key(str(key)) == key
    assert room_of(owner) == key.place


def test_a_person_is_no_room() -> None:
    """Nor is a person whose name looks like one."""
    assert parse_owner("person:matrix:@ann:h") is None
    assert parse_owner("person:room") is None
    assert room_of("person:admin") == ""


def test_a_rooms_persona_holds_for_each_person_in_it() -> None:
    """What [rooms.NAME] says is for everybody there, however the room is kept."""
    settings = Settings(
        channels=Channels(matrix=Matrix(allow=(ANN,), rooms=RoomSharing.PER_PERSON)),
        rooms={"tea": RoomSettings(matrix=("!r:h",), persona="You pour tea.")},
    )
    for owner in ("room:matrix:!r:h", "room:matrix:!r:h:person:@ann:h"):
        assert policy_of(settings).choice(owner).persona == "You pour tea."
