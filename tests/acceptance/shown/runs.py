"""One run is a value: what is asked, what the provider does, what befalls the program, and when."""

from __future__ import annotations

import random
import signal
from enum import StrEnum
from typing import Literal

import msgspec

from tests.acceptance.shown.words import Words
from tests.models.providers.behaviour import Behaviour, Call, Event
from tests.models.providers.server import STYLES as ALL_STYLES
from tests.models.providers.server import framed

STYLES = {name: ALL_STYLES[name] for name in ("openai", "anthropic")}
"""The protocols in which programs are struck; how each of the others is read is tested in tests/models."""

STALL_SECONDS = 4.0
"""How long a silent provider is borne where that may be what befalls it. A machine that stalls is silent for less."""

PACE_SECONDS = 0.006
"""Between two events of an answer that is struck at a random time."""

GARBAGE = (
    "data: {nonsense\n\n",
    "data: \xff\xfe\xfd\n\n",
    "event: error\ndata: 17\n\n",
    "<html><body>502 Bad Gateway</body></html>\n\n",
    "data: [1, 2\n\n",
)
BUSY_HEADERS = ({"retry-after": "0"}, {"retry-after-ms": "40"}, {"retry-after": "1"})


class Surface(StrEnum):
    """Where the program shows what it has to say."""

    ONCE = "-p"
    LINES = "lines"
    TERMINAL = "terminal"


class Fault(StrEnum):
    """What befalls a run."""

    NONE = "none"
    KILL = "kill -9"
    TERMINATE = "SIGTERM"
    HANGUP = "SIGHUP"
    INTERRUPT = "SIGINT"
    CUT_BYTE = "cut at a byte"
    CUT_EVENT = "cut at an event"
    CUT_TWICE = "cut twice"
    ERROR_EVENT = "error in the stream"
    GARBAGE = "garbage"
    STALL = "stall"
    BUSY = "429"
    ALWAYS_BUSY = "429 for ever"
    ERROR = "5xx"


SIGNALS = {
    Fault.KILL: signal.SIGKILL,
    Fault.TERMINATE: signal.SIGTERM,
    Fault.HANGUP: signal.SIGHUP,
    Fault.INTERRUPT: signal.SIGINT,
}
FAILING = frozenset({Fault.CUT_TWICE, Fault.ALWAYS_BUSY})
"""After these there is nothing left to try: the turn fails."""

BOUNDARY_FAULTS = (
    Fault.KILL,
    Fault.CUT_EVENT,
    Fault.INTERRUPT,
    Fault.GARBAGE,
    Fault.TERMINATE,
    Fault.STALL,
    Fault.HANGUP,
)
"""What can happen between two events."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """When a signal is sent: a while after something."""

    after: Literal["start", "asked", "event", "shown"] = "event"
    count: int = 0
    """Events that were sent, or bytes that were shown."""
    drained: bool = False
    """First let everything that was sent be shown."""
    delay_seconds: float = 0.0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One question and what becomes of it."""

    surface: Surface
    style: str
    fault: Fault
    question: str
    behaviours: tuple[Behaviour, ...]
    struck: int = 0
    """Which of the behaviours the fault is about."""
    moment: Moment = Moment()
    look: bool = False
    """Open the record from elsewhere before the program goes on."""

    @property
    def signal(self) -> signal.Signals | None:
        """The signal that is sent."""
        return SIGNALS.get(self.fault)

    @property
    def where(self) -> str:
        """What happened when, in short."""
        behaviour = self.behaviours[self.struck]
        facts = {name: value for name, value in msgspec.structs.asdict(behaviour).items() if "after" in name}
        places = [f"{name} {value}" for name, value in facts.items() if value is not None]
        if self.signal is not None:
            places.append(f"{self.moment.after} {self.moment.count} + {self.moment.delay_seconds:.3f} s")
        return f"{self.surface} {self.style} {self.fault} ({', '.join(places)})"

    @property
    def stall_seconds(self) -> float:
        """How long silence is borne."""
        return STALL_SECONDS if self.fault is Fault.STALL or self.surface is Surface.LINES else 60.0


def events_of(style: str, behaviour: Behaviour) -> list[Event]:
    """Return the events of an answer without its faults."""
    body = {"model": "test-model", "messages": [], "stream_options": {"include_usage": True}}
    return list(STYLES[style].events(behaviour, body, 1))


def finish_count(style: str, behaviour: Behaviour) -> int:
    """Return how many events have to be sent until the provider has said why it ends."""
    return len(events_of(style, msgspec.structs.replace(behaviour, done=False, figures=None)))


def boundaries(style: str) -> int:
    """Return how many places there are before, between and after the events of a short answer."""
    return len(events_of(style, Behaviour())) + 1


class Author:
    """Writes runs, all of one conversation."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.words = Words(draw)

    def at_boundary(self, style: str, surface: Surface, fault: Fault, count: int) -> Run:
        """Return a run that is struck after so many events of a short answer."""
        struck = Behaviour(pieces=self._four_pieces())
        moment = Moment(count=count, drained=self._draw.random() < 0.5, delay_seconds=self._soon())
        return self._run(style, surface, fault, struck, moment)

    def at_random(self, style: str, surface: Surface, fault: Fault) -> Run:
        """Return a run with a longer answer that is struck anywhere."""
        struck = self._answer(raw=surface is not Surface.TERMINAL)
        size = len(events_of(style, struck))
        count = self._draw.randint(0, size)
        kind: Literal["start", "asked", "event", "shown"] = "event"
        delay_seconds = self._soon()
        chance = self._draw.random()
        if fault in SIGNALS and chance < 0.6:
            struck = msgspec.structs.replace(struck, delay_seconds=PACE_SECONDS)
            if chance < 0.3 or surface is Surface.TERMINAL:
                kind, delay_seconds = "asked", self._draw.uniform(0, size * PACE_SECONDS * 1.2)
            elif chance < 0.5 or surface is not Surface.ONCE:
                kind, count = "shown", self._draw.randint(1, len("".join(struck.pieces).encode()))
            else:
                kind, delay_seconds = "start", self._draw.uniform(0.2, 2.0)
        moment = Moment(after=kind, count=count, drained=self._draw.random() < 0.3, delay_seconds=delay_seconds)
        return self._run(style, surface, fault, struck, moment)

    def healthy(self, style: str, surface: Surface) -> Run:
        """Return a run that nothing befalls."""
        return self._run(style, surface, Fault.NONE, self._healthy(), Moment())

    def _run(self, style: str, surface: Surface, fault: Fault, struck: Behaviour, moment: Moment) -> Run:
        behaviours = self._strike(style, fault, struck, moment)
        if behaviours[-1].calls:
            behaviours.append(self._healthy())
        tools = [self._calling()] if self._draw.random() < 0.25 else []
        return Run(
            surface=surface,
            style=style,
            fault=fault,
            question=self.words.question(),
            behaviours=(*tools, *behaviours),
            struck=len(tools),
            moment=moment,
            look=self._draw.random() < 0.5,
        )

    def _strike(self, style: str, fault: Fault, struck: Behaviour, moment: Moment) -> list[Behaviour]:
        """Return the struck answer, and what comes before and after it."""
        first = msgspec.structs.replace(struck, **self._blow(style, fault, struck, moment))
        refused = Behaviour(status=429, headers=self._draw.choice(BUSY_HEADERS))
        if fault is Fault.ERROR:
            refused = Behaviour(status=self._draw.choice((500, 502, 503, 529)))
        again = msgspec.structs.replace(self._healthy(), cut_after_events=4)
        special = {
            Fault.NONE: [struck],
            Fault.BUSY: [refused, struck],
            Fault.ERROR: [refused, struck],
            Fault.ALWAYS_BUSY: [msgspec.structs.replace(refused, headers=BUSY_HEADERS[0])],
            Fault.CUT_TWICE: [first, again],
        }
        return special.get(fault, [first, self._healthy()])

    def _blow(self, style: str, fault: Fault, struck: Behaviour, moment: Moment) -> dict[str, object]:
        """Return what changes in an answer that is struck."""
        draw, count = self._draw, moment.count
        if fault in SIGNALS:
            return {"stall_after_events": count if moment.after == "event" else None}
        size = sum(len(framed(event.data, struck.framing)) for event in events_of(style, struck))
        some = max(1, min(count, finish_count(style, struck) - 1))
        cut = draw.choice(("fin", "rst"))
        blows: dict[Fault, dict[str, object]] = {
            Fault.CUT_EVENT: {"cut_after_events": count, "cut": cut},
            Fault.CUT_BYTE: {"cut_after_bytes": draw.randint(1, size), "cut": cut},
            Fault.CUT_TWICE: {"cut_after_events": some},
            Fault.ERROR_EVENT: {"error_after_events": count},
            Fault.GARBAGE: {"garbage_after_events": count, "garbage": draw.choice(GARBAGE)},
            Fault.STALL: {"stall_after_events": count},
        }
        return blows.get(fault, {})

    def _answer(self, *, raw: bool) -> Behaviour:
        """Return a long answer."""
        draw = self._draw
        return Behaviour(
            pieces=self.words.pieces(self.words.markdown(draw.randint(2, 5), raw=raw)),
            reasoning=(self.words.sentence(3),) if draw.random() < 0.2 else (),
            framing=draw.choice(("chunked", "chunked", "close", "length")),
            escaped=draw.random() < 0.3,
            calls=(self._call(),) if draw.random() < 0.2 else (),
        )

    def _healthy(self) -> Behaviour:
        """Return a short answer that comes whole."""
        return Behaviour(pieces=self._four_pieces())

    def _calling(self) -> Behaviour:
        """Return an answer that calls a tool, with some words before it or without."""
        return Behaviour(pieces=self._draw.choice(((), self._four_pieces())), calls=(self._call(),))

    def _call(self) -> Call:
        return Call(id=f"call_{self.words.word()[:4]}", name="current_time", arguments='{"time_zone": "UTC"}')

    def _four_pieces(self) -> tuple[str, ...]:
        words = [self.words.word() for _ in range(4)]
        return (words[0], f" {words[1]}", f" {words[2][:2]}", f"{words[2][2:]} {words[3]}")

    def _soon(self) -> float:
        return self._draw.choice((0.0, 0.0, self._draw.uniform(0, 0.08)))
