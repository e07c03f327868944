"""Circles of people, against a model of sets: whatever is linked, parted and declared, and rebuilt from the logs."""

from __future__ import annotations

import random
from pathlib import Path

from hansard.domain.people import CIRCLE_MAX
from hansard.domain.settings import Person
from hansard.errors import InvalidInput
from hansard.record.api import Record

STEPS = 120
PEOPLE = [f"person:telegram:{number}" for number in range(1, 11)]
NAMES = ("ann", "bob")


class Sets:
    """The model: linked circles and named ones, and who is one person by both."""

    def __init__(self) -> None:
        """Nobody is linked."""
        self.linked: list[set[str]] = []
        self.named: dict[str, set[str]] = {}

    def circle(self, owner: str) -> set[str]:
        """Return everybody who is one person with somebody."""
        found, size = {owner}, 0
        while len(found) != size:
            size = len(found)
            for each in (*self.linked, *self.named.values()):
                if found & each:
                    found |= each
        return found

    def link(self, one: str, other: str) -> bool:
        """Join two circles; return whether that is allowed."""
        both = self.circle(one) | self.circle(other)
        if sum(bool(both & each) for each in self.named.values()) > 1 or len(both) > CIRCLE_MAX:
            return False
        joined = {one, other}.union(*(each for each in self.linked if each & {one, other}))
        self.linked = [each for each in self.linked if not each & {one, other}] + [joined]
        return True

    def unlink(self, owner: str) -> None:
        """Take somebody, with all that config.toml makes them, out of the linked circles."""
        own = {owner}.union(*(each for each in self.named.values() if owner in each))
        self.linked = [rest for each in self.linked if len(rest := each - own) > 1]

    def declare(self, people: dict[str, Person]) -> None:
        """Take what config.toml says; two names are two people, whoever was linked before."""
        self.named = {
            name: {f"person:{name}", *(f"person:telegram:{number}" for number in person.telegram)}
            for name, person in people.items()
        }
        everybody = set().union(*self.named.values())
        for owner in sorted(everybody):
            circle = self.circle(owner)
            if sum(bool(circle & each) for each in self.named.values()) > 1:
                self.linked = [rest for each in self.linked if len(rest := each - (circle & everybody)) > 1]


def settings_drawn(draw: random.Random) -> dict[str, Person]:
    """Return what config.toml may say: each number belongs to one person at most."""
    numbers = draw.sample(range(1, 11), 4)
    shares = (numbers[: draw.randint(0, 2)], numbers[2 : 2 + draw.randint(0, 2)])
    return {
        name: Person(telegram=tuple(share)) for name, share in zip(NAMES, shares, strict=True) if draw.random() < 0.8
    }


async def check(record: Record, sets: Sets) -> None:
    """Compare everybody's circle."""
    for owner in [*PEOPLE, *(f"person:{name}" for name in NAMES)]:
        assert set(await record.people.circle(owner)) == sets.circle(owner), owner


async def test_circles_are_what_sets_say(home: Path, seed: int) -> None:
    """After each of many random links, partings and changes of the settings, and after a rebuild, circles agree."""
    draw = random.Random(seed)
    sets = Sets()
    async with Record.open(home) as record:
        for _ in range(STEPS):
            one, other = draw.sample(PEOPLE, 2)
            chance = draw.random()
            if chance < 0.55:
                if other not in sets.circle(one):
                    allowed = sets.link(one, other)
                    try:
                        await record.people.link(one, other)
                    except InvalidInput:
                        assert not allowed
                    else:
                        assert allowed
            elif chance < 0.9:
                sets.unlink(one)
                await record.people.unlink(one)
            else:
                people = settings_drawn(draw)
                sets.declare(people)
                await record.people.declare(people)
            await check(record, sets)
        report = await record.verify()
        assert report.ok, report.findings
    for path in home.glob("state.db*"):
        path.unlink()
    async with Record.open(home) as record:
        await check(record, sets)
