"""`/link` and `/unlink`: who becomes one person with whom, by which code, and how that ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hansard.domain.people import CODE_MINUTES, CODES_PER_HOUR_MAX, TRIES_PER_HOUR_MAX
from hansard.errors import InvalidInput, NotFound
from hansard.interop.jsonl_import import import_file
from hansard.record.api import Record
from tests.intake.places import (
    ANN,
    AT_HOME,
    BOBS,
    HOME_OF_ANN,
    MALLORY,
    ON_MATRIX,
    ON_TELEGRAM,
    PHONE_OF_ANN,
    PHONE_OF_MALLORY,
    ROOM,
    Person,
    places,
    settings_with,
)
from tests.interop.told import export_jsonl

WRONG = "abcd-efgh"


async def test_a_code_joins_two_chats_and_both_are_told(home: Path) -> None:
    """Shown in one chat, entered in the other: one person from then on, and each chat says so."""
    async with places(home) as here:
        await here.say("hello", HOME_OF_ANN)
        code = await here.code(HOME_OF_ANN)
        reply = await here.command(f"/link {code.upper()}", PHONE_OF_ANN)
        assert f"one person with {ANN} on Matrix" in reply
        assert await here.record.people.circle(ON_MATRIX) == (ON_MATRIX, ON_TELEGRAM)
        assert await here.record.people.circle(ON_TELEGRAM) == (ON_MATRIX, ON_TELEGRAM)
        (told,) = [text for text in await here.told(HOME_OF_ANN) if "entered your code" in text]
        assert told.startswith("42 on Telegram")
        await here.check()


@pytest.mark.loss("H4")
async def test_links_are_rebuilt_from_the_logs(home: Path) -> None:
    """The database is lost; who is one person with whom, and who was parted, is as it was, and codes still count."""
    people = {"bob": Person(matrix=("@bob:example.org",), telegram=(7,))}
    async with places(home, settings_with(people)) as here:
        await here.link()
        code = await here.code(BOBS)
        await here.record.people.link("person:telegram:5", "person:telegram:6")
        await here.record.people.unlink("person:telegram:6")
        before = await here.record.people.list()
    for path in home.glob("state.db*"):
        path.unlink()
    async with places(home, settings_with(people)) as here:
        assert await here.record.people.list() == before
        assert await here.record.people.circle(ON_TELEGRAM) == (ON_MATRIX, ON_TELEGRAM)
        assert await here.record.people.circle("person:telegram:6") == ("person:telegram:6",)
        assert "one person with" in await here.command(f"/link {code}", PHONE_OF_MALLORY)
        await here.check()


async def test_a_code_counts_once(home: Path) -> None:
    """Whoever enters it second is told that it counts no longer, and is nobody else than before."""
    async with places(home) as here:
        code = await here.code(HOME_OF_ANN)
        await here.command(f"/link {code}", PHONE_OF_ANN)
        assert "No such code" in await here.command(f"/link {code}", PHONE_OF_MALLORY)
        assert await here.record.people.circle("person:telegram:666") == ("person:telegram:666",)
        await here.check()


async def test_two_who_enter_one_code_at_once(home: Path) -> None:
    """However they meet, one of them is linked, and the other is told that no such code counts."""
    async with places(home) as here:
        for number in range(5):
            shown = await here.record.people.show_code(f"person:telegram:{100 + number}")
            tried = await asyncio.gather(
                *(here.record.people.enter_code(shown.code, f"person:matrix:@{name}{number}:h") for name in "abcd"),
                return_exceptions=True,
            )
            assert sum(isinstance(each, NotFound) for each in tried) == 3
            assert len(await here.record.people.circle(f"person:telegram:{100 + number}")) == 2
        await here.check()


async def test_a_code_counts_for_a_while(home: Path) -> None:
    """At the end of its minutes it is worth nothing; a moment before it counts."""
    async with places(home) as here:
        code = await here.code(HOME_OF_ANN)
        here.clock.advance(CODE_MINUTES * 60)
        assert "No such code" in await here.command(f"/link {code}", PHONE_OF_ANN)
        code = await here.code(HOME_OF_ANN)
        here.clock.advance(CODE_MINUTES * 60 - 1)
        assert "one person with" in await here.command(f"/link {code}", PHONE_OF_ANN)
        await here.check()


async def test_a_new_code_takes_the_place_of_the_old(home: Path) -> None:
    """Only the last code that a person was shown counts."""
    async with places(home) as here:
        old, new = await here.code(HOME_OF_ANN), await here.code(HOME_OF_ANN)
        assert "No such code" in await here.command(f"/link {old}", PHONE_OF_ANN)
        assert "one person with" in await here.command(f"/link {new}", PHONE_OF_ANN)


async def test_guesses_are_counted(home: Path) -> None:
    """After a few wrong codes not even the right one counts, for that person, until the hour is over."""
    async with places(home) as here:
        for _ in range(TRIES_PER_HOUR_MAX):
            assert "No such code" in await here.command(f"/link {WRONG}", PHONE_OF_MALLORY)
        code = await here.code(HOME_OF_ANN)
        assert "Too many wrong codes" in await here.command(f"/link {code}", PHONE_OF_MALLORY)
        assert "one person with" in await here.command(f"/link {code}", PHONE_OF_ANN)
        here.clock.advance(3600)
        code = await here.code(BOBS)
        assert "one person with" in await here.command(f"/link {code}", PHONE_OF_MALLORY)
        written = (home / "home.jsonl").read_text()
        assert "abcdefgh" not in written
        await here.check()


async def test_codes_are_shown_a_few_an_hour(home: Path) -> None:
    """Whoever asks for ever is told to wait; others are not held up."""
    async with places(home) as here:
        for _ in range(CODES_PER_HOUR_MAX):
            await here.code(HOME_OF_ANN)
        assert "Too many codes" in await here.command("/link", HOME_OF_ANN)
        await here.code(PHONE_OF_ANN)
        here.clock.advance(3600)
        await here.code(HOME_OF_ANN)


async def test_ones_own_code_links_nobody(home: Path) -> None:
    """Entered where it was shown it says where it belongs, and counts there afterwards."""
    async with places(home) as here:
        code = await here.code(HOME_OF_ANN)
        assert "in your other chat" in await here.command(f"/link {code}", HOME_OF_ANN)
        assert "one person with" in await here.command(f"/link {code}", PHONE_OF_ANN)
        code = await here.code(HOME_OF_ANN)
        assert "already" in await here.command(f"/link {code}", PHONE_OF_ANN)


@pytest.mark.parametrize("text", ["/link", "/link {code}", "/link {code} yes", "/unlink"])
async def test_nothing_is_linked_in_a_room(home: Path, text: str) -> None:
    """In a room no code is shown or taken; one that is said there counts no longer, as others may have read it."""
    async with places(home) as here:
        code = await here.code(PHONE_OF_ANN)
        reply = await here.command(text.format(code=code), ROOM)
        assert "direct chat" in reply
        assert await here.record.people.list() == []
        voided = "{code}" in text
        reply = await here.command(f"/link {code}", HOME_OF_ANN)
        assert ("No such code" if voided else "one person with") in reply
        await here.check()


async def test_a_barred_person_links_nobody(home: Path) -> None:
    """Who may not talk is shown no code and cannot enter one; nothing of it is recorded."""
    async with places(home) as here:
        code = await here.code(HOME_OF_ANN)
        await here.record.access.revoke("telegram", MALLORY)
        assert await here.say(f"/link {code}", PHONE_OF_MALLORY) == ""
        assert await here.say("/link", PHONE_OF_MALLORY) == ""
        await here.say(f"/link {code}", "telegram:chat:9", sender="9", is_direct=True)
        assert await here.record.people.list() == []
        assert "one person with" in await here.command(f"/link {code}", PHONE_OF_ANN)
        await here.check()


async def test_unlink_parts_one_from_all_others(home: Path) -> None:
    """Of three who are one person, whoever says it is alone afterwards, and the others stay together."""
    async with places(home) as here:
        await here.link(HOME_OF_ANN, PHONE_OF_ANN)
        await here.link(PHONE_OF_ANN, BOBS)
        bob = "person:matrix:@bob:example.org"
        assert await here.record.people.circle(bob) == (ON_MATRIX, bob, ON_TELEGRAM)
        reply = await here.command("/unlink", PHONE_OF_ANN)
        assert "no longer one person with @ann:example.org on Matrix, @bob:example.org on Matrix" in reply
        assert await here.record.people.circle(ON_TELEGRAM) == (ON_TELEGRAM,)
        assert await here.record.people.circle(bob) == (ON_MATRIX, bob)
        assert "linked to nobody" in await here.command("/unlink", PHONE_OF_ANN)
        await here.command("/unlink", BOBS)
        assert await here.record.people.list() == []
        await here.check()


async def test_the_settings_are_not_undone_by_a_chat(home: Path) -> None:
    """Whom config.toml makes one person stays so after /unlink, which parts them from whom they linked themselves."""
    people = {"ann": Person(matrix=(ANN,), telegram=("42",))}
    async with places(home, settings_with(people)) as here:
        circle = ("person:ann", ON_MATRIX, ON_TELEGRAM)
        assert await here.record.people.circle(ON_TELEGRAM) == circle
        assert "config.toml makes you one person with" in await here.command("/unlink", PHONE_OF_ANN)
        assert await here.record.people.circle(ON_TELEGRAM) == circle
        await here.link(HOME_OF_ANN, PHONE_OF_MALLORY)
        assert "person:telegram:666" in await here.record.people.circle(ON_TELEGRAM)
        reply = await here.command("/unlink", HOME_OF_ANN)
        assert "666 on Telegram" in reply
        assert "only whoever runs me" in reply
        assert await here.record.people.circle(ON_TELEGRAM) == circle
        await here.check()


async def test_two_people_of_the_settings_stay_two(home: Path) -> None:
    """Config.toml says that Ann and Bob are two people: no code makes them one."""
    people = {"ann": Person(matrix=(ANN,)), "bob": Person(matrix=("@bob:example.org",))}
    async with places(home, settings_with(people)) as here:
        code = await here.code(HOME_OF_ANN)
        assert "two people" in await here.command(f"/link {code}", BOBS)
        await here.command(f"/link {code}", PHONE_OF_ANN)
        code = await here.code(PHONE_OF_ANN)
        assert "two people" in await here.command(f"/link {code}", BOBS)
        with pytest.raises(InvalidInput, match="two people"):
            await here.record.people.link("person:bob", ON_TELEGRAM)
        await here.check()


async def test_the_settings_part_whom_a_code_had_joined(home: Path) -> None:
    """Linked first, and then named as two people: config.toml wins, and each sees their own."""
    async with places(home) as here:
        session_id = await here.say("of Ann", HOME_OF_ANN)
        await here.link(HOME_OF_ANN, BOBS)
        bob = "person:matrix:@bob:example.org"
        assert [each.id for each in await here.record.sessions(owner=bob)][-1:] == [session_id]
        people = {"ann": Person(matrix=(ANN,)), "bob": Person(matrix=("@bob:example.org",))}
        await here.record.people.declare(people)
        assert await here.record.people.circle(bob) == ("person:bob", bob)
        assert session_id not in {each.id for each in await here.record.sessions(owner="person:bob")}
        await here.record.people.declare({})
        assert await here.record.people.circle(bob) == (bob,)
        await here.check()


async def test_a_change_of_the_settings_counts_from_the_next_start(home: Path) -> None:
    """A name that is taken out of a person's section is one person with nobody; the same settings write nothing."""
    people = {"ann": Person(matrix=(ANN,), telegram=("42",), terminal=True)}
    async with places(home, settings_with(people)) as here:
        assert await here.record.people.circle(AT_HOME) == (AT_HOME, "person:ann", ON_MATRIX, ON_TELEGRAM)
        size = (home / "home.jsonl").stat().st_size
        assert not await here.record.people.declare(people)
        assert (home / "home.jsonl").stat().st_size == size
        assert await here.record.people.declare({"ann": Person(matrix=(ANN,))})
        assert await here.record.people.circle(ON_TELEGRAM) == (ON_TELEGRAM,)
        assert await here.record.people.circle(ON_MATRIX) == ("person:ann", ON_MATRIX)
        await here.check()


async def test_a_link_outlives_being_named(home: Path) -> None:
    """Ann linked her telephone before config.toml gave her a name: she is still one person with it."""
    async with places(home) as here:
        await here.link()
        await here.record.people.declare({"ann": Person(matrix=(ANN,))})
        assert await here.record.people.circle("person:ann") == ("person:ann", ON_MATRIX, ON_TELEGRAM)
        here.use(settings_with({"ann": Person(matrix=(ANN,))}))
        assert "42 on Telegram" in await here.command("/unlink", HOME_OF_ANN)
        assert await here.record.people.circle("person:ann") == ("person:ann", ON_MATRIX)
        await here.check()


async def test_the_terminals_code_is_entered_in_a_chat(home: Path) -> None:
    """Whoever reads the terminal's screen is its person: the code that it shows joins a chat at once."""
    async with places(home) as here:
        code = await here.code("")
        assert "one person with the terminal" in await here.command(f"/link {code}", PHONE_OF_ANN)
        assert await here.record.people.circle(AT_HOME) == (AT_HOME, ON_TELEGRAM)


async def test_a_chats_code_counts_in_the_terminal_only_when_confirmed(home: Path) -> None:
    """A code that somebody talked the admin into entering says first whose it is, and nothing is linked by that."""
    async with places(home) as here:
        code = await here.code(PHONE_OF_MALLORY)
        reply = await here.type(f"/link {code}")
        assert "shown to 666 on Telegram" in reply
        assert f"/link {code} yes" in reply
        assert await here.record.people.list() == []
        assert "one person with 666 on Telegram" in await here.type(f"/link {code} yes")
        assert "666" in await here.type("/unlink")
        assert await here.record.people.list() == []
        await here.check()


async def test_whoever_is_one_person_with_the_terminal_confirms_as_well(home: Path) -> None:
    """The telephone that sees what the terminal sees gives it away no sooner than the terminal does."""
    async with places(home) as here:
        await here.command(f"/link {await here.code('')}", PHONE_OF_ANN)
        code = await here.code(PHONE_OF_MALLORY)
        assert "shown to 666 on Telegram" in await here.command(f"/link {code}", PHONE_OF_ANN)
        assert await here.record.people.circle("person:telegram:666") == ("person:telegram:666",)
        assert "No such code" in await here.type(f"/link {WRONG}")
        assert "one person with 666" in await here.command(f"/link {code} yes", PHONE_OF_ANN)


async def test_a_room_is_nobodys_other_self(home: Path) -> None:
    """The record itself refuses to make a room a person."""
    async with Record.open(home) as record:
        with pytest.raises(InvalidInput, match="no person"):
            await record.people.link("person:ann", "room:matrix:!r:h")
        with pytest.raises(InvalidInput, match="no person"):
            await record.people.show_code("room:matrix:!r:h")


async def test_one_person_is_in_so_many_places_and_no_more(home: Path) -> None:
    """A circle has a limit, and says so."""
    async with Record.open(home) as record:
        for number in range(15):
            assert await record.people.link("person:ann", f"person:telegram:{number}")
        with pytest.raises(InvalidInput, match="16 places"):
            await record.people.link("person:telegram:99", "person:telegram:3")
        assert not await record.people.link("person:telegram:3", "person:telegram:4")


@pytest.mark.loss("E1", "H4")
async def test_what_waits_for_followers_is_rebuilt_from_the_logs(home: Path) -> None:
    """The database is lost while words and answers wait for a chat that follows: they wait again, and only follow."""
    async with places(home) as here:
        session_id = await here.say("begun", HOME_OF_ANN)
        await here.link()
        await here.command(f"/resume {session_id}", PHONE_OF_ANN)
        await here.say("and on", HOME_OF_ANN)
        rows = {
            (each.chat, each.message_id, each.follows) for each in await here.record.deliveries.list_waiting("telegram")
        }
        waiting = await here.told(PHONE_OF_ANN)
        assert waiting[-2:] == ["You said on Matrix:\n> and on", "ok"]
        assert sum(follows for _, _, follows in rows) == 2
    for path in home.glob("state.db*"):
        path.unlink()
    async with places(home) as here:
        again = {
            (each.chat, each.message_id, each.follows) for each in await here.record.deliveries.list_waiting("telegram")
        }
        assert again == rows
        assert await here.may_follow(session_id, PHONE_OF_ANN)
        await here.check()


async def test_an_export_of_a_carried_session_comes_back(home: Path, tmp_path: Path) -> None:
    """What was shown elsewhere is in the export as what it was told; taken in again it changes nothing."""
    async with places(home) as here:
        session_id = await here.say("begun", HOME_OF_ANN)
        await here.link()
        await here.command(f"/resume {session_id}", PHONE_OF_ANN)
        await here.say("and on", HOME_OF_ANN)
        await here.say("and back", PHONE_OF_ANN)
        before = await here.record.load_transcript(session_id)
    path = await export_jsonl(home, tmp_path / "export.jsonl")
    async with Record.open(home) as record:
        assert (await import_file(record, path)).findings == ()
        assert await record.load_transcript(session_id) == before
    async with Record.open(tmp_path / "other") as record:
        assert (await import_file(record, path)).findings == ()
        texts = [message.text for message in await record.load_transcript(session_id)]
        assert texts == [message.text for message in before]
        assert await record.deliveries.list_waiting("telegram") == []
