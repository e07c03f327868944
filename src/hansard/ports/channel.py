"""What a channel must offer, and what passes through it.

A channel never sees the record. It receives batches of events, each with the cursor that stands after it; the next
batch is asked for only when the last one is durable. It sends what it is given, and says truly what became of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from hansard.domain.text import utf16_units

FILE_MARK = "#"
"""Between a post's key and the number of a file of it."""


class EventKind(StrEnum):
    """What happened on the platform."""

    MESSAGE = "message"
    EDIT = "edit"
    """A person changed what they had said; `about` names the first event."""
    DELETION = "deletion"
    """`about` names the event that was deleted."""
    UNREADABLE = "unreadable"
    """Encrypted, and the keys are missing. `raw` is the event; it comes again, readable, when they arrive."""
    INVITATION = "invitation"
    """Somebody asks the agent into a chat. `answer` of the channel accepts or declines."""
    LEFT = "left"
    """The agent is no longer in the chat."""
    COMPANY = "company"
    """A direct chat is one no longer: others came into it, or are invited; `text` names them.
    Without a text: others can now come in or read without an invitation."""
    ANSWER = "answer"
    """A person chose one of the choices beside a post, by a button or a reaction: `about` is the post's receipt and
    `choice` the id of the choice. A person's first answer to a post may come several times; `id` tells them apart."""
    REPLACED = "replaced"
    """The chat was given up for another one, which `about` names."""


class ReplyKind(StrEnum):
    """How a message is to be met."""

    ANSWER = "answer"
    EXPLAIN = "explain"
    """It has nothing that could be answered. It is recorded, and its sender is told so."""
    NONE = "none"
    """A program's notice, a reaction, a vote: it is recorded, and nobody expects an answer."""


class RemoteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file on the platform, to be fetched. `reference` is the channel's own, with keys if it is encrypted."""

    reference: str
    name: str = ""
    media_type: str = "application/octet-stream"
    size_bytes: int = 0


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One inbound event. Text and names are as untrusted as their sender."""

    id: str
    kind: EventKind
    chat: str
    """Where: `matrix:room:ID` or `matrix:room:ID:thread:ID`."""
    sender: str
    """The platform's name for the person, such as `@ann:example.org`."""
    text: str = ""
    sent_at_ms: int = 0
    is_direct: bool = False
    """Whether only this person and the agent are in the chat, and others can come or read only if they are invited."""
    is_for_agent: bool = False
    """Whether it names the agent or replies to it. In a direct chat everything is for the agent."""
    about: str = ""
    reply_to: str = ""
    files: tuple[RemoteFile, ...] = ()
    raw: str = ""
    quoted: str = ""
    """The beginning of `text` in which a client repeated the message that is answered. It is recorded, too."""
    formatted: str = ""
    """What clients show in place of the text, where it says something else. Both are recorded."""
    reply: ReplyKind = ReplyKind.ANSWER
    command: str = ""
    """What is read as a command, where that is not the text itself: `/new` of `/new@bot`. The text is what was said."""
    choice: str = ""
    """The id of the choice that was made, of an ANSWER."""
    is_forwarded: bool = False
    """Whether the sender passed on somebody else's text: it is no command, answers nothing, and is untrusted."""
    is_unverified: bool = False
    """Whether the platform can prove who wrote something, and did not prove it here: it is recorded, never acted on."""
    gather_seconds: float = 0.0
    """For how long more of the same may follow, when a client sends what was said at once in several parts."""

    @property
    def words(self) -> str:
        """The text without the words of another message that its client repeated."""
        return self.text.removeprefix(self.quoted)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Events in the platform's order, and the cursor after the last of them."""

    cursor: str
    events: tuple[Event, ...] = ()
    cut: tuple[str, ...] = ()
    """Chats in which more had been said than is fetched: their oldest events are missing from this batch."""


class LocalFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file to send."""

    data: bytes
    name: str = ""
    media_type: str = "application/octet-stream"


class Reading(StrEnum):
    """How the words of a post are to be read."""

    MARKDOWN = "markdown"
    CONTINUED = "continued"
    """Markdown that begins in the middle of a line: a `>` or `#` there is no quote and no heading."""
    LITERAL = "literal"
    """As they are: read as Markdown, some of their signs would be missing."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that people are offered beside a post."""

    id: str
    """At most 32 letters of ASCII; `yes` and `no` are what thumbs up and down mean where people react to posts."""
    label: str


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be shown. The same key again shows nothing twice, where the platform can promise that."""

    key: str
    chat: str
    markdown: str
    reading: Reading = Reading.MARKDOWN
    notice: bool = False
    """Whether Hansard itself says it, not the agent."""
    edits: str = ""
    """The receipt of the post that this replaces; empty for a new one."""
    reply_to: str = ""
    files: tuple[LocalFile, ...] = ()
    choices: tuple[Choice, ...] = ()
    """Answers that people can choose beside the words, where the channel shows choices."""


def file_key(key: str, number: int) -> str:
    """Return under which key a file of a post is shown: files are events of their own, numbered from 1."""
    return f"{key}{FILE_MARK}{number}"


class TextUnit(StrEnum):
    """What a platform counts a text in."""

    BYTES = "bytes"
    """Of UTF-8."""
    UTF16 = "utf16"
    """Code units of UTF-16: most signs are one, those beyond the first 65,536 two."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What the platform can do."""

    text_bytes_max: int
    """Of the text of one post, counted in `text_unit`."""
    text_unit: TextUnit = TextUnit.BYTES
    edits: bool = True
    edit_seconds_min: float = 1.0
    """The shortest pause between two edits in one chat."""
    slower_chats: tuple[tuple[str, float], ...] = ()
    """Chats whose names begin so need a longer pause between two edits."""
    repeat_seconds: float = 0.0
    """For how long the same key shows nothing twice; 0: never."""
    timeline: bool = False
    fetches: bool = False
    """Whether files can be fetched although there is no timeline."""
    company: bool = False
    """Whether it can say who is in a chat."""
    file_bytes_max: int = 0
    """Of one file; 0: it shows none."""
    choices: bool = False
    """Whether people can choose an answer beside a post, by a button or a reaction."""
    typing_seconds: float = 10.0
    """How often the sign that the agent writes has to be given again."""

    def size(self, text: str) -> int:
        return len(text.encode()) if self.text_unit is TextUnit.BYTES else utf16_units(text)

    def edit_seconds(self, chat: str) -> float:
        return max([self.edit_seconds_min, *(pause for prefix, pause in self.slower_chats if chat.startswith(prefix))])


@runtime_checkable
class Keeps(Protocol):
    """Says which unreadable events are kept. Only those are tried again, and only their keys are asked for."""

    def keeps(self, event_id: str) -> bool:
        """Return whether an event is kept; asked when the batch that it came in was taken."""


class Presence(Protocol):
    """Who the agent is on a platform, and what it can do there."""

    @property
    def name(self) -> str:
        """Such as `matrix`: what its chats begin with."""

    @property
    def account(self) -> str:
        """The agent's own name on the platform."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""


class Channel(Presence, Protocol):
    """A platform, for one account. Every call may raise a `ChannelError` of hansard.errors."""

    def receive(self, cursor: str, held: Sequence[str]) -> AsyncGenerator[Batch, None]:
        """Give what happened since the cursor (empty: from now on), for ever; `held` are unreadable events of before.

        If `held` is a `Keeps` as well, it says after each batch which of its unreadable events are kept.

        Lost connections are its own business: it waits, tries again with back-off, and goes on where it was.
        """

    async def send(self, post: Post) -> str:
        """Show something, or replace what was shown; return the platform's id of it."""

    async def typing(self, chat: str, *, on: bool) -> None:
        """Show that the agent writes, or no longer. A courtesy: it fails silently."""

    async def answer(self, chat: str, *, accept: bool, reason: str = "") -> None:
        """Accept or decline an invitation. Whoever gave it is shown the reason, where the platform can do that."""

    async def close(self) -> None:
        """Let go of connections."""


class TimelineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a chat's timeline, as any member sees it. `key` is that of the post, if this account sent it.

    A file is an event of its own: `file` is its name, `text` what was written beside it. The words are those of the
    event itself: nothing that a channel does for the record is done to them.
    """

    id: str
    sender: str
    text: str = ""
    sent_at_ms: int = 0
    edits: str = ""
    key: str = ""
    file: str = ""
    is_exact: bool = True
    """Whether `text` is all that the record has of it. Otherwise it is part of that: the event has no plain text."""
    html: str = ""
    """What clients show in place of the text, as it came."""
    names_agent: bool = False
    reply_to: str = ""
    is_readable: bool = True
    is_deleted: bool = False


class Company(Protocol):
    """What a platform can say about who is in a chat. Optional."""

    async def is_direct(self, chat: str) -> bool:
        """Return whether a chat is direct now, as `Event.is_direct` means it. People who are invited count."""


class Fetches(Protocol):
    """What a platform can give of files. Optional."""

    async def fetch(self, file: RemoteFile, *, bytes_max: int) -> bytes:
        """Return a file's bytes, decrypted. Larger than `bytes_max` is refused."""


class Timeline(Fetches, Protocol):
    """What a platform can tell about the past. Optional."""

    def history(self, chat: str, *, events_max: int = 10_000) -> AsyncGenerator[TimelineEvent, None]:
        """Give a chat's messages and edits, the latest first."""
