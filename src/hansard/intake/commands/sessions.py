"""Commands about sessions: begin, resume, list, find, name and fork them, and show where one stands."""

from __future__ import annotations

from hansard.domain.arrivals import Arrival, ArrivalKind, Origin
from hansard.domain.ids import new_id, new_session_id
from hansard.domain.limits import TITLE_CHARACTERS_MAX
from hansard.domain.messages import Message, Role
from hansard.domain.people import begun_in, called
from hansard.domain.search import excerpt
from hansard.domain.sessions import Session, SessionState, TurnState
from hansard.domain.settings import LeftSessions
from hansard.domain.text import clean_name, shorten
from hansard.errors import Ambiguous
from hansard.intake.commands.scene import CommandReply, CommandScene
from hansard.intake.speak import busy_of, receive_once
from hansard.record.api import Record

LISTED_MAX = 20
"""Sessions in one list: what fits on a screen."""

LISTED_CHARACTERS = 28
"""Words of a session in a list: what 80 columns leave for them."""

FOUND_MAX = 10
"""Messages that /search lists."""

EXCERPT_CHARACTERS = 120
"""How much of each of them."""

COUNT_CHARACTERS_MAX = 6
"""Digits of a number in a command."""

WAITING_SECONDS_MIN = 2
"""An answer that waits for a shorter time to begin is about to."""


async def new(scene: CommandScene, argument: str) -> CommandReply:
    """Begin a new session, in one commit with the command and its reply.

    A turn that runs is interrupted in the session that it belongs to.
    """
    arrival = Arrival(
        origin=Origin(channel=scene.source, owner=scene.owner),
        said=((scene.session_id, scene.asked or Message.notice("/new")),),
        kind=ArrivalKind.NEW,
        title=clean_name(argument, "a title", TITLE_CHARACTERS_MAX) if argument else None,
        new_ids=(new_session_id(scene.record.clock.now_microseconds()), new_id()),
        told="A new session: {new}. The one before stays as {old}.",
        reopens=True,
    )
    received = await receive_once(scene.record, arrival)
    reply = received.told[-1]
    return CommandReply(text=reply.text, session_id=received.session_id, seq=reply.seq)


async def resume(scene: CommandScene, argument: str) -> CommandReply:
    if not argument:
        outcome = await sessions(scene, "")
        return scene.reply(f"{outcome.text}\n/resume NUMBER goes on with one of them.", listed=outcome.listed)
    listed = scene.listed or tuple(each.id for each in await list_sessions(scene))
    number = count_of(argument)
    named = listed[number - 1] if number is not None and number <= len(listed) else argument
    found = await scene.record.resolve(named, owner=scene.owner)
    if found.id == scene.session_id:
        return scene.reply("You are in that session already.")
    await leave(scene.record, scene.session_id, scene.left_sessions, scene.chat)
    return CommandReply(text=await take_up(scene.record, found), session_id=found.id, wake="")


async def leave(record: Record, session_id: str, left_sessions: LeftSessions, chat: str = "") -> None:
    """Leave a session for another: its turn ends where it is, and so does the session unless it is to stay open.

    Where the same person is in it in another chat, it goes on.
    """
    if await record.routes.has_other_followers(session_id, chat):
        return
    await record.turns.stop(session_id, "the session was left for another", queued=True)
    if left_sessions is LeftSessions.END:
        await record.end_session(session_id, "resumed_other")


async def take_up(record: Record, session: Session) -> str:
    reopened = ""
    if session.state == SessionState.ENDED:
        await record.reopen_session(session.id)
        reopened = " It had ended and is open again."
    count = len([message for message in await record.load_transcript(session.id) if message.role != Role.NOTICE])
    title = f" “{session.title}”" if session.title else ""
    return f"Resumed {session.id}{title}: {count} {'message' if count == 1 else 'messages'}.{reopened}"


async def sessions(scene: CommandScene, argument: str) -> CommandReply:
    del argument
    found = await list_sessions(scene)
    lines = [f"{number:>2}. {await describe(scene, each)}" for number, each in enumerate(found, 1)]
    return scene.reply("\n".join(lines) or "There are no sessions yet.", listed=tuple(s.id for s in found))


async def list_sessions(scene: CommandScene) -> list[Session]:
    return await scene.record.sessions(owner=scene.owner, limit=LISTED_MAX)


async def describe(scene: CommandScene, session: Session) -> str:
    words = shorten(session.title or await first_words(scene.record, session.id) or "(nothing said)", LISTED_CHARACTERS)
    state = "this one" if session.id == scene.session_id else "ended" if session.state == SessionState.ENDED else "open"
    begun = "" if session.source == scene.source else f", begun {begun_in(session.source)}"
    return f"{session.id}  {words}  ({session.messages} messages, {state}{begun})"


async def first_words(record: Record, session_id: str) -> str:
    return shorten((await record.titles.first_words([session_id])).get(session_id, ""))


async def search(scene: CommandScene, argument: str) -> CommandReply:
    if not argument:
        return scene.reply("Say what to look for: /search WORDS")
    hits = await scene.record.search(argument, limit=FOUND_MAX, owner=scene.owner)
    if not hits:
        return scene.reply("Nothing was found.")
    lines = []
    for number, hit in enumerate(hits, 1):
        words = "".join(piece.text for piece in excerpt(argument, hit.message, EXCERPT_CHARACTERS)).strip()
        here = " (this one)" if hit.session_id == scene.session_id else ""
        lines.append(f"{number:>2}. {hit.session_id}{here}  {hit.message.at:%Y-%m-%d}  {hit.message.role}: {words}")
    text = "\n".join([*lines, "/resume NUMBER goes on in one of these sessions."])
    return scene.reply(text, listed=tuple(hit.session_id for hit in hits))


async def candidates(scene: CommandScene, error: Ambiguous) -> str:
    lines = [await describe(scene, await scene.record.sessions.read(each)) for each in error.candidates]
    return "\n".join(["Several sessions match:", *lines, error.hint])


async def title(scene: CommandScene, argument: str) -> CommandReply:
    if not argument:
        session = await scene.record.sessions.read(scene.session_id)
        return scene.reply(f"Title: {session.title}" if session.title else "This session has no title.")
    session = await scene.record.set_title(scene.session_id, argument)
    return scene.reply(f"Title: {session.title}")


def count_of(text: str) -> int | None:
    """Return a number from 1 on that somebody wrote, or None."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= COUNT_CHARACTERS_MAX
    return int(text) if is_number and int(text) else None


async def fork(scene: CommandScene, argument: str) -> CommandReply:
    """Go on in a copy that shares everything up to here."""
    child = await scene.record.fork(scene.session_id, title=argument or None)
    return CommandReply(text=f"A fork of {scene.session_id}: {child.id}.", session_id=child.id)


async def status(scene: CommandScene, argument: str) -> CommandReply:
    del argument
    record = scene.record
    session = await record.sessions.read(scene.session_id)
    conversation = await record.conversation(scene.session_id)
    turn = "being summed up" if conversation.is_compacting else "an answer runs" if conversation.running else "idle"
    if not conversation.running and conversation.queued:
        turn = await waiting_text(record, scene.session_id) or turn
    lines = [
        f"Session  {session.id}" + (f" “{session.title}”" if session.title else ""),
        f"Messages {session.messages}, {len(conversation.waiting)} waiting; {turn}",
        f"Model    {scene.model or 'none yet'}",
        f"Busy     {await busy_of(record, scene.session_id, scene.busy)}",
        f"Record   {record.trouble or 'in order'}" + ("" if scene.chat else f", {record.home}"),
    ]
    others = [called(each) for each in await record.people.circle(scene.owner) if each != scene.owner]
    if others:
        lines.append(f"Linked   {', '.join(others)}")
    return scene.reply("\n".join(lines))


async def waiting_text(record: Record, session_id: str) -> str:
    """Return for how long an answer has waited to begin; empty when it waits only for a moment, or not at all."""
    queued = next((turn for turn in await record.turns.list(session_id) if turn.state == TurnState.QUEUED), None)
    if queued is None:
        return ""
    entries = await record.sessions.read_entries(session_id, queued.fence - 1, 1)
    seconds = (record.clock.now_microseconds() - entries[0].at_microseconds) // 1_000_000
    if seconds < WAITING_SECONDS_MIN:
        return ""
    return f"an answer has waited {seconds} s to begin, because others run first"
