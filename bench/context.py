"""What the context costs: how long it takes to build the request of turn 100 and of turn 10,000 of one conversation.

The conversation is told as an engine would leave it, with its compactions; the fold is kept, as a process keeps it.
`plain`: the request alone. `turn`: with the entries of the turn before it. `undone`: the same where something was taken
back long ago. `whole`: without any summary, of which nothing is asked. Rounds are interleaved, so that a busy machine
slows all of them. The aim: turn 10,000 costs at most 1.5 × turn 100, in each of the first three.
Run it alone: `python bench/context.py`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

from hansard.domain.budgets import Usage
from hansard.domain.messages import Role, Status, Text
from hansard.domain.requests import ModelRules
from hansard.domain.sessions import TurnState
from hansard.domain.settings.agent import CompactionSettings
from hansard.engine.compaction import context_tokens, is_due, plan
from hansard.engine.requests import build_request
from hansard.journal.concepts import Body
from hansard.models.bodies import chat_messages
from hansard.record.conversation import Conversation, SessionCompacted
from hansard.record.messages.entries import Entry, MessageAdded, MessageOpened, MessageSealed, MessagesUndone
from hansard.record.schema import SCHEMA
from hansard.record.sessions import SessionFrozen
from hansard.record.turns.entries import TurnEnded, TurnQueued, TurnStarted, TurnUsed

TURNS = (100, 10_000)
ROUNDS = 200
GROWTH = 10
"""Turns after which the growing ones are summed up again, so that they stay as long as each other."""
KINDS = ("plain", "turn", "undone")
AFTER = 1_000_000
"""The number of the first turn that is measured as one."""
RATIO_MAX = 1.5
WINDOW = 16_000
SETTINGS = CompactionSettings(window_tokens=WINDOW, tail_tokens=4_000)
RULES = ModelRules(window_tokens=WINDOW)
FROZEN = SessionFrozen(system="Be brief.")
WORDS = "The House divided, and the tellers told what they had counted. " * 4
SUMMARY = "They talked about the division of the House, and about what the tellers had counted. " * 8


class Journal:
    """Entries as an engine leaves them, one turn after the other."""

    def __init__(self) -> None:
        """Nothing was said."""
        self.conversation = Conversation()
        self.compactions = 0

    def add(self, entry_id: str, body: Body) -> None:
        """Append an entry."""
        seq = self.conversation.seq + 1
        self.conversation.add(
            Entry(id=entry_id, session_id="s", seq=seq, kind=SCHEMA.by_body[type(body)].name, body=body)
        )

    def turn(self, number: int) -> None:
        """One exchange, and a compaction where it is due."""
        self.exchange(number)
        if is_due(self.conversation, SETTINGS, WINDOW, SETTINGS.start_percent):
            self.compact(number)

    def exchange(self, number: int) -> None:
        """One exchange."""
        turn_id, said = f"t{number}", f"a{number}"
        self.add(f"u{number}", MessageAdded(role=Role.USER, parts=(Text(f"{number} {WORDS}"),)))
        self.add(f"~q{number}", TurnQueued(turn_id=turn_id))
        self.add(f"~s{number}", TurnStarted(turn_id=turn_id, owner="o"))
        self.add(said, MessageOpened(turn_id=turn_id))
        answer = (Text(f"{number} {WORDS}"),)
        self.add(f"~m{number}", MessageSealed(message_id=said, status=Status.COMPLETE, parts=answer))
        used = Usage(input_tokens=context_tokens(self.conversation), output_tokens=60)
        self.add(f"~n{number}", TurnUsed(turn_id=turn_id, model="m", usage=used))
        self.add(f"~e{number}", TurnEnded(turn_id=turn_id, state=TurnState.COMPLETED))

    def compact(self, number: int) -> None:
        """Sum up what an engine would."""
        planned = plan(self.conversation, SETTINGS, WINDOW, asked=False)
        if planned is None:
            return
        self.compactions += 1
        through, read = planned.placed[-1].message.id, self.conversation.seq
        body = SessionCompacted(summary=SUMMARY, through=through, from_seq=1, to_seq=read, read_seq=read)
        self.add(f"~c{number}", body)


def ask(conversation: Conversation) -> None:
    """What one request takes: whether room must be made, the view, and what is sent."""
    is_due(conversation, SETTINGS, WINDOW, SETTINGS.start_percent)
    chat_messages(build_request(conversation, FROZEN, None, RULES))


def told(turns: int, *, undone: bool, whole: bool = False) -> Journal:
    """A conversation of so many turns that ends with a fresh summary, so that all are as long as each other."""
    journal = Journal()
    for number in range(turns):
        (journal.exchange if whole else journal.turn)(number)
        if number == 1 and undone:
            journal.add("~undo", MessagesUndone(message_ids=("u1", "a1")))
    if not whole:
        journal.compact(turns)
    return journal


def microseconds(journal: Journal, *, number: int = 0) -> float:
    """How long a request takes; with a number, after the entries of one more turn."""
    began = time.perf_counter()
    if number:
        journal.exchange(number)
    ask(journal.conversation)
    return (time.perf_counter() - began) * 1_000_000


def measure() -> dict[str, object]:
    """All conversations, interleaved."""
    plain = [told(turns, undone=False) for turns in TURNS]
    kinds: dict[str, list[list[float]]] = {kind: [[] for _ in TURNS] for kind in KINDS}
    for _ in range(ROUNDS):
        for place, journal in enumerate(plain):
            kinds["plain"][place].append(microseconds(journal))
    messages = [len(build_request(journal.conversation, FROZEN, None, RULES).messages) for journal in plain]
    grown = {kind: [told(turns, undone=kind == "undone") for turns in TURNS] for kind in ("turn", "undone")}
    for number in range(ROUNDS):
        for kind, journals in grown.items():
            for place, journal in enumerate(journals):
                kinds[kind][place].append(microseconds(journal, number=AFTER + number))
                if number % GROWTH == GROWTH - 1:
                    journal.compact(AFTER + number)
    kinds["whole"] = [
        [microseconds(journal) for _ in range(ROUNDS // 10)]
        for journal in (told(turns, undone=False, whole=True) for turns in TURNS)
    ]
    medians = {kind: [statistics.median(rounds) for rounds in times] for kind, times in kinds.items()}
    ratios = {kind: round(later / earlier, 3) for kind, (earlier, later) in medians.items()}
    return {
        "microseconds": {
            kind: dict(zip(map(str, TURNS), (round(each, 1) for each in pair), strict=True))
            for kind, pair in medians.items()
        },
        "messages": messages,
        "compactions": [journal.compactions for journal in plain],
        "ratios": ratios,
        "ratio_max": RATIO_MAX,
    }


if __name__ == "__main__":
    figures = measure()
    print(json.dumps(figures, indent=2))
    sys.exit(any(ratio > RATIO_MAX for ratio in (figures["ratios"][kind] for kind in KINDS)))  # type: ignore[index]
