"""Contracts of sending: what is given is shown once, as it was given; and what became of it is said truly."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from typing import Final

from hansard.errors import ChannelBusy, ChannelDown, ChannelError, ChatGone, PostRefused, PostUnknown
from hansard.ports.channel import Choice, EventKind, LocalFile, Post, Timeline
from hansard.testing.channel_suite_kit import (
    WAIT_SECONDS_MAX,
    Ability,
    Scene,
    chat_contract,
    contract,
    make_post,
    require_no_secret,
    told_by,
)
from hansard.testing.conformance_kit import ContractBroken, require, require_equal
from hansard.testing.platform import FaultKind

MARKDOWN = (
    "Some **bold** words, <script>alert(1)</script> and <b>tags</b>, <a href='javascript:alert(2)'>links</a>, "
    "[press](javascript:alert(3))."
)
MENTIONS = "@room @channel @everyone look here"
OVERSIZE = 20
"""Times the promised size: no platform shows that as one post."""

SIGNS = ("x", "ü", "漢", "😀")
DATA = bytes(range(256)) * 16


@chat_contract("send")
async def a_post_is_shown(scene: Scene, chat: str) -> None:
    """What is posted is what a person sees, in order, once; each post has a receipt of its own."""
    texts = ["first", "Grüße, 漢字 and 😀", "first"]
    receipts = [await scene.show(chat, text) for text in texts]
    require_equal(await scene.shown(chat), texts, "what a person sees")
    require_equal(len(set(receipts)), len(texts), "how many receipts there are")


@contract("send")
async def posts_stay_in_their_chat(scene: Scene) -> None:
    """What is shown in one chat is not shown in another."""
    chats = [await scene.stage.direct() for _ in range(2)]
    for chat in chats:
        await scene.show(chat, f"for {chat}")
    for chat in chats:
        require_equal(await scene.shown(chat), [f"for {chat}"], "what a person sees")


@chat_contract("send")
async def notices_and_replies_are_shown(scene: Scene, chat: str) -> None:
    """What Hansard itself says and what answers a certain message are shown like anything else."""
    asked = await scene.stage.say(chat, "a question")
    await scene.show(chat, "a notice", notice=True)
    await scene.show(chat, "an answer", reply_to=asked)
    require_equal(await scene.shown(chat), ["a notice", "an answer"], "what a person sees")


@chat_contract("send", "edits")
async def an_edit_replaces_what_was_shown(scene: Scene, chat: str) -> None:
    """After an edit a person sees the new words in the place of the old ones, however often; other posts stay."""
    receipt = await scene.show(chat, "Some")
    await scene.show(chat, "another")
    for text in ("Some words", "Some words, and more", "Done."):
        await scene.show(chat, text, edits=receipt)
    require_equal(await scene.shown(chat), ["Done.", "another"], "what a person sees")


@chat_contract("send", "edits")
async def an_edit_that_changes_nothing_is_no_error(scene: Scene, chat: str) -> None:
    """An edit to the very same words, as a repeated attempt may be, passes."""
    receipt = await scene.show(chat, "the same")
    await scene.show(chat, "the same", edits=receipt)
    require_equal(await scene.shown(chat), ["the same"], "what a person sees")


@chat_contract("send", "repeat_seconds")
async def the_same_key_shows_nothing_twice(scene: Scene, chat: str) -> None:
    """A post that was shown is not shown again under its key: the receipt is the same, now and in the next process."""
    post = make_post(chat, "once")
    receipt = await scene.channel.send(post)
    require_equal(await scene.channel.send(post), receipt, "the receipt of the same key")
    await scene.reopen()
    require_equal(await scene.channel.send(post), receipt, "the receipt of the same key, in the next process")
    require_equal(await scene.shown(chat), ["once"], "what a person sees")


@chat_contract("send")
async def the_longest_text_is_shown_whole(scene: Scene, chat: str) -> None:
    """A text of exactly the promised size, as the channel counts it, is shown to its last sign, whatever its signs."""
    limit, texts = scene.channel.capabilities.text_bytes_max, []
    for sign in SIGNS:
        count, rest = divmod(limit, scene.channel.capabilities.size(sign))
        texts.append(sign * count + "x" * rest)
        require_equal(scene.channel.capabilities.size(texts[-1]), limit, "the size of a text")
        await scene.show(chat, texts[-1])
    found = await scene.shown(chat)
    require_equal([len(text) for text in found], [len(text) for text in texts], "lengths of what a person sees")
    require(found == texts, "every sign is the one that was sent")


@chat_contract("send")
async def a_text_that_is_too_long_is_refused(scene: Scene, chat: str) -> None:
    """A text that cannot be shown whole is refused for what it is; no part of it is shown."""
    await scene.refusal(make_post(chat, "x" * scene.channel.capabilities.text_bytes_max * OVERSIZE), PostRefused)
    require_equal(await scene.shown(chat), [], "what a person sees")


@chat_contract("send")
async def markup_is_harmless(scene: Scene, chat: str) -> None:
    """Tags in a text are words: none is rendered, no script or address of one is handed on, and no word is lost."""
    await scene.show(chat, MARKDOWN)
    (shown,) = (each for each in await scene.stage.seen(chat) if each.is_agents)
    markup = shown.markup.lower()
    require("<script" not in markup, "no script in what a client renders")
    require("<b>tags" not in markup, "no tag of the text in what a client renders")
    require(not re.search(r"<[a-z][^>]*javascript:", markup), "no script as an address")
    for words in ("bold", "alert(1)", "tags", "links", "press"):
        require(words in shown.text, f"{words!r} can be read")


@chat_contract("send")
async def nobody_is_called_by_name(scene: Scene, chat: str) -> None:
    """Words that call everybody on some platform call nobody when the agent says them."""
    await scene.show(chat, MENTIONS)
    (shown,) = (each for each in await scene.stage.seen(chat) if each.is_agents)
    require(not shown.rings, "nobody is called")
    require("look here" in shown.text, "the words can be read")


@contract("send", Ability.REMOVAL)
async def a_chat_that_is_gone(scene: Scene) -> None:
    """Where the agent is no longer, a post is refused for good, each time; in other chats it is shown."""
    chat, other = await scene.stage.direct(), await scene.stage.direct()
    await scene.show(chat, "hello")
    await scene.stage.remove(chat)
    for _ in range(2):
        await scene.refusal(make_post(chat, "are you there?"), ChatGone)
    await scene.show(other, "hello")
    require_equal(await scene.shown(other), ["hello"], "what is seen in the other chat")


@chat_contract("send", Ability.BUSY)
async def a_request_to_wait_says_how_long(scene: Scene, chat: str) -> None:
    """A platform that asks to wait is told as that, with the time that it asks for; nothing was shown, and later is."""
    error = await fail_unseen(scene, chat, FaultKind.BUSY, ChannelBusy)
    require(isinstance(error, ChannelBusy) and 0 < error.seconds <= WAIT_SECONDS_MAX, "a time to wait")


@chat_contract("send", Ability.CUT_BEFORE)
async def a_break_before_the_effect(scene: Scene, chat: str) -> None:
    """A connection that broke before anything was shown is no refusal: the same post again is shown, once."""
    await fail_unseen(scene, chat, FaultKind.CUT_BEFORE, PostUnknown, ChannelDown)


async def fail_unseen(scene: Scene, chat: str, kind: FaultKind, *errors: type[ChannelError]) -> Exception:
    """Let a post fail; it is not shown, and the same post is shown afterwards. Return the error."""
    post, error = await scene.cut(chat, kind, *errors)
    require_equal(await scene.shown(chat), ["one"], "what a person sees meanwhile")
    await again(scene, post)
    require_equal(await scene.shown(chat), ["one", "two"], "what a person sees")
    return error


@chat_contract("send", Ability.CUT_AFTER)
async def a_break_after_the_effect_is_unknown(scene: Scene, chat: str) -> None:
    """A connection that broke after the post was shown leaves an unknown outcome: neither a failure nor a certainty."""
    await scene.cut(chat, FaultKind.CUT_AFTER, PostUnknown)
    require_equal(await scene.shown(chat), ["one", "two"], "what a person sees")


@chat_contract("send", Ability.CUT_AFTER, "repeat_seconds")
async def an_unknown_outcome_is_settled_by_its_key(scene: Scene, chat: str) -> None:
    """After an unknown outcome the same key gives the receipt of what was shown, and shows nothing twice."""
    post, _ = await scene.cut(chat, FaultKind.CUT_AFTER, PostUnknown)
    receipt = await again(scene, post)
    require_equal(await scene.channel.send(post), receipt, "the receipt, once more")
    require_equal(await scene.shown(chat), ["one", "two"], "what a person sees")


@chat_contract("send", Ability.OUTAGES)
async def an_outage_is_no_refusal(scene: Scene, chat: str) -> None:
    """While the platform is away a post is neither refused nor shown; afterwards the same post is, once."""
    post = make_post(chat, "late")
    await scene.stage.down()
    try:
        await scene.refusal(post, ChannelDown, PostUnknown)
    finally:
        await scene.stage.up()
    await again(scene, post)
    require_equal(await scene.shown(chat), ["late"], "what a person sees")


async def again(scene: Scene, post: Post) -> str:
    """Send a post again. It may fail once more, by the connection that broke, or until the time is over to wait."""
    try:
        return await scene.channel.send(post)
    except (PostUnknown, ChannelDown, ChannelBusy) as error:
        require_no_secret(scene.stage.secrets, told_by(error), "the error")
        await asyncio.sleep(error.seconds if isinstance(error, ChannelBusy) else 0)
        return await scene.channel.send(post)


@chat_contract("send")
async def typing_never_fails(scene: Scene, chat: str) -> None:
    """That the agent writes is a courtesy: showing it, or no longer, raises nothing, whatever the chat."""
    for on in (True, True, False, False):
        await scene.channel.typing(chat, on=on)
    if Ability.REMOVAL in scene.stage.abilities:
        await scene.stage.remove(chat)
        try:
            await scene.channel.typing(chat, on=True)
        except ChannelError as error:
            raise ContractBroken(f"typing raised {type(error).__name__} in a chat that is gone") from error


@chat_contract("files", "file_bytes_max")
async def a_file_is_shown_whole(scene: Scene, chat: str) -> None:
    """A file that is posted beside words reaches people byte for byte, and so do the words."""
    file = LocalFile(data=DATA, name="curve.bin")
    await scene.show(chat, "see this", files=(file,))
    seen = [each for each in await scene.stage.seen(chat) if each.is_agents]
    require_equal([each.file for each in seen if each.file is not None], [DATA], "files that people see")
    require(any("see this" in each.text for each in seen), "the words can be read")


@chat_contract("timeline", "timeline")
async def the_timeline_knows_posts_by_their_keys(scene: Scene, chat: str) -> None:
    """The chat's past is given, the latest first, with the keys of the agent's posts and what each edit replaced."""
    await scene.stage.say(chat, "a question")
    post = make_post(chat, "an answer")
    receipt = await scene.channel.send(post)
    edit = make_post(chat, "a better answer", edits=receipt)
    await scene.channel.send(edit)
    timeline: Timeline = scene.channel  # type: ignore[assignment]  # its capabilities say so
    async with aclosing(timeline.history(chat)) as events:
        found = [event async for event in events]
    told = [(event.text, event.key, event.edits) for event in found[:2]]
    expected = [("a better answer", edit.key, receipt), ("an answer", post.key, "")]
    require_equal(told, expected, "the latest of the timeline")
    require_equal({event.sender for event in found[:2]}, {scene.channel.account}, "who said that")
    require_equal((found[2].text, found[2].key), ("a question", ""), "what the person said")


@chat_contract("secrets")
async def logs_tell_no_secret(scene: Scene, chat: str) -> None:
    """Nothing that is logged, by the channel or by a library below it, at any level, holds a secret."""
    await scene.show(chat, "hello")
    await scene.stage.say(chat, "hello")
    await scene.hear(chat, 1)
    require_no_secret(scene.stage.secrets, scene.overheard.text, "the log")


CHOICES: Final = (Choice(id="yes", label="Yes"), Choice(id="no", label="No"))
QUESTION: Final = "May I run the tool with this?\n\n    {}\n\nSay yes or no."


@chat_contract("choices", "choices", Ability.CHOICES)
async def a_choice_answers_its_post(scene: Scene, chat: str) -> None:
    """What a person chooses beside a post is an answer: it names the post by its receipt, and which choice it is."""
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


@chat_contract("choices", "choices", Ability.CHOICES)
async def a_choice_waits_for_its_cursor(scene: Scene, chat: str) -> None:
    """A choice that was made while nobody listened comes later, and again under the same id until it is taken."""
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


@chat_contract("choices", "choices")
async def choices_change_no_word(scene: Scene, chat: str) -> None:
    """A post reads the same with choices beside it."""
    await scene.show(chat, QUESTION)
    await scene.show(chat, QUESTION, choices=CHOICES)
    without, beside = await scene.shown(chat)
    require_equal(beside, without, "the words of a post with choices")
