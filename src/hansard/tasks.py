"""What concurrent work has in common: cancel and wait, run side by side, back off, and give out few places fairly."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple


async def cancel_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until all have ended. What they raise is not raised here.

    A caller that is cancelled meanwhile still waits for them, and is cancelled then.
    """
    for task in tasks:
        task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # asyncio logs an error that nobody has asked for
    if cancelled is not None:
        raise cancelled


async def wait_for_first(*tasks: asyncio.Task[Any]) -> None:
    """Wait until one of the tasks has ended, end the others, and raise what it raised."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(*tasks)
    for task in done:
        task.result()


async def wait_until(event: asyncio.Event, when: float | None) -> None:
    """Wait for an event, but not beyond a time of the loop's clock."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(when):
            await event.wait()


async def run_all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines side by side; the first that fails ends the others and is raised as it is."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    if not tasks:
        return
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await cancel_all(*tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


class Retiring:
    """Resources of an old configuration. Each is closed once the last turn that uses it has ended, or at shutdown."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[None], Callable[[], Awaitable[None]]] = {}

    def add(self, close: Callable[[], Awaitable[None]], over: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Close something when `over` returns."""

        async def wait() -> None:
            await over()
            await close()

        task = asyncio.create_task(wait())
        self._waiting[task] = close
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._waiting.pop(task, None)

    async def close(self) -> None:
        """Close everything now. This is not left to the tasks: one that never ran would close nothing."""
        waiting, self._waiting = self._waiting, {}
        await cancel_all(*waiting)
        for close in waiting.values():
            await close()


DOUBLINGS_MAX = 16
"""More would change nothing but the size of the number."""

HALF = 0.5


def backoff_seconds(failures: int, first_seconds: float, seconds_max: float, *, spread: float = 0.0) -> float:
    """Return the pause after so many failures in a row: twice as long each time, up to a limit.

    Up to the part `spread` of it is left out by lot: many who wait for one server then do not come back at once.
    """
    longest = min(first_seconds * 2.0 ** min(failures - 1, DOUBLINGS_MAX), seconds_max)
    return longest * (1.0 - spread * random.random())  # noqa: S311 - it spreads load and hides nothing


Askers = tuple[str, ...]
"""Who asks: one name for each person, at least one."""

SERVED_MAX: Final = 10_000
"""People whose last turn is remembered: memory must not grow with them. Those who are forgotten come first again."""


class Bounds(NamedTuple):
    """How many places there are, together and for one person."""

    together: int
    person: int


class Ticket:
    """A place in the line, and later the place itself."""

    def __init__(self, number: int, people: Askers) -> None:
        self.number = number
        self.people = people


class FairQueue:
    """Who is served next where many wait for few places: the person who has least. No clock and no tasks.

    who may be served   somebody of those who ask has a free place of their own, and there is a free place at all
    who comes first     the person who holds the fewest places; of those, the one who was served longest ago; then by
                        the order of coming

    What several people ask for counts for each of them, and is served by the rank of the one who has least. So a person
    with a thousand things to do delays another one by what that person does at this moment, and by nothing that waits.
    """

    def __init__(self) -> None:
        self._waiting: dict[Askers, dict[Ticket, None]] = {}
        """By who asks: people are compared, not tickets, of which one person may have a thousand."""
        self._held: dict[Ticket, Askers] = {}
        self._places: Counter[str] = Counter()
        self._served: dict[str, int] = {}
        """By person, when they were served last: a number that grows. The latest people of all."""
        self._joined = 0
        self._calls = 0

    @property
    def held(self) -> int:
        return len(self._held)

    @property
    def waiting(self) -> int:
        return sum(len(tickets) for tickets in self._waiting.values())

    def join(self, people: Askers) -> Ticket:
        """Wait at the end of the line."""
        self._joined += 1
        ticket = Ticket(self._joined, people)
        self._waiting.setdefault(people, {})[ticket] = None
        return ticket

    def change(self, ticket: Ticket, people: Askers) -> None:
        """Let others ask, too, for what waits; it keeps its place in the line."""
        if ticket.people == people or not self._drop(ticket):
            return
        ticket.people = people
        tickets = [*self._waiting.get(people, ()), ticket]
        self._waiting[people] = dict.fromkeys(sorted(tickets, key=lambda each: each.number))

    def leave(self, ticket: Ticket) -> None:
        """Wait no longer, or give the place back."""
        people = self._held.pop(ticket, None)
        if people is None:
            self._drop(ticket)
            return
        self._places.subtract(people)
        for person in people:
            if not self._places[person]:
                del self._places[person]

    def call(self, bounds: Bounds) -> Ticket | None:
        """Give the next place to whoever is to have it; None when nobody can."""
        if self.held >= bounds.together:
            return None
        able = [
            (
                min((self._places[each], self._served.get(each, 0)) for each in people),
                next(iter(tickets)).number,
                people,
            )
            for people, tickets in self._waiting.items()
            if any(self._places[person] < bounds.person for person in people)
        ]
        if not able:
            return None
        ticket = next(iter(self._waiting[min(able)[-1]]))
        self._drop(ticket)
        self._held[ticket] = ticket.people
        self._places.update(ticket.people)
        self._note_served(ticket.people)
        return ticket

    def _drop(self, ticket: Ticket) -> bool:
        tickets = self._waiting.get(ticket.people, {})
        if ticket not in tickets:
            return False
        del tickets[ticket]
        if not tickets:
            del self._waiting[ticket.people]
        return True

    def _note_served(self, people: Askers) -> None:
        self._calls += 1
        for person in people:
            self._served.pop(person, None)
            self._served[person] = self._calls
        while len(self._served) > SERVED_MAX:
            del self._served[next(iter(self._served))]
