"""Who is served next: the person who has least."""

from __future__ import annotations

import random
from collections import Counter

from hansard.tasks import SERVED_MAX, Bounds, FairQueue, Ticket

TWO = Bounds(together=16, person=2)


def served(line: FairQueue, bounds: Bounds) -> list[Ticket]:
    """Call whoever can be called."""
    found: list[Ticket] = []
    while (ticket := line.call(bounds)) is not None:
        found.append(ticket)
    return found


def test_one_person_holds_so_many() -> None:
    """A person has two places; the rest of theirs waits until one is given back."""
    line = FairQueue()
    for _ in range(5):
        line.join(("ann",))
    first = served(line, TWO)
    assert (len(first), line.held, line.waiting) == (2, 2, 3)
    line.leave(first[0])
    assert len(served(line, TWO)) == 1


def test_all_together_hold_so_many() -> None:
    """Sixteen people fill all places; the next is called when one is given back."""
    line = FairQueue()
    tickets = [line.join((f"person {number}",)) for number in range(17)]
    assert served(line, TWO) == tickets[:16]
    line.leave(tickets[5])
    assert served(line, TWO) == [tickets[16]]


def test_who_holds_less_comes_first() -> None:
    """Of people who wait the one with fewer places is called, whoever came first."""
    line, bounds = FairQueue(), Bounds(together=2, person=2)
    running = [line.join(("ann",)), line.join(("ann",))]
    assert served(line, bounds) == running
    line.join(("ann",))
    bob = line.join(("bob",))
    line.leave(running[0])
    assert served(line, bounds) == [bob]


def test_people_are_served_in_turn() -> None:
    """With one place, people alternate, however many tickets each of them has."""
    line, bounds = FairQueue(), Bounds(together=1, person=2)
    for _ in range(20):
        line.join(("ann",))
    for _ in range(3):
        line.join(("bob",))
    order = []
    while (ticket := line.call(bounds)) is not None:
        order.append(ticket.people[0])
        line.leave(ticket)
    assert order[:6] == ["ann", "bob"] * 3
    assert order[6:] == ["ann"] * 17


def test_several_people_are_served_by_the_one_who_has_least() -> None:
    """What two ask for is served although one of them has all their places, and counts for both."""
    line, bounds = FairQueue(), Bounds(together=16, person=1)
    ann = line.join(("ann",))
    assert served(line, bounds) == [ann]
    both = line.join(("ann", "bob"))
    assert served(line, bounds) == [both]
    line.join(("bob",))
    line.leave(ann)
    line.join(("ann",))
    assert served(line, bounds) == []
    line.leave(both)
    assert len(served(line, bounds)) == 2


def test_others_may_ask_for_what_waits() -> None:
    """A ticket keeps its place in the line when another person asks for it, too; one that was called is not changed."""
    line, bounds = FairQueue(), Bounds(together=16, person=1)
    first = line.join(("ann",))
    assert served(line, bounds) == [first]
    waits, later = line.join(("ann",)), line.join(("bob",))
    line.change(waits, ("bob",))
    assert line.call(bounds) is waits
    line.change(first, ("carol",))
    line.leave(first)
    line.leave(waits)
    assert line.call(bounds) is later
    assert (line.held, line.waiting) == (1, 0)


def test_what_is_remembered_is_bounded() -> None:
    """However many people come, the line remembers the latest of them."""
    line = FairQueue()
    for number in range(SERVED_MAX + 100):
        line.leave(line.join((f"person {number}",)))
        ticket = line.join((f"person {number}",))
        assert line.call(TWO) is ticket
        line.leave(ticket)
    assert len(line._served) == SERVED_MAX  # noqa: SLF001 - what must not grow
    assert not line._places  # noqa: SLF001
    assert not line._waiting  # noqa: SLF001


def test_nobody_starves(seed: int) -> None:
    """Whoever comes with nothing running is called before anybody who has a place is called twice more."""
    draw = random.Random(seed)
    line, bounds = FairQueue(), Bounds(together=3, person=2)
    for person in ("ann", "bob", "carol"):
        for _ in range(draw.randint(5, 200)):
            line.join((person,))
    running = served(line, bounds)
    owner = line.join(("owner",))
    calls: Counter[str] = Counter()
    while owner not in running:
        line.leave(running.pop(draw.randrange(len(running))))
        called = served(line, bounds)
        calls.update(ticket.people[0] for ticket in called)
        running += called
    assert calls.total() == 1
