"""An update of Telegram as the port knows it. Pure: everything that has to be asked for comes in as a value.

Who somebody is, is their number. Names can be changed, and taken by others, so they decide nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from hansard.channels import Json, number_of, object_of, objects_of, text_of
from hansard.channels.telegram.wire import Me
from hansard.domain.text import utf16_units
from hansard.errors import InvalidInput
from hansard.ports.channel import Event, EventKind, RemoteFile

NAME: Final = "telegram"
CHAT: Final = f"{NAME}:chat:"
TOPIC: Final = ":topic:"
CHOICE: Final = "callback_query"
"""A person pressed a button below a message."""
KINDS: Final = ["message", "edited_message", "my_chat_member", CHOICE]
"""What is asked for."""

SPLIT_UNITS_MIN: Final = 4000
"""Clients cut what is longer than 4,096 units into several messages, the first ones about as long as that."""
GATHER_SECONDS: Final = 0.8

PRESENT: Final = frozenset({"creator", "administrator", "member"})
COMMAND: Final = re.compile(r"\A/(?P<name>\w+)(?:@(?P<bot>\w+))?(?=\s|\Z)")
CHAT_NAME: Final = re.compile(rf"{CHAT}(?P<chat>-?[0-9]+)(?:{TOPIC}(?P<topic>[0-9]+))?")
START: Final = "start"
"""What a client sends when a person opens a bot for the first time: nobody typed it."""

FILES: Final = {
    "animation": ("animation", "mp4", "video/mp4"),
    "audio": ("audio", "mp3", "audio/mpeg"),
    "document": ("file", "bin", "application/octet-stream"),
    "sticker": ("sticker", "webp", "image/webp"),
    "video": ("video", "mp4", "video/mp4"),
    "video_note": ("video", "mp4", "video/mp4"),
    "voice": ("voice", "ogg", "audio/ogg"),
}
"""What a file is called, and of which kind it is, when Telegram does not say so."""


class TelegramPlace(NamedTuple):
    """A chat, and the topic in it; 0 for the chat itself."""

    chat_id: int
    topic_id: int = 0

    @property
    def chat(self) -> str:
        return f"{CHAT}{self.chat_id}" + (f"{TOPIC}{self.topic_id}" if self.topic_id else "")


def place_of(chat: str) -> TelegramPlace:
    """Read a chat's name; one that is not of this platform is a mistake of the caller."""
    found = CHAT_NAME.fullmatch(chat)
    if found is None:
        raise InvalidInput(f"Not a chat of Telegram: {chat!r}")
    return TelegramPlace(int(found["chat"]), int(found["topic"] or 0))


def event_id_of(chat_id: int, message_id: int) -> str:
    """By what a message is known for good: numbers of messages are those of a chat."""
    return f"{chat_id}:{message_id}"


def message_of(receipt: str) -> TelegramPlace:
    """Read a receipt: the chat in which a message is, and its number there in place of a topic."""
    chat_id, _, message_id = receipt.partition(":")
    if not message_id.isdecimal() or not chat_id.removeprefix("-").isdecimal():
        raise InvalidInput(f"Not a message of Telegram: {receipt!r}")
    return TelegramPlace(int(chat_id), int(message_id))


class TelegramUpdateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about an update besides its own words."""

    chat_id: int
    """The id by which its chat is known here."""
    continues: bool = False
    """Whether it is a further part of something that was said to the agent."""


def migrated_of(update: Json) -> tuple[int, int] | None:
    """Return the old and the new id of a group, if an update tells that it became a supergroup."""
    message = object_of(update, "message")
    here = number_of(message, "chat", "id")
    if new := number_of(message, "migrate_to_chat_id"):
        return here, new
    if old := number_of(message, "migrate_from_chat_id"):
        return old, here
    return None


def event_of(update: Json, seen: TelegramUpdateFacts, me: Me) -> Event | None:
    """Turn an update into the port's event; None for what nobody said."""
    if "my_chat_member" in update:
        return membership_of(update, seen)
    if CHOICE in update:
        return choice_of(object_of(update, CHOICE), seen)
    if "edited_message" in update:
        return edit_of(update, object_of(update, "edited_message"), seen, me)
    return said_of(object_of(update, "message"), seen, me)


def said_of(message: Json, seen: TelegramUpdateFacts, me: Me) -> Event | None:
    chat_id, message_id = number_of(message, "chat", "id"), number_of(message, "message_id")
    text, files = words_of(message), files_of(message)
    if not is_spoken(message) or not message_id or not (text or files):
        return None
    is_direct = text_of(message, "chat", "type") == "private"
    about = number_of(message, "reply_to_message", "message_id")
    return Event(
        id=event_id_of(chat_id, message_id),
        kind=EventKind.MESSAGE,
        chat=TelegramPlace(seen.chat_id, topic_of(message)).chat,
        sender=str(number_of(message, "from", "id")),
        text=text,
        sent_at_ms=number_of(message, "date") * 1000,
        is_direct=is_direct,
        is_for_agent=is_direct or seen.continues or answers_agent(message, me) or names_agent(message, me),
        reply_to=event_id_of(chat_id, about) if about else "",
        files=files,
        command=command_of(message, me),
        is_forwarded=is_forwarded(message),
        gather_seconds=GATHER_SECONDS if is_part(message) else 0.0,
    )


def is_forwarded(message: Json) -> bool:
    """Return whether a message passes on another person's words. A forward of one's own words is none."""
    origin = message.get("forward_origin")
    if not isinstance(origin, dict):
        return "forward_date" in message
    return number_of(message, "forward_origin", "sender_user", "id") != number_of(message, "from", "id")


def edit_of(update: Json, message: Json, seen: TelegramUpdateFacts, me: Me) -> Event | None:
    chat_id, message_id = number_of(message, "chat", "id"), number_of(message, "message_id")
    if not is_spoken(message) or not message_id:
        return None
    is_direct = text_of(message, "chat", "type") == "private"
    about = event_id_of(chat_id, message_id)
    return Event(
        id=f"{about}:edit:{number_of(update, 'update_id')}",
        kind=EventKind.EDIT,
        chat=TelegramPlace(seen.chat_id, topic_of(message)).chat,
        sender=str(number_of(message, "from", "id")),
        text=words_of(message),
        sent_at_ms=(number_of(message, "edit_date") or number_of(message, "date")) * 1000,
        is_direct=is_direct,
        is_for_agent=is_direct or answers_agent(message, me) or names_agent(message, me),
        about=about,
    )


def choice_of(pressed: Json, seen: TelegramUpdateFacts) -> Event | None:
    """Return which button somebody pressed, below which message. Telegram says who it was."""
    message = object_of(pressed, "message")
    chat_id, message_id = number_of(message, "chat", "id"), number_of(message, "message_id")
    if not is_spoken(pressed) or not message_id or not text_of(pressed, "data"):
        return None
    is_direct = text_of(message, "chat", "type") == "private"
    return Event(
        id=f"{event_id_of(chat_id, message_id)}:choice:{text_of(pressed, 'id')}",
        kind=EventKind.ANSWER,
        chat=TelegramPlace(seen.chat_id, topic_of(message)).chat,
        sender=str(number_of(pressed, "from", "id")),
        is_direct=is_direct,
        is_for_agent=is_direct,
        about=event_id_of(chat_id, message_id),
        choice=text_of(pressed, "data"),
    )


def membership_of(update: Json, seen: TelegramUpdateFacts) -> Event | None:
    """Return that the agent was brought into a group, or sent away. Private chats do not count."""
    change = object_of(update, "my_chat_member")
    was, is_now = (is_present(object_of(change, name)) for name in ("old_chat_member", "new_chat_member"))
    is_direct = text_of(change, "chat", "type") == "private"
    if was == is_now or (is_direct and is_now):
        return None
    return Event(
        id=f"{number_of(change, 'chat', 'id')}:member:{number_of(update, 'update_id')}",
        kind=EventKind.INVITATION if is_now else EventKind.LEFT,
        chat=TelegramPlace(seen.chat_id).chat,
        sender=str(number_of(change, "from", "id")),
        sent_at_ms=number_of(change, "date") * 1000,
        is_direct=is_direct,
    )


def is_present(member: Json) -> bool:
    status = text_of(member, "status")
    return status in PRESENT or (status == "restricted" and member.get("is_member") is True)


def is_spoken(message: Json) -> bool:
    """Whether a person said this.

    Bots do not count: two of them could talk for ever. Channels and anonymous admins do not count either: all of them
    have the same number, so a permission for one would hold for all.
    """
    sender = object_of(message, "from")
    return number_of(sender, "id") > 0 and sender.get("is_bot") is not True and not object_of(message, "sender_chat")


def topic_of(message: Json) -> int:
    """The topic that a message is in; 0 for none. Replies have a number, too, without being in one."""
    return number_of(message, "message_thread_id") if message.get("is_topic_message") is True else 0


def is_part(message: Json) -> bool:
    """Whether more of the same is likely to follow: a picture of an album, or the beginning of a long text."""
    return bool(text_of(message, "media_group_id")) or utf16_units(text_of(message, "text")) >= SPLIT_UNITS_MIN


def pieces_of(message: Json) -> list[tuple[str, Json]]:
    """Return the places of a text that mean something, as words and as what Telegram says of them."""
    where = "entities" if "text" in message else "caption_entities"
    data = (text_of(message, "text") or text_of(message, "caption")).encode("utf-16-le", "surrogatepass")
    found = []
    for entity in objects_of(message, where):
        start, length = number_of(entity, "offset") * 2, number_of(entity, "length") * 2
        found.append((data[start : start + length].decode("utf-16-le", "replace"), entity))
    return found


def names_agent(message: Json, me: Me) -> bool:
    """Whether a message names the agent: as `@bot`, by a link to it, or as `/command@bot`."""
    own = f"@{me.username}".casefold() if me.username else ""
    for words, entity in pieces_of(message):
        kind = text_of(entity, "type")
        if kind == "text_mention" and number_of(entity, "user", "id") == me.id:
            return True
        if own and kind == "mention" and words.casefold() == own:
            return True
        if own and kind == "bot_command" and words.casefold().endswith(own):
            return True
    return False


def answers_agent(message: Json, me: Me) -> bool:
    """Whether a message replies to the agent. In a topic, clients name its first message when nothing is answered."""
    about = object_of(message, "reply_to_message")
    if not about or number_of(about, "from", "id") != me.id:
        return False
    is_first = number_of(about, "message_id") == topic_of(message) or "forum_topic_created" in about
    return not is_first


def command_of(message: Json, me: Me) -> str:
    """Return what is to be read as a command; empty when that is the text itself."""
    text = text_of(message, "text") or text_of(message, "caption")
    bare = text
    if me.username:
        bare = re.sub(rf"\A\s*@{re.escape(me.username)}\s*[:,]?\s+(?=/)", "", text, count=1, flags=re.IGNORECASE)
    found = COMMAND.match(bare)
    if found is not None:
        bot, name = found["bot"] or me.username, found["name"]
        if bot.casefold() != me.username.casefold():
            bare = f"/{bare}"  # another bot's: two slashes begin no command
        else:
            bare = "/help" if name == START else f"/{name}{bare[found.end() :]}"
    return "" if bare == text else bare


def words_of(message: Json) -> str:
    """What a person wrote, or in words what they sent without any."""
    written = text_of(message, "text") or text_of(message, "caption")
    if written:
        return written
    return next((tell(object_of(message, kind)) for kind, tell in TOLD.items() if object_of(message, kind)), "")


def files_of(message: Json) -> tuple[RemoteFile, ...]:
    """The file of a message: of a photo its largest form. An animation is told as a document, too."""
    number = number_of(message, "message_id")
    photos = sorted(objects_of(message, "photo"), key=lambda each: number_of(each, "width") * number_of(each, "height"))
    if photos and (reference := text_of(photos[-1], "file_id")):
        size = max(0, number_of(photos[-1], "file_size"))
        name = f"photo-{number}.jpg"
        return (RemoteFile(reference=reference, name=name, media_type="image/jpeg", size_bytes=size),)
    for kind, (name, ending, media_type) in FILES.items():
        found = object_of(message, kind)
        if reference := text_of(found, "file_id"):
            return (
                RemoteFile(
                    reference=reference,
                    name=text_of(found, "file_name") or f"{name}-{number}.{ending}",
                    media_type=text_of(found, "mime_type") or media_type,
                    size_bytes=max(0, number_of(found, "file_size")),
                ),
            )
    return ()


def tell_contact(contact: Json) -> str:
    names = " ".join(filter(None, (text_of(contact, "first_name"), text_of(contact, "last_name"))))
    return f"[contact: {names}, {text_of(contact, 'phone_number')}]"


def tell_poll(poll: Json) -> str:
    options = " / ".join(text_of(option, "text") for option in objects_of(poll, "options"))
    return f"[poll: {text_of(poll, 'question')} {options}]"


TOLD: Final[dict[str, Callable[[Json], str]]] = {
    "venue": lambda venue: f"[place: {text_of(venue, 'title')}, {text_of(venue, 'address')}]",
    "location": lambda place: f"[location: {place.get('latitude')}, {place.get('longitude')}]",
    "contact": tell_contact,
    "poll": tell_poll,
    "dice": lambda dice: f"{text_of(dice, 'emoji')} {number_of(dice, 'value')}",
    "sticker": lambda sticker: text_of(sticker, "emoji"),
}
"""What can be sent without a word, in words: else nobody would know that something was said."""
