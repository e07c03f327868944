"""What happens on Telegram becomes the port's events: all of it, in order, and again until it was taken."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from hansard.channels import object_of
from hansard.channels.telegram.keeping import Places
from hansard.channels.telegram.reading import GATHER_SECONDS, TelegramUpdateFacts, event_of, is_forwarded, migrated_of
from hansard.channels.telegram.receiving import Parts
from hansard.channels.telegram.wire import Me
from hansard.ports.channel import Event, EventKind
from tests.channels.telegram.bot_api import BotApi, Fault, FaultKind
from tests.channels.telegram.stage import batches_until, channel_on, received, until

PNG = b"\x89PNG picture"


async def test_a_batch_is_acknowledged_when_the_next_one_is_asked_for(api: BotApi, home: Path) -> None:
    """The offset rises only after the caller came back; the same cursor gives the same events again."""
    ann = api.world.person("Ann")
    api.world.say(ann, ann, "one")
    async with channel_on(api, home) as channel:
        async with asyncio.timeout(120), aclosing(channel.receive("", ())) as batches:
            first = await anext(batches)
            assert [event.text for event in first.events] == ["one"]
            assert api.offsets == [0]
            assert len(api.world.updates) == 1
            api.world.say(ann, ann, "two")
            second = await anext(batches)
            assert [event.text for event in second.events] == ["two"]
            assert api.offsets[-1] == int(first.cursor)
        again = await received(channel, 1, first.cursor)
        assert again == list(second.events)


@pytest.mark.loss("E1")
async def test_what_waited_comes_first(api: BotApi, home: Path) -> None:
    """With no cursor at all, and after a long downtime, nothing that Telegram kept is left out."""
    ann = api.world.person("Ann")
    for number in range(250):
        api.world.say(ann, ann, f"message {number}")
    async with channel_on(api, home) as channel:
        batches = await batches_until(channel, 250)
        assert [len(batch.events) for batch in batches] == [100, 100, 50]
        assert [event.text for batch in batches for event in batch.events] == [f"message {n}" for n in range(250)]
        await api.down()
        api.world.say(ann, ann, "while it was down")
        receiving = asyncio.create_task(received(channel, 1, batches[-1].cursor))
        await until(lambda: "cannot be reached" in channel.trouble)
        await api.up()
        assert [event.text for event in await receiving] == ["while it was down"]
        assert not channel.trouble


async def test_numbers_that_begin_anew(api: BotApi, home: Path) -> None:
    """After a quiet week updates may have smaller numbers: they are taken, once, and the cursor follows."""
    ann = api.world.person("Ann")
    api.world.say(ann, ann, "before")
    async with channel_on(api, home) as channel:
        (first,) = await batches_until(channel, 1)
        api.world.take_updates(int(first.cursor), 100)
        api.world.begin_anew(1000)
        api.world.say(ann, ann, "after")
        (second,) = await batches_until(channel, 1, first.cursor)
        assert second.cursor == "1001"
        api.world.say(ann, ann, "and on")
        assert [event.text for event in await received(channel, 1, second.cursor)] == ["and on"]


async def test_an_update_that_nobody_understands_holds_up_no_other(api: BotApi, home: Path) -> None:
    """Of whatever shape: it is left out, and what comes after it is received."""
    ann = api.world.person("Ann")
    for content in (
        {"message": {"message_id": "x"}},
        {"message": [1]},
        {"something_new": {"a": 1}},
        {"edited_message": {"chat": {"id": ann}, "message_id": 4, "entities": [{"offset": "?"}]}},
        {"my_chat_member": {"chat": {"id": ann}}},
    ):
        api.world.tell_raw(content)
    api.world.say(ann, ann, "hello")
    async with channel_on(api, home) as channel:
        assert [event.text for event in await received(channel, 1)] == ["hello"]


NAMES = (
    *(
        "message",
        "edited_message",
        "my_chat_member",
        "chat",
        "from",
        "sender_chat",
        "text",
        "caption",
        "entities",
        "type",
    ),
    *(
        "offset",
        "length",
        "user",
        "id",
        "message_id",
        "date",
        "reply_to_message",
        "message_thread_id",
        "is_topic_message",
    ),
    *("photo", "document", "voice", "sticker", "location", "contact", "poll", "options", "media_group_id", "status"),
    *("new_chat_member", "old_chat_member", "migrate_to_chat_id", "caption_entities", "width", "file_id", "update_id"),
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["private", "\ud800"])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6)
)


@hypothesis.given(update=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
def test_reading_never_fails(update: dict[str, Any]) -> None:
    """Whatever an update holds, reading it gives an event or nothing: an error would come again for ever."""
    me = Me(7, "hansard_test_bot")
    migrated_of(update)
    Parts().look_ahead([object_of(update, "message")], me)
    Parts().continues(object_of(update, "message"), me)
    event = event_of(update, TelegramUpdateFacts(chat_id=5), me)
    assert event is None or event.chat.startswith("telegram:chat:5")


async def test_another_program_that_polls_is_told_of(api: BotApi, home: Path) -> None:
    """A 409 is trouble that is said; when the other one is gone, receiving goes on by itself."""
    ann = api.world.person("Ann")
    api.webhook = "https://example.org/hook"
    async with channel_on(api, home) as channel:
        receiving = asyncio.create_task(received(channel, 1))
        await until(lambda: "Another program receives" in channel.trouble)
        assert "deleteWebhook" in channel.trouble
        api.webhook = ""
        api.world.say(ann, ann, "hello")
        assert [event.text for event in await receiving] == ["hello"]
        assert not channel.trouble


async def test_faults_of_polling_lose_nothing(api: BotApi, home: Path) -> None:
    """Cut before, cut after, broken, too fast: the updates come all the same."""
    ann = api.world.person("Ann")
    api.world.say(ann, ann, "hello")
    api.faults.extend(Fault(kind, "getUpdates") for kind in FaultKind if kind is not FaultKind.HELD)
    async with channel_on(api, home) as channel:
        assert [event.text for event in await received(channel, 1)] == ["hello"]
    assert not api.faults


def only(events: list[Event]) -> Event:
    """Return the one event that there is."""
    (event,) = events
    return event


async def test_a_direct_chat(api: BotApi, home: Path) -> None:
    """Everything is for the agent; who says it is their number; the chat is the person's."""
    ann = api.world.person("Ann", "ann")
    said = api.world.say(ann, ann, "hello")
    api.world.say(ann, ann, "/new@hansard_test_bot A title", reply_to=said)
    async with channel_on(api, home) as channel:
        hello, new = await received(channel, 2)
    assert (hello.id, hello.chat, hello.sender) == (f"{ann}:{said}", f"telegram:chat:{ann}", str(ann))
    assert hello.is_direct
    assert hello.is_for_agent
    assert (hello.command, hello.gather_seconds) == ("", 0)
    assert (new.text, new.command) == ("/new@hansard_test_bot A title", "/new A title")
    assert new.reply_to == hello.id


@pytest.mark.parametrize(
    ("text", "is_for_agent", "command"),
    [
        ("hello everybody", False, ""),
        ("hello @hansard_test_bot", True, ""),
        ("hello @Hansard_Test_Bot!", True, ""),
        ("hello @hansard_test_bot_two", False, ""),
        ("mail me@hansard_test_bot", False, ""),
        ("/stop@hansard_test_bot", True, "/stop"),
        ("/stop@other_bot", False, "//stop@other_bot"),
        ("@hansard_test_bot: /title A B", True, "/title A B"),
        ("/start@hansard_test_bot deep-link", True, "/help"),
    ],
)
async def test_what_is_for_the_agent_in_a_group(
    api: BotApi, home: Path, text: str, *, is_for_agent: bool, command: str
) -> None:
    """What names it: not names that only look alike, and not what is said to other bots."""
    ann = api.world.person("Ann")
    group = api.world.group("Friends", ann)
    api.world.is_private_mode = False
    api.world.say(group, ann, text)
    async with channel_on(api, home) as channel:
        invited, said = await received(channel, 2)
    assert (invited.kind, invited.chat, invited.sender) == (EventKind.INVITATION, f"telegram:chat:{group}", str(ann))
    assert (said.is_for_agent, said.is_direct, said.command) == (is_for_agent, False, command)
    assert said.text == text


async def test_replies_and_links_to_the_agent(api: BotApi, home: Path) -> None:
    """A reply to the agent is for it, one to somebody else is not; a link by number is, whatever it is called."""
    ann, bob = api.world.person("Ann"), api.world.person("Bob")
    group = api.world.group("Friends", ann, bob)
    api.world.is_private_mode = False
    by_agent = api.world.post(group, api.world.bot.id, {"text": "I am here"}).id
    by_bob = api.world.say(group, bob, "me too")
    api.world.say(group, ann, "good", reply_to=by_agent)
    api.world.say(group, ann, "well", reply_to=by_bob)
    link = {"type": "text_mention", "offset": 0, "length": 3, "user": api.world.bot.json()}
    api.world.post(group, ann, {"text": "You there", "entities": [link]})
    async with channel_on(api, home) as channel:
        events = await received(channel, 5)
    assert [(event.text, event.is_for_agent) for event in events[2:]] == [
        ("good", True),
        ("well", False),
        ("You there", True),
    ]


async def test_topics_are_threads(api: BotApi, home: Path) -> None:
    """A topic is a chat of its own; a reply elsewhere, which has a number, too, is not; nor is the general topic."""
    ann = api.world.person("Ann")
    forum = api.world.group("Work", ann, is_forum=True)
    opened = api.world.post(forum, api.world.bot.id, {"forum_topic_created": {"name": "x", "icon_color": 1}}).id
    api.world.is_private_mode = False
    api.world.say(forum, ann, "in a topic", topic=opened, reply_to=opened)
    api.world.say(forum, ann, "in general")
    api.world.post(forum, ann, {"text": "a reply", "message_thread_id": 5})
    async with channel_on(api, home) as channel:
        events = await received(channel, 4)
    chats = [event.chat for event in events[1:]]
    assert chats == [f"telegram:chat:{forum}:topic:{opened}", f"telegram:chat:{forum}", f"telegram:chat:{forum}"]
    assert not any(event.is_for_agent for event in events), "the first message of a topic is not answered by all in it"


async def test_who_is_nobody(api: BotApi, home: Path) -> None:
    """Bots, channels and anonymous admins share numbers or talk for ever: they are not heard."""
    ann = api.world.person("Ann")
    group = api.world.group("Friends", ann)
    api.world.is_private_mode = False
    as_group: dict[str, Any] = {"sender_chat": api.world.chats[group].json()}
    api.world.say(group, ann, "anonymous @hansard_test_bot", **as_group)
    other = {"id": 5, "is_bot": True, "first_name": "Other"}
    api.world.post(group, ann, {"text": "@hansard_test_bot", "from": other})
    api.world.say(group, ann, "Ann @hansard_test_bot")
    async with channel_on(api, home) as channel:
        assert [event.text for event in await received(channel, 2)] == ["", "Ann @hansard_test_bot"]


async def test_edits_name_what_they_are_about(api: BotApi, home: Path) -> None:
    """Two edits in a second are two, and each comes again with the same id."""
    ann = api.world.person("Ann")
    said = api.world.say(ann, ann, "frist")
    api.world.edit(ann, said, "first")
    api.world.edit(ann, said, "frist")
    async with channel_on(api, home) as channel:
        events = await received(channel, 3)
        assert await received(channel, 3) == events
    assert [(event.kind, event.about, event.text) for event in events[1:]] == [
        (EventKind.EDIT, f"{ann}:{said}", "first"),
        (EventKind.EDIT, f"{ann}:{said}", "frist"),
    ]
    assert len({event.id for event in events}) == 3


@pytest.mark.loss("N5")
async def test_files_come_whole(api: BotApi, home: Path) -> None:
    """A photo in its largest form, a voice, a document with its name; captions are the words."""
    ann = api.world.person("Ann")
    for kind in ("photo", "voice", "document"):
        api.world.send_file(ann, ann, kind, f"{kind} bytes".encode(), f"a {kind}", name="plan.txt")
    async with channel_on(api, home) as channel:
        events = await received(channel, 3)
        data = [await channel.fetch(event.files[0], bytes_max=100) for event in events]
    assert [event.text for event in events] == ["a photo", "a voice", "a document"]
    assert data == [b"photo bytes", b"voice bytes", b"document bytes"]
    names = [(event.files[0].name, event.files[0].media_type) for event in events]
    assert names == [("photo-1.jpg", "image/jpeg"), ("voice-2.ogg", "audio/ogg"), ("plan.txt", "text/plain")]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"location": {"latitude": 52.5, "longitude": 13.4}}, "[location: 52.5, 13.4]"),
        ({"contact": {"first_name": "Bob", "phone_number": "+49"}}, "[contact: Bob, +49]"),
        ({"dice": {"emoji": "🎲", "value": 6}}, "🎲 6"),
        ({"poll": {"question": "Tea?", "options": [{"text": "yes"}, {"text": "no"}]}}, "[poll: Tea? yes / no]"),
    ],
)
async def test_what_is_sent_without_words_is_told_in_words(
    api: BotApi, home: Path, content: dict[str, Any], text: str
) -> None:
    """A place, a contact, a throw, a question: the agent knows what was sent."""
    ann = api.world.person("Ann")
    api.world.post(ann, ann, content)
    async with channel_on(api, home) as channel:
        assert only(await received(channel, 1)).text == text


async def test_parts_of_one_message_belong_together(api: BotApi, home: Path) -> None:
    """Of a long text and of an album, in a group, every part is for the agent, and all but the last wait for more."""
    ann, bob = api.world.person("Ann"), api.world.person("Bob")
    group = api.world.group("Friends", ann, bob)
    api.world.is_private_mode = False
    api.world.say(group, ann, "@hansard_test_bot " + "word " * 1700)
    api.world.say(group, bob, "what is that")
    api.world.send_album(group, ann, [PNG, PNG, PNG], "@hansard_test_bot look")
    api.world.send_album(group, bob, [PNG, PNG], "not for the agent")
    async with channel_on(api, home) as channel:
        events = (await received(channel, 10))[1:]
    assert [event.is_for_agent for event in events] == [True] * 3 + [False] + [True] * 3 + [False] * 2
    assert [event.gather_seconds for event in events[:3]] == [GATHER_SECONDS, GATHER_SECONDS, 0]
    assert [event.gather_seconds for event in events[4:7]] == [GATHER_SECONDS] * 3


async def test_a_group_that_becomes_a_supergroup_stays_the_same_chat(api: BotApi, home: Path) -> None:
    """The chat keeps its name, also after a restart and after a second change; posts go to where it is now."""
    ann = api.world.person("Ann")
    group = api.world.group("Friends", ann, kind="group")
    api.world.say(group, ann, "@hansard_test_bot before")
    new = api.world.migrate(group)
    api.world.say(new, ann, "@hansard_test_bot after")
    async with channel_on(api, home) as channel:
        events = await received(channel, 3)
    assert [event.chat for event in events] == [f"telegram:chat:{group}"] * 3
    assert events[-1].id.startswith(f"{new}:")
    places = Places(home)
    assert (places.first(new), places.now(group)) == (group, new)
    places.learn(new, -5)
    again = Places(home)
    assert (again.first(-5), again.now(group), again.first(new)) == (group, -5, group)
    assert (home / "telegram" / "migrated.json").stat().st_mode & 0o777 == 0o600


async def test_being_sent_away(api: BotApi, home: Path) -> None:
    """Thrown out of a group, or blocked, the agent has left; being unblocked is nothing that needs an answer."""
    ann = api.world.person("Ann")
    group = api.world.group("Friends", ann)
    api.world.remove_bot(group, ann)
    api.world.block(ann)
    api.world.unblock(ann)
    async with channel_on(api, home) as channel:
        events = await received(channel, 3)
    assert [event.kind for event in events] == [EventKind.INVITATION, EventKind.LEFT, EventKind.LEFT]


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        ({}, False),
        ({"forward_origin": {"type": "user", "sender_user": {"id": 8}}}, True),
        ({"forward_origin": {"type": "hidden_user", "sender_user_name": "Eve"}}, True),
        ({"forward_origin": {"type": "user", "sender_user": {"id": 7}}}, False),
        ({"forward_date": 1}, True),
    ],
    ids=["said", "of another person", "of a hidden person", "of the same person", "old API"],
)
def test_what_was_passed_on(forwarded: dict[str, Any], *, expected: bool) -> None:
    """Words of somebody else are told from the sender's own."""
    assert is_forwarded({"from": {"id": 7}, "text": "pay", **forwarded}) is expected
