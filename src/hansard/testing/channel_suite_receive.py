"""Contracts of receiving: what people do comes through the port, once, in order and as they did it."""

from __future__ import annotations

import asyncio
import re

from hansard.domain.chats import OTHER_NAME, key_in_chat, parse_key
from hansard.errors import NotFound, TooLarge
from hansard.ports.channel import Company, EventKind, Fetches, RemoteFile
from hansard.testing.channel_suite_kit import (
    LEAVE_SECONDS_MAX,
    Ability,
    Scene,
    chat_contract,
    contract,
    require_no_secret,
)
from hansard.testing.conformance_kit import ContractBroken, refusal, require, require_equal

ODD = 'Grüße, 漢字 and 😀: <b>not bold</b> & "quoted" *stars* _lines_ `code`\nin a second line'
DATA = bytes(range(256)) * 64
OUTAGE_SECONDS = 0.2


@chat_contract("receive")
async def what_is_said_comes_in_order(scene: Scene, chat: str) -> None:
    """What a person says is received once, in order, as it was said, each under the id that the platform gave it."""
    texts = ["one", ODD, "three", "one", "five"]
    ids = [await scene.stage.say(chat, text) for text in texts]
    events = await scene.hear(chat, len(texts))
    require_equal([event.text for event in events], texts, "what is received")
    require_equal([event.id for event in events], ids, "ids of the events")
    require_equal(len(set(ids)), len(texts), "how many ids there are")
    require_equal({event.kind for event in events}, {EventKind.MESSAGE}, "kinds")
    require_equal({event.chat for event in events}, {chat}, "chats")
    require(all(event.sent_at_ms > 0 for event in events), "each says when it was sent")


@contract("receive")
async def a_direct_chat_is_one(scene: Scene) -> None:
    """In a chat of one person and the agent everything is for the agent, and the sender is always called the same."""
    chats = [await scene.stage.direct() for _ in range(2)]
    for chat in chats:
        await scene.stage.say(chat, "hello")
        await scene.stage.say(chat, "are you there?")
        events = await scene.hear(chat, 2)
        require(all(event.is_direct and event.is_for_agent for event in events), "both are direct and for the agent")
        require_equal(len({event.sender for event in events}), 1, "how many senders there are")
        require(events[0].sender not in {"", scene.channel.account}, "the sender is a person")


@chat_contract("receive")
async def chats_can_be_kept_as_keys(scene: Scene, chat: str) -> None:
    """A chat's name begins with the channel's and is read back as what it was, also with the sender in it."""
    await scene.stage.say(chat, "hello")
    (event,) = await scene.hear(chat, 1)
    key = parse_key(event.chat)
    require_equal(key.channel, scene.channel.name, "the channel in a chat's name")
    require_equal(str(key), event.chat, "the chat, read and written")
    require_equal(parse_key(key_in_chat(event.chat, event.sender)).person, event.sender, "the person in a session key")


@contract("receive", Ability.ROOMS)
async def a_room_is_not_direct(scene: Scene) -> None:
    """In a room nothing is direct, two people are told apart, and only what is said to the agent is for it."""
    chat = await scene.stage.room()
    await scene.stage.say(chat, "to all")
    await scene.stage.say(chat, "also to all", second=True)
    await scene.stage.say(chat, "and you?", to_agent=True)
    events = await scene.hear(chat, 3)
    require_equal([event.is_for_agent for event in events], [False, False, True], "what is for the agent")
    require(not any(event.is_direct for event in events), "nothing is direct")
    require(events[0].sender == events[2].sender != events[1].sender, "two senders, each called the same")
    require("and you?" in events[2].text, "the words beside the name are there")


@contract("receive", "company")
async def who_is_in_a_chat_is_told_truly(scene: Scene) -> None:
    """Asked at any time, a chat of one person and the agent is direct, and a room is not."""
    company: Company = scene.channel  # type: ignore[assignment]  # its capabilities say so
    require(await company.is_direct(await scene.stage.direct()), "a chat of one person is direct")
    if Ability.ROOMS in scene.stage.abilities:
        require(not await company.is_direct(await scene.stage.room()), "a room is not direct")


@contract("receive", Ability.THREADS)
async def a_thread_is_a_chat_of_its_own(scene: Scene) -> None:
    """What is said in a thread comes from the thread's chat, whose room is the same, and answers to it stay there."""
    chat = await scene.stage.room() if Ability.ROOMS in scene.stage.abilities else await scene.stage.direct()
    thread = await scene.stage.thread(chat)
    await scene.stage.say(thread, "inside")
    (event,) = (event for event in await scene.hear(thread, 1) if event.text == "inside")
    require_equal(event.chat, thread, "the chat of what was said in a thread")
    require(thread != chat and parse_key(thread).part, "a thread has a name of its own")
    require_equal(parse_key(thread).room_owner, parse_key(chat).room_owner, "whose the thread is")
    await scene.show(thread, "answered inside")
    require_equal(await scene.shown(thread), ["answered inside"], "what the thread shows of the agent")


@chat_contract("receive")
async def the_same_cursor_gives_the_same_events(scene: Scene, chat: str) -> None:
    """A batch that nobody asked past is given again, in this process and in the next; then what follows it, once."""
    await scene.pause()
    for text in ("one", "two"):
        await scene.stage.say(chat, text)
    first = await scene.first_batch(chat)
    again = await scene.first_batch(chat)
    require_equal(again.events[: len(first.events)], first.events, "the same cursor, again")
    await scene.reopen()
    again = await scene.first_batch(chat)
    require_equal(again.events[: len(first.events)], first.events, "the same cursor, in the next process")
    scene.cursor = again.cursor
    await scene.stage.say(chat, "three")
    rest = ["one", "two", "three"][len(again.events) :]
    require_equal([event.text for event in await scene.hear(chat, len(rest))], rest, "what follows the cursor")


@chat_contract("receive")
async def what_was_said_meanwhile_comes(scene: Scene, chat: str) -> None:
    """What was said while no process ran is received from the cursor on: all of it, in order, once."""
    await scene.stage.say(chat, "before")
    await scene.hear(chat, 1)
    await scene.reopen()
    texts = [f"meanwhile {number}" for number in range(7)]
    for text in texts:
        await scene.stage.say(chat, text)
    await scene.listen()
    await scene.stage.say(chat, "after")
    await scene.hear(chat, len(texts) + 2)
    await scene.stage.say(chat, "last")
    events = await scene.hear(chat, len(texts) + 3)
    require_equal([event.text for event in events], ["before", *texts, "after", "last"], "what is received")
    require_equal(len({event.id for event in events}), len(events), "how many ids there are")


@chat_contract("receive")
async def own_posts_do_not_come_back(scene: Scene, chat: str) -> None:
    """What the agent shows, and how it changes that, is not received as if somebody had said it."""
    receipt = await scene.show(chat, "mine")
    if scene.channel.capabilities.edits:
        await scene.show(chat, "still mine", edits=receipt)
    await scene.stage.say(chat, "yours")
    require_equal([event.text for event in await scene.hear(chat, 1)], ["yours"], "what is received")


@chat_contract("receive", Ability.EDITS)
async def an_edit_names_what_it_changes(scene: Scene, chat: str) -> None:
    """A person's edit comes as an event of its own with the new words, about the first event."""
    first = await scene.stage.say(chat, "helo")
    await scene.hear(chat, 1)
    await scene.stage.edit(chat, first, "hello")
    said, changed = await scene.hear(chat, 2)
    require_equal((changed.kind, changed.about, changed.text), (EventKind.EDIT, first, "hello"), "the edit")
    require(changed.id not in {said.id, ""}, "an edit has an id of its own")


@chat_contract("receive", Ability.DELETIONS)
async def a_deletion_names_what_it_takes_away(scene: Scene, chat: str) -> None:
    """A person's deletion comes as an event of its own, about the first event."""
    first = await scene.stage.say(chat, "never mind")
    await scene.hear(chat, 1)
    await scene.stage.delete(chat, first)
    said, gone = await scene.hear(chat, 2)
    require_equal((gone.kind, gone.about), (EventKind.DELETION, first), "the deletion")
    require(gone.id not in {said.id, ""}, "a deletion has an id of its own")


@chat_contract("receive", Ability.OUTAGES)
async def an_outage_passes_by_itself(scene: Scene, chat: str) -> None:
    """While the platform is away receiving waits, and afterwards goes on where it was, with nobody's help."""
    await scene.stage.say(chat, "before")
    await scene.hear(chat, 1)
    await scene.stage.down()
    # Nobody is told when the channel has noticed.
    await asyncio.sleep(OUTAGE_SECONDS)
    await scene.stage.up()
    await scene.stage.say(chat, "after")
    require_equal([event.text for event in await scene.hear(chat, 2)], ["before", "after"], "what is received")


@chat_contract("receive")
async def receiving_can_be_left(scene: Scene, chat: str) -> None:
    """Whoever receives can leave at any time; then the channel closes in time, and once more does no harm."""
    await scene.stage.say(chat, "hello")
    await scene.hear(chat, 1)
    await scene.pause()
    await scene.listen()
    await asyncio.sleep(0)
    await scene.pause()
    try:
        async with asyncio.timeout(LEAVE_SECONDS_MAX):
            await scene.channel.close()
            await scene.channel.close()
    except TimeoutError:
        raise ContractBroken(f"closing took more than {LEAVE_SECONDS_MAX:g} s") from None
    scene.channel = await scene.stage.open()


@contract("receive")
async def names_tell_no_secret(scene: Scene) -> None:
    """A channel has a name as others may have, an account, and in neither nor in a cursor is there a secret."""
    require(re.fullmatch(OTHER_NAME, scene.channel.name), "a name of a-z, 0-9 and _")
    require(scene.channel.account, "an account")
    told = f"{scene.channel.name} {scene.channel.account} {scene.channel!r} {scene.cursor}"
    require_no_secret(scene.stage.secrets, told, "the channel's names and its cursor")


@chat_contract("files", Ability.FILES, "fetches")
async def a_file_arrives_whole(scene: Scene, chat: str) -> None:
    """A file that a person sends can be fetched byte for byte; a limit below its size and a wrong name are refused."""
    await scene.stage.send_file(chat, "curve.bin", DATA)
    (event,) = await scene.hear(chat, 1)
    require_equal([file.name for file in event.files], ["curve.bin"], "names of files")
    fetching: Fetches = scene.channel  # type: ignore[assignment]  # its capabilities say so
    require_equal(await fetching.fetch(event.files[0], bytes_max=len(DATA)), DATA, "the bytes")
    await refusal(TooLarge, "a file above the limit", fetching.fetch(event.files[0], bytes_max=len(DATA) - 1))


@contract("files", "fetches")
async def a_file_that_is_not_there(scene: Scene) -> None:
    """Fetching what the platform does not have is told as that."""
    fetching: Fetches = scene.channel  # type: ignore[assignment]  # its capabilities say so
    nothing = RemoteFile(reference="nothing-of-that-name")
    await refusal(NotFound, "a reference to nothing", fetching.fetch(nothing, bytes_max=1000))
