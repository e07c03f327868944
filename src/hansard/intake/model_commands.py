"""Commands about the model: which one is asked, and what it is told of long ago."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from hansard.domain.settings_agent import MODEL_FORMS, MODEL_PATTERN, is_model_allowed
from hansard.intake.handlers import Outcome

if TYPE_CHECKING:
    from hansard.intake.handlers import Scene

FOCUS_CHARACTERS_MAX = 500

DEFAULT = "default"
"""Stands for the configured model."""

LOCAL = "scripted:"
"""Models that read files of this machine: they are chosen here, not from a chat."""


async def compact(scene: Scene, argument: str) -> Outcome:
    """Have what was said summed up for the model. It is done after what runs, and told when it is done."""
    focus = " ".join(argument.split())[:FOCUS_CHARACTERS_MAX]
    given = (("focus", focus), ("chat", scene.chat), ("person", scene.asker))
    wish = {name: value for name, value in given if value}
    await scene.record.set_setting(scene.session_id, "compact", msgspec.json.encode(wish).decode())
    return Outcome("Summing up what was said. The record keeps every word.", scene.session_id, wake="")


async def model(scene: Scene, argument: str) -> Outcome:
    """Show or change the model that this session asks."""
    conversation = await scene.record.conversation(scene.session_id)
    chosen = conversation.settings.get("model", DEFAULT)
    if not is_model_allowed(chosen, scene.models_allowed):
        chosen = DEFAULT
    if not argument:
        own = scene.model or "none yet" if chosen == DEFAULT or scene.is_model_named else chosen
        return Outcome(f"Model: {own}. /model NAME changes it in this session.", scene.session_id)
    known = argument == DEFAULT or re.search(MODEL_PATTERN, argument) is not None
    if not known or (scene.chat and argument.startswith(LOCAL)):
        forms = [form for form in MODEL_FORMS if not (scene.chat and form.startswith(LOCAL))]
        return Outcome(f"A model is {DEFAULT} or one of {', '.join(forms)}.", scene.session_id)
    if argument != DEFAULT and not is_model_allowed(argument, scene.models_allowed):
        allowed = ", ".join((DEFAULT, *scene.models_allowed))
        return Outcome(f"The model {argument} may not be chosen here. Allowed: {allowed}.", scene.session_id)
    await scene.record.set_setting(scene.session_id, "model", argument)
    return Outcome(f"From the next answer on: {argument}.", scene.session_id, chose_model=True)
