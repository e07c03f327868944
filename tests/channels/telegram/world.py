"""Telegram's side, in memory: people, chats, what is seen in them, and the queue of updates of one bot.

`Chat.timeline` is the witness: what anybody in a chat sees, with every edit, in the order in which it was seen. Nothing
of Hansard is used here.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, NamedTuple

from tests.channels.telegram.entities import TEXT_UNITS_MAX, Json, Rich, read_text

UPDATE_KINDS = ("message", "edited_message", "my_chat_member", "callback_query")
CALLBACK_BYTES_MAX = 64
FAR_AHEAD = 10
"""An offset that is further above the last update is taken for a mistake: the queue is given from its head."""


class Person(NamedTuple):
    """Somebody with an account."""

    id: int
    first_name: str
    username: str = ""
    is_bot: bool = False

    def json(self) -> Json:
        """Return how Telegram tells of them."""
        told: Json = {"id": self.id, "is_bot": self.is_bot, "first_name": self.first_name}
        return told | ({"username": self.username} if self.username else {})


class Posted:
    """A message in a chat."""

    def __init__(self, message: Json, file: bytes | None = None) -> None:
        """Keep it as it is told."""
        self.message = message
        self.file = file
        self.versions = [self.text]

    @property
    def id(self) -> int:
        """Its number in the chat."""
        return int(self.message["message_id"])

    @property
    def sender(self) -> int:
        """Who wrote it."""
        return int(self.message["from"]["id"])

    @property
    def text(self) -> str:
        """The words that are seen now."""
        return str(self.message.get("text", self.message.get("caption", "")))

    @property
    def topic(self) -> int:
        """The topic that it is in; 0: none."""
        return int(self.message.get("message_thread_id", 0)) if self.message.get("is_topic_message") else 0


class Sight(NamedTuple):
    """Something that people saw happen: a post, or an edit of one."""

    message_id: int
    sender: int
    text: str
    is_edit: bool


class Chat:
    """A chat, and all that is seen in it."""

    def __init__(self, chat_id: int, kind: str, title: str, members: set[int], *, is_forum: bool = False) -> None:
        """Begin empty."""
        self.id = chat_id
        self.kind = kind
        self.title = title
        self.members = members
        self.is_forum = is_forum
        self.timeline: list[Posted] = []
        self.sights: list[Sight] = []
        self.actions: list[str] = []
        self.migrated_to = 0
        self.is_gone = False
        self.numbers = itertools.count(1)

    def json(self) -> Json:
        """Return how Telegram tells of it."""
        told: Json = {"id": self.id, "type": self.kind}
        if self.kind == "private":
            return told | {"first_name": self.title}
        return told | {"title": self.title} | ({"is_forum": True} if self.is_forum else {})

    def find(self, message_id: int) -> Posted | None:
        """Return a message."""
        return next((posted for posted in self.timeline if posted.id == message_id), None)

    def take(self, posted: Posted) -> None:
        """Show a message to everybody."""
        self.timeline.append(posted)
        self.sights.append(Sight(posted.id, posted.sender, posted.text, is_edit=False))


class World:
    """All that Telegram knows."""

    def __init__(self, username: str = "hansard_test_bot") -> None:
        """Begin with the bot alone."""
        self.bot = Person(7_000_000_001, "Hansard", username, is_bot=True)
        self.people: dict[int, Person] = {self.bot.id: self.bot}
        self.chats: dict[int, Chat] = {}
        self.blocked: set[int] = set()
        self.files: dict[str, bytes] = {}
        self.is_private_mode = True
        self.allowed: tuple[str, ...] = UPDATE_KINDS
        self.updates: list[Json] = []
        self.given: list[Json] = []
        """Every update that was ever made, for comparing."""
        self.next_update = 500_000_001
        self.changed = asyncio.Event()
        self._people_ids = itertools.count(100_001)
        self._group_ids = itertools.count(1)
        self._common_numbers = itertools.count(1)
        """Of messages in private chats and small groups: one count for the whole account."""
        self._file_ids = itertools.count(1)
        self._press_ids = itertools.count(1)
        self.pressing: set[str] = set()
        """Presses that clients still show as under way: nobody has answered them."""

    # People and places.

    def person(self, name: str, username: str = "") -> int:
        """Let somebody come to Telegram; return their number, which is that of their private chat with the bot."""
        found = Person(next(self._people_ids), name, username)
        self.people[found.id] = found
        self.chats[found.id] = Chat(found.id, "private", name, {found.id, self.bot.id})
        return found.id

    def group(self, title: str, by: int, *members: int, kind: str = "supergroup", is_forum: bool = False) -> int:
        """Let somebody make a group, with the bot in it; return its number."""
        number = next(self._group_ids)
        chat_id = -1_000_000_000_000 - number if kind == "supergroup" else -number
        self.chats[chat_id] = Chat(chat_id, kind, title, {by, *members}, is_forum=is_forum)
        self.add_bot(chat_id, by)
        return chat_id

    def add_bot(self, chat_id: int, by: int) -> None:
        """Let somebody bring the bot into a group."""
        self.chats[chat_id].members.add(self.bot.id)
        self._tell_membership(chat_id, by, "left", "member")

    def remove_bot(self, chat_id: int, by: int) -> None:
        """Let somebody throw the bot out."""
        self.chats[chat_id].members.discard(self.bot.id)
        self._tell_membership(chat_id, by, "member", "kicked")

    def block(self, person: int) -> None:
        """Let somebody block the bot."""
        self.blocked.add(person)
        self._tell_membership(person, person, "member", "kicked")

    def unblock(self, person: int) -> None:
        """Let somebody take that back."""
        self.blocked.discard(person)
        self._tell_membership(person, person, "kicked", "member")

    def migrate(self, chat_id: int) -> int:
        """Make a supergroup of a group: the same people, another number, and nothing of before in it."""
        old = self.chats[chat_id]
        new_id = -1_000_000_000_000 - next(self._group_ids)
        self.chats[new_id] = Chat(new_id, "supergroup", old.title, set(old.members))
        old.migrated_to = new_id
        by = min(old.members - {self.bot.id})
        self._serve(old, by, {"migrate_to_chat_id": new_id})
        self._serve(self.chats[new_id], by, {"migrate_from_chat_id": chat_id})
        return new_id

    # What people do.

    def say(self, chat_id: int, sender: int, text: str, **more: Any) -> int:  # noqa: ANN401 - fields of a message
        """Let somebody write; a client cuts what is too long. Return the number of the last message."""
        data = text.encode("utf-16-le")
        number = 0
        for start in range(0, max(len(data), 1), 2 * TEXT_UNITS_MAX):
            part = data[start : start + 2 * TEXT_UNITS_MAX].decode("utf-16-le", "ignore")
            rich = read_text(part, "", [], TEXT_UNITS_MAX, "message")
            number = self.post(chat_id, sender, words_json(rich, "text"), **more).id
        return number

    def edit(self, chat_id: int, message_id: int, text: str) -> None:
        """Let somebody change what they wrote."""
        posted = self.chats[chat_id].find(message_id)
        assert posted is not None
        rich = read_text(text, "", [], TEXT_UNITS_MAX, "message")
        self.change(self.chats[chat_id], posted, rich)
        self._tell(posted.message["chat"]["id"], "edited_message", posted.message)

    def press(self, chat_id: int, sender: int, message_id: int, data: str) -> str:
        """Let a member press a button below a message of the bot; return the press's id."""
        chat = self.chats[chat_id]
        posted = chat.find(message_id)
        assert posted is not None, "there is no such message"
        assert sender in chat.members, "only members see the button"
        rows = posted.message.get("reply_markup", {}).get("inline_keyboard", [])
        assert data in [button["callback_data"] for row in rows for button in row], "there is no such button"
        press = str(4_000_000_000_000 + next(self._press_ids))
        self.pressing.add(press)
        content = {"id": press, "from": self.people[sender].json(), "message": posted.message, "data": data}
        self._tell(chat_id, "callback_query", content | {"chat_instance": str(chat_id)})
        return press

    def send_file(
        self,
        chat_id: int,
        sender: int,
        kind: str,
        data: bytes,
        caption: str = "",
        **more: Any,  # noqa: ANN401
    ) -> int:
        """Let somebody send a photo, a voice, a document or another file, with words beside it."""
        content = self.file_json(kind, data, str(more.pop("name", "")))
        if caption:
            content |= words_json(read_text(caption, "", [], 1024, "message caption"), "caption")
        return self.post(chat_id, sender, content, **more).id

    def send_album(self, chat_id: int, sender: int, photos: list[bytes], caption: str = "") -> list[int]:
        """Let somebody send several photos at once: the words are beside the first."""
        album = f"album{next(self._file_ids)}"
        return [
            self.send_file(chat_id, sender, "photo", data, caption if number == 0 else "", media_group_id=album)
            for number, data in enumerate(photos)
        ]

    def post(
        self,
        chat_id: int,
        sender: int,
        content: Json,
        *,
        topic: int = 0,
        reply_to: int = 0,
        **more: Any,  # noqa: ANN401
    ) -> Posted:
        """Show something in a chat, and tell the bot if that is its business."""
        chat = self.chats[chat_id]
        message: Json = {
            "message_id": next(chat.numbers if chat.kind == "supergroup" else self._common_numbers),
            "from": self.people[sender].json(),
            "chat": chat.json(),
            "date": int(more.pop("date", 0) or time.time()),
        }
        if topic:
            message |= {"message_thread_id": topic, "is_topic_message": True}
        answered = chat.find(reply_to) if reply_to else None
        if answered is not None:
            told = {name: value for name, value in answered.message.items() if name != "reply_to_message"}
            message["reply_to_message"] = told
        message |= content | more
        data = self.files.get(file_id_of(content))
        posted = Posted(message, data)
        chat.take(posted)
        if sender != self.bot.id and self._is_told(chat, message):
            self._tell(chat_id, "message", message)
        return posted

    def change(self, chat: Chat, posted: Posted, rich: Rich) -> None:
        """Show other words in place of those that were there."""
        kept = {k: v for k, v in posted.message.items() if k not in {"text", "entities", "caption", "caption_entities"}}
        where = "caption" if "caption" in posted.message else "text"
        posted.message = kept | words_json(rich, where) | {"edit_date": int(time.time())}
        posted.versions.append(rich.text)
        chat.sights.append(Sight(posted.id, posted.sender, rich.text, is_edit=True))

    # Files.

    def file_json(self, kind: str, data: bytes, name: str = "") -> Json:
        """Keep a file; return how a message tells of it."""
        number = next(self._file_ids)
        file_id = f"file-{number}"
        self.files[file_id] = data
        told: Json = {"file_id": file_id, "file_unique_id": f"u{number}", "file_size": len(data)}
        if kind == "photo":
            small = {"file_id": f"small-{number}", "file_unique_id": f"s{number}", "file_size": 10}
            self.files[f"small-{number}"] = b"a smaller one"
            return {"photo": [small | {"width": 90, "height": 60}, told | {"width": 900, "height": 600}]}
        if kind == "voice":
            return {"voice": told | {"duration": 3, "mime_type": "audio/ogg"}}
        if kind == "video":
            return {"video": told | {"width": 90, "height": 60, "duration": 3, "mime_type": "video/mp4"}}
        return {"document": told | {"file_name": name or "notes.txt", "mime_type": "text/plain"}}

    # Updates.

    def _is_told(self, chat: Chat, message: Json) -> bool:
        """Whether a bot hears of a message: in groups, with privacy mode, only of what is meant for bots."""
        if self.bot.id not in chat.members or message["from"]["id"] in self.blocked:
            return False
        if chat.kind == "private" or not self.is_private_mode:
            return True
        entities: list[Json] = message.get("entities") or message.get("caption_entities") or []
        text = str(message.get("text") or message.get("caption") or "")
        named = f"@{self.bot.username}" in text or any(each["type"] == "bot_command" for each in entities)
        return named or bool(message.get("reply_to_message", {}).get("from", {}).get("id") == self.bot.id)

    def _tell_membership(self, chat_id: int, by: int, old: str, new: str) -> None:
        def member(status: str) -> Json:
            return {"status": status, "user": self.bot.json()} | ({"until_date": 0} if status == "kicked" else {})

        self._tell(
            chat_id,
            "my_chat_member",
            {
                "chat": self.chats[chat_id].json(),
                "from": self.people[by].json(),
                "date": int(time.time()),
                "old_chat_member": member(old),
                "new_chat_member": member(new),
            },
        )

    def _serve(self, chat: Chat, sender: int, content: Json) -> None:
        """Tell the bot something that nobody said."""
        message = {
            "message_id": next(chat.numbers),
            "from": self.people[sender].json(),
            "chat": chat.json(),
            "date": int(time.time()),
        }
        self._tell(chat.id, "message", message | content)

    def _tell(self, chat_id: int, kind: str, content: Json) -> None:
        del chat_id
        if kind not in self.allowed:
            return
        update = {"update_id": self.next_update, kind: dict(content)}
        self.next_update += 1
        self.updates.append(update)
        self.given.append(update)
        self.changed.set()

    def tell_raw(self, content: Json) -> None:
        """Give the bot an update of any shape."""
        update = {"update_id": self.next_update, **content}
        self.next_update += 1
        self.updates.append(update)
        self.changed.set()

    def begin_anew(self, update_id: int) -> None:
        """Nothing happened for a week: the next update has another number, which may be a smaller one."""
        assert not self.updates
        self.next_update = update_id

    def take_updates(self, offset: int, limit: int) -> list[Json]:
        """Forget what is below an offset; return what is left of it."""
        if offset < 0:
            self.updates = self.updates[offset:]
        elif offset <= self.next_update + FAR_AHEAD:
            self.updates = [update for update in self.updates if update["update_id"] >= offset]
        return self.updates[:limit]

    # What anybody sees.

    def seen(self, chat_id: int, sender: int = 0) -> list[str]:
        """Return the words in a chat, of everybody or of one, as they are seen now."""
        timeline = self.chats[chat_id].timeline
        return [posted.text for posted in timeline if sender in {0, posted.sender}]

    def of_bot(self, chat_id: int) -> list[str]:
        """Return what the bot says in a chat, as it is seen now."""
        return self.seen(chat_id, self.bot.id)


def words_json(rich: Rich, where: str) -> Json:
    """Return how a message tells of its words."""
    names = {"text": "entities", "caption": "caption_entities"}
    told: Json = {where: rich.text} if rich.text else {}
    return told | ({names[where]: list(rich.entities)} if rich.entities else {})


def file_id_of(content: Json) -> str:
    """Return the file of a message; empty when there is none."""
    for kind in ("document", "voice", "video"):
        if kind in content:
            return str(content[kind]["file_id"])
    return str(content["photo"][-1]["file_id"]) if "photo" in content else ""
