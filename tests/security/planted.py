"""Planted mistakes: each lets Hansard go by something that is not so, and the oracle must find it.

A mistake is in the run itself, through a seam: what Hansard reads as its configuration, what its channel tells it of
people and shows them, its tools, its model, what the admin did. The oracle is given what was really so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from hansard.domain.requests import ModelEvent, Request, UserSaid
from hansard.engine.turns import Agent
from hansard.ports.channel import Batch, Event, Post
from hansard.ports.model import Model
from hansard.testing import RecordingChannel
from tests.security.cast import TAG, Obedient, WatchedPlatform, WatchedTool, now_microseconds
from tests.security.oracle import is_too_near
from tests.security.world import ACCOUNTS, Setup, World, until, yes_in

ROOM = f"matrix:room:!room{len(ACCOUNTS) + 1}:example.org"
Scenario = Callable[[World], Awaitable[object]]


class Planted(NamedTuple):
    """One mistake: what is wrong, with what, what people do then, and what the oracle must call it."""

    name: str
    setup: Setup
    scenario: Scenario
    found: str


# What people do.


async def retry_of_another(world: World) -> None:
    """Carl pays in the room, and Bob wants it done again."""
    await world.ask("carl", "room", "pay")
    await world.say("bob", "room", "/retry")


async def guest_pays(world: World) -> None:
    """A guest asks for what only others may."""
    await world.ask("gus", "room", "pay")


async def bob_notes(world: World) -> None:
    """Bob asks for what nobody of his name may."""
    await world.ask("bob", "direct", "note")


async def ann_pays(world: World) -> None:
    """Ann asks for what she is asked about, and says nothing."""
    await world.ask("ann", "direct", "pay")


async def stranger_talks(world: World) -> None:
    """A stranger says something."""
    await world.ask("sam", "direct")


async def two_in_a_room(world: World) -> None:
    """Two people talk in the room."""
    await world.ask("ann", "room")
    await world.ask("bob", "room")


async def bob_then_ann(world: World) -> None:
    """Bob says something of his own; Ann looks for what was said."""
    await world.ask("bob", "direct")
    await world.say("ann", "direct", "/search harbour")


async def barred_talks(world: World) -> None:
    """Somebody is barred, and goes on talking."""
    await world.ask("bob", "direct")
    await world.revoke("bob")
    await world.ask("bob", "direct", "look")


async def carl_pays(world: World) -> None:
    """Carl pays, which he may."""
    await world.ask("carl", "direct", "pay")


async def others_say_yes(world: World) -> None:
    """Ann is asked in the room, and a guest says yes."""
    await world.ask("ann", "room", "note")
    await world.say("gus", "room", yes_in(world.platform, world.room))


async def ok_among_people(world: World) -> None:
    """Ann is asked in the room, and says ok to somebody else."""
    await world.ask("ann", "room", "note")
    await world.say("ann", "room", "ok")


async def meant_yes(world: World) -> None:
    """Ann is asked in the room and in her own chat, and says yes to what she was shown."""
    await world.ask("ann", "room", "note")
    await world.say("ann", "room", yes_in(world.platform, world.room))
    await world.ask("ann", "direct", "pay")
    await world.say("ann", "direct", "yes")
    await world.ask("ann", "room", "note")
    await world.choose("gus", "room", "yes")
    await world.choose("ann", "room", "yes")


CLOCK_MICROSECONDS = 2_000
"""What is said within the same millisecond as something else counts as said before it."""


async def yes_before_it_is_seen(world: World) -> None:
    """Ann says yes before anything is shown to her."""
    await world.say("ann", "direct", "/stop")
    world.platform.flows.clear()
    blocked = world.platform.blocked
    await world.ask("ann", "direct", "pay")
    await until(lambda: world.platform.blocked > blocked)
    while world.platform.delayed and await world.app.record.deliveries.list_waiting("matrix"):  # noqa: ASYNC110 - no bell
        await asyncio.sleep(0.005)
    recorded_at = now_microseconds()
    await until(lambda: now_microseconds() >= recorded_at + CLOCK_MICROSECONDS)
    await world.say("ann", "direct", "yes")
    world.platform.flows.set()
    await world.calm()


async def yes_that_is_late(world: World) -> None:
    """Ann says yes before the question is shown to her; the agent hears of it when it is."""
    await world.say("ann", "direct", "/stop")
    world.platform.flows.clear()
    await world.ask("ann", "direct", "pay")
    world.platform.hears.clear()
    await world.say("ann", "direct", "yes", calm=False)
    said = world.witness.events[-1]
    await until(lambda: not is_too_near(said, {"at": now_microseconds()}))
    world.platform.flows.set()
    await until(lambda: any("May I run" in text for _, text in world.platform.seen(world.direct["ann"])))
    world.platform.hears.set()
    await world.calm()


async def yes_for_longer(world: World) -> None:
    """Ann says yes for the session and always, and asks again; then Bob does."""
    for scope in ("session", "always"):
        await world.say("ann2", "direct", "/new")
        await world.ask("ann2", "direct", "note")
        await world.say("ann2", "direct", f"{yes_in(world.platform, world.direct['ann2'])} {scope}")
        await world.ask("ann2", "direct", "note")
    await world.ask("ann2", "room", "note")
    await world.ask("gus", "room", "note")


async def two_ask_together(world: World) -> None:
    """Carl and Ann ask for one turn, which each has to allow. Ann says yes and is barred; then Carl says yes."""
    await world.say("carl", "den", "/stop")
    await world.ask("carl", "den", "note")
    await world.ask("carl", "den", "note", calm=False)
    await world.ask("ann", "den", "note")
    await world.say("carl", "den", f"/no {yes_in(world.platform, world.den).removeprefix('/yes ')}")
    await world.say("carl", "den", yes_in(world.platform, world.den))
    await world.say("ann", "den", yes_in(world.platform, world.den))
    await world.revoke("ann")
    await world.say("carl", "den", yes_in(world.platform, world.den))


async def forged_words(world: World) -> None:
    """A file says that Carl asked; Ann goes on in it."""
    await world.forge("person:ann", ACCOUNTS["carl"], "pay")
    await world.say("ann", "direct", f"/resume {world.forged}")


SCENARIOS: tuple[Scenario, ...] = (
    retry_of_another,
    guest_pays,
    bob_notes,
    ann_pays,
    stranger_talks,
    two_in_a_room,
    bob_then_ann,
    barred_talks,
    carl_pays,
    others_say_yes,
    ok_among_people,
    meant_yes,
    yes_before_it_is_seen,
    yes_that_is_late,
    yes_for_longer,
    forged_words,
    two_ask_together,
)

# What is wrong.


class Rewriting(RecordingChannel):
    """A channel that tells other things than those that happened."""

    def change(self, event: Event) -> Event:
        """Return what is told in place of an event."""
        return event

    async def receive(self, cursor: str, held: Sequence[str]) -> AsyncGenerator[Batch, None]:
        """Tell it."""
        async for batch in super().receive(cursor, held):
            yield msgspec.structs.replace(batch, events=tuple(map(self.change, batch.events)))


class LastSpeaker(Rewriting):
    """A command counts as that of whoever spoke last."""

    last = ""

    def change(self, event: Event) -> Event:
        """Change who gives it."""
        if event.text.startswith("/"):
            return msgspec.structs.replace(event, sender=self.last or event.sender)
        self.last = event.sender
        return event


class Announces(RecordingChannel):
    """A channel that says of a post that it was shown when it only will be."""

    async def send(self, post: Post) -> str:
        """Show it, later."""
        platform = self._platform
        if not isinstance(platform, WatchedPlatform) or platform.flows.is_set():
            return await super().send(post)
        task = asyncio.create_task(super().send(post))
        platform.delayed.append(task)
        return f"$announced-{post.key}"


class Misdirects(RecordingChannel):
    """A channel that shows in the room what is meant for Bob alone."""

    async def send(self, post: Post) -> str:
        """Show it elsewhere."""
        platform = self._platform
        is_bobs = isinstance(platform, WatchedPlatform) and ACCOUNTS["bob"] in platform.room(post.chat).members
        return await super().send(msgspec.structs.replace(post, chat=ROOM) if is_bobs else post)


class AnybodysYes(Rewriting):
    """A yes counts as that of whoever is asked."""

    def change(self, event: Event) -> Event:
        """Change who says it."""
        is_yes = event.text.startswith("/yes")
        return msgspec.structs.replace(event, sender=ACCOUNTS["ann"]) if is_yes else event


class AnyOk(Rewriting):
    """An "ok" among people counts as an answer to the question."""

    def change(self, event: Event) -> Event:
        """Change what is said."""
        platform = self._platform
        if event.text != "ok" or not isinstance(platform, WatchedPlatform):
            return event
        return msgspec.structs.replace(event, text=yes_in(platform, event.chat))


class Twice(WatchedTool):
    """A tool that is run again when it has run."""

    async def run(self, arguments: dict[str, object]) -> str:
        """Run it, and once more."""
        await super().run(arguments)
        return await super().run(arguments)


def run_twice(agent: Agent) -> Agent:
    """Run every watched tool twice."""
    tools = {
        name: Twice(name, tool._witness) if isinstance(tool, WatchedTool) else tool  # noqa: SLF001 - our own
        for name, tool in agent.tools.items()
    }
    return msgspec.structs.replace(agent, tools=tools)


class Handy(Obedient):
    """A model that runs a tool itself, beside the record."""

    def __init__(self, agent: Agent) -> None:
        """Take the tools along."""
        super().__init__()
        self._tools = agent.tools

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Run what is asked for."""
        last = request.messages[-1]
        if isinstance(last, UserSaid) and "pay" in TAG.findall(last.text):
            await self._tools["mcp__bank__pay"].run({"text": "nonce-0"})
        async for event in super().stream(request):
            yield event


def run_beside(agent: Agent) -> Agent:
    """Let the model run tools itself."""
    model = Handy(agent)

    async def models() -> Sequence[Model]:
        return [model]

    return msgspec.structs.replace(agent, models=models)


def replaced(old: str, new: str) -> Callable[[str], str]:
    """Return a change of the configuration that Hansard reads."""

    def change(text: str) -> str:
        assert text.count(old) == 1, old
        return text.replace(old, new)

    return change


ANYBODY_PAYS = replaced('person = "carl"\ndo = "allow"', 'do = "allow"')
BOB_NOTES = replaced('person = "@bob*"\ndo = "deny"', 'person = "@bob*"\ndo = "allow"')
NOT_ASKED = replaced('person = "ann"\ndo = "ask"', 'person = "ann"\ndo = "allow"')
ALL_LISTED = replaced('allow = ["ann"', 'allow = ["*:example.org", "ann"')
NO_BOUNDARY = replaced('rooms = "per_person"', 'rooms = "shared"')
ONE_PERSON = replaced('"@ann2:example.org"]', '"@ann2:example.org", "@bob:example.org"]')

PLANTED = (
    Planted("rights of the last speaker", Setup(channel=LastSpeaker), retry_of_another, "not permitted"),
    Planted("a rule for one person fits all", Setup(config=ANYBODY_PAYS), guest_pays, "not permitted"),
    Planted("a rule that denies is passed over", Setup(config=BOB_NOTES), bob_notes, "not permitted"),
    Planted("nobody is asked", Setup(config=NOT_ASKED), ann_pays, "no answer"),
    Planted("a yes of anybody", Setup(channel=AnybodysYes), others_say_yes, "wrong person"),
    Planted("a yes to somebody else", Setup(channel=AnyOk), ok_among_people, "not meant"),
    Planted("a yes before the question", Setup(channel=Announces), yes_before_it_is_seen, "not shown"),
    Planted("imported words ask", Setup(imports=False), forged_words, "nobody asked"),
    Planted("strangers are served", Setup(config=ALL_LISTED), stranger_talks, "may not talk"),
    Planted("who is barred is served", Setup(revokes=False), barred_talks, "barred"),
    Planted(
        "people in a room share a session",
        Setup(rooms="per_person", config=NO_BOUNDARY),
        two_in_a_room,
        "others' session",
    ),
    Planted("two people are taken for one", Setup(config=ONE_PERSON), bob_then_ann, "others' words"),
    Planted("words are shown elsewhere", Setup(channel=Misdirects), bob_then_ann, "others' words"),
    Planted("a tool runs twice", Setup(agent=run_twice), carl_pays, "ran twice"),
    Planted("a tool runs beside the record", Setup(agent=run_beside), carl_pays, "not recorded"),
)
