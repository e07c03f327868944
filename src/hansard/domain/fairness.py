"""Who is served next where many wait for few places: the person who has least. No clock and no tasks.

    who may be served   somebody of those who ask has a free place of their own, and there is a free place at all
    who comes first     the person who holds the fewest places; of those, the one who was served longest ago; then by
                        the order of coming

What several people ask for counts for each of them, and is served by the rank of the one who has least: nobody is put
off because somebody else asks for the same. So a person with a thousand things to do delays another one by what that
person does at this moment, and by nothing that still waits.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

People = tuple[str, ...]
"""Who asks: one name for each person, at least one."""

SERVED_MAX: Final = 10_000
"""People whose last turn is remembered: memory must not grow with them. Those who are forgotten come first again."""


class Bounds(NamedTuple):
    """How many places there are, together and for one person."""

    together: int
    person: int


class Ticket:
    """A place in the line, and later the place itself."""

    def __init__(self, number: int, people: People) -> None:
        """It waits."""
        self.number = number
        self.people = people


class FairQueue:
    """Who waits, who holds a place, and who was served when."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: dict[People, dict[Ticket, None]] = {}
        """By who asks: people are compared, not tickets, of which one person may have a thousand."""
        self._held: dict[Ticket, People] = {}
        self._places: Counter[str] = Counter()
        self._served: dict[str, int] = {}
        """By person, when they were served last: a number that grows. The latest people of all."""
        self._joined = 0
        self._calls = 0

    @property
    def held(self) -> int:
        """How many places are held."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """How many tickets wait."""
        return sum(len(tickets) for tickets in self._waiting.values())

    def join(self, people: People) -> Ticket:
        """Wait at the end of the line."""
        self._joined += 1
        ticket = Ticket(self._joined, people)
        self._waiting.setdefault(people, {})[ticket] = None
        return ticket

    def change(self, ticket: Ticket, people: People) -> None:
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
            (*self._rank(people), next(iter(tickets)).number, people)
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

    def _rank(self, people: People) -> tuple[int, int]:
        return min((self._places[person], self._served.get(person, 0)) for person in people)

    def _drop(self, ticket: Ticket) -> bool:
        tickets = self._waiting.get(ticket.people, {})
        if ticket not in tickets:
            return False
        del tickets[ticket]
        if not tickets:
            del self._waiting[ticket.people]
        return True

    def _note_served(self, people: People) -> None:
        self._calls += 1
        for person in people:
            self._served.pop(person, None)
            self._served[person] = self._calls
        while len(self._served) > SERVED_MAX:
            del self._served[next(iter(self._served))]
