"""Contracts of choices: what people choose beside a post comes through the port as an answer to that post."""

from __future__ import annotations

from typing import Final

from hansard.ports.channel import Choice, EventKind
from hansard.testing.channel_suite_kit import Ability, Scene, contract
from hansard.testing.conformance_kit import require, require_equal

CHOICES: Final = (Choice(id="yes", label="Yes"), Choice(id="no", label="No"))
QUESTION: Final = "May I run the tool with this?\n\n    {}\n\nSay yes or no."


@contract("choices", "choices", Ability.CHOICES)
async def a_choice_answers_its_post(scene: Scene) -> None:
    """What a person chooses beside a post is an answer: it names the post by its receipt, and which choice it is."""
    chat = await scene.stage.direct()
    await scene.stage.say(chat, "hello")
    receipts = [await scene.show(chat, f"{number}. {QUESTION}", choices=CHOICES) for number in (1, 2)]
    await scene.stage.choose(chat, receipts[1], "yes")
    await scene.stage.choose(chat, receipts[0], "no")
    said, *answers = await scene.hear(chat, 3)
    require_equal([event.kind for event in answers], [EventKind.ANSWER] * 2, "kinds")
    require_equal([event.about for event in answers], receipts[::-1], "what is answered")
    require_equal([event.choice for event in answers], ["yes", "no"], "choices")
    require_equal({event.sender for event in answers}, {said.sender}, "who chose")
    require_equal({event.chat for event in answers}, {chat}, "chats")
    require(all(event.is_direct for event in answers), "the chat is direct")
    require_equal(len({event.id for event in answers}), 2, "how many ids there are")


@contract("choices", "choices", Ability.CHOICES, Ability.ROOMS)
async def a_choice_names_its_sender(scene: Scene) -> None:
    """In a room the answer says which of the people chose, and that the chat is not direct."""
    chat = await scene.stage.room()
    await scene.stage.say(chat, "hello", to_agent=True)
    await scene.stage.say(chat, "hello", second=True, to_agent=True)
    receipt = await scene.show(chat, QUESTION, choices=CHOICES)
    await scene.stage.choose(chat, receipt, "yes", second=True)
    await scene.stage.choose(chat, receipt, "yes")
    first, second, *answers = await scene.hear(chat, 4)
    require_equal([event.sender for event in answers], [second.sender, first.sender], "who chose")
    require(not any(event.is_direct for event in answers), "the room is not direct")


@contract("choices", "choices", Ability.CHOICES)
async def a_choice_waits_for_its_cursor(scene: Scene) -> None:
    """A choice that was made while nobody listened comes later, and again under the same id until it is taken."""
    chat = await scene.stage.direct()
    receipt = await scene.show(chat, QUESTION, choices=CHOICES)
    await scene.pause()
    await scene.stage.choose(chat, receipt, "no")
    batches = []
    for _ in range(2):
        await scene.reopen()
        batches.append(await scene.first_batch(chat))
    first, again = [[(event.id, event.choice, event.about) for event in batch.events] for batch in batches]
    require_equal(first, again, "the same choice, asked for twice")
    require_equal([choice for _, choice, _ in first], ["no"], "what was chosen")


@contract("choices", "choices")
async def choices_change_no_word(scene: Scene) -> None:
    """A post reads the same with choices beside it."""
    chat = await scene.stage.direct()
    await scene.show(chat, QUESTION)
    await scene.show(chat, QUESTION, choices=CHOICES)
    without, beside = await scene.shown(chat)
    require_equal(beside, without, "the words of a post with choices")
