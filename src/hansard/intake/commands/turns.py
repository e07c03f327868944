"""Commands about turns: undo, repeat, stop, queue and steer them, answer what they ask, say why they used a tool.

`hansard explain` says the same, from the record alone.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import msgspec

from hansard.domain.access import read_code
from hansard.domain.chats import person_owner
from hansard.domain.messages import Message, Role
from hansard.domain.people import By, How, joined
from hansard.domain.questions import NOTHING_WAITS, Given, Scope, is_code
from hansard.domain.sessions import TurnInfo, TurnState
from hansard.domain.settings import Busy
from hansard.domain.text import shorten
from hansard.errors import NotFound
from hansard.intake.commands.scene import CommandReply, CommandScene, is_running_own, may_repeat, own_messages
from hansard.intake.commands.sessions import count_of
from hansard.intake.speak import busy_of, speak
from hansard.journal.causes import explain_holding, find_stopped, name_owner
from hansard.record.api import Record
from hansard.record.conversation import last_answer, last_exchange
from hansard.record.messages.entries import Entry
from hansard.record.questions import ALWAYS, REASON_CHARACTERS_MAX, SESSION, QuestionAnswered
from hansard.record.turns.entries import ToolDecided, TurnAsked, TurnEnded, TurnStarted

NOT_YOURS = "Somebody else asked for that answer. Guests of a room may stop, steer and repeat only their own."

NOTHING_BEGUN = "No answer has begun here yet: say something first."

STOP_SECONDS_MAX = 10.0
"""How long a command waits for the turn that it asked to stop."""

FOCUS_CHARACTERS_MAX = 500

NOT_RECORDED = "not recorded: the turn began before Hansard recorded who asks"


async def undo(scene: CommandScene, argument: str) -> CommandReply:
    count = count_of(argument) if argument else 1
    if count is None:
        return scene.reply("Say how many exchanges to undo: /undo, or /undo 2.")
    await end_running(scene)
    conversation = await scene.record.conversation(scene.session_id)
    own = scene.is_own_only
    taken = own_messages(conversation, scene.speaker, count) if own else last_exchange(conversation, count)
    await scene.record.messages.undo(scene.session_id, [placed.message.id for placed in taken])
    said = next((placed.message.text for placed in taken if placed.message.role == Role.USER), "")
    if not taken:
        return scene.reply("There is nothing of yours to undo." if own else "There is nothing to undo.")
    return scene.reply(f"Undone: {len(taken)} messages, from “{shorten(said)}” on. They stay in the record.")


async def retry(scene: CommandScene, argument: str) -> CommandReply:
    del argument
    if scene.is_own_only and not may_repeat(await scene.record.conversation(scene.session_id), scene.speaker):
        return scene.reply(NOT_YOURS)
    await end_running(scene)
    conversation = await scene.record.conversation(scene.session_id)
    if not conversation.placed and not conversation.waiting:
        return scene.reply("There is nothing to ask again.")
    await scene.record.messages.undo(scene.session_id, [placed.message.id for placed in last_answer(conversation)])
    by = [By(person=scene.asker, chat=scene.chat, how=How.RETRY)] if scene.asker else []
    queued = await scene.record.turns.queue(scene.session_id, chat=scene.chat, by=by)
    return scene.reply("Asking again.", wake=queued.id)


async def end_running(scene: CommandScene) -> None:
    """Stop what runs and wait until it has ended, so that what it said can be undone."""
    seq = (await scene.record.conversation(scene.session_id)).seq
    running = next((turn for turn in await stop_turns(scene) if turn.state == TurnState.RUNNING), None)
    if running is None:
        return
    try:
        async with (
            asyncio.timeout(STOP_SECONDS_MAX),
            aclosing(scene.record.follow(scene.session_id, seq, chunks=False)) as items,
        ):
            async for item in items:
                if isinstance(item, Entry) and isinstance(item.body, TurnEnded) and item.body.turn_id == running.id:
                    return
    except TimeoutError:
        raise explain_holding("the answer that runs was asked to stop and has not yet", running.owner) from None


async def stop(scene: CommandScene, argument: str) -> CommandReply:
    del argument
    stopped = await stop_turns(scene)
    conversation = await scene.record.conversation(scene.session_id)
    if not stopped and scene.is_own_only and (conversation.running or conversation.queued):
        return scene.reply(NOT_YOURS)
    running = [turn.owner for turn in stopped if turn.state == TurnState.RUNNING]
    elsewhere = next((owner for owner in running if owner != scene.record.store.owner), "")
    if elsewhere:  # it ends when that process reads that it should
        asked = scene.words.stopping.format(process=name_owner(elsewhere))
        frozen = find_stopped(elsewhere)
        return scene.reply(f"{asked} That process is stopped: kill -CONT {frozen} lets it go on." if frozen else asked)
    return scene.reply(scene.words.stopped if stopped else scene.words.nothing_runs)


async def stop_turns(scene: CommandScene) -> list[TurnInfo]:
    """Stop what runs and what waits, as far as the person may; return what is stopped."""
    owner = person_owner(*scene.speaker) if scene.is_own_only else ""
    return await scene.record.turns.stop(scene.session_id, "stopped by the person", queued=True, asked_by=owner)


async def queue(scene: CommandScene, argument: str) -> CommandReply:
    if not argument:
        waiting = (await scene.record.conversation(scene.session_id)).waiting
        lines = [f"- {shorten(placed.message.text)}" for placed in waiting]
        return scene.reply("\n".join(["Waiting to be answered:", *lines]) if lines else "Nothing waits.")
    return await say(scene, argument, Busy.QUEUE, scene.words.queued)


async def steer(scene: CommandScene, argument: str) -> CommandReply:
    if not argument:
        return scene.reply("Say what to steer with: /steer TEXT")
    if scene.is_own_only and not is_running_own(await scene.record.conversation(scene.session_id), scene.speaker):
        return scene.reply(f"{NOT_YOURS} /queue TEXT says it afterwards.")
    return await say(scene, argument, Busy.STEER, scene.words.steered)


async def say(scene: CommandScene, text: str, mode: Busy, reply: str) -> CommandReply:
    """Record a message in a mode of its own; the reply is only given when something ran at that moment."""
    said = Message.user(text, author=scene.asker, chat=scene.chat)
    spoken = await speak(scene.record, scene.session_id, [said], mode)
    return scene.reply(reply if spoken.waits else "", wake=spoken.turn_id)


async def busy(scene: CommandScene, argument: str) -> CommandReply:
    if argument in set(Busy):
        await scene.record.sessions.set_setting(scene.session_id, "busy", argument)
    elif argument:
        return scene.reply(f"{argument!r} is none of {', '.join(Busy)}.")
    mode = await busy_of(scene.record, scene.session_id, scene.busy)
    return scene.reply(f"A message that comes while an answer runs: {mode}.")


async def compact(scene: CommandScene, argument: str) -> CommandReply:
    """Have what was said summed up for the model. It is done after what runs, and told when it is done."""
    focus = " ".join(argument.split())[:FOCUS_CHARACTERS_MAX]
    given = (("focus", focus), ("chat", scene.chat), ("person", scene.asker))
    request = {name: value for name, value in given if value}
    await scene.record.sessions.set_setting(scene.session_id, "compact", msgspec.json.encode(request).decode())
    return scene.reply("Summing up what was said. The record keeps every word.", wake="")


async def yes(scene: CommandScene, argument: str) -> CommandReply:
    """Let the call be run that waits for it: once, or as the argument says."""
    return scene.reply(await answer(scene, read_command(argument, yes=True)))


async def no(scene: CommandScene, argument: str) -> CommandReply:
    """Let the call not be run that waits for it; the model is given the reason."""
    return scene.reply(await answer(scene, read_command(argument, yes=False)))


async def answer(scene: CommandScene, given: Given) -> str:
    """Answer the question that waits in this session, at the terminal. In chats the record takes answers as they come.

    A command that comes here from a chat is too old to answer anything.
    """
    if scene.chat:
        return NOTHING_WAITS
    return await scene.record.questions.answer(scene.session_id, given, author=scene.asker, by=scene.owner)


async def why(scene: CommandScene, argument: str) -> CommandReply:
    """Say why the tools of the last turn, or of the one that is named, were run or not."""
    record, name = scene.record, argument.strip()
    if not name and not await begun_turns(record, scene.session_id):
        return scene.reply(NOTHING_BEGUN)
    turn = await (find_turn(record, scene.session_id, name) if name else last_turn(record, scene.session_id))
    facts = await read_facts(record, turn)
    if scene.is_own_only and scene.asker not in {each.person for each in facts.by or ()}:
        return scene.reply("You did not ask for that turn. Guests of a room are told only about their own.")
    return scene.reply(explain_turn(facts))


class TurnFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the record knows of the rights of one turn."""

    turn: TurnInfo
    by: tuple[By, ...] | None = None
    decided: tuple[ToolDecided, ...] = ()
    answered: tuple[QuestionAnswered, ...] = ()


async def begun_turns(record: Record, session_id: str) -> list[TurnInfo]:
    return [turn for turn in await record.turns.list(session_id) if turn.fence and turn.state != "queued"]


async def last_turn(record: Record, session_id: str) -> TurnInfo:
    begun = await begun_turns(record, session_id)
    if not begun:
        raise NotFound(f"no turn of session {session_id} has begun", "Ask something in it: then there is one.")
    return max(begun, key=lambda turn: turn.fence)


async def find_turn(record: Record, session_id: str, name: str) -> TurnInfo:
    found = [turn for turn in await record.turns.list(session_id) if turn.id.startswith(name)]
    exact = [turn for turn in found if turn.id == name] or found
    if len(exact) != 1:
        raise NotFound(f"{'several turns begin' if exact else 'no turn begins'} with {name!r} in this session")
    return exact[0]


async def read_facts(record: Record, turn: TurnInfo) -> TurnFacts:
    """Return what was recorded of a turn's rights, from its beginning to its end."""
    facts, seq = TurnFacts(turn=turn), max(0, turn.fence - 1)
    while entries := await record.sessions.read_entries(turn.session_id, seq):
        for entry in entries:
            body = entry.body
            if getattr(body, "turn_id", "") != turn.id:
                continue
            if isinstance(body, TurnStarted):
                facts = msgspec.structs.replace(facts, by=body.by)
            elif isinstance(body, TurnAsked):
                facts = msgspec.structs.replace(facts, by=joined(facts.by or (), body.by))
            elif isinstance(body, ToolDecided):
                facts = msgspec.structs.replace(facts, decided=(*facts.decided, body))
            elif isinstance(body, QuestionAnswered):
                facts = msgspec.structs.replace(facts, answered=(*facts.answered, body))
            elif isinstance(body, TurnEnded):
                return facts
        seq = entries[-1].seq
    return facts


def explain_turn(facts: TurnFacts) -> str:
    turn = facts.turn
    reason = f" ({turn.reason})" if turn.reason else ""
    lines = [f"Turn {turn.id} of session {turn.session_id}: {turn.state}{reason}"]
    asked = [f"{each.person} by {each.how}{f' in {each.chat}' if each.chat else ''}" for each in facts.by or ()]
    lines.append(f"Asked for by: {NOT_RECORDED if facts.by is None else '; '.join(asked) or 'nobody'}")
    for decided in facts.decided:
        lines.append(f"{decided.tool}: {decided.verdict}")
        lines += [f"  {reason}" for reason in decided.reasons]
        answers = [each for each in facts.answered if each.call_id == decided.call_id]
        lines += [f"  answered {'yes' if each.yes else 'no'} by {each.by or 'nobody'}" for each in answers]
    if not facts.decided:
        lines.append("No tool was called.")
    return "\n".join(lines)


def read_command(argument: str, *, yes: bool) -> Given:
    """Return the answer of `/yes [CODE] [session|always]` or `/no [CODE] [reason]`."""
    first, _, rest = argument.strip().partition(" ")
    code = read_code(first) if is_code(read_code(first)) else ""
    words = (rest if code else argument).strip()
    if not yes:
        return Given(scope=Scope.NO, reason=words[:REASON_CHARACTERS_MAX], code=code, is_plain=False)
    asked = words.lower().strip(" .!")
    scope = Scope.SESSION if asked in SESSION else Scope.ALWAYS if asked in ALWAYS else Scope.ONCE
    # What stands in the place of a code and is none is taken for a wrong one, never for a plain yes.
    wrong = "" if asked in {"", "once"} or scope is not Scope.ONCE else read_code(words) or "?"
    return Given(scope=scope, code=code or wrong, is_plain=False)
