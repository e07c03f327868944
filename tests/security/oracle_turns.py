"""Whom each turn answers, and who else asked for it: read from the facts of a session, in their order."""

from __future__ import annotations

from tests.security.oracle_story import Export, Line


class Turn:
    """A turn. Its people are entries of messages and commands; who gave them is the witness's to say."""

    def __init__(self) -> None:
        """Nobody is known yet."""
        self.answers: list[Line] = []
        """What was said and waited when the turn began; where nothing did, what the turn before it answered."""
        self.has_begun = False
        self.began = 0
        """The seq of its start: what is said later enters only by steering."""
        self.is_again = False
        """Whether nothing waited, so that the turn answers again what was answered before."""
        self.callers: list[Line] = []
        """Commands that ask for a turn."""
        self.steered: list[Line] = []
        self.late: list[Line] = []
        """What was said into the turn before it, and may have come too late for that."""
        self.by: list[Line] = []
        """Who asked, as Hansard recorded it, and with which entry."""

    def is_given(self, fact: Line) -> bool:
        """Return whether a message can be in a request of this turn. What is said later waits, unless it steers."""
        return fact["seq"] <= self.began or fact["body"]["role"] != "user" or fact in self.steered


class Reading:
    """The facts of a session, one after the other."""

    def __init__(self, export: Export, session_id: str) -> None:
        """Nothing is read yet."""
        self._export = export
        self._session_id = session_id
        answered = export.of_session(session_id, "question.answered")
        self._answers = {fact["body"].get("message_id") for fact in answered}
        self._waiting: dict[str, Line] = {}
        self._commands: list[Line] = []
        """Commands of which it is not known yet whether a turn is queued for them."""
        self._callers: list[Line] = []
        self._late: list[Line] = []
        """What was said into the running turn: it may come too late, and then the next one answers it."""
        self._before: list[Line] = []
        self._undone: set[str] = set()
        self.turns: dict[str, Turn] = {}

    def read(self, fact: Line) -> None:
        """Read the next fact."""
        kind, body = fact["kind"], fact["body"]
        if kind == "message.added":
            self._said(fact)
        elif kind == "messages.undone":
            self._undone |= set(body["message_ids"])
        elif kind == "messages.restored":
            self._undone -= set(body["message_ids"])
        elif kind in {"turn.queued", "turn.asked"}:
            self._turn(body["turn_id"]).by += [{**each, "seq": fact["seq"]} for each in body.get("by") or []]
            self._callers += self._commands
            self._commands = []
        elif kind == "turn.steered" and body["message_id"] in self._waiting:
            self._late.append(self._waiting.pop(body["message_id"]))
            self._turn(body["turn_id"]).steered.append(self._late[-1])
        elif kind == "turn.ended" and not self._turn(body["turn_id"]).has_begun:
            self._callers = []  # a command was stopped before its turn began; words that were said still wait
        elif kind == "turn.started" and not body.get("purpose"):
            self._started(self._turn(body["turn_id"]), fact)

    def _turn(self, turn_id: str) -> Turn:
        return self.turns.setdefault(turn_id, Turn())

    def _said(self, fact: Line) -> None:
        """Take in a message that asks for something, or a command that does. An answer to a question asks nothing."""
        body = fact["body"]
        is_asking = body["role"] == "user" and not body.get("observed") and fact["id"] not in self._answers
        if is_asking:
            self._waiting[fact["id"]] = fact
        text = self._export.first_text(self._session_id, fact["id"]).rstrip()
        if body["role"] == "notice" and text.endswith("/retry"):
            self._commands.append(fact)
        elif body["role"] == "notice" and not body.get("author"):
            self._commands = []  # the reply: it was refused, or asked for nothing

    def _started(self, turn: Turn, started: Line) -> None:
        said = ([*self._waiting.values()], self._late, self._before)
        left = [[fact for fact in facts if fact["id"] not in self._undone] for facts in said]
        turn.answers = next((facts for facts in left if facts), [])
        turn.has_begun, turn.is_again, turn.began = True, not left[0], started["seq"]
        turn.callers, turn.late = self._callers, self._late
        turn.by += [{**each, "seq": started["seq"]} for each in started["body"].get("by") or []]
        self._before, self._waiting, self._callers, self._late = turn.answers, {}, [], []


def read_turns(export: Export, session_id: str) -> dict[str, Turn]:
    """Return the turns of a session, by their ids."""
    reading = Reading(export, session_id)
    for fact in export.facts.get(session_id, []):
        reading.read(fact)
    return reading.turns
