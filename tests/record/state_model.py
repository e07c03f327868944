"""A record as plain dicts and lists, written without looking at how the real one works: what it must equal."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from hansard.errors import HansardError, IdConflict, InvalidInput, LeaseHeld, NotFound, SessionEnded, WrongState

Fact = tuple[str, ...]
"""One entry: its kind, and what the model knows of its body."""

Line = tuple[str, str, str, str]
"""One message: id, role, text, status."""

LOST_NOTICE = (
    "Hansard was stopped in the middle of this. What was said is recorded. "
    "If the answer does not go on by itself, /retry asks again."
)

MOVES = {
    "pending": {"sending", "failed"},
    "sending": {"sent", "failed", "unknown", "pending"},
    "unknown": {"sending", "sent", "failed"},
    "failed": {"pending"},
    "sent": set(),
}


class Refused(Exception):
    """The record must refuse this call, with that error, and change nothing."""

    def __init__(self, error: type[HansardError]) -> None:
        """Keep the class of the error."""
        super().__init__(error.__name__)
        self.error = error


def is_counted(fact: Fact) -> bool:
    """Return whether a fact is a message that counts: notices do not."""
    return fact[0] == "message.opened" or (fact[0] == "message.added" and fact[2] != "notice")


@dataclass
class ModelSession:
    """One session: its entries in order. A fork's first `base` entries are its parent's."""

    source: str
    owner: str
    facts: list[Fact]
    base: int = 0
    parent: tuple[str, str, int] | None = None
    open_text: str = ""
    abandoned: bool = False

    def own(self, kind: str) -> list[Fact]:
        """Return the session's own entries of a kind."""
        return [fact for fact in self.facts[self.base :] if fact[0] == kind]

    @property
    def title(self) -> str | None:
        """The last title that was given."""
        given = [fact[1] for fact in self.facts[self.base :] if fact[0] in {"session.created", "session.titled"}]
        titles = [title for title in given if title]
        return titles[-1] if titles else None

    @property
    def end_reason(self) -> str | None:
        """Why the session is ended; None while it is open."""
        reason = None
        for fact in self.facts[self.base :]:
            if fact[0] == "session.ended":
                reason = fact[1]
            elif fact[0] == "session.reopened":
                reason = None
        return reason

    @property
    def open_message(self) -> str | None:
        """The message that is being said."""
        sealed = {fact[1] for fact in self.own("message.sealed")}
        return next((fact[1] for fact in self.own("message.opened") if fact[1] not in sealed), None)

    def transcript(self) -> list[Line]:
        """Return the messages: each where it began, as it ended."""
        ends = {fact[1]: (fact[3], fact[2]) for fact in self.facts if fact[0] == "message.sealed"}
        lines = []
        for fact in self.facts:
            if fact[0] == "message.added":
                lines.append((fact[1], fact[2], fact[3], "complete"))
            elif fact[0] == "message.opened":
                text, status = ends.get(fact[1], (self.open_text, "open"))
                lines.append((fact[1], "assistant", text, status))
        return lines

    def turns(self) -> list[str]:
        """Return the states of the turns, in the order of their fences."""
        turns = self.turn_fences()
        return [turns[fence] for fence in sorted(turns)]

    def turn_fences(self) -> dict[int, str]:
        """Return the states of the turns by their fences."""
        turns: dict[int, str] = {}
        for seq, fact in enumerate(self.facts[self.base :]):
            if fact[0] == "turn.queued":
                turns[seq] = "queued"
            elif fact[0] == "turn.started":
                waiting = next((fence for fence, state in turns.items() if state == "queued"), None)
                turns.pop(waiting if waiting is not None else -1, None)
                turns[seq] = "running"
            elif fact[0] == "turn.ended":
                ended = fact[2] if len(fact) > 2 else "running"
                turns[next(fence for fence, state in turns.items() if state == ended)] = fact[1]
        return turns

    def chats(self) -> tuple[list[tuple[str, str]], list[str]]:  # noqa: C901 - one case for each kind of entry
        """Return what waits to be shown, (message, chat) in order, and where the running turn is shown."""
        outbox: list[tuple[str, str]] = []
        waiting, here, running, queued = set[str](), set[str](), False, False
        for fact in self.facts[self.base :]:
            if fact[0] == "message.added":
                chat = fact[4] if len(fact) > 4 else ""
                if fact[2] == "user":
                    waiting |= {chat} - {""}
                elif chat or running:
                    outbox += [(fact[1], each) for each in ([chat] if chat else sorted(here))]
            elif fact[0] == "message.opened":
                outbox += [(fact[1], each) for each in sorted(here)]
            elif fact[0] == "message.delivered" and fact[3] == "retried":
                outbox.append((fact[1], fact[2]))
            elif fact[0] == "message.delivered":
                outbox.remove((fact[1], fact[2]))
            elif fact[0] == "turn.queued":
                waiting, queued = waiting | set(fact[1:]), True
            elif fact[0] == "turn.started":
                here, waiting, running, queued = waiting, set(), True, False
            elif fact[0] == "turn.ended" and len(fact) > 2:
                queued = False
            elif fact[0] == "turn.ended":
                waiting = waiting | here if fact[1] == "lost" and queued else waiting
                here, running = set(), False
        return outbox, sorted(here)

    def deliveries(self) -> dict[str, tuple[str, int]]:
        """Return each delivery's state and attempts."""
        found = {fact[1]: ("pending", 0) for fact in self.own("delivery.created")}
        for _, name, state in self.own("delivery.moved"):
            found[name] = (state, found[name][1] + (state == "sending"))
        return found

    def spoken(self, facts: list[Fact] | None = None) -> set[str]:
        """Return the ids of the messages."""
        return {fact[1] for fact in facts or self.facts if fact[0] in {"message.added", "message.opened"}}

    def seal(self, status: str) -> None:
        """Finish the open message."""
        message = self.open_message
        assert message is not None
        self.facts.append(("message.sealed", message, status, self.open_text))
        self.open_text, self.abandoned = "", False

    def seal_abandoned(self) -> None:
        """Finish a message that was left by an exception: the next thing that its turn does takes it along."""
        if self.abandoned:
            self.seal("interrupted")

    def lose_turn(self) -> None:
        """End the running turn of a process that is gone; who waits in a chat is told, or the turn is tried again."""
        turns, (_, chats) = self.turn_fences(), self.chats()
        began = next(fence for fence, state in turns.items() if state == "running")
        said = any(fact[0] == "message.opened" for fact in self.facts[self.base + began :])
        ends = [fence for fence, state in turns.items() if state in {"completed", "interrupted", "failed"}]
        lost = [fence for fence, state in turns.items() if state == "lost" and fence > max(ends, default=-1)]
        waits = "queued" in turns.values()
        again = bool(chats) and not waits and not said and not lost and self.end_reason is None
        if self.open_message is not None:
            self.seal("interrupted")
        if chats and not waits and not again:
            self.facts.append(("message.added", "~lost", "notice", LOST_NOTICE))
        self.facts.append(("turn.ended", "lost"))
        if again:
            self.facts.append(("turn.queued", *chats))

    def end_turn(self, state: str) -> None:
        """End the running turn, and its open message with it."""
        if self.open_message is not None:
            self.seal("interrupted")
        self.facts.append(("turn.ended", state))


@dataclass
class Model:
    """A whole record."""

    sessions: dict[str, ModelSession] = field(default_factory=dict)
    routes: dict[str, tuple[str, int]] = field(default_factory=dict)
    cursors: dict[str, str] = field(default_factory=dict)
    intakes: dict[str, list[str]] = field(default_factory=dict)

    def copy(self) -> Model:
        """Return a copy to try something on."""
        return deepcopy(self)

    def get(self, session_id: str) -> ModelSession:
        """Return a session that exists."""
        if session_id not in self.sessions:
            raise Refused(NotFound)
        return self.sessions[session_id]

    def get_open(self, session_id: str) -> ModelSession:
        """Return a session that takes new words."""
        session = self.get(session_id)
        if session.end_reason is not None:
            raise Refused(SessionEnded)
        return session

    # Sessions.

    def create(self, session_id: str, source: str, title: str | None, parent: str | None = None) -> str:
        """Create a session, or fill the title of the one that is there."""
        if session_id not in self.sessions:
            created = ("session.created", title or "")
            link = (parent, "reset", 0) if parent else None
            self.sessions[session_id] = ModelSession(source, "person:admin", [created], parent=link)
        elif title is not None and self.sessions[session_id].title is None:
            self.sessions[session_id].facts.append(("session.titled", title))
        return session_id

    def set_title(self, session_id: str, title: str) -> str:
        """Give a title."""
        session = self.get(session_id)
        if session.title != title:
            session.facts.append(("session.titled", title))
        return session_id

    def end(self, session_id: str, reason: str) -> str:
        """End a session; the first reason stays."""
        session = self.get(session_id)
        if session.end_reason is None:
            if "queued" in session.turns():
                session.facts.append(("turn.ended", "interrupted", "queued"))
            session.facts.append(("session.ended", reason))
        return session_id

    def reopen(self, session_id: str) -> str:
        """Let words in again."""
        if self.get(session_id).end_reason is not None:
            self.sessions[session_id].facts.append(("session.reopened",))
        return session_id

    def fork(self, session_id: str, at: int, child_id: str) -> str:
        """Share the first `at` entries with a new session; what was open there is interrupted."""
        parent = self.get(session_id)
        link = (session_id, "fork", at)
        if child_id in self.sessions:
            if self.sessions[child_id].parent != link:
                raise Refused(IdConflict)
            return child_id
        if not 1 <= at <= len(parent.facts):
            raise Refused(InvalidInput)
        facts = [*parent.facts[:at], ("session.created", "")]
        sealed = {fact[1] for fact in facts if fact[0] == "message.sealed"}
        ends = {fact[1]: fact[3] for fact in parent.facts if fact[0] == "message.sealed"}
        cut = [fact[1] for fact in parent.facts[:at] if fact[0] == "message.opened" and fact[1] not in sealed]
        facts += [("message.sealed", message, "interrupted", ends.get(message, parent.open_text)) for message in cut]
        self.sessions[child_id] = ModelSession(parent.source, parent.owner, facts, at, link)
        return child_id

    # Words.

    def append(self, session_id: str, message_id: str, role: str, text: str) -> int:
        """Append a message and return its seq; a repeat gives the first."""
        session = self.get(session_id)
        fact = ("message.added", message_id, role, text)
        if message_id in session.spoken():
            if fact not in session.facts:
                raise Refused(IdConflict)
            return session.facts.index(fact) + 1
        self.get_open(session_id).facts.append(fact)
        return len(session.facts)

    def talk(self, session_id: str, message_id: str, role: str, chat: str) -> int:
        """Append a message that was said in a chat, or is to be shown there."""
        session = self.get_open(session_id)
        session.facts.append(("message.added", message_id, role, chat, chat))
        return len(session.facts)

    def settle(self, session_id: str, message_id: str, chat: str, outcome: str) -> bool:
        """Say what became of a message in a chat; return whether that is news."""
        session = self.get(session_id)
        if ((message_id, chat) in session.chats()[0]) == (outcome == "retried"):
            return False
        if message_id not in session.spoken():
            raise Refused(NotFound)
        session.facts.append(("message.delivered", message_id, chat, outcome))
        return True

    def accept(
        self, entries: list[tuple[str, str, str]], event: str | None, cursor: str | None, *, queue: bool
    ) -> tuple[bool, list[str]]:
        """Take in an event: all of it or nothing. Return whether it was a duplicate, and what it became."""
        tried = self.copy()
        duplicate = event is not None and event in tried.intakes
        if not duplicate:
            for session_id, message_id, text in entries:
                tried.append(session_id, message_id, "user", text)
            for session_id in dict.fromkeys(session_id for session_id, _, _ in entries) if queue else ():
                tried.queue(session_id)
        became = tried.intakes[event or ""] if duplicate else [message_id for _, message_id, _ in entries]
        if event is not None:
            tried.intakes[event] = became
        if cursor is not None:
            tried.cursors["account"] = cursor
        self.__dict__.update(tried.__dict__)
        return duplicate, became

    # Turns.

    def queue(self, session_id: str) -> None:
        """Queue a turn, once."""
        if "queued" not in self.get(session_id).turns():
            self.get_open(session_id).facts.append(("turn.queued",))

    def begin(self, session_id: str) -> None:
        """Begin a turn."""
        if "running" in self.get(session_id).turns():
            raise Refused(LeaseHeld)
        self.get_open(session_id).facts.append(("turn.started",))

    def open_reply(self, session_id: str, message_id: str) -> None:
        """Begin to say something."""
        session = self.get(session_id)
        if message_id in session.spoken():
            if session.open_message != message_id or session.open_text:
                raise Refused(IdConflict)
            session.abandoned = False
            return
        session.seal_abandoned()
        session.facts.append(("message.opened", message_id))

    def say(self, session_id: str, message_id: str, text: str) -> None:
        """Append a whole message of the turn, whether or not its session has ended meanwhile."""
        session = self.get(session_id)
        fact = ("message.added", message_id, "assistant", text)
        if message_id in session.spoken():
            if fact not in session.facts:
                raise Refused(IdConflict)
            return
        session.seal_abandoned()
        session.facts.append(fact)

    # Routes and deliveries.

    def move_route(self, key: str, session_id: str, expect: int | None) -> int:
        """Move a route and return its generation."""
        self.get(session_id)
        generation = self.routes.get(key, ("", 0))[1]
        if expect is not None and expect != generation:
            raise Refused(WrongState)
        self.routes[key] = (session_id, generation + 1)
        return generation + 1

    def begin_new(self, session_id: str, said_id: str, new_id: str, notice_id: str) -> str:
        """Say `/new` at the terminal: what runs is asked to stop, the session ends, its successor begins."""
        session = self.get_open(session_id)
        session.facts.append(("message.added", said_id, "notice", "/new"))
        starts = [index for index, fact in enumerate(session.facts) if fact[0] == "turn.started"]
        if "running" in session.turns() and ("turn.stopping",) not in session.facts[starts[-1] :]:
            session.facts.append(("turn.stopping",))
        self.end(session_id, "new")
        self.create(new_id, "cli", None, session_id)
        self.sessions[new_id].facts.append(("message.added", notice_id, "notice", f"{new_id} after {session_id}"))
        return new_id

    def create_delivery(self, session_id: str, name: str, message_id: str) -> str:
        """Create a delivery of a message; one that a fork inherits belongs to its parent."""
        session = self.get(session_id)
        if message_id not in session.spoken():
            raise Refused(NotFound)
        fact = ("delivery.created", name, message_id)
        if fact in session.facts[session.base :]:
            return name
        if any(other[:2] == fact[:2] for other in session.facts):
            raise Refused(IdConflict)
        session.facts.append(fact)
        return name

    def move_delivery(self, session_id: str, name: str, state: str) -> str:
        """Move a delivery by the table."""
        session = self.get(session_id)
        if name not in session.deliveries():
            raise Refused(NotFound)
        if state not in MOVES[session.deliveries()[name][0]]:
            raise Refused(WrongState)
        session.facts.append(("delivery.moved", name, state))
        return name

    # What opening does after a process is gone, and how to compare.

    def recover(self) -> None:
        """End what a process that is gone left: its turns are lost, what it was sending is unknown."""
        for session in self.sessions.values():
            if "running" in session.turns():
                session.lose_turn()
            for name, (state, _) in session.deliveries().items():
                if state == "sending":
                    session.facts.append(("delivery.moved", name, "unknown"))

    def snapshot(self) -> dict[str, object]:
        """Return everything that the real record must show, in plain values."""
        shown: dict[str, object] = {"routes": dict(self.routes), "cursors": dict(self.cursors)}
        for session_id, session in self.sessions.items():
            shown[session_id] = {
                "source": session.source,
                "title": session.title,
                "end_reason": session.end_reason,
                "parent": session.parent,
                "messages": len([fact for fact in session.facts if is_counted(fact)]),
                "kinds": [fact[0] for fact in session.facts],
                "transcript": session.transcript(),
                "turns": session.turns(),
                "deliveries": session.deliveries(),
                "outbox": session.chats()[0],
            }
        return shown
