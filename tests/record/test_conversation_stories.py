"""The fold against a second telling of the same words: undo, restore, edits, deletions, summaries, turns, in any order.

The telling knows nothing of the fold. It looks at a whole story, anew for each moment of it: what was given to the
model, what is away, and which summaries count.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest

from hansard.domain.messages import Role, Status, Text, ToolCall, ToolResult
from hansard.domain.sessions import TurnState
from hansard.engine.context import RequestStyle, opening_note, render, shown
from hansard.journal.concepts import Body
from hansard.record.conversation import Conversation, SessionCompacted
from hansard.record.messages.entries import (
    Entry,
    MessageAdded,
    MessageEdited,
    MessageOpened,
    MessageRetracted,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
    Placed,
)
from hansard.record.schema import SCHEMA
from hansard.record.turns.entries import TurnEnded, TurnStarted
from tests.counts import times
from tests.engine.validator import assert_valid

STORIES = times(test=100, long=200, prove=3000)
STEPS = 40


class Summed(NamedTuple):
    """A summary is recorded: what it stands for, and how much of the story had happened when that was read."""

    through: str
    read: int


class Step(NamedTuple):
    """One entry, and what it means in words."""

    id: str
    body: Body
    says: str = ""
    """A message waits from here on."""
    gives: str = ""
    """A message stands in the context from here on."""
    begins: bool = False
    """What waits is given to the model."""
    names: tuple[str, ...] = ()
    """Messages that are changed, taken back or restored."""
    takes: bool | None = None
    """Whether those are taken back, or restored."""
    words: tuple[str, str] = ("", "")
    """What a message says from here on."""
    sums: Summed | None = None


class Telling:
    """What a story means at each of its moments, from its words alone."""

    def __init__(self, steps: list[Step]) -> None:
        """Tell this story."""
        self.steps = steps
        self.standing = cache(self._standing)
        self.given = cache(self._given)

    def _given(self, moment: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the model was given by then, in its order, and what waits; away or not."""
        placed: list[str] = []
        waiting: list[str] = []
        for step in self.steps[:moment]:
            if step.begins:
                placed, waiting = placed + waiting, []
            placed += [step.gives] if step.gives else []
            waiting += [step.says] if step.says else []
        return tuple(placed), tuple(waiting)

    def away(self, moment: int) -> set[str]:
        """The messages that are taken back then: the last word on each counts."""
        last = {name: step.takes for step in self.steps[:moment] if step.takes is not None for name in step.names}
        return {name for name, taken in last.items() if taken}

    def words(self, moment: int) -> dict[str, str]:
        """What each message says then."""
        return dict(step.words for step in self.steps[:moment] if step.words[0])

    def _standing(self, moment: int) -> tuple[tuple[int, int], ...]:
        """The summaries that count then: which step each is, and how many messages that are there it stands for."""
        found: list[tuple[int, int]] = []
        for number, step in enumerate(self.steps[:moment]):
            if step.sums is None:
                continue
            placed, _ = self.given(number)
            if step.sums.through not in placed:
                continue
            reach = placed[: placed.index(step.sums.through) + 1]
            touched = {name for later in self.steps[step.sums.read : moment] for name in later.names}
            covered = len([name for name in reach if name not in self.away(number)])
            before = self.standing(number)
            if not touched & set(reach) and covered > (before[-1][1] if before else 0):
                found.append((number, covered))
        return tuple(found)


class Teller:
    """A story on its way: each step is made by chance, from what can happen next."""

    def __init__(self, chance: random.Random, *, honest: bool) -> None:
        """Nothing happened yet. An honest summary says all that was there of what it stands for, and is read first."""
        self.chance = chance
        self.steps: list[Step] = []
        self._honest = honest
        self._count = 0
        self._said: list[str] = []
        self._spoken: list[str] = []

    def word(self, kind: str) -> str:
        """A word that nobody said before."""
        self._count += 1
        return f"{kind}{self._count}z"

    def person(self) -> None:
        """Somebody speaks in a chat."""
        id, text = self.word("p"), self.word("said")
        body = MessageAdded(role=Role.USER, parts=(Text(text),), event_id=f"${id}", author="@a:b", chat="c")
        self.steps.append(Step(id, body, says=id, words=(id, text)))
        self._said.append(id)
        self._spoken.append(id)

    def turn(self) -> None:
        """A turn begins, maybe says something, maybe calls a tool, and ends; people change their words meanwhile."""
        turn_id = self.word("t")
        self.steps.append(Step(self.word("~"), TurnStarted(turn_id=turn_id, owner="o"), begins=True))
        for _ in range(self.chance.randrange(3)):
            self.meanwhile()
            id, text, call = self.word("a"), self.word("told"), self.word("c")
            self.steps.append(Step(id, MessageOpened(turn_id=turn_id), gives=id, words=(id, "")))
            parts = (Text(text), ToolCall(id=call, name="echo")) if self.chance.random() < 0.4 else (Text(text),)
            status = Status.COMPLETE if self.chance.random() < 0.8 else Status.INTERRUPTED
            sealed = MessageSealed(message_id=id, status=status, parts=parts)
            self.steps.append(Step(self.word("~"), sealed, words=(id, text)))
            self._said.append(id)
            if len(parts) > 1:
                self.result(call)
        state = self.chance.choice([TurnState.COMPLETED, TurnState.FAILED, TurnState.INTERRUPTED, TurnState.LOST])
        self.steps.append(Step(self.word("~"), TurnEnded(turn_id=turn_id, state=state)))

    def result(self, call: str) -> None:
        """A tool gives something."""
        id, text = self.word("r"), self.word("gave")
        body = MessageAdded(role=Role.TOOL, parts=(ToolResult(call_id=call, text=text),))
        self.steps.append(Step(id, body, gives=id, words=(id, text)))
        self._said.append(id)

    def some(self) -> tuple[str, ...]:
        """Messages, the last ones or any."""
        if self.chance.random() < 0.5:
            return tuple(self._said[-self.chance.randrange(1, 6) :])
        return tuple(self.chance.sample(self._said, min(len(self._said), self.chance.randrange(1, 4))))

    def undo(self) -> None:
        """Messages are taken back."""
        if names := self.some():
            self.steps.append(Step(self.word("~"), MessagesUndone(message_ids=names), names=names, takes=True))

    def restore(self) -> None:
        """Messages are there again."""
        if names := self.some():
            self.steps.append(Step(self.word("~"), MessagesRestored(message_ids=names), names=names, takes=False))

    def edit(self) -> None:
        """Somebody changes what they said, in the chat."""
        gone = {step.names[0] for step in self.steps if isinstance(step.body, MessageRetracted)}
        if names := [name for name in self._spoken if name not in gone]:
            id, text = self.chance.choice(names), self.word("anew")
            body = MessageEdited(message_id=id, parts=(Text(text),))
            self.steps.append(Step(self.word("~"), body, names=(id,), words=(id, text)))

    def retract(self) -> None:
        """Somebody deletes what they said, in the chat."""
        if self._spoken:
            id = self.chance.choice(self._spoken)
            self.steps.append(Step(self.word("~"), MessageRetracted(message_id=id), names=(id,), words=(id, "")))

    def compact(self) -> None:
        """What was said is read and summed up; meanwhile anything may happen."""
        turn_id = self.word("k")
        self.steps.append(Step(self.word("~"), TurnStarted(turn_id=turn_id, owner="o", purpose="compaction")))
        read = len(self.steps)
        telling = Telling(self.steps)
        placed, waiting = telling.given(read)
        there = [name for name in placed if name not in telling.away(read)]
        words = telling.words(read)
        through = self.chance.choice(there or ["nobody"])
        kept = there[: there.index(through) + 1] if there else []
        summary = " ".join(words[name] for name in kept)
        self.meanwhile()
        if not self._honest:
            through, read = self.chance.choice([*placed, *waiting, "nobody"]), self.chance.randrange(read + 1)
        if self.chance.random() < 0.8:
            body = SessionCompacted(summary=summary, through=through, from_seq=1, to_seq=read, read_seq=read)
            self.steps.append(Step(self.word("~"), body, sums=Summed(through, read)))
        self.steps.append(Step(self.word("~"), TurnEnded(turn_id=turn_id, state=TurnState.COMPLETED)))

    def meanwhile(self) -> None:
        """What people may do while a turn runs."""
        if self.chance.random() < 0.3:
            self.chance.choice([self.person, self.edit, self.retract, self.undo, self.restore])()

    def tell(self) -> list[Step]:
        """Tell a story."""
        acts = [self.person, self.turn, self.undo, self.restore, self.edit, self.retract, self.compact]
        while len(self.steps) < STEPS:
            self.chance.choices(acts, [5, 6, 2, 2, 1, 1, 4])[0]()
        return self.steps


def entries_of(steps: list[Step]) -> list[Entry]:
    """The journal of a story. A step's number is its seq, less one."""
    return [
        Entry(id=step.id, session_id="s", seq=seq, kind=SCHEMA.by_body[type(step.body)].name, body=step.body)
        for seq, step in enumerate(steps, 1)
    ]


def ids(placed: list[Placed]) -> list[str]:
    """Which messages these are."""
    return [each.message.id for each in placed]


def everything(fold: Conversation) -> tuple[object, ...]:
    """All that anybody asks a fold."""
    return (
        fold.placed,
        fold.waiting,
        fold.undone,
        fold.compactions,
        fold.measure,
        fold.ends,
        fold.running,
        fold.failed_compactions,
        fold.wants_reply,
    )


def context(fold: Conversation) -> str:
    """What a model would be told now, after a look at whether it is valid."""
    manner = RequestStyle(note=opening_note(fold), is_private=fold.owner.startswith("person:"))
    said = render(shown(fold, manner), fold.ends, manner)
    assert_valid(said)
    return str(said)


@pytest.mark.loss("D19", "G8")
@pytest.mark.parametrize("honest", [True, False])
def test_the_fold_is_what_the_words_say(seed: int, *, honest: bool) -> None:
    """At every moment: what is given and waits, and which summary counts; none that knows of what changed since.

    Of honest summaries: all that is there is told, in the summary or word for word, and nothing that is not.
    """
    seen: Counter[str] = Counter()
    for number in range(STORIES):
        steps = Teller(random.Random(f"{seed}/{number}/{honest}"), honest=honest).tell()
        telling, entries, fold = Telling(steps), entries_of(steps), Conversation()
        for moment, entry in enumerate(entries, 1):
            fold.add(entry)
            where = (f"HANSARD_SEED={seed}", number, moment, entry.body)
            away, (placed, waiting) = telling.away(moment), telling.given(moment)
            assert ids(fold.placed) == [name for name in placed if name not in away], where
            assert ids(fold.waiting) == [name for name in waiting if name not in away], where
            standing = telling.standing(moment)
            assert [(each.body, each.covered) for each in fold.compactions] == [
                (steps[step].body, covered) for step, covered in standing
            ], where
            seen["stands"] += bool(standing)
            if moment > 1:
                seen["fell"] += len(telling.standing(moment - 1)) > len(standing)
                seen["is refused"] += steps[moment - 1].sums is not None and standing == telling.standing(moment - 1)
            told = context(fold)
            if honest:
                tells_all(told, telling, moment, where)
        again = Conversation()
        for entry in entries:
            again.add(entry)
        assert everything(again) == everything(fold), (f"HANSARD_SEED={seed}", number)
    assert all(seen[what] > STORIES / 10 for what in ("stands", "fell", "is refused")), seen


def tells_all(told: str, telling: Telling, moment: int, where: object) -> None:
    """Every message that is there is told with its last words; what is away, and what it said before, is not."""
    words, away, (placed, _) = telling.words(moment), telling.away(moment), telling.given(moment)
    there = {words[name] for name in placed if name not in away and words[name]}
    for text in {step.words[1] for step in telling.steps[:moment]} - {""}:
        assert (text in told) is (text in there), (text, where)
