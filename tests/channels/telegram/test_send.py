"""What is posted is shown as it was meant, once, within Telegram's limits; and what became of it is said truly."""

from __future__ import annotations

import hashlib
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from hansard.channels.telegram import open_telegram
from hansard.channels.telegram.channel import TEXT_UNITS_MAX, TelegramChannel
from hansard.channels.telegram.html import html_of, text_of
from hansard.errors import (
    ChannelBusy,
    ChannelDown,
    ChannelError,
    ChatGone,
    InvalidInput,
    NotFound,
    PostRefused,
    PostUnknown,
    TooLarge,
)
from hansard.ports.channel import LocalFile, Post, RemoteFile
from tests.channels.telegram.bot_api import BotApi, Fault, FaultKind
from tests.channels.telegram.entities import CAPTION_UNITS_MAX, read_html
from tests.channels.telegram.stage import channel_on, received

PNG = b"\x89PNG picture"


def post(chat: int, markdown: str, *, edits: str = "", topic: int = 0, files: tuple[LocalFile, ...] = ()) -> Post:
    """A post to a chat."""
    name = f"telegram:chat:{chat}" + (f":topic:{topic}" if topic else "")
    return Post(
        key=hashlib.sha256(markdown.encode()).hexdigest(), chat=name, markdown=markdown, edits=edits, files=files
    )


async def test_a_post_and_its_edits(api: BotApi, home: Path) -> None:
    """The receipt names the message; an edit replaces it; the same edit again is as good as done."""
    ann = api.world.person("Ann")
    async with channel_on(api, home) as channel:
        receipt = await channel.send(post(ann, "Hello"))
        assert receipt == f"{ann}:{api.world.chats[ann].timeline[0].id}"
        assert await channel.send(post(ann, "Hello, **Ann**.", edits=receipt)) == receipt
        assert await channel.send(post(ann, "Hello, **Ann**.", edits=receipt)) == receipt
    assert api.world.of_bot(ann) == ["Hello, Ann."]
    assert api.world.chats[ann].timeline[0].versions == ["Hello", "Hello, Ann."]


async def test_no_previews_and_no_calls(api: BotApi, home: Path) -> None:
    """Links are not fetched by Telegram, and nobody is called by a name in an answer, formatted or not."""
    ann = api.world.person("Ann", "ann")
    async with channel_on(api, home) as channel:
        await channel.send(post(ann, "**See** https://example.org, @ann and `@bob`"))
        await channel.send(post(ann, "Plainly: @ann, 😀 @bob"))
    assert all(
        "is_disabled" in fields["link_preview_options"] for method, fields in api.asked if method == "sendMessage"
    )
    for posted in api.world.chats[ann].timeline:
        assert not [each for each in posted.message["entities"] if each["type"] == "mention"]
        assert "@ann" in posted.text


async def test_topics_and_replies(api: BotApi, home: Path) -> None:
    """A post goes into its topic, and answers what it answers."""
    ann = api.world.person("Ann")
    forum = api.world.group("Work", ann, is_forum=True)
    said = api.world.say(forum, ann, "question", topic=7)
    async with channel_on(api, home) as channel:
        await channel.send(
            Post(key="k", chat=f"telegram:chat:{forum}:topic:7", markdown="answer", reply_to=f"{forum}:{said}")
        )
    posted = api.world.chats[forum].timeline[-1]
    assert (posted.topic, posted.message["reply_to_message"]["message_id"]) == (7, said)


async def test_the_limit_is_counted_as_telegram_does(api: BotApi, home: Path) -> None:
    """4,096 units are shown whole, whatever they are; one more is refused without being sent."""
    ann = api.world.person("Ann")
    async with channel_on(api, home) as channel:
        for text in ("x" * TEXT_UNITS_MAX, "😀" * (TEXT_UNITS_MAX // 2), "& <" * (TEXT_UNITS_MAX // 3)):
            assert channel.capabilities.size(text) <= TEXT_UNITS_MAX
            await channel.send(post(ann, text))
            assert api.world.of_bot(ann)[-1] == text
        calls = api.calls["sendMessage"]
        for text in ("x" * (TEXT_UNITS_MAX + 1), "😀" * (TEXT_UNITS_MAX // 2) + "x", " "):
            with pytest.raises(PostRefused):
                await channel.send(post(ann, text))
        assert api.calls["sendMessage"] == calls


PIECES = (
    *("# ", "## ", "**", "_", "~~", "`", "```\n", "> ", "- ", "1. ", "\n", "\n\n", "word ", "<b>", "&amp;", "@ann "),
    *("[l](https://x.org)", "[l](tg://user?id=1)", "![p](http://x)", "| a | b |\n|---|---|\n| 1 | 2 |\n", "😀", "\\*"),
    *("    ", "---\n", "<!-- ", "]]>", "* * *", "a_b_c ", "http://x.org/_a_ "),
)
MARKDOWN = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@hypothesis.given(markdown=MARKDOWN)
def test_telegram_understands_whatever_is_made_of_markdown(markdown: str) -> None:
    """No HTML that is made here is refused, nobody is called by it, and it says what it is taken to say."""
    html = html_of(markdown)
    rich = read_html(html)
    assert rich.text == text_of(html)
    assert not [each for each in rich.entities if str(each.get("url", "")).startswith("tg:")]


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("# Title\n\nText", "Title\n\nText"),
        ("- one\n- two\n  1. three\n  2. four", "• one\n• two\n  1. three\n  2. four"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("> said\n>\n> twice\n\nI", "said\n\ntwice\n\nI"),
        ("a\nb  \nc", "a\nb\nc"),
        ("```python\nx = 1\n\ny = 2\n```", "x = 1\n\ny = 2"),
        ("[a](tg://user?id=1) ![b](https://c)", "a (tg://user?id=1) b"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("a\n\n---\n\nb", "a\n\n———\n\nb"),
        ("<script>x</script> **b**", "<script>x</script> b"),
    ],
)
def test_how_markdown_is_read_on_telegram(markdown: str, shown: str) -> None:
    """Blocks are told apart, lists have their signs, and every word is there."""
    html = html_of(markdown)
    assert (text_of(html) if html else markdown) == shown


async def test_formatting_that_is_refused_is_left_out(api: BotApi, home: Path) -> None:
    """Where Telegram cannot parse the formatting, the words are shown as they were written."""
    ann = api.world.person("Ann")
    api.refuses_html = True
    async with channel_on(api, home) as channel:
        receipt = await channel.send(post(ann, "**bold**"))
        assert api.world.of_bot(ann) == ["**bold**"]
        await channel.send(post(ann, "**bolder**", edits=receipt))
    assert api.world.of_bot(ann) == ["**bolder**"]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.BUSY, ChannelBusy),
        (FaultKind.BROKEN, PostUnknown),
        (FaultKind.CUT_BEFORE, PostUnknown),
        (FaultKind.CUT_AFTER, PostUnknown),
    ],
)
@pytest.mark.loss("E4")
async def test_what_became_of_a_post_is_said_truly(
    api: BotApi, home: Path, kind: FaultKind, error: type[ChannelError]
) -> None:
    """A rate limit is surely not shown, and says how long to wait; a cut is unknown, whichever it was."""
    ann = api.world.person("Ann")
    async with channel_on(api, home) as channel:
        api.faults.append(Fault(kind, "sendMessage", 17))
        with pytest.raises(error) as raised:
            await channel.send(post(ann, "Hello"))
        assert not isinstance(raised.value, ChannelBusy) or raised.value.seconds == 17
        assert len(api.world.of_bot(ann)) == (kind is FaultKind.CUT_AFTER)
        await api.down()
        with pytest.raises(ChannelDown):
            await channel.send(post(ann, "Hello"))


@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
async def test_a_proxy_of_the_environment_is_used(
    api: BotApi, home: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Where Telegram is reached by a proxy only, requests go through it; not to hosts that NO_PROXY names."""
    ann = api.world.person("Ann")
    monkeypatch.setenv(variable, api.url)
    home.mkdir(mode=0o700)
    channel = open_telegram(home, {"HANSARD_TELEGRAM_TOKEN": api.token}, base_url="http://telegram.invalid")
    await channel.send(post(ann, "Hello"))
    assert api.world.of_bot(ann) == ["Hello"]
    monkeypatch.setenv("NO_PROXY", "telegram.invalid")
    await channel.close()
    with pytest.raises(ChannelDown):
        await channel.send(post(ann, "Hello again"))
    await channel.close()


async def test_a_chat_that_does_not_want_the_agent_is_left_alone(api: BotApi, home: Path) -> None:
    """Blocked: refused for good, not asked again, until the person writes; a group in which it is not: the same."""
    ann, bob = api.world.person("Ann"), api.world.person("Bob")
    group = api.world.group("Friends", bob)
    async with channel_on(api, home) as channel:
        api.world.block(ann)
        api.world.remove_bot(group, bob)
        for chat in (ann, group, 999):
            for _ in range(2):
                with pytest.raises(ChatGone):
                    await channel.send(post(chat, "Hello"))
        await channel.typing(f"telegram:chat:{ann}", on=True)
        assert api.calls["sendMessage"] == 3
        assert not api.calls["sendChatAction"]
        api.world.unblock(ann)
        api.world.say(ann, ann, "I am back")
        await received(channel, 3)
        await channel.send(post(ann, "Welcome"))
        assert api.world.of_bot(ann) == ["Welcome"]


async def test_a_closed_topic_does_not_close_its_group(api: BotApi, home: Path) -> None:
    """What cannot be shown in one topic is refused there; elsewhere in the group posts are shown."""
    ann = api.world.person("Ann")
    group = api.world.group("Friends", ann)
    async with channel_on(api, home) as channel:
        with pytest.raises(ChatGone):
            await channel.send(post(group, "Hello", topic=5))
        await channel.send(post(group, "Hello"))
    assert api.world.of_bot(group) == ["Hello"]


async def test_a_group_that_moved_is_followed(api: BotApi, home: Path) -> None:
    """A post to a group that became a supergroup meanwhile is shown there; what was shown before stays as it was."""
    ann = api.world.person("Ann")
    group = api.world.group("Friends", ann, kind="group")
    async with channel_on(api, home) as channel:
        before = await channel.send(post(group, "before"))
        new = api.world.migrate(group)
        after = await channel.send(post(group, "after"))
        assert after.startswith(f"{new}:")
        await channel.send(post(group, "after all", edits=after))
        with pytest.raises(PostRefused, match="supergroup"):
            await channel.send(post(group, "otherwise", edits=before))
    async with channel_on(api, home) as channel:
        await channel.send(post(group, "and on"))
    assert api.world.of_bot(new) == ["after all", "and on"]


async def test_files_are_shown_with_their_bytes(api: BotApi, home: Path) -> None:
    """A picture as a picture, everything else as a file; short words beside it, long ones before it."""
    ann = api.world.person("Ann")
    picture = LocalFile(data=PNG, name="a.png", media_type="image/png")
    broken = LocalFile(data=b"no picture", name="b.png", media_type="image/png")
    notes = LocalFile(data=b"words", name="n.txt", media_type="text/plain")
    long = "x" * (CAPTION_UNITS_MAX + 1)
    async with channel_on(api, home) as channel:
        await channel.send(post(ann, "**look**", files=(picture,)))
        await channel.send(post(ann, "", files=(broken,)))
        receipt = await channel.send(post(ann, long, files=(notes, picture)))
        with pytest.raises(PostRefused):
            await channel.send(post(ann, "", files=(LocalFile(data=b"x" * 50_000_001),)))
    timeline = api.world.chats[ann].timeline
    kinds = [next((kind for kind in ("photo", "document") if kind in each.message), "text") for each in timeline]
    assert kinds == ["photo", "document", "text", "document", "photo"]
    assert [each.file for each in timeline] == [PNG, b"no picture", None, b"words", PNG]
    assert api.world.of_bot(ann) == ["look", "", long, "", ""]
    assert receipt.endswith(f":{timeline[2].id}")


async def test_files_that_cannot_be_fetched(api: BotApi, home: Path) -> None:
    """Too large, by its own size or by Telegram's limit, and gone: each is told apart."""
    api.world.files |= {"large": b"x" * 1000, "larger": b"x" * (20 * 1024 * 1024 + 1)}
    async with channel_on(api, home) as channel:
        for name in ("large", "larger"):
            with pytest.raises(TooLarge):
                await channel.fetch(RemoteFile(reference=name), bytes_max=999)
        with pytest.raises(NotFound):
            await channel.fetch(RemoteFile(reference="gone"), bytes_max=999)
        await api.down()
        with pytest.raises(ChannelDown):
            await channel.fetch(RemoteFile(reference="large"), bytes_max=2000)


async def test_groups_are_left_with_a_reason(api: BotApi, home: Path) -> None:
    """An accepted group stays; from another the agent goes, and says why; typing never raises."""
    ann = api.world.person("Ann")
    group, other = api.world.group("Friends", ann), api.world.group("Strangers", ann)
    async with channel_on(api, home) as channel:
        await channel.answer(f"telegram:chat:{group}", accept=True)
        await channel.answer(f"telegram:chat:{other}", accept=False, reason="Ask the admin.")
        await channel.typing(f"telegram:chat:{group}", on=True)
        await channel.typing(f"telegram:chat:{group}", on=False)
        await channel.typing("telegram:chat:998", on=True)
        await api.down()
        await channel.typing(f"telegram:chat:{group}", on=True)
    assert api.world.bot.id in api.world.chats[group].members
    assert api.world.bot.id not in api.world.chats[other].members
    assert api.world.of_bot(other) == ["Ask the admin."]
    assert api.world.chats[group].actions == ["typing"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(FaultKind.CUT_AFTER, "sendMessage"),
        Fault(FaultKind.CUT_BEFORE, "leaveChat"),
        Fault(FaultKind.CUT_AFTER, "leaveChat"),
        Fault(FaultKind.BUSY, "leaveChat"),
    ],
)
async def test_a_reason_is_given_once_whatever_goes_wrong(api: BotApi, home: Path, fault: Fault) -> None:
    """When nobody knows whether it was said, or the group could not be left at once, it is not said again."""
    ann = api.world.person("Ann")
    group = api.world.group("Friends", ann)
    async with channel_on(api, home) as channel:
        api.faults.append(fault)
        for _ in range(3):  # as intake tries it again
            try:
                await channel.answer(f"telegram:chat:{group}", accept=False, reason="You may not.")
                break
            except (ChannelBusy, ChannelDown):
                continue
    assert api.world.of_bot(group) == ["You may not."]
    assert api.world.bot.id not in api.world.chats[group].members
    assert not api.faults


async def test_a_reason_is_not_given_again_after_a_crash(api: BotApi, home: Path) -> None:
    """A process died between the words and leaving: the next one only leaves. Brought in again, it says why again."""
    ann = api.world.person("Ann")
    group = api.world.group("Friends", ann)
    chat = f"telegram:chat:{group}"
    async with channel_on(api, home) as channel:
        api.faults.append(Fault(FaultKind.CUT_BEFORE, "leaveChat"))
        with pytest.raises(ChannelDown):
            await channel.answer(chat, accept=False, reason="You may not.")
    async with channel_on(api, home) as channel:
        await channel.answer(chat, accept=False, reason="You may not.")
        assert api.world.of_bot(group) == ["You may not."]
        assert api.world.bot.id not in api.world.chats[group].members
        api.world.chats[group].members.add(api.world.bot.id)
        api.faults.append(Fault(FaultKind.BUSY, "sendMessage"))
        with pytest.raises(ChannelBusy):
            await channel.answer(chat, accept=False, reason="You may not.")
        await channel.answer(chat, accept=False, reason="You may not.")
    assert api.world.of_bot(group) == ["You may not."] * 2
    assert (home / "telegram" / "leaving.json").stat().st_mode & 0o777 == 0o600


async def test_what_the_channel_says_of_itself(api: BotApi, home: Path) -> None:
    """Its name, its account, who is alone with it, and how fast it may speak where."""
    async with channel_on(api, home) as channel:
        assert (channel.name, channel.account) == ("telegram", str(api.world.bot.id))
        assert await channel.is_direct("telegram:chat:5")
        assert not await channel.is_direct("telegram:chat:-5")
        assert channel.capabilities.edit_seconds("telegram:chat:5") < channel.capabilities.edit_seconds(
            "telegram:chat:-5"
        )
        with pytest.raises(InvalidInput):
            await channel.send(Post(key="k", chat="matrix:room:!a:b", markdown="x"))
        assert isinstance(channel, TelegramChannel)
