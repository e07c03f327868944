"""Which rank may give which command, where: every cell, written down by hand and compared with what is done."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from hansard.cli import process as shell
from hansard.domain.access import (
    DEEDS,
    ROWS,
    Grant,
    Rank,
    Right,
    Standing,
    Standpoint,
    Where,
    deed_of,
    is_shared,
    rank_of,
    refusal,
    right,
)
from hansard.domain.messages import Message
from hansard.domain.people import People
from hansard.domain.policy import policy_of
from hansard.domain.settings import Person
from hansard.intake.commands.people import IN_A_ROOM
from hansard.intake.commands.registry import names, perform
from hansard.intake.commands.scene import CommandScene
from hansard.intake.speak import CommandLine
from hansard.record.api import Record
from tests.intake.places import code_in, places
from tests.intake.town import ANN, BOB, EVE, HOME_OF_ANN, ROOM, settings_of

LETTERS = {"A": Right.ALLOWED, "O": Right.OWN, "D": Right.DENIED}

# Five ranks: barred, stranger, guest, member, admin; of each five places: direct, room, thread, terminal, shell.
WRITTEN = """
help                DDDDD DDDDD AAADD AAADD AAAAD
status              DDDDD DDDDD AAADD AAADD AAAAD
usage               DDDDD DDDDD AAADD AAADD AAAAD
sessions            DDDDD DDDDD OOODD OOODD OOOOD
search              DDDDD DDDDD OOODD OOODD OOOOD
resume              DDDDD DDDDD AOODD AAADD AAAAD
new                 DDDDD DDDDD AOODD AAADD AAAAD
fork                DDDDD DDDDD AOODD AAADD AAAAD
title               DDDDD DDDDD AAADD AAADD AAAAD
title TEXT          DDDDD DDDDD AOODD AAADD AAAAD
undo                DDDDD DDDDD AOODD AAADD AAAAD
retry               DDDDD DDDDD AOODD AAADD AAAAD
stop                DDDDD DDDDD AOODD AAADD AAAAD
queue               DDDDD DDDDD AAADD AAADD AAAAD
steer               DDDDD DDDDD AOODD AAADD AAAAD
busy                DDDDD DDDDD AAADD AAADD AAAAD
busy MODE           DDDDD DDDDD AOODD AAADD AAAAD
compact             DDDDD DDDDD AOODD AAADD AAAAD
model               DDDDD DDDDD AAADD AAADD AAAAD
model NAME          DDDDD DDDDD DDDDD AAADD AAAAD
why                 DDDDD DDDDD AOODD AAADD AAAAD
yes                 DDDDD DDDDD OOODD OOODD OOOOD
no                  DDDDD DDDDD OOODD OOODD OOOOD
file                DDDDD DDDDD DDDDD DDDDD DDDAD
memory              DDDDD DDDDD AAADD AAADD AAAAD
memory CHANGE       DDDDD DDDDD AOODD AAADD AAAAD
link                DDDDD DDDDD ADDDD ADDDD ADDAD
unlink              DDDDD DDDDD ADDDD ADDDD ADDAD
hansard audit       DDDDD DDDDD DDDDD DDDDD DDDDA
hansard config      DDDDD DDDDD DDDDD DDDDD DDDDA
hansard deliveries  DDDDD DDDDD DDDDD DDDDD DDDDA
hansard explain     DDDDD DDDDD DDDDD DDDDD DDDDA
hansard export      DDDDD DDDDD DDDDD DDDDD DDDDA
hansard gateway     DDDDD DDDDD DDDDD DDDDD DDDDA
hansard import      DDDDD DDDDD DDDDD DDDDD DDDDA
hansard memory      DDDDD DDDDD DDDDD DDDDD DDDDA
hansard models      DDDDD DDDDD DDDDD DDDDD DDDDA
hansard pair        DDDDD DDDDD DDDDD DDDDD DDDDA
hansard people      DDDDD DDDDD DDDDD DDDDD DDDDA
hansard permissions DDDDD DDDDD DDDDD DDDDD DDDDA
hansard search      DDDDD DDDDD DDDDD DDDDD DDDDA
hansard sessions    DDDDD DDDDD DDDDD DDDDD DDDDA
hansard verify      DDDDD DDDDD DDDDD DDDDD DDDDA
"""

RANKS = (Rank.BARRED, Rank.STRANGER, Rank.GUEST, Rank.MEMBER, Rank.ADMIN)
PLACES = (Where.DIRECT, Where.ROOM, Where.THREAD, Where.TERMINAL, Where.SHELL)


def written_cells() -> dict[tuple[str, Standpoint], Right]:
    """Return the table above, cell by cell."""
    cells = {}
    for line in WRITTEN.strip().splitlines():
        *deed, barred, stranger, guest, member, admin = line.split()
        letters = barred + stranger + guest + member + admin
        standpoints = [Standpoint(rank, where) for rank, where in itertools.product(RANKS, PLACES)]
        assert len(letters) == len(standpoints) == 25
        for standpoint, letter in zip(standpoints, letters, strict=True):
            cells[" ".join(deed), standpoint] = LETTERS[letter]
    return cells


CELLS = written_cells()


def test_every_cell() -> None:
    """The table of the code says in each cell what is written here."""
    assert {cell: right(cell[1], cell[0]) for cell in CELLS} == CELLS


def test_nothing_is_left_out() -> None:
    """Every command of chats and of the shell has its row, every rank and place its column; the rest is denied."""
    assert {deed for deed, _ in CELLS} == set(DEEDS)
    assert {deed.partition(" ")[0] for deed in ROWS} == set(names())
    assert {deed.removeprefix("hansard ") for deed in DEEDS if deed.startswith("hansard ")} == set(shell.COMMANDS)
    assert (set(RANKS), set(PLACES)) == (set(Rank), set(Where))
    assert right(Standpoint(Rank.ADMIN, Where.TERMINAL), "no such command") is Right.DENIED


ARGUMENTS = {
    "title TEXT": "A title",
    "busy MODE": "queue",
    "model NAME": "demo",
    "memory CHANGE": "add the harbour",
    "search": "harbour",
    "steer": "left",
    "queue": "later",
}
CHATS = {Where.DIRECT: HOME_OF_ANN, Where.ROOM: ROOM, Where.THREAD: f"{ROOM}:thread:$t", Where.TERMINAL: ""}
OWNERS = {
    Where.DIRECT: f"person:matrix:{ANN}",
    Where.ROOM: "room:matrix:!room:example.org",
    Where.THREAD: "room:matrix:!room:example.org",
    Where.TERMINAL: "person:admin",
}
FOR_THE_ROOM = {"resume", "new", "fork", "title TEXT", "busy MODE", "compact", "memory CHANGE"}
"""With `own only`, these are refused in a session that belongs to a room."""

OWN_REFUSALS = {
    "link": IN_A_ROOM,
    "unlink": "A room is linked to nobody. Say this in a direct chat with me.",
    "file": "Send the file in this chat itself; /file is for the terminal.",
}


@pytest.mark.parametrize("where", list(CHATS))
async def test_every_command_is_run_or_refused_as_the_table_says(home: Path, where: Where) -> None:
    """Each command of each rank, given to the real registry: it is refused where the table says so, and only there."""
    refused = {}
    async with Record.open(home) as record:
        for rank, deed in itertools.product(RANKS, ROWS):
            session = await record.create_session(source="matrix", owner=OWNERS[where])
            await record.append(session.id, Message.user("the harbour", author=ANN, chat=CHATS[where]))
            name, argument = deed.partition(" ")[0], ARGUMENTS.get(deed, "")
            assert deed_of(name, argument) == deed
            standpoint = Standpoint(rank, where)
            scene = CommandScene(
                record=record,
                session_id=session.id,
                owner=OWNERS[where],
                author=ANN,
                chat=CHATS[where],
                standpoint=standpoint,
                model="played",
            )
            outcome = await perform(scene, CommandLine(name, argument))
            refused[deed, standpoint] = outcome.text == OWN_REFUSALS.get(deed, refusal(deed, standpoint))
    is_room = where in {Where.ROOM, Where.THREAD}
    expected = {
        cell: written is Right.DENIED or (is_room and written is Right.OWN and cell[0] in FOR_THE_ROOM)
        for cell, written in CELLS.items()
        if cell[1].where is where and cell[0] in ROWS
    }
    if where is Where.TERMINAL:  # which itself takes a file, before the registry is asked
        expected["file", Standpoint(Rank.ADMIN, where)] = True
    assert refused == expected


def test_who_is_admin() -> None:
    """By the settings alone: every identity of the name with the terminal, where it may talk at all."""
    owner = Person(matrix=(ANN, "@ann:work.example.org"), terminal=True)
    settings = settings_of(ANN, "@ann:work.example.org", BOB, "!room:example.org", people={"ann": owner})
    people = People(settings, "matrix")

    def rank(identity: str, chat: str = ROOM, grant: Grant = Grant.NONE) -> Rank:
        return people.standpoint(identity, chat, grant, is_direct=chat != ROOM).rank

    assert [rank(each) for each in (ANN, "@ann:work.example.org", BOB, EVE)] == [
        Rank.ADMIN, Rank.ADMIN, Rank.MEMBER, Rank.GUEST,
    ]  # fmt: skip
    assert (rank(EVE, HOME_OF_ANN), rank(EVE, HOME_OF_ANN, Grant.ALLOWED)) == (Rank.STRANGER, Rank.MEMBER)
    assert rank(ANN, grant=Grant.REVOKED) is Rank.BARRED
    assert rank_of(Standing.UNLISTED, Grant.NONE, is_admin=True) is Rank.STRANGER


async def test_a_code_makes_nobody_admin(home: Path) -> None:
    """Whoever is linked with the terminal by a code sees its history, and is what they were before."""
    async with places(home) as here:
        code = code_in(await here.type("/link"))
        assert "one person with" in await here.command(f"/link {code}", HOME_OF_ANN)
        assert "person:admin" in await here.record.people.circle(f"person:matrix:{ANN}")
        known = await here.record.access.find("matrix", ANN)
        found = People(here.settings, "matrix").standpoint(ANN, HOME_OF_ANN, known.state, is_direct=True)
        assert found.rank is Rank.MEMBER
        asker = policy_of(here.settings).asker(f"person:matrix:{ANN}", ANN, HOME_OF_ANN)
        assert asker.names == (f"matrix:{ANN}",)


def test_whose_a_session_is() -> None:
    """A room's is several people's; that of one person in it is not, nor a person's own."""
    assert is_shared("room:matrix:!r:h")
    assert not is_shared("room:matrix:!r:h:person:@ann:h")
    assert is_shared("room:telegram:-5")
    assert not is_shared("room:telegram:-5:person:42")
    assert not is_shared("person:matrix:@ann:h")
    assert is_shared("room:matrix:of another form")
