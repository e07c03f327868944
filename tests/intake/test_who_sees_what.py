"""Who sees which session, before people are linked, while they are, and afterwards: on every way to see one (L11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.domain.messages import Role
from hansard.errors import NotFound
from hansard.ports.channel import EventKind
from hansard.ports.tool import ToolScene
from tests.intake.places import (
    ANN,
    BOBS,
    HOME_OF_ANN,
    ON_MATRIX,
    ON_TELEGRAM,
    PHONE_OF_ANN,
    PHONE_OF_MALLORY,
    ROOM,
    Person,
    Places,
    code_in,
    places,
    settings_with,
)

TERMINAL = ""
CHATS = {"matrix": HOME_OF_ANN, "phone": PHONE_OF_ANN, "bob": BOBS, "room": ROOM, "terminal": TERMINAL}
ALONE = {name: {name} for name in CHATS}
LINKED = ALONE | {"matrix": {"matrix", "phone"}, "phone": {"matrix", "phone"}}
WITH_TERMINAL = ALONE | {name: {"matrix", "phone", "terminal"} for name in ("matrix", "phone", "terminal")}


async def begin(here: Places, name: str, chat: str) -> str:
    """Begin a session somewhere: words and a title that tell it from others."""
    if chat == TERMINAL:
        session_id = await here.speak(f"harbour of {name}")
    else:
        session_id = await here.say(f"harbour of {name}", chat)
    await here.record.set_title(session_id, f"Title {name}")
    return session_id


async def ask(here: Places, chat: str, text: str) -> str:
    """Give a command somewhere."""
    return await (here.command(text, chat) if chat else here.type(text))


async def where(here: Places, chat: str) -> str:
    """Return the session that a place is in."""
    if not chat:
        return here.terminal
    route = await here.record.routes.read(chat)
    assert route is not None
    return route.session_id


async def resumable(here: Places, chat: str, names: dict[str, str]) -> set[str]:
    """Return the sessions into which /resume leads from a chat, by id; afterwards it is where it was."""
    own = await where(here, chat)
    found = set()
    for name, session_id in names.items():
        if session_id == own or (await ask(here, chat, f"/resume {session_id}")).startswith("Resumed"):
            found.add(name)
        assert (await where(here, chat) == session_id) == (name in found)
        if await where(here, chat) != own:
            await ask(here, chat, f"/resume {own}")
    return found


async def seen(here: Places, chat: str, names: dict[str, str]) -> dict[str, set[str]]:
    """Return which sessions are seen from a place, on each way to see one."""

    def named(text: str) -> set[str]:
        return {name for name, session_id in names.items() if session_id in text}

    ways = {"resume": await resumable(here, chat, names)}
    ways["list"] = named(await ask(here, chat, "/sessions"))
    ways["search"] = named(await ask(here, chat, "/search harbour"))
    session_id = await where(here, chat)
    tool = here.tool.at(ToolScene(session_id=session_id, owner=(await here.record.sessions.read(session_id)).owner))
    ways["tool search"] = named((await tool.run({"query": "harbour"})).text)
    ways["tool list"] = named((await tool.run({})).text)
    ways["tool read"], ways["title"] = set(), set()
    for name in names:
        try:
            read = (await tool.run({"session": f"Title {name}"})).text
        except NotFound:
            continue
        assert f"harbour of {name}" in read
        ways["tool read"].add(name)
    for name, other in names.items():
        try:
            found = await here.record.resolve(
                f"title {name}", owner=(await here.record.sessions.read(session_id)).owner
            )
        except NotFound:
            continue
        assert found.id == other
        ways["title"].add(name)
    return ways


async def check_all(here: Places, names: dict[str, str], expected: dict[str, set[str]]) -> None:
    """Compare what is seen from everywhere with what may be."""
    for name, chat in CHATS.items():
        for way, found in (await seen(here, chat, names)).items():
            assert found == expected[name], (name, way)


@pytest.mark.loss("J6", "K7")
async def test_before_while_and_after(home: Path) -> None:
    """Each sees their own; two who are linked see both; parted, each sees their own again, and no session changed."""
    async with places(home) as here:
        names = {name: await begin(here, name, chat) for name, chat in CHATS.items()}
        owners = {name: (await here.record.sessions.read(each)).owner for name, each in names.items()}
        await check_all(here, names, ALONE)
        await here.link(HOME_OF_ANN, PHONE_OF_ANN)
        await check_all(here, names, LINKED)
        await here.command(f"/link {await here.code(TERMINAL)}", PHONE_OF_ANN)
        await check_all(here, names, WITH_TERMINAL)
        await here.type("/unlink")
        await check_all(here, names, LINKED)
        await here.command("/unlink", HOME_OF_ANN)
        await check_all(here, names, ALONE)
        assert {name: (await here.record.sessions.read(each)).owner for name, each in names.items()} == owners
        await here.check()


@pytest.mark.loss("J6")
async def test_the_settings_link_as_codes_do(home: Path) -> None:
    """What Ann said before config.toml named her is hers under her name, on every platform, and nobody else's."""
    async with places(home) as here:
        names = {name: await begin(here, name, chat) for name, chat in CHATS.items()}
        people = {"ann": Person(matrix=(ANN,), telegram=(42,), terminal=True)}
        await here.record.people.declare(people)
        here.use(settings_with(people))
        await check_all(here, names, WITH_TERMINAL)
        await here.record.people.declare({})
        here.use(settings_with())
        await check_all(here, names, ALONE)
        await here.check()


async def test_what_is_begun_while_linked_belongs_to_where_it_was_begun(home: Path) -> None:
    """A session of the linked time is seen, after parting, by the one in whose place it began, and by no other."""
    async with places(home) as here:
        await here.link()
        on_matrix, on_phone = await begin(here, "m", HOME_OF_ANN), await begin(here, "p", PHONE_OF_ANN)
        await here.command(f"/resume {on_matrix}", PHONE_OF_ANN)
        forked = await here.say("/fork Copy", PHONE_OF_ANN)
        await here.command(f"/resume {on_phone}", PHONE_OF_ANN)
        await here.command("/unlink", PHONE_OF_ANN)
        assert {each.id for each in await here.record.sessions(owner=ON_MATRIX)} == {on_matrix, forked}
        assert {each.id for each in await here.record.sessions(owner=ON_TELEGRAM)} == {on_phone}


@pytest.mark.loss("J1", "H1")
@pytest.mark.parametrize("by", ["the phone", "the other side", "the admin"])
async def test_a_chat_leaves_a_session_that_is_no_longer_its_own(home: Path, by: str) -> None:
    """Parted while in the other's session: what is said next goes into a session of one's own, and says so."""
    async with places(home) as here:
        theirs = await here.say("private", HOME_OF_ANN)
        await here.link()
        await here.command(f"/resume {theirs}", PHONE_OF_ANN)
        assert await here.say("while linked", PHONE_OF_ANN) == theirs
        if by == "the phone":
            assert "a new one" in await here.command("/unlink", PHONE_OF_ANN)
        elif by == "the other side":
            await here.command("/unlink", HOME_OF_ANN)
        else:
            await here.record.people.unlink(ON_TELEGRAM)
        mine = await here.say("after parting", PHONE_OF_ANN)
        assert mine != theirs
        assert (await here.record.sessions.read(mine)).owner == ON_TELEGRAM
        words = [each.text for each in await here.record.load_transcript(mine)]
        assert "private" not in " ".join(words)
        if by != "the phone":
            assert words[0].startswith("What was said here before belongs to somebody else")
        said = [each.text for each in await here.record.load_transcript(theirs) if each.role is Role.USER]
        assert said == ["private", "while linked"]
        assert await here.say("still mine", HOME_OF_ANN) == theirs
        await here.check()


@pytest.mark.loss("J6")
async def test_a_list_of_the_linked_time_is_worth_nothing_afterwards(home: Path) -> None:
    """The phone listed Ann's sessions while linked; parted, their numbers lead nowhere, and nothing is touched."""
    async with places(home) as here:
        theirs = await here.say("private", HOME_OF_ANN)
        mine = await here.say("mine", PHONE_OF_ANN)
        await here.link()
        listed = await here.command("/sessions", PHONE_OF_ANN)
        number = next(line.split(".")[0].strip() for line in listed.splitlines() if theirs in line)
        await here.record.people.unlink(ON_MATRIX)
        seq = (await here.record.sessions.read(theirs)).head_seq
        assert "no session" in await here.command(f"/resume {number}", PHONE_OF_ANN)
        assert await where(here, PHONE_OF_ANN) == mine
        assert (await here.record.sessions.read(theirs)).head_seq == seq
        await here.check()


async def test_a_list_says_where_a_session_was_begun(home: Path) -> None:
    """Of sessions of other places the place is said; of those of this one it is not."""
    async with places(home) as here:
        ids = [await begin(here, "m", HOME_OF_ANN), await begin(here, "p", PHONE_OF_ANN), await begin(here, "t", "")]
        await here.link()
        await here.record.people.link("person:admin", ON_MATRIX)
        lines = (await here.command("/sessions", HOME_OF_ANN)).splitlines()
        ends = {each: line.rpartition(", ")[2] for each in ids for line in lines if each in line}
        assert ends == {ids[0]: "this one)", ids[1]: "begun on Telegram)", ids[2]: "begun in the terminal)"}


async def test_edits_after_parting_are_of_ones_own_words(home: Path) -> None:
    """Parted, the phone may still correct what it said itself in the other's session, and nothing else there."""
    async with places(home) as here:
        first = here.event("private", HOME_OF_ANN)
        theirs = await here.take(first)
        await here.link()
        await here.command(f"/resume {theirs}", PHONE_OF_ANN)
        own = here.event("a typo", PHONE_OF_ANN)
        await here.take(own)
        await here.record.people.unlink(ON_TELEGRAM)
        await here.take(here.event("no typo", PHONE_OF_ANN, kind=EventKind.EDIT, about=own.id))
        await here.take(here.event("forged", PHONE_OF_ANN, kind=EventKind.EDIT, about=first.id))
        said = [each.text for each in await here.record.load_transcript(theirs) if each.role is Role.USER]
        assert said == ["private", "no typo"]


@pytest.mark.loss("J6")
async def test_whoever_finds_a_code_in_a_search_finds_a_used_one(home: Path) -> None:
    """A code is in the record as what was shown; nobody but its person can read it there, and it counts once."""
    async with places(home) as here:
        code = code_in(await here.command("/link", HOME_OF_ANN))
        for chat in (BOBS, PHONE_OF_MALLORY, ROOM):
            assert code not in await here.command("/search link", chat)
        await here.command(f"/link {code}", PHONE_OF_ANN)
        assert "No such code" in await here.command(f"/link {code}", PHONE_OF_MALLORY)


async def test_a_chat_follows_only_while_everything_says_so(home: Path) -> None:
    """Route, circle, access, list and company: each alone ends it, and what ended it can be undone."""
    async with places(home) as here:
        session_id = await here.say("begun", HOME_OF_ANN)
        await here.link()
        await here.command(f"/resume {session_id}", PHONE_OF_ANN)

        async def follows() -> bool:
            return await here.may_follow(session_id, PHONE_OF_ANN)

        assert await follows()
        assert not await here.may_follow(session_id, PHONE_OF_MALLORY)
        here.channels["telegram"].crowded.add(PHONE_OF_ANN)
        assert not await follows()
        here.channels["telegram"].crowded.clear()
        await here.record.access.revoke("telegram", "42")
        assert not await follows()
        await here.record.access.allow("telegram", "42")
        here.use(settings_with(telegram=()))
        assert await follows()  # allowed by a code, whatever the list says
        here.use(settings_with())
        await here.record.people.unlink(ON_TELEGRAM)
        assert not await follows()
        await here.record.people.link(ON_TELEGRAM, ON_MATRIX)
        assert await follows()
        await here.say("/new", PHONE_OF_ANN)
        assert not await follows()


async def test_what_changes_while_the_platform_is_asked_counts(home: Path) -> None:
    """Somebody parts while the platform says who is in the chat: they are shown nothing any more."""
    async with places(home) as here:
        session_id = await here.say("begun", HOME_OF_ANN)
        await here.link()
        await here.command(f"/resume {session_id}", PHONE_OF_ANN)
        here.channels["telegram"].meanwhile = lambda: here.record.people.unlink(ON_TELEGRAM)
        assert not await here.may_follow(session_id, PHONE_OF_ANN)


async def test_who_is_taken_off_the_list_follows_no_longer(home: Path) -> None:
    """Nobody barred them, but config.toml no longer names them: they may not talk, and are shown nothing."""
    async with places(home) as here:
        session_id = await here.say("begun", HOME_OF_ANN)
        await here.link()
        await here.command(f"/resume {session_id}", PHONE_OF_ANN)
        here.use(settings_with(telegram=("7",)))
        assert not await here.may_follow(session_id, PHONE_OF_ANN)
