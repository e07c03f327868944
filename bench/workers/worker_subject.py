"""What every subject can do, in the words that all of them share.

The measuring code knows only this, so each subject does the same logical work: `append` returns when the messages are
durable by that library's own defaults, `tail` gives the newest messages
decoded, `load` the whole session decoded.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

# A message to append: (id, role, text).
Line = tuple[str, str, str]


class Subject(Protocol):
    """One store under measurement. `home` is a folder of its own."""

    # How many messages one `append` takes; above 1 only for the batched floor.
    group: int
    # How many tasks make sense; 1 for floors, which block and know no tasks.
    tasks_max: int

    async def open(self, home: str) -> dict[str, Any]:
        """Open the store and say what it is: version, durability."""

    async def close(self) -> None:
        """Close the store; closing what is closed does nothing."""

    async def create(self, sessions: list[str]) -> None:
        """Make sure that these sessions exist."""

    async def append(self, session: str, lines: list[Line], *, shared: bool) -> None:
        """Append and wait until durable. `shared`: other tasks of this process are appending too."""

    async def fill(self, session: str, lines: list[Line]) -> None:
        """Append many in the fastest way that the library offers. Never measured."""

    async def tail(self, session: str, count: int) -> int:
        """Read the newest messages in the cheapest way that the library offers; the number of messages read."""

    async def context(self, session: str, count: int) -> int:
        """Read what a turn needs, as the library's own agent reads it; the number of messages read."""

    async def load(self, session: str) -> int:
        """Read the whole session; the number of messages read."""


class AppendsAndLoads:
    """What a subject lacks of which turns are not measured."""

    async def tail(self, session: str, count: int) -> int:
        """Not measured."""
        raise NotImplementedError

    async def context(self, session: str, count: int) -> int:
        """Not measured."""
        raise NotImplementedError


class AppendsOnly(AppendsAndLoads):
    """What a subject lacks of which only appends are measured."""

    async def fill(self, session: str, lines: list[Line]) -> None:
        """Not measured."""
        raise NotImplementedError

    async def load(self, session: str) -> int:
        """Not measured."""
        raise NotImplementedError


class LeasedTurns(Protocol):
    """A subject that knows turns."""

    async def leased_turn(self, session: str, lines: list[Line], count: int) -> int:
        """A user message, a streamed reply in a leased turn, the tail of context."""


class Streaming(Protocol):
    """A subject whose replies can be followed while they grow."""

    async def stream(self, sessions: list[str], pace: "Pace") -> None:
        """Write one reply in each session, all at once, at the given pace."""

    def follow(self, session: str) -> AsyncIterator[str]:
        """The text of the session's replies as it becomes visible, in pieces of any size."""


class Pace(Protocol):
    """When each chunk is due."""

    async def run(self, writes: list[Callable[[str], Awaitable[None]]]) -> None:
        """Call each of these with a stamped chunk, at its time, until the seconds are over."""
