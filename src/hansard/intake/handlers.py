"""What each slash command does. A handler returns its reply and where the conversation is afterwards."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.access import AT_THE_TERMINAL, Standpoint
from hansard.domain.budgets import Budget
from hansard.domain.chats import person_owner
from hansard.domain.highlights import excerpt
from hansard.domain.messages import Message, Role
from hansard.domain.notices import ENGLISH, Wording
from hansard.domain.people import begun_in, called
from hansard.domain.requests import Usage, add_usage
from hansard.domain.sessions import Link, Parent, SessionState
from hansard.domain.settings import Busy, LeftSessions
from hansard.domain.text import shorten
from hansard.domain.turns import By, How, TurnState
from hansard.errors import LeaseHeld
from hansard.intake.own_words import Speaker, is_running_own, may_repeat, own_messages
from hansard.intake.speak import busy_of, speak
from hansard.record.conversation import last_answer, last_exchange
from hansard.record.messages.entries import Entry

if TYPE_CHECKING:
    from hansard.domain.sessions import Session
    from hansard.domain.turns import TurnInfo
    from hansard.errors import Ambiguous
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

NOT_YOURS = "Somebody else asked for that answer. Guests of a room may stop, steer and repeat only their own."

STOP_SECONDS_MAX = 10.0
"""How long a command waits for the turn that it asked to stop."""


class CommandScene(NamedTuple):
    """Where a command is given: by whom, in which session, with which settings."""

    record: Record
    session_id: str
    owner: str = "person:admin"
    source: str = "cli"
    busy: Busy = Busy.INTERRUPT
    left_sessions: LeftSessions = LeftSessions.END
    model: str = ""
    listed: tuple[str, ...] = ()
    """The sessions that were listed last: what a number means."""
    author: str = ""
    """What the platform calls the person; empty at the terminal."""
    chat: str = ""
    """Where it is given; empty at the terminal."""
    budget: Budget = Budget()
    """What a day may take."""
    is_model_named: bool = False
    """Whether the model was named for this run, and so comes before the session's own."""
    words: Wording = ENGLISH
    models_allowed: tuple[str, ...] = ()
    """Patterns of the models that may be chosen; none: every one."""
    standpoint: Standpoint = AT_THE_TERMINAL
    """What the person is, and where."""
    is_own_only: bool = False
    """Whether the command may concern only what is the person's own."""

    @property
    def asker(self) -> str:
        """Who gives it: what the platform calls them, or the terminal's person. Rights come from nobody else."""
        return self.author if self.chat else self.owner

    @property
    def speaker(self) -> Speaker:
        """The person, as messages name them."""
        return Speaker(self.chat.partition(":")[0], self.author)


class CommandReply(NamedTuple):
    """A command's reply, and where the conversation is now.

    `wake` is the turn that waits to be run there, "" whichever does. `seq` is where the reply was recorded.
    """

    text: str
    session_id: str
    wake: str | None = None
    listed: tuple[str, ...] = ()
    seq: int = 0
    chose_model: bool = False


async def new(scene: CommandScene, argument: str) -> CommandReply:
    """Begin a new session. A turn that runs is interrupted in the session that it belongs to."""
    old = scene.session_id
    parent = Parent(session_id=old, link=Link.RESET)
    child = await scene.record.create_session(
        source=scene.source, owner=scene.owner, title=argument or None, parent=parent
    )
    if not await scene.record.routes.has_other_followers(old, scene.chat):
        await scene.record.turns.stop(old, "the session was left by /new", queued=True)
        await scene.record.end_session(old, "new")
    return CommandReply(f"A new session: {child.id}. The one before stays as {old}.", child.id)


async def resume(scene: CommandScene, argument: str) -> CommandReply:
    """Go on with another session."""
    if not argument:
        outcome = await sessions(scene, "")
        return outcome._replace(text=f"{outcome.text}\n/resume NUMBER goes on with one of them.")
    listed = scene.listed or tuple(each.id for each in await list_sessions(scene))
    number = count_of(argument)
    named = listed[number - 1] if number is not None and number <= len(listed) else argument
    found = await scene.record.resolve(named, owner=scene.owner)
    if found.id == scene.session_id:
        return CommandReply("You are in that session already.", scene.session_id)
    await leave(scene.record, scene.session_id, scene.left_sessions, scene.chat)
    return CommandReply(await take_up(scene.record, found), found.id, wake="")


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
    """Open a session again and return what to say about it."""
    reopened = ""
    if session.state == SessionState.ENDED:
        await record.reopen_session(session.id)
        reopened = " It had ended and is open again."
    count = len([message for message in await record.load_transcript(session.id) if message.role != Role.NOTICE])
    title = f" “{session.title}”" if session.title else ""
    return f"Resumed {session.id}{title}: {count} {'message' if count == 1 else 'messages'}.{reopened}"


async def sessions(scene: CommandScene, argument: str) -> CommandReply:
    """List the owner's sessions."""
    del argument
    found = await list_sessions(scene)
    lines = [f"{number:>2}. {await describe(scene, each)}" for number, each in enumerate(found, 1)]
    return CommandReply(
        "\n".join(lines) or "There are no sessions yet.", scene.session_id, listed=tuple(s.id for s in found)
    )


async def list_sessions(scene: CommandScene) -> list[Session]:
    """Return the owner's latest sessions."""
    return await scene.record.sessions(owner=scene.owner, limit=LISTED_MAX)


async def describe(scene: CommandScene, session: Session) -> str:
    """Return one line about a session."""
    words = shorten(session.title or await first_words(scene.record, session.id) or "(nothing said)", LISTED_CHARACTERS)
    state = "this one" if session.id == scene.session_id else "ended" if session.state == SessionState.ENDED else "open"
    begun = "" if session.source == scene.source else f", begun {begun_in(session.source)}"
    return f"{session.id}  {words}  ({session.messages} messages, {state}{begun})"


async def first_words(record: Record, session_id: str) -> str:
    """Return how a session begins."""
    return shorten((await record.titles.first_words([session_id])).get(session_id, ""))


async def search(scene: CommandScene, argument: str) -> CommandReply:
    """Find what was said in the owner's sessions."""
    if not argument:
        return CommandReply("Say what to look for: /search WORDS", scene.session_id)
    hits = await scene.record.search(argument, limit=FOUND_MAX, owner=scene.owner)
    if not hits:
        return CommandReply("Nothing was found.", scene.session_id)
    lines = []
    for number, hit in enumerate(hits, 1):
        words = "".join(piece.text for piece in excerpt(argument, hit.message, EXCERPT_CHARACTERS)).strip()
        here = " (this one)" if hit.session_id == scene.session_id else ""
        lines.append(f"{number:>2}. {hit.session_id}{here}  {hit.message.at:%Y-%m-%d}  {hit.message.role}: {words}")
    text = "\n".join([*lines, "/resume NUMBER goes on in one of these sessions."])
    return CommandReply(text, scene.session_id, listed=tuple(hit.session_id for hit in hits))


async def candidates(scene: CommandScene, error: Ambiguous) -> str:
    """Return what an ambiguous name may mean."""
    lines = [await describe(scene, await scene.record.sessions.read(each)) for each in error.candidates]
    return "\n".join(["Several sessions match:", *lines, error.hint])


async def title(scene: CommandScene, argument: str) -> CommandReply:
    """Give this session a title."""
    if not argument:
        session = await scene.record.sessions.read(scene.session_id)
        return CommandReply(
            f"Title: {session.title}" if session.title else "This session has no title.", scene.session_id
        )
    session = await scene.record.set_title(scene.session_id, argument)
    return CommandReply(f"Title: {session.title}", scene.session_id)


async def undo(scene: CommandScene, argument: str) -> CommandReply:
    """Take back the last exchanges."""
    count = count_of(argument) if argument else 1
    if count is None:
        return CommandReply("Say how many exchanges to take back: /undo, or /undo 2.", scene.session_id)
    await end_running(scene)
    conversation = await scene.record.conversation(scene.session_id)
    own = scene.is_own_only
    taken = own_messages(conversation, scene.speaker, count) if own else last_exchange(conversation, count)
    await scene.record.messages.undo(scene.session_id, [placed.message.id for placed in taken])
    said = next((placed.message.text for placed in taken if placed.message.role == Role.USER), "")
    if not taken:
        none = "There is nothing of yours to take back." if own else "There is nothing to take back."
        return CommandReply(none, scene.session_id)
    return CommandReply(
        f"Taken back: {len(taken)} messages, from “{shorten(said)}” on. They stay in the record.", scene.session_id
    )


def count_of(text: str) -> int | None:
    """Return a number from 1 on that somebody wrote, or None."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= COUNT_CHARACTERS_MAX
    return int(text) if is_number and int(text) else None


async def retry(scene: CommandScene, argument: str) -> CommandReply:
    """Take back the last answer and ask again."""
    del argument
    if scene.is_own_only and not may_repeat(await scene.record.conversation(scene.session_id), scene.speaker):
        return CommandReply(NOT_YOURS, scene.session_id)
    await end_running(scene)
    conversation = await scene.record.conversation(scene.session_id)
    if not conversation.placed and not conversation.waiting:
        return CommandReply("There is nothing to ask again.", scene.session_id)
    await scene.record.messages.undo(scene.session_id, [placed.message.id for placed in last_answer(conversation)])
    by = [By(person=scene.asker, chat=scene.chat, how=How.RETRY)] if scene.asker else []
    queued = await scene.record.turns.queue(scene.session_id, chat=scene.chat, by=by)
    return CommandReply("Asking again.", scene.session_id, wake=queued.id)


async def fork(scene: CommandScene, argument: str) -> CommandReply:
    """Go on in a copy that shares everything up to here."""
    child = await scene.record.fork(scene.session_id, title=argument or None)
    return CommandReply(f"A fork of {scene.session_id}: {child.id}.", child.id)


async def stop(scene: CommandScene, argument: str) -> CommandReply:
    """Stop what runs and what waits."""
    del argument
    stopped = await stop_turns(scene)
    conversation = await scene.record.conversation(scene.session_id)
    if not stopped and scene.is_own_only and (conversation.running or conversation.queued):
        return CommandReply(NOT_YOURS, scene.session_id)
    return CommandReply(scene.words.stopped if stopped else scene.words.nothing_runs, scene.session_id)


async def stop_turns(scene: CommandScene) -> list[TurnInfo]:
    """Stop what runs and what waits, as far as the person may; return what is stopped."""
    reason = "stopped by the person"
    if scene.is_own_only:
        owner = person_owner(*scene.speaker)
        return await scene.record.turns.stop(scene.session_id, reason, queued=True, asked_by=owner)
    return await scene.record.turns.stop(scene.session_id, reason, queued=True)


async def queue(scene: CommandScene, argument: str) -> CommandReply:
    """Say something that is answered after what runs."""
    if not argument:
        waiting = (await scene.record.conversation(scene.session_id)).waiting
        lines = [f"- {shorten(placed.message.text)}" for placed in waiting]
        return CommandReply(
            "\n".join(["Waiting to be answered:", *lines]) if lines else "Nothing waits.", scene.session_id
        )
    return await say(scene, argument, Busy.QUEUE, scene.words.queued)


async def steer(scene: CommandScene, argument: str) -> CommandReply:
    """Tell the running turn something."""
    if not argument:
        return CommandReply("Say what to steer with: /steer TEXT", scene.session_id)
    if scene.is_own_only and not is_running_own(await scene.record.conversation(scene.session_id), scene.speaker):
        return CommandReply(f"{NOT_YOURS} /queue TEXT says it afterwards.", scene.session_id)
    return await say(scene, argument, Busy.STEER, scene.words.steered)


async def say(scene: CommandScene, text: str, mode: Busy, reply: str) -> CommandReply:
    """Record a message in a mode of its own; the reply is only given when something ran at that moment."""
    said = Message.user(text, author=scene.asker, chat=scene.chat)
    spoken = await speak(scene.record, scene.session_id, [said], mode)
    return CommandReply(reply if spoken.waits else "", scene.session_id, wake=spoken.turn_id)


async def busy(scene: CommandScene, argument: str) -> CommandReply:
    """Show or change what a message does to a running turn, in this session."""
    if argument in set(Busy):
        await scene.record.sessions.set_setting(scene.session_id, "busy", argument)
    elif argument:
        return CommandReply(f"{argument!r} is none of {', '.join(Busy)}.", scene.session_id)
    mode = await busy_of(scene.record, scene.session_id, scene.busy)
    return CommandReply(f"A message that comes while an answer runs: {mode}.", scene.session_id)


async def status(scene: CommandScene, argument: str) -> CommandReply:
    """Show where the conversation stands."""
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
    return CommandReply("\n".join(lines), scene.session_id)


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


async def usage(scene: CommandScene, argument: str) -> CommandReply:
    """Show what this session took."""
    del argument
    conversation = await scene.record.conversation(scene.session_id)
    lines = [f"{model}: {usage_text(used)}" for model, used in conversation.usage.items()]
    if len(lines) > 1:
        total = Usage()
        for used in conversation.usage.values():
            total = add_usage(total, used)
        lines.append(f"together: {usage_text(total)}")
    return CommandReply("\n".join(lines) or "Nothing was used yet.", scene.session_id)


def usage_text(used: Usage) -> str:
    """Return tokens and cost for people."""
    cached = f" ({used.cache_read_tokens} from cache)" if used.cache_read_tokens else ""
    cost = "cost not known" if used.cost_micros is None else f"${used.cost_micros / 1_000_000:.4f}"
    return f"{used.input_tokens} tokens in{cached}, {used.output_tokens} out, {cost}"


async def end_running(scene: CommandScene) -> None:
    """Stop what runs and wait until it has ended, so that what it said can be taken back."""
    seq = (await scene.record.conversation(scene.session_id)).seq
    stopped = await stop_turns(scene)
    running = next((turn for turn in stopped if turn.state == TurnState.RUNNING), None)
    if running is None:
        return
    try:
        async with (
            asyncio.timeout(STOP_SECONDS_MAX),
            aclosing(scene.record.follow(scene.session_id, seq, chunks=False)) as items,
        ):
            async for item in items:
                if isinstance(item, Entry) and getattr(item.body, "turn_id", "") == running.id and is_end(item):
                    return
    except TimeoutError:
        raise LeaseHeld(f"the answer that runs was asked to stop and has not yet, in {running.owner}") from None


def is_end(entry: Entry) -> bool:
    """Return whether an entry ends a turn."""
    return entry.kind == "turn.ended"
