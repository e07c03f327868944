"""Whom each turn answers, and who else asked for it: read from the facts of a session, in their order."""

from __future__ import annotations

from tests.security.oracle_story import Export, Line


class Turn:
    """A turn. Its people are entries of messages and commands; who gave them is the witness's to say."""

    def __init__(self) -> None:
        """Nobody is known yet."""
        self.answers: list[Line] = []
        """What was said and waited when the turn began; where nothing did, what the turn before it answered."""
        self.callers: list[Line] = []
        """Commands that ask for a turn."""
        self.steered: list[Line] = []
        self.by: list[Line] = []
        """Who asked, as Hansard recorded it."""


class Reading:
    """The facts of a session, one after the other."""

    def __init__(self, export: Export, session_id: str) -> None:
        """Nothing is read yet."""
        self._export = export
        self._session_id = session_id
        answered = export.of_session(session_id, "question.answered")
        self._answers = {fact["body"].get("message_id") for fact in answered}
        self._waiting: dict[str, Line] = {}
        self._callers: list[Line] = []
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
            self._turn(body["turn_id"]).by += body.get("by") or []
        elif kind == "turn.steered" and body["message_id"] in self._waiting:
            self._turn(body["turn_id"]).steered.append(self._waiting.pop(body["message_id"]))
        elif kind == "turn.started" and not body.get("purpose"):
            self._started(self._turn(body["turn_id"]), body)

    def _turn(self, turn_id: str) -> Turn:
        return self.turns.setdefault(turn_id, Turn())

    def _said(self, fact: Line) -> None:
        """Take in a message that asks for something, or a command that does. An answer to a question asks nothing."""
        body = fact["body"]
        is_asking = body["role"] == "user" and not body.get("observed") and fact["id"] not in self._answers
        if is_asking:
            self._waiting[fact["id"]] = fact
        text = self._export.text(self._session_id, fact["id"]).rstrip()
        if body["role"] == "notice" and text.endswith("/retry"):
            self._callers.append(fact)

    def _started(self, turn: Turn, body: Line) -> None:
        waiting = [fact for fact in self._waiting.values() if fact["id"] not in self._undone]
        turn.answers = waiting or [fact for fact in self._before if fact["id"] not in self._undone]
        turn.callers = self._callers
        turn.by += body.get("by") or []
        self._before, self._waiting, self._callers = turn.answers, {}, []


def read_turns(export: Export, session_id: str) -> dict[str, Turn]:
    """Return the turns of a session, by their ids."""
    reading = Reading(export, session_id)
    for fact in export.facts.get(session_id, []):
        reading.read(fact)
    return reading.turns
