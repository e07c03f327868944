"""Commands about the agent: which model it asks, what it remembers, what was used and what is left of the day."""

from __future__ import annotations

import re
from functools import reduce

from hansard.domain.budgets import Usage, left_text
from hansard.domain.chats import person_owner
from hansard.domain.policy import is_model_allowed
from hansard.domain.settings.agent import MODEL_FORMS, MODEL_PATTERN
from hansard.intake.commands.scene import CommandReply, CommandScene
from hansard.record.turns.entries import add_usage

MEMORY_HELP = "/memory lists; /memory add TEXT, /memory edit ID TEXT, /memory forget ID."

DEFAULT = "default"
"""Stands for the configured model."""

LOCAL = "scripted:"
"""Models that read files of this machine: they are chosen here, not from a chat."""


async def model(scene: CommandScene, argument: str) -> CommandReply:
    conversation = await scene.record.conversation(scene.session_id)
    chosen = conversation.settings.get("model", DEFAULT)
    if not is_model_allowed(chosen, scene.models_allowed):
        chosen = DEFAULT
    if not argument:
        own = scene.model or "none yet" if chosen == DEFAULT or scene.is_model_named else chosen
        return scene.reply(f"Model: {own}. /model NAME changes it in this session.")
    known = argument == DEFAULT or re.search(MODEL_PATTERN, argument) is not None
    if not known or (scene.chat and argument.startswith(LOCAL)):
        forms = [form for form in MODEL_FORMS if not (scene.chat and form.startswith(LOCAL))]
        return scene.reply(f"A model is {DEFAULT} or one of {', '.join(forms)}.")
    if argument != DEFAULT and not is_model_allowed(argument, scene.models_allowed):
        allowed = ", ".join((DEFAULT, *scene.models_allowed))
        return scene.reply(f"The model {argument} may not be chosen here. Allowed: {allowed}.")
    await scene.record.sessions.set_setting(scene.session_id, "model", argument)
    return scene.reply(f"From the next answer on: {argument}.", chose_model=True)


async def usage(scene: CommandScene, argument: str) -> CommandReply:
    del argument
    conversation = await scene.record.conversation(scene.session_id)
    lines = [f"{model}: {usage_text(used)}" for model, used in conversation.usage.items()]
    if len(lines) > 1:
        total = reduce(add_usage, conversation.usage.values(), Usage())
        lines.append(f"together: {usage_text(total)}")
    used_text = "\n".join(lines) or "Nothing was used yet."
    return scene.reply("\n".join([used_text, *await day_lines(scene)]))


def usage_text(used: Usage) -> str:
    cached = f" ({used.cache_read_tokens} from cache)" if used.cache_read_tokens else ""
    cost = "cost not known" if used.cost_micros is None else f"${used.cost_micros / 1_000_000:.4f}"
    return f"{used.input_tokens} tokens in{cached}, {used.output_tokens} out, {cost}"


async def day_lines(scene: CommandScene) -> list[str]:
    """Return what is left of the day, for the person who asks and for everybody; nothing where nothing is limited."""
    budget = scene.budget
    if budget is None:
        return []
    channel = scene.chat.partition(":")[0]
    person = person_owner(channel, scene.author) if scene.chat and scene.author else scene.owner
    day = await scene.record.budgets.day(person, budget)
    left = [("left today", budget.person, day.person), ("left today for all", budget.together, day.together)]
    return [f"{name}: {text}" for name, allowance, spent in left if (text := left_text(allowance, spent))]


async def memory(scene: CommandScene, argument: str) -> CommandReply:
    return scene.reply(await remember(scene, argument))


async def remember(scene: CommandScene, argument: str) -> str:
    memory = scene.record.memory
    owner = (await scene.record.sessions.read(scene.session_id)).owner
    by = scene.author or scene.owner
    action, _, rest = argument.partition(" ")
    note_id, _, text = rest.strip().partition(" ")
    if action == "add" and rest.strip():
        note = await memory.add(owner, rest, by=by)
        return f"Noted as {note.id}: {note.text}. The model is told in sessions that begin from now on (/new)."
    if action == "edit" and text.strip():
        note = await memory.edit(note_id, text, owner=owner, by=by)
        return f"The note {note.id} now says: {note.text}"
    if action == "forget" and note_id:
        note = await memory.forget(note_id, owner=owner, by=by)
        return f"Forgotten: {note.text}. This session was told it before; the next one is not."
    if action:
        return MEMORY_HELP
    notes = await memory.list(owner)
    return "\n".join([*(f"{note.id}  {note.text}" for note in notes)] or ["Nothing is remembered."])


async def file(scene: CommandScene, argument: str) -> CommandReply:
    """At the terminal the program itself hands a file in; in a chat nobody reads files of this machine."""
    del argument
    return scene.reply("Send the file in this chat itself; /file is for the terminal.")
