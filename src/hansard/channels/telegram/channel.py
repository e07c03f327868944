"""Telegram behind the port: one bot, by the Bot API.

Reads, writes: Telegram, and the folder `telegram` of the home. Knows nothing of the record.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hansard.channels.telegram.html import html_of, mentions, text_of
from hansard.channels.telegram.reading import NAME, TelegramPlace, event_id_of, message_of, place_of
from hansard.channels.telegram.receiving import TelegramReceiver, TelegramTiming
from hansard.channels.telegram.wire import GroupMoved, NotModified, NotParsed, TelegramWire
from hansard.domain.text import utf16_units
from hansard.errors import ChannelBusy, ChannelDown, ChatGone, HansardError, PostRefused, PostUnknown
from hansard.ports.channel import Batch, Capabilities, LocalFile, Post, Reading, RemoteFile, TextUnit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from telegram import Bot

    from hansard.channels.telegram.keeping import Leaving, Places, Token

TEXT_UNITS_MAX: Final = 4096
CAPTION_UNITS_MAX: Final = 1024
FILE_BYTES_MAX: Final = 50_000_000
"""Of a file that a bot sends."""
PHOTO_BYTES_MAX: Final = 10_000_000
PHOTOS: Final = frozenset({"image/jpeg", "image/png"})
EDIT_SECONDS_MIN: Final = 1.2
"""Telegram wants no more than about one message a second in a chat."""
GROUP_EDIT_SECONDS_MIN: Final = 3.2
"""And no more than twenty a minute in a group."""
TYPING_SECONDS: Final = 4.5
"""The sign fades after five seconds."""
UNNAMED: Final = "file"


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """Words in one of the forms in which Telegram takes them."""

    text: str
    is_html: bool = False

    def options(self) -> dict[str, Any]:
        from telegram import MessageEntity

        if self.is_html:
            return {"parse_mode": "HTML"}
        spans = [
            MessageEntity("code", utf16_units(self.text[:start]), utf16_units(self.text[start:end]))
            for start, end in mentions(self.text)
        ]
        return {"entities": spans} if spans else {}


def forms_of(markdown: str, units_max: int, reading: Reading = Reading.MARKDOWN) -> list[Form]:
    """Return the forms of a text in the order in which they are tried; the last one is the text itself."""
    html = html_of(markdown, reading)
    fits = html and utf16_units(text_of(html)) <= units_max
    return [*([Form(text=html, is_html=True)] if fits else []), Form(text=markdown)]


GONE_MAX: Final = 10_000
"""Remembered chats that do not want the agent: memory must not grow with them. A forgotten one is tried once more."""


class TelegramChannel:
    """One bot. It implements `Channel` and `Fetches`; Telegram tells bots nothing of the past."""

    name = NAME
    capabilities = Capabilities(
        text_bytes_max=TEXT_UNITS_MAX,
        text_unit=TextUnit.UTF16,
        edits=True,
        edit_seconds_min=EDIT_SECONDS_MIN,
        slower_chats=((f"{NAME}:chat:-", GROUP_EDIT_SECONDS_MIN),),
        repeat_seconds=0.0,
        timeline=False,
        fetches=True,
        company=True,
        choices=True,
        file_bytes_max=FILE_BYTES_MAX,
        typing_seconds=TYPING_SECONDS,
    )

    def __init__(
        self, token: Token, wire: TelegramWire, places: Places, leaving: Leaving, pace: TelegramTiming | None = None
    ) -> None:
        self.account = token.account
        """The bot's number."""
        self._wire = wire
        self._places = places
        self._pace = pace or TelegramTiming()
        self._gone: set[int] = set()
        """Chats that refused the agent: not tried again until a person writes there."""
        self._leaving = leaving
        self._receiver: TelegramReceiver | None = None

    @property
    def trouble(self) -> str:
        """What a person has to do, or what is waited for, before the bot works as it should; empty when it does."""
        return self._wire.trouble or (self._receiver.waits_for if self._receiver is not None else "")

    async def is_direct(self, chat: str) -> bool:
        """Return whether only one person and the agent are in a chat: Telegram numbers groups below zero."""
        return place_of(chat).chat_id > 0

    def receive(self, cursor: str, held: Sequence[str]) -> AsyncGenerator[Batch, None]:
        """Give what happened since the cursor, for ever; without one, all that Telegram still keeps."""
        del held  # nothing here is encrypted
        self._receiver = TelegramReceiver(self._wire, self._places, self._pace, self._gone)
        return self._receiver.run(cursor)

    async def send(self, post: Post) -> str:
        """Show something; return where it is. Words beside a file are its caption, if they are short enough."""
        place = place_of(post.chat)
        if utf16_units(post.markdown) > TEXT_UNITS_MAX:
            raise PostRefused(f"The post has more than {TEXT_UNITS_MAX} units, which is what a message can have.")
        if not post.markdown.strip() and not post.files:
            raise PostRefused("The post says nothing.")
        for file in post.files:
            if len(file.data) > FILE_BYTES_MAX:
                raise PostRefused(f"The file has {len(file.data)} bytes; bots send {FILE_BYTES_MAX} at most.")
        if self._places.now(place.chat_id) in self._gone:
            raise ChatGone("This chat did not want the agent's posts; it is tried again when somebody writes there.")
        try:
            return await self._edit(place, post) if post.edits else await self._post(place, post)
        except ChatGone:
            if not place.topic_id:
                if len(self._gone) >= GONE_MAX:
                    self._gone.pop()  # it is tried once more, and refused once more
                self._gone.add(self._places.now(place.chat_id))
            raise
        except ChannelBusy as busy:
            # Twenty messages a minute are a group's own limit: the other chats need not wait for it.
            raise ChannelBusy(str(busy), busy.seconds, is_of_chat=place.chat_id < 0) from None

    async def typing(self, chat: str, *, on: bool) -> None:
        """Show that the agent writes. The sign goes by itself, with the next message or after five seconds."""
        place = place_of(chat)
        chat_id = self._places.now(place.chat_id)
        if not on or chat_id in self._gone:
            return
        with contextlib.suppress(HansardError):
            await self._wire.ask(
                lambda bot: bot.send_chat_action(chat_id, "typing", message_thread_id=place.topic_id or None),
                "showing that the agent writes",
            )

    async def answer(self, chat: str, *, accept: bool, reason: str = "") -> None:
        """Stay in a group, or say why not and leave it: bots are brought into groups without being asked.

        If nobody knows whether it was said, or the process died meanwhile, the reason is not said again.
        """
        if accept:
            return
        chat_id = self._places.now(place_of(chat).chat_id)
        if reason and self._leaving.begin(chat_id):
            try:
                await self._wire.post(lambda bot: bot.send_message(chat_id, reason), "saying why a group is left")
            except (ChatGone, PostRefused, PostUnknown):
                pass
            except (ChannelBusy, ChannelDown):
                self._leaving.end(chat_id)
                raise
        with contextlib.suppress(ChatGone, PostRefused):
            await self._wire.ask(lambda bot: bot.leave_chat(chat_id), "leaving a group")
        self._leaving.end(chat_id)

    async def close(self) -> None:
        await self._wire.close()

    async def fetch(self, file: RemoteFile, *, bytes_max: int) -> bytes:
        return await self._wire.download(file.reference, bytes_max=bytes_max)

    async def _post(self, place: TelegramPlace, post: Post) -> str:
        others = post.files
        if others and utf16_units(post.markdown) <= CAPTION_UNITS_MAX:
            receipt = await self._show(place, others[0], post.markdown)
            others = others[1:]
        else:
            receipt = await self._say(place, post)
        for file in others:
            await self._rest(place, file)
        return receipt

    async def _say(self, place: TelegramPlace, post: Post) -> str:
        from telegram import InlineKeyboardButton, InlineKeyboardMarkup, LinkPreviewOptions, ReplyParameters

        options: dict[str, Any] = {
            "message_thread_id": place.topic_id or None,
            "link_preview_options": LinkPreviewOptions(is_disabled=True),
        }
        if post.reply_to:
            answered = message_of(post.reply_to).topic_id
            options["reply_parameters"] = ReplyParameters(answered, allow_sending_without_reply=True)
        if post.choices:
            buttons = [[InlineKeyboardButton(each.label, callback_data=each.id)] for each in post.choices]
            options["reply_markup"] = InlineKeyboardMarkup(buttons)

        async def say(bot: Bot, chat_id: int, form: Form) -> int:
            shown = await bot.send_message(chat_id, form.text, **options, **form.options())
            return int(shown.message_id)

        return await self._in_some_form(place, forms_of(post.markdown, TEXT_UNITS_MAX, post.reading), say)

    async def _show(self, place: TelegramPlace, file: LocalFile, caption: str) -> str:
        """Show a file: a picture as one, if Telegram takes it so, everything else as it is."""
        is_photo = file.media_type in PHOTOS and len(file.data) <= PHOTO_BYTES_MAX
        name = file.name or UNNAMED

        async def show(bot: Bot, chat_id: int, form: Form) -> int:
            options = {name.replace("entities", "caption_entities"): value for name, value in form.options().items()}
            options |= {"caption": form.text or None, "message_thread_id": place.topic_id or None}
            call: Any = bot.send_photo if is_photo else bot.send_document
            shown = await call(chat_id, file.data, filename=name, **options)
            return int(shown.message_id)

        try:
            return await self._in_some_form(place, forms_of(caption, CAPTION_UNITS_MAX), show)
        except PostRefused:
            if not is_photo:
                raise
            # Too long, too wide, or not a picture after all.
            return await self._show(place, LocalFile(data=file.data, name=file.name), caption)

    async def _rest(self, place: TelegramPlace, file: LocalFile) -> None:
        """Show what belongs to a post that is partly shown: it can no longer be said that nothing was."""
        try:
            await self._show(place, file, "")
        except (ChannelBusy, ChannelDown, PostUnknown) as error:
            raise PostUnknown("posting: the words are shown, a file beside them is not") from error

    async def _edit(self, place: TelegramPlace, post: Post) -> str:
        from telegram import LinkPreviewOptions

        about = message_of(post.edits)
        if about.chat_id != self._places.now(place.chat_id):
            raise PostRefused("the group became a supergroup: what was shown before cannot be changed any more")

        async def change(bot: Bot, chat_id: int, form: Form) -> int:
            await bot.edit_message_text(
                form.text,
                chat_id=chat_id,
                message_id=about.topic_id,
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                **form.options(),
            )
            return about.topic_id

        with contextlib.suppress(NotModified):
            await self._in_some_form(place, forms_of(post.markdown, TEXT_UNITS_MAX, post.reading), change)
        return post.edits

    async def _in_some_form(self, place: TelegramPlace, forms: list[Form], call: Any) -> str:  # noqa: ANN401 - a closure
        """Send words in the first form that Telegram understands, to where the chat is now."""
        for form in forms[:-1]:
            with contextlib.suppress(NotParsed):
                return await self._where_it_is(place, form, call)
        return await self._where_it_is(place, forms[-1], call)

    async def _where_it_is(self, place: TelegramPlace, form: Form, call: Any) -> str:  # noqa: ANN401 - a closure
        chat_id = self._places.now(place.chat_id)
        try:
            message_id = await self._wire.post(lambda bot: call(bot, chat_id, form), "posting")
        except GroupMoved as moved:
            self._learn(place, moved)
            chat_id = moved.new_id
            message_id = await self._wire.post(lambda bot: call(bot, chat_id, form), "posting")
        return event_id_of(chat_id, message_id)

    def _learn(self, place: TelegramPlace, moved: GroupMoved) -> None:
        try:
            self._places.learn(place.chat_id, moved.new_id)
        except OSError as error:
            raise ChannelDown(f"the new id of a group cannot be kept: {type(error).__name__}") from error
