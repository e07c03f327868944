"""Why a turn could use the tools that it used, or could not: `/why` and `hansard explain`, from the record alone.

Reads: the entries of one turn. Writes: nothing; what a chat is told is a command's reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.turns import joined
from hansard.errors import NotFound
from hansard.intake.handlers import CommandReply
from hansard.record.questions import QuestionAnswered
from hansard.record.turns.entries import ToolDecided, TurnAsked, TurnEnded, TurnStarted

if TYPE_CHECKING:
    from hansard.domain.turns import By, TurnInfo
    from hansard.intake.handlers import CommandScene
    from hansard.record.api import Record

NOT_RECORDED = "not recorded: the turn began before Hansard recorded who asks"


class TurnFacts(NamedTuple):
    """What the record knows of the rights of one turn."""

    turn: TurnInfo
    by: tuple[By, ...] | None = None
    decided: tuple[ToolDecided, ...] = ()
    answered: tuple[QuestionAnswered, ...] = ()


async def last_turn(record: Record, session_id: str) -> TurnInfo:
    """Return the last turn of a session that began."""
    begun = [turn for turn in await record.turns.list(session_id) if turn.fence and turn.state != "queued"]
    if not begun:
        raise NotFound(f"no turn of session {session_id} has begun")
    return max(begun, key=lambda turn: turn.fence)


async def find_turn(record: Record, session_id: str, name: str) -> TurnInfo:
    """Return the turn of a session that an id, or the beginning of one, names."""
    found = [turn for turn in await record.turns.list(session_id) if turn.id.startswith(name)]
    exact = [turn for turn in found if turn.id == name] or found
    if len(exact) != 1:
        raise NotFound(f"{'several turns begin' if exact else 'no turn begins'} with {name!r} in this session")
    return exact[0]


async def read_facts(record: Record, turn: TurnInfo) -> TurnFacts:
    """Return what was recorded of a turn's rights, from its beginning to its end."""
    facts, seq = TurnFacts(turn), max(0, turn.fence - 1)
    while entries := await record.sessions.read_entries(turn.session_id, seq):
        for entry in entries:
            body = entry.body
            if getattr(body, "turn_id", "") != turn.id:
                continue
            if isinstance(body, TurnStarted):
                facts = facts._replace(by=body.by)
            elif isinstance(body, TurnAsked):
                facts = facts._replace(by=joined(facts.by or (), body.by))
            elif isinstance(body, ToolDecided):
                facts = facts._replace(decided=(*facts.decided, body))
            elif isinstance(body, QuestionAnswered):
                facts = facts._replace(answered=(*facts.answered, body))
            elif isinstance(body, TurnEnded):
                return facts
        seq = entries[-1].seq
    return facts


def explain_turn(facts: TurnFacts) -> str:
    """Return why the tools of a turn were run or not, in lines."""
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


async def why(scene: CommandScene, argument: str) -> CommandReply:
    """Say why the tools of the last turn, or of the one that is named, were run or not."""
    record, name = scene.record, argument.strip()
    if name:
        turn = await find_turn(record, scene.session_id, name)
    else:
        turn = await last_turn(record, scene.session_id)
    facts = await read_facts(record, turn)
    if scene.is_own_only and scene.asker not in {each.person for each in facts.by or ()}:
        return CommandReply(
            "You did not ask for that turn. Guests of a room are told only about their own.", scene.session_id
        )
    return CommandReply(explain_turn(facts), scene.session_id)
