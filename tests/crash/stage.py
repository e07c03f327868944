"""What the scene leaves behind, as the tests of damaged and half-written files expect to find it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hansard import Message, Record, Status, TurnState
from tests.crash.scene import ACCOUNT, CHANNEL, KEY, LEFT, RIGHT, event

Play = Callable[..., Awaitable[list[str]]]
"""`await play(home, last="accept", point="logged")`: the scene is played to its death; returns what it told."""

LEFT_LOG = "sessions/other/left.jsonl"
RIGHT_PART = "sessions/other/right.part"
HOME_LOG = "home.jsonl"
LEFT_TOLD = [("l1", "left 1"), ("l2", "left 2"), ("l3", "left 3"), ("e1", "event 1")]
RIGHT_TOLD = [("r1", "right 1"), ("r2", "right 2"), ("r3", "right 3"), ("spoken", "said and shown")]
RIGHT_TOLD += [("r4", "right 4"), ("r5", "right 5")]


async def told(record: Record, session: str) -> list[tuple[str, str]]:
    """Return the ids and words of a session."""
    return [(message.id, message.text) for message in await record.load_transcript(session)]


async def check_right(record: Record) -> None:
    """The right session is as it was shown; the reply that was being said is interrupted, and its turn lost."""
    assert await told(record, RIGHT) == RIGHT_TOLD
    statuses = {message.id: message.status for message in await record.load_transcript(RIGHT)}
    assert statuses["spoken"] == Status.INTERRUPTED
    assert [turn.state for turn in await record.turns.list(RIGHT)] == [TurnState.LOST]


async def check_home(record: Record) -> None:
    """The route, the cursor and the received event are as they were acknowledged."""
    route = await record.routes.read(KEY)
    assert route is not None
    assert (route.session_id, route.generation) == (LEFT, 1)
    assert await record.intake.cursor(CHANNEL, ACCOUNT) == "1"
    message, intake, cursor = event(1)
    accepted = await record.accept([(LEFT, message)], intake, cursor)
    assert accepted.duplicate


async def check_healthy(record: Record, *sessions: str) -> None:
    """Each of these sessions takes the next word and gives it back, and everything verifies."""
    for session in sessions:
        await record.append(session, Message.user("healthy", id="healthy"))
        assert (await told(record, session))[-1] == ("healthy", "healthy")
    report = await record.verify()
    assert report.findings == []
