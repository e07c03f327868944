"""The calls that the state machine draws: each on the real record and, the same, on the model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import hypothesis.strategies as st

from hansard.domain.arrivals import Arrival, ArrivalKind, Cursor, Intake, Origin
from hansard.domain.deliveries import Delivery
from hansard.domain.messages import Message, Role
from tests.record.state_driver import CHATS, KEYS, Driver, Speaker, Trouble
from tests.record.state_model import Model

NAMES = ("s0", "s1", "s2", "s3", "20261115-201233-dated")
TEXTS = {"": "", "a": "a", "Grüße ": "Grüße ", "𝄞\n": "𝄞\n", "nul\0": "nul\ufffd", "lone\ud800 ": "lone\ufffd "}
"""What is said, and what is kept of it."""
TITLES = ("Trip", "Other")


class Step(NamedTuple):
    """One call on the record, and the same on the model.

    `apply` returns what the call must give, or raises Refused. `generated`: the record chose an id, so that the effect
    cannot be told without the answer. `answered` is False for what is only queued. `holder` names the turn it needs.
    """

    call: Callable[[], Coroutine[Any, Any, object]]
    apply: Callable[[Model, Any], object]
    generated: bool = False
    answered: bool = True
    holder: str = ""


UNKNOWN = 17
PICK = st.integers(0, UNKNOWN)
TEXT = st.sampled_from(list(TEXTS))
MESSAGE = st.sampled_from(["m0", "m0", "m1", "m2"])
EVENT = st.none() | st.sampled_from(["e0", "e1", "e2"])


def operation(name: str, /, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """Return a strategy for one kind of call: the name of a method of Steps, and its arguments."""
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


OPERATIONS = st.one_of(
    operation("create", name=st.sampled_from(NAMES), title=st.none() | st.sampled_from(TITLES)),
    operation("generate"),
    operation("append", pick=PICK, message=MESSAGE, text=TEXT, role=st.sampled_from(["user", "notice"])),
    operation("append_new", pick=PICK, text=TEXT),
    operation("title", pick=PICK, title=st.sampled_from(TITLES)),
    operation("end", pick=PICK, reason=st.sampled_from(["done", "idle"])),
    operation("reopen", pick=PICK),
    operation("fork", pick=PICK, back=st.integers(0, 6), name=st.none() | st.sampled_from(NAMES)),
    operation(
        "accept",
        picks=st.lists(st.tuples(PICK, MESSAGE, TEXT), max_size=2),
        event=EVENT,
        cursor=st.none() | st.sampled_from(["c0", "c1"]),
        queue=st.booleans(),
    ),
    operation("queue", pick=PICK),
    operation("move_route", key=st.sampled_from(KEYS), pick=PICK, expect=st.none() | st.integers(0, 3)),
    operation("begin_new", pick=PICK),
    operation("deliver", pick=PICK, name=st.sampled_from(["d0", "d1"]), message=MESSAGE),
    operation(
        "move_delivery",
        pick=PICK,
        name=st.sampled_from(["d0", "d1"]),
        state=st.sampled_from(["pending", "sending", "sent", "failed", "unknown"]),
    ),
    operation("begin", pick=PICK),
    operation("talk", pick=PICK, role=st.sampled_from(["user", "user", "notice"]), chat=st.sampled_from(CHATS)),
    operation(
        "settle",
        pick=PICK,
        which=st.integers(0, 20),
        chat=st.sampled_from(CHATS),
        outcome=st.sampled_from(["shown", "retried"]),
    ),
)

SPEECH = st.one_of(
    operation("open_reply", pick=PICK, taken=st.sampled_from([False, False, False, True])),
    operation("write", pick=PICK, text=TEXT),
    operation("write", pick=PICK, text=TEXT),
    operation("seal", pick=PICK),
    operation("break_reply", pick=PICK),
    operation("say", pick=PICK, message=MESSAGE, text=TEXT),
    operation("leave", pick=PICK, how=st.sampled_from(["completed", "failed", "interrupted", "raised"])),
)
"""What only a turn that is held can do."""

ANYTHING = OPERATIONS | SPEECH

SHARED = operation(
    "accept",
    picks=st.lists(st.tuples(PICK, st.sampled_from(["m1", "m2"]), TEXT), min_size=1, max_size=2),
    event=EVENT,
    cursor=st.sampled_from(["c0", "c1"]),
    queue=st.booleans(),
)
"""What several journals hold together: a crash must not tear it."""


class Steps:
    """Turns a drawn operation into a step on the sessions and turns that there are."""

    def __init__(self, driver: Driver) -> None:
        """Work on a driver's record."""
        self.driver = driver
        self.model = Model()
        self.numbers = itertools.count()
        self.retired: set[str] = set()

    def session(self, pick: int) -> str:
        """Return one of the sessions, now and then one that does not exist."""
        known = list(self.model.sessions)
        return known[pick % len(known)] if known and pick != UNKNOWN else "unknown"

    def speaker(self, pick: int) -> tuple[str, Speaker] | None:
        """Return one of the turns that are held."""
        held = list(self.driver.speakers.items())
        return held[pick % len(held)] if held else None

    # Sessions.

    def create(self, name: str, title: str | None) -> Step:
        """Create a session with a given id."""
        return Step(
            lambda: ids(self.driver.record.create_session(id=name, source="given", title=title)),
            lambda model, _: model.create(name, "given", title),
        )

    def generate(self) -> Step:
        """Create a session whose id the record chooses: it must be new."""

        def apply(model: Model, found: str) -> str:
            assert found not in model.sessions
            model.create(found, "new", None)
            return found

        return Step(lambda: ids(self.driver.record.create_session(source="new")), apply, generated=True)

    def title(self, pick: int, title: str) -> Step:
        """Give a title."""
        target = self.session(pick)
        return Step(
            lambda: ids(self.driver.record.set_title(target, title)),
            lambda model, _: model.set_title(target, title),
        )

    def end(self, pick: int, reason: str) -> Step:
        """End a session."""
        target = self.session(pick)
        return Step(
            lambda: ids(self.driver.record.end_session(target, reason)),
            lambda model, _: model.end(target, reason),
        )

    def reopen(self, pick: int) -> Step:
        """Reopen a session."""
        target = self.session(pick)
        return Step(lambda: ids(self.driver.record.reopen_session(target)), lambda model, _: model.reopen(target))

    def fork(self, pick: int, back: int, name: str | None) -> Step:
        """Fork a session some entries back; now and then at a place that does not exist, or under a taken id."""
        target = self.session(pick)
        head = len(self.model.sessions[target].facts) if target in self.model.sessions else 5
        at, child = head - back, name or f"fork-{next(self.numbers)}"
        return Step(
            lambda: ids(self.driver.record.fork(target, at, id=child)),
            lambda model, _: model.fork(target, at, child),
        )

    # Words.

    def append(self, pick: int, message: str, text: str, role: str) -> Step:
        """Append a message of a few ids, so that repeats and conflicts are common."""
        target = self.session(pick)

        async def call() -> int:
            return (await self.driver.record.append(target, Message.make(Role(role), text, id=message))).seq

        return Step(call, lambda model, _: model.append(target, message, role, TEXTS[text]))

    def append_new(self, pick: int, text: str) -> Step:
        """Append a message with a new id."""
        return self.append(pick, f"n{next(self.numbers)}", text, "user")

    def accept(self, picks: list[tuple[int, str, str]], event: str | None, cursor: str | None, *, queue: bool) -> Step:
        """Take in an event, often one that came before."""
        event = None if event in self.retired else event
        given = [(self.session(pick), message, text) for pick, message, text in picks]
        intake = Intake(channel="channel", account="account", event_id=event) if event else None
        moved = Cursor(channel="channel", account="account", value=cursor) if cursor else None

        async def call() -> object:
            entries = [(target, Message.user(text, id=message)) for target, message, text in given]
            accepted = await self.driver.record.accept(entries, intake, moved, queue)
            return accepted.duplicate, [entry.id for entry in accepted.entries]

        kept = [(target, message, TEXTS[text]) for target, message, text in given]
        return Step(call, lambda model, _: model.accept(kept, event, cursor, queue=queue))

    def talk(self, pick: int, role: str, chat: str) -> Step:
        """Say something in a chat, or tell it there."""
        target, message = self.session(pick), f"t{next(self.numbers)}"
        author = "@ann:example.org" if role == "user" else ""

        async def call() -> int:
            said = Message.make(Role(role), chat, id=message, author=author, chat=chat)
            return (await self.driver.record.append(target, said)).seq

        return Step(call, lambda model, _: model.talk(target, message, role, chat))

    def settle(self, pick: int, which: int, chat: str, outcome: str) -> Step:
        """Say what became of one of the messages of a session in a chat."""
        target = self.session(pick)
        spoken = sorted(self.model.sessions[target].spoken() - {"~lost"}) if target in self.model.sessions else []
        message = spoken[which % len(spoken)] if spoken else "unknown"

        return Step(
            lambda: self.driver.record.deliveries.finish_message(target, message, chat, outcome),
            lambda model, _: model.settle(target, message, chat, outcome),
        )

    # Routes and deliveries.

    def move_route(self, key: str, pick: int, expect: int | None) -> Step:
        """Move a route, with or without an expectation."""
        target = self.session(pick)

        async def call() -> int:
            return (await self.driver.record.routes.move(key, target, expect=expect)).generation

        return Step(call, lambda model, _: model.move_route(key, target, expect))

    def begin_new(self, pick: int) -> Step:
        """Say `/new` at the terminal."""
        target, number = self.session(pick), next(self.numbers)
        said, new, notice = f"n{number}", f"new-{number}", f"told{number}"

        async def call() -> str:
            arrival = Arrival(
                origin=Origin(channel="cli", owner="person:admin"),
                said=((target, Message.notice("/new", id=said)),),
                kind=ArrivalKind.NEW,
                new_ids=(new, notice),
                told="{new} after {old}",
            )
            return (await self.driver.record.intake.receive(arrival)).session_id

        return Step(call, lambda model, _: model.begin_new(target, said, new, notice))

    def deliver(self, pick: int, name: str, message: str) -> Step:
        """Create a delivery."""
        target = self.session(pick)
        delivery = Delivery(id=name, session_id=target, channel="channel", target="t", message_id=message)
        return Step(
            lambda: ids(self.driver.record.deliveries.create(delivery)),
            lambda model, _: model.create_delivery(target, name, message),
        )

    def move_delivery(self, pick: int, name: str, state: str) -> Step:
        """Move a delivery."""
        target = self.session(pick)
        return Step(
            lambda: ids(self.driver.record.deliveries.move(target, name, state)),
            lambda model, _: model.move_delivery(target, name, state),
        )

    # Turns.

    def queue(self, pick: int) -> Step:
        """Queue a turn."""
        target = self.session(pick)

        async def call() -> None:
            await self.driver.record.turns.queue(target)

        return Step(call, lambda model, _: model.queue(target))

    def begin(self, pick: int) -> Step:
        """Begin a turn and hold it."""
        target = self.session(pick)

        async def call() -> None:
            manager = self.driver.record.turn(target)
            self.driver.speakers[target] = Speaker(manager, await manager.__aenter__())

        return Step(call, lambda model, _: model.begin(target))

    def open_reply(self, pick: int, *, taken: bool) -> Step | None:
        """Begin to say something, now and then under an id that may be taken."""
        held = self.speaker(pick)
        if held is None or held[1].reply is not None:
            return None
        target, speaker = held
        message = f"m{pick % 3}" if taken else f"r{next(self.numbers)}"

        async def call() -> None:
            reply = speaker.turn.reply(id=message)
            await reply.__aenter__()
            speaker.reply = reply

        return Step(call, lambda model, _: model.open_reply(target, message), holder=target)

    def write(self, pick: int, text: str) -> Step | None:
        """Say a piece; the driver waits until it is written."""
        held = self.speaker(pick)
        if held is None or (reply := held[1].reply) is None:
            return None
        target = held[0]

        def apply(model: Model, _: object) -> None:
            model.sessions[target].open_text += TEXTS[text]

        return Step(lambda: reply.write(text), apply, answered=False, holder=target)

    def seal(self, pick: int) -> Step | None:
        """Finish what is being said."""
        held = self.speaker(pick)
        if held is None or (reply := held[1].reply) is None:
            return None
        target, speaker = held
        speaker.reply = None
        return Step(
            lambda: reply.__aexit__(None, None, None),
            lambda model, _: model.sessions[target].seal("complete"),
            holder=target,
        )

    def break_reply(self, pick: int) -> Step | None:
        """Leave a reply by an exception that the turn survives."""
        held = self.speaker(pick)
        if held is None or (reply := held[1].reply) is None:
            return None
        target, speaker = held
        speaker.reply = None

        def apply(model: Model, _: object) -> None:
            model.sessions[target].abandoned = True

        return Step(lambda: reply.__aexit__(Trouble, Trouble(), None), apply, answered=False, holder=target)

    def say(self, pick: int, message: str, text: str) -> Step | None:
        """Append a whole message of a turn."""
        held = self.speaker(pick)
        if held is None:
            return None
        target, speaker = held

        async def call() -> None:
            await speaker.turn.append(Message.assistant(text, id=message))

        return Step(call, lambda model, _: model.say(target, message, TEXTS[text]), holder=target)

    def leave(self, pick: int, how: str) -> Step | None:
        """End a turn, with or without what it was saying."""
        held = self.speaker(pick)
        if held is None:
            return None
        target, speaker = held
        del self.driver.speakers[target]

        async def call() -> None:
            error = Trouble() if how == "raised" else None
            if how == "failed":
                speaker.turn.fail("reason")
            elif how == "interrupted":
                speaker.turn.interrupt("reason")
            await speaker.manager.__aexit__(type(error) if error else None, error, None)

        state = "failed" if how == "raised" else how
        return Step(call, lambda model, _: model.sessions[target].end_turn(state), holder=target)


async def ids(call: Coroutine[Any, Any, Any]) -> str:
    """Return the id of what a call gives."""
    found: str = (await call).id
    return found
