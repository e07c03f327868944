"""Where a command is given and what it replies, and what is somebody's own in a conversation of several people.

Pure rules for commands that `hansard.domain.access` allows as `own only`: people's own are their words, and the answers
that nobody else asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from hansard.domain.access import AT_THE_TERMINAL, Standpoint
from hansard.domain.budgets import Budget
from hansard.domain.messages import Message
from hansard.domain.notices import ENGLISH, Wording
from hansard.domain.settings import Busy, LeftSessions
from hansard.record.api import Record
from hansard.record.conversation import Conversation, is_said
from hansard.record.messages.entries import Placed


class Speaker(NamedTuple):
    """Somebody on a channel, as the platform calls them."""

    channel: str
    author: str

    def said(self, message: Message) -> bool:
        return bool(self.author) and (message.chat.partition(":")[0], message.author) == self


class CommandScene(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command is given: by whom, in which session, with which settings."""

    record: Record
    session_id: str
    owner: str = "person:admin"
    source: str = "cli"
    busy: Busy = Busy.INTERRUPT
    left_sessions: LeftSessions = LeftSessions.END
    model: str = ""
    listed: tuple[str, ...] = ()
    """The sessions that were listed last: what a number means."""
    author: str = ""
    """What the platform calls the person; empty at the terminal."""
    chat: str = ""
    """Where it is given; empty at the terminal."""
    budget: Budget | None = None
    """What a day may take."""
    is_model_named: bool = False
    """Whether the model was named for this run, and so comes before the session's own."""
    words: Wording = ENGLISH
    models_allowed: tuple[str, ...] = ()
    """Patterns of the models that may be chosen; none: every one."""
    standpoint: Standpoint = AT_THE_TERMINAL
    """What the person is, and where."""
    is_own_only: bool = False
    """Whether the command may concern only what is the person's own."""
    asked: Message | None = None
    """The command, as it is recorded at the terminal."""

    @property
    def asker(self) -> str:
        """Who gives it: what the platform calls them, or the terminal's person. Rights come from nobody else."""
        return self.author if self.chat else self.owner

    @property
    def speaker(self) -> Speaker:
        return Speaker(self.chat.partition(":")[0], self.author)

    def reply(
        self, text: str, *, wake: str | None = None, listed: tuple[str, ...] = (), chose_model: bool = False
    ) -> CommandReply:
        """Return a reply that leaves the conversation in the session where it is."""
        return CommandReply(text=text, session_id=self.session_id, wake=wake, listed=listed, chose_model=chose_model)


class CommandReply(msgspec.Struct, frozen=True, kw_only=True):
    """A command's reply, and where the conversation is now.

    `wake` is the turn that waits to be run there, "" whichever does. `seq` is where the reply was recorded.
    """

    text: str
    session_id: str
    wake: str | None = None
    listed: tuple[str, ...] = ()
    seq: int = 0
    chose_model: bool = False


def exchanges(conversation: Conversation) -> list[list[Placed]]:
    """Return what was said and what came of it, turn by turn; what waits is one exchange.

    A turn that nobody spoke for, such as a second try, belongs to the exchange before it.
    """
    found: dict[str, list[Placed]] = {}
    for placed in conversation.placed:
        if placed.turn_id not in found and (is_asked(placed) or not found):
            found[placed.turn_id] = []
        found.get(placed.turn_id, next(reversed(found.values()))).append(placed)
    return [*found.values(), *([conversation.waiting] if conversation.waiting else [])]


def is_asked(placed: Placed) -> bool:
    return is_said(placed.message) and not placed.message.is_observed


def is_own(exchange: list[Placed], speaker: Speaker) -> bool:
    """Return whether nobody else asked for the answer of an exchange."""
    asked = [placed for placed in exchange if is_asked(placed)]
    return bool(asked) and all(speaker.said(placed.message) for placed in asked)


def own_messages(conversation: Conversation, speaker: Speaker, count: int) -> list[Placed]:
    """Return a person's own words in the last exchanges that have any, and the answers that nobody else asked for."""
    own = [each for each in exchanges(conversation) if any(is_asked(one) and speaker.said(one.message) for one in each)]
    return [
        placed
        for exchange in own[-count:]
        for placed in exchange
        if speaker.said(placed.message) or (is_own(exchange, speaker) and not is_said(placed.message))
    ]


def may_repeat(conversation: Conversation, speaker: Speaker) -> bool:
    """Return whether the last answer, and what waits for the next, were asked for by nobody else."""
    all_of_them = exchanges(conversation)
    last = all_of_them[-2:] if conversation.waiting else all_of_them[-1:]
    return bool(last) and all(is_own(exchange, speaker) for exchange in last)


def is_running_own(conversation: Conversation, speaker: Speaker) -> bool:
    """Return whether the running turn answers nobody else. When nothing runs, nobody else is concerned."""
    answered = [placed for placed in conversation.placed if placed.turn_id == conversation.running]
    return not conversation.running or is_own(answered, speaker)
