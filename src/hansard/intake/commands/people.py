"""`/link` and `/unlink`: one person in several places, joined by a code that is shown in one and entered in the other.

Reads: circles, codes. Writes: codes, `person.linked`, `person.unlinked`, through the record.
Invariants: only in a direct chat, or in the terminal; whoever enters a code as the person of the terminal is told
whose it is, and says yes, before it counts.
"""

from __future__ import annotations

from hansard.domain.access import written_code
from hansard.domain.people import ADMIN, CODE_MINUTES, called, is_person
from hansard.errors import InvalidInput, NotFound
from hansard.intake.commands.scene import CommandReply, CommandScene

YES = "yes"

IN_A_ROOM = (
    "Others could read this here. Say it in a direct chat with me. A code that was said here counts no longer; "
    "/link there gives another."
)


async def link(scene: CommandScene, argument: str) -> CommandReply:
    """Show a code, or take one that was shown elsewhere."""
    code, _, confirmed = argument.partition(" ")
    if not is_person(scene.owner):
        return await void(scene, argument)
    try:
        if not code:
            text = await shown_code(scene)
        elif confirmed.strip().lower() != YES and await sees_terminal(scene):
            text = await question(scene, code)
        else:
            text = await entered(scene, code)
    except (NotFound, InvalidInput) as error:
        why = str(error)
        text = f"{why[:1].upper()}{why[1:]}."
    return scene.reply(text)


async def void(scene: CommandScene, argument: str) -> CommandReply:
    """Let a code count no longer that was said where others could read it."""
    await scene.record.people.void_code(argument.partition(" ")[0])
    return scene.reply(IN_A_ROOM)


async def entered(scene: CommandScene, code: str) -> str:
    """Make the person who was shown a code and the one who enters it one, and return what to say of it."""
    told = scene.words.code_entered.format(who=called(scene.owner))
    found = await scene.record.people.enter_code(code, scene.owner, told=told)
    return (
        f"You are one person with {called(found.owner)} from now on: /sessions, /search and /resume show what was "
        "said in both places. /unlink parts you again."
    )


async def shown_code(scene: CommandScene) -> str:
    """Return what is said with a new code, and with whom the person is linked already."""
    shown = await scene.record.people.show_code(scene.owner, identity=scene.author, chat=scene.chat)
    others = [called(each) for each in await scene.record.people.circle(scene.owner) if each != scene.owner]
    known = f"\n\nYou are one person with {', '.join(others)} already." if others else ""
    return (
        "To be one person here and in another chat with me, or in the terminal, say there:\n\n"
        f"    /link {written_code(shown.code)}\n\n"
        f"It counts once, and for {CODE_MINUTES} minutes. Whoever says it sees everything that you said to me, so give "
        f"it to nobody.{known}"
    )


async def sees_terminal(scene: CommandScene) -> bool:
    """Return whether somebody sees the terminal's sessions. A link gives that history, and never the admin's rank."""
    return not scene.chat or ADMIN in await scene.record.people.circle(scene.owner)


async def question(scene: CommandScene, code: str) -> str:
    found = await scene.record.people.look_at_code(code, scene.owner)
    return (
        f"This code was shown to {called(found.owner)}. Whoever that is will see and go on with every conversation of "
        f"the terminal. If it is you, say: /link {written_code(found.code)} {YES}"
    )


async def unlink_room(scene: CommandScene, argument: str) -> CommandReply:
    del argument
    return scene.reply("A room is linked to nobody. Say this in a direct chat with me.")


async def unlink(scene: CommandScene, argument: str) -> CommandReply:
    """Part from everybody whom this person was linked to. A chat that is in another's session begins its own."""
    if not is_person(scene.owner):
        return await unlink_room(scene, argument)
    parted = await scene.record.people.unlink(scene.owner, by=scene.owner)
    still = ", ".join(called(each) for each in parted.still)
    stays = f" config.toml makes you one person with {still}: only whoever runs me can change that." if still else ""
    left = ", ".join(called(each) for each in parted.left)
    said = (
        f"You are no longer one person with {left}. Nothing was moved: each of you sees what was begun there."
        if left
        else "You are linked to nobody."
    )
    session = await scene.record.sessions.read(scene.session_id)
    session_id, begun = session.id, ""
    if scene.chat and session.owner not in {scene.owner, *parted.still}:
        session_id = (await scene.record.create_session(source=scene.source, owner=scene.owner)).id
        begun = f" The session that you were in is theirs, so this is a new one: {session_id}."
    return CommandReply(text=f"{said}{begun}{stays}", session_id=session_id)
