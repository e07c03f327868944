"""What is somebody's own in a conversation of several people: their words, and answers that nobody else asked for.

Pure rules for commands that `hansard.domain.access` allows as `own only`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.record.conversation import is_said

if TYPE_CHECKING:
    from hansard.domain.messages import Message
    from hansard.record.conversation import Conversation
    from hansard.record.messages.fold import Placed


class Speaker(NamedTuple):
    """Somebody on a channel, as the platform calls them."""

    channel: str
    author: str

    def said(self, message: Message) -> bool:
        """Return whether a message is this person's."""
        return bool(self.author) and (message.chat.partition(":")[0], message.author) == self


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
    """Return whether somebody said this to the agent."""
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
